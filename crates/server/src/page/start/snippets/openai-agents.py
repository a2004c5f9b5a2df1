# pip install openai-agents openinference-instrumentation-openai-agents opentelemetry-exporter-otlp-proto-http
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

provider = TracerProvider(resource=Resource.create({"service.name": "my-agent"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter("__ENDPOINT__/v1/traces"__KEY_ARGUMENT__)))
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)

# Your agent starts here. This one is an example.
from agents import Agent, Runner, function_tool


@function_tool
def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return f"{article}: 12 in stock"


agent = Agent(name="shop", model="gpt-4o", tools=[get_stock])
print(Runner.run_sync(agent, "How many lamps are there?").final_output)
