"""A support agent for a shop: the request is on standard input, the answer is printed."""
import os
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

ORDERS = {7: "shipped", 8: "delivered", 9: "refunded"}
INSTRUCTIONS = """\
You are the support agent of a shop.
Look an order up before you refund it.
Refund only orders that were delivered.
"""


@function_tool
def get_order(order_id: int) -> str:
    """Look up the state of an order."""
    return ORDERS.get(order_id, "there is no such order")


@function_tool
def refund_order(order_id: int) -> str:
    """Pay the amount of an order back to the customer."""
    ORDERS[order_id] = "refunded"
    return f"order {order_id} was refunded"


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider, exclusive_processor=True)
set_default_openai_api("chat_completions")

model = os.environ.get("OPENAI_MODEL", "gpt-4o")
agent = Agent(name="support", instructions=INSTRUCTIONS, tools=[get_order, refund_order], model=model)
print(Runner.run_sync(agent, sys.stdin.read()).final_output)
provider.shutdown()
