"""A GitHub agent: LlamaIndex, ReAct, traced with OpenInference.

  python llamaindex_agent.py "Which repositories do I have?"
"""
import asyncio
import os
import sys

from llama_index.core.agent.workflow import ReActAgent
from llama_index.llms.openai import OpenAI
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

from github_tools import TOOLS
from tracing import tracer_provider

provider = tracer_provider("github-agent")
LlamaIndexInstrumentor().instrument(tracer_provider=provider)


async def main(requests: list[str]) -> None:
    llm = OpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4o"), api_base=os.environ.get("OPENAI_BASE_URL"))
    agent = ReActAgent(tools=TOOLS, llm=llm, streaming=False)
    for request in requests:
        print(await agent.run(request))


asyncio.run(main(sys.argv[1:]))
provider.shutdown()
