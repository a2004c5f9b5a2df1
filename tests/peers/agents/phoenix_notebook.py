"""A notebook's worth of work with Phoenix's packages, as a script: trace an agent, look at what it thought and did, classify
each step, log what came of it, and read it back. It knows nothing of the server but its address, which Phoenix's own variables
tell (PHOENIX_COLLECTOR_ENDPOINT, PHOENIX_GRPC_PORT, PHOENIX_PROJECT_NAME).

  MODEL_URL=... phoenix_notebook.py FOLDER QUERY...     writes the data frames it made to FOLDER
"""
import asyncio
import os
import pathlib
import sys
import time

from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from phoenix.client import Client
from phoenix.client.types.spans import SpanQuery
from phoenix.otel import register

OUT, QUERIES = pathlib.Path(sys.argv[1]), sys.argv[2:]
PROJECT = os.environ["PHOENIX_PROJECT_NAME"]

# 1. Trace the agent.
provider = register(batch=True, verbose=False)
LlamaIndexInstrumentor().instrument(tracer_provider=provider)


def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return f"{article}: 12 in stock"


async def work():
    llm = OpenAI(model="gpt-4o", api_base=os.environ["MODEL_URL"], api_key="none")
    agent = ReActAgent(tools=[FunctionTool.from_defaults(get_stock)], llm=llm, streaming=False)
    for query in QUERIES:
        await agent.run(user_msg=query)


asyncio.run(work())
provider.force_flush()
provider.shutdown()

# 2. Look at what it did.
client = Client()
query = SpanQuery().where("span_kind == 'LLM' and 'gpt' in llm.model_name").select("input.value", "output.value", "llm.model_name", "llm.output_messages")
for _ in range(1000):
    calls = client.spans.get_spans_dataframe(query=query, project_identifier=PROJECT)
    tools = client.spans.get_spans_dataframe(query=SpanQuery().where("span_kind == 'TOOL'"), project_identifier=PROJECT)
    if len(calls) >= int(os.environ["MODEL_CALLS"]):
        break
    time.sleep(0.2)  # Phoenix stores spans a little after they came.

# 3. Classify each step: did the model act as it thought?
said = calls["llm.output_messages"].map(lambda messages: messages[0]["message"]["content"])
calls["label"] = ["correct" if "Action: get_stock" in text or "Answer:" in text else "incorrect" for text in said]
calls["score"] = (calls["label"] == "correct").astype(float)
calls["explanation"] = said.str.split("\n").str[0]

# 4. Log it, and read it back.
client.spans.log_span_annotations_dataframe(dataframe=calls[["label", "score", "explanation"]], annotation_name="Tool Calling Eval", annotator_kind="LLM", sync=True)
logged = client.spans.get_span_annotations_dataframe(span_ids=list(calls.index), project_identifier=PROJECT)
wrong = client.spans.get_spans_dataframe(query=SpanQuery().where("annotations['Tool Calling Eval'].label == 'incorrect'"), project_identifier=PROJECT)
for name, frame in {"calls": calls, "tools": tools, "logged": logged, "wrong": wrong}.items():
    print(f"--- {name}: {len(frame)} rows\n{frame.to_string(max_colwidth=60)}")
    frame.reset_index(names=[f"index.{level}" for level in frame.index.names]).to_json(OUT / f"{name}.json", orient="records", date_format="iso")
