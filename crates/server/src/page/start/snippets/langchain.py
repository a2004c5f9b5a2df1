# pip install langchain langchain-openai openinference-instrumentation-langchain opentelemetry-exporter-otlp-proto-http
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from openinference.instrumentation.langchain import LangChainInstrumentor

provider = TracerProvider(resource=Resource.create({"service.name": "my-agent"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter("__ENDPOINT__/v1/traces"__KEY_ARGUMENT__)))
LangChainInstrumentor().instrument(tracer_provider=provider)

# Your agent starts here. This one is an example.
from langchain.agents import create_agent


def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return f"{article}: 12 in stock"


agent = create_agent("openai:gpt-4o", [get_stock])
answer = agent.invoke({"messages": [{"role": "user", "content": "How many lamps are there?"}]})
print(answer["messages"][-1].content)
