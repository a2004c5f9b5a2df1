"""An agent of the OpenAI Agents SDK, traced by OpenInference: the request is on standard input, the answer is printed."""
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider, exclusive_processor=True)


@function_tool
def get_stock(article: str) -> str:
    """How many of an article are in stock."""
    return f"{article}: 12 in stock"


client = AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key="none")
agent = Agent(name="shop", tools=[get_stock], model=OpenAIChatCompletionsModel(model="gpt-4o", openai_client=client))
print(Runner.run_sync(agent, sys.stdin.read()).final_output)
provider.shutdown()
