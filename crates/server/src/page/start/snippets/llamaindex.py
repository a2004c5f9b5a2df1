# pip install llama-index-core llama-index-llms-openai openinference-instrumentation-llama-index opentelemetry-exporter-otlp-proto-http
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

provider = TracerProvider(resource=Resource.create({"service.name": "my-agent"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter("__ENDPOINT__/v1/traces"__KEY_ARGUMENT__)))
LlamaIndexInstrumentor().instrument(tracer_provider=provider)

# Your agent starts here. This one is an example.
import asyncio

from llama_index.core.agent.workflow import ReActAgent
from llama_index.llms.openai import OpenAI


def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return f"{article}: 12 in stock"


async def main():
    agent = ReActAgent(tools=[get_stock], llm=OpenAI(model="gpt-4o"), streaming=False)
    print(await agent.run("How many lamps are there?"))


asyncio.run(main())
