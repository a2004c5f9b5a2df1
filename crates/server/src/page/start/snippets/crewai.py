# pip install crewai openinference-instrumentation-crewai opentelemetry-exporter-otlp-proto-http
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from openinference.instrumentation.crewai import CrewAIInstrumentor

provider = TracerProvider(resource=Resource.create({"service.name": "my-agent"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter("__ENDPOINT__/v1/traces"__KEY_ARGUMENT__)))
CrewAIInstrumentor().instrument(tracer_provider=provider)

# Your agent starts here. This one is an example.
from crewai import Agent, Crew, Task
from crewai.tools import tool


@tool("get_stock")
def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return f"{article}: 12 in stock"


agent = Agent(role="shop", goal="Answer questions about the stock.", backstory="You work in a shop.", llm="gpt-4o", tools=[get_stock])
task = Task(description="How many lamps are there?", expected_output="One sentence.", agent=agent)
print(Crew(agents=[agent], tasks=[task]).kickoff())
