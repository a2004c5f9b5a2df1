"""LlamaIndex's ReAct agent, traced by OpenInference over OTLP: HTTP, or gRPC when OTEL_EXPORTER_OTLP_PROTOCOL says so."""
import asyncio
import os
import sys

from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

if os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
else:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
LlamaIndexInstrumentor().instrument(tracer_provider=provider)


def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    if article == "unicorn":
        raise ValueError("no such article: unicorn")
    return f"{article}: 12 in stock"


async def main():
    llm = OpenAI(model="gpt-4o", api_base=os.environ["MODEL_URL"], api_key="none")
    agent = ReActAgent(tools=[FunctionTool.from_defaults(get_stock)], llm=llm, streaming=False)
    for query in sys.argv[1:]:
        await agent.run(user_msg=query)


asyncio.run(main())
provider.shutdown()
