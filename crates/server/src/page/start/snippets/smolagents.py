# pip install smolagents[openai] openinference-instrumentation-smolagents opentelemetry-exporter-otlp-proto-http
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from openinference.instrumentation.smolagents import SmolagentsInstrumentor

provider = TracerProvider(resource=Resource.create({"service.name": "my-agent"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter("__ENDPOINT__/v1/traces"__KEY_ARGUMENT__)))
SmolagentsInstrumentor().instrument(tracer_provider=provider)

# Your agent starts here. This one is an example.
from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def get_stock(article: str) -> str:
    """How many of an article are in stock.

    Args:
        article: Its name.
    """
    return f"{article}: 12 in stock"


agent = ToolCallingAgent(tools=[get_stock], model=OpenAIModel(model_id="gpt-4o"))
print(agent.run("How many lamps are there?"))
