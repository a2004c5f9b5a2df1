"""A pydantic-ai agent with its own OpenTelemetry tracing (GenAI conventions)."""
import os
import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=os.environ["MODEL_URL"], api_key="none"))
agent = Agent(model, name="shop_agent", instructions="You are a shop assistant.")


@agent.tool_plain
def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return f"{article}: 12 in stock"


for query in sys.argv[1:]:
    agent.run_sync(query)
provider.shutdown()
