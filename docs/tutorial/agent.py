"""A small support agent for a shop, traced with OpenTelemetry.

A real agent asks a language model which tool to call. Here `decide` plays the model, so that the tutorial needs no key
and gives the same result every time. The spans are what an instrumented agent sends: one AGENT span for each request,
one LLM span for each question to the model and one TOOL span for each call, with OpenInference attribute names.

Spans go to the file traces.bin, or to OTEL_EXPORTER_OTLP_ENDPOINT if that variable is set.
"""

import json
import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

ORDERS = {number: {"state": "shipped", "paid": f"{number % 90 + 10}.00 EUR"} for number in range(1001, 1041)}

TOOLS = {
    "get_order": "Looks up an order: its state and the amount that was paid.",
    "refund_order": "Pays the amount of an order back to the customer.",
    "cancel_order": "Cancels an order that has not been shipped yet.",
}

SESSION = {}


def order_to_refund(number):
    # The mistake that the tutorial finds: the session keeps the first order, so every later refund goes to it.
    return SESSION.setdefault("order_id", number)


def tool_schema(name):
    """The tool as the model sees it, in OpenAI's form."""
    parameters = {"type": "object", "properties": {"order_id": {"type": "integer"}}, "required": ["order_id"]}
    return {"type": "function", "function": {"name": name, "description": TOOLS[name], "parameters": parameters}}


def decide(request, number, observations):
    """What a model would answer: (thought, tool, arguments), or (final answer, None, None)."""
    if not observations:
        return f"I look up order {number} to see its state and the amount paid.", "get_order", {"order_id": number}
    order = observations[0]
    if "refund" not in request.lower():
        return f"Order {number} is {order['state']}.", None, None
    if len(observations) == 1:
        thought = f"The customer paid {order['paid']}. I refund order {number} now."
        return thought, "refund_order", {"order_id": order_to_refund(number)}
    return f"I refunded {order['paid']} for order {number}.", None, None


def call_tool(name, arguments):
    order = ORDERS[arguments["order_id"]]
    if name == "refund_order":
        order["state"] = "refunded"
    elif name == "cancel_order":
        order["state"] = "cancelled"
    return dict(order)


def answer(tracer, request, number):
    """One request to the agent, from question to answer."""
    messages = [{"role": "user", "content": request}]
    observations = []
    with tracer.start_as_current_span("support_agent") as root:
        root.set_attributes({"openinference.span.kind": "AGENT", "input.value": request})
        while True:
            with tracer.start_as_current_span("chat") as span:
                span.set_attributes({"openinference.span.kind": "LLM", "llm.model_name": "scripted"})
                for index, name in enumerate(TOOLS):
                    span.set_attribute(f"llm.tools.{index}.tool.json_schema", json.dumps(tool_schema(name)))
                for index, message in enumerate(messages):
                    record_message(span, f"llm.input_messages.{index}.message", message)
                text, tool, arguments = decide(request, number, observations)
                reply = {"role": "assistant", "content": text}
                if tool:
                    reply["call"] = {"id": f"call_{number}_{len(observations)}", "name": tool, "arguments": arguments}
                record_message(span, "llm.output_messages.0.message", reply)
            messages.append(reply)
            if not tool:
                root.set_attribute("output.value", text)
                return text
            with tracer.start_as_current_span(tool) as span:
                result = call_tool(tool, arguments)
                observations.append(result)
                span.set_attributes({
                    "openinference.span.kind": "TOOL",
                    "tool.name": tool,
                    "input.value": json.dumps(arguments),
                    "output.value": json.dumps(result),
                })
            messages.append({"role": "tool", "content": json.dumps(result), "call_id": reply["call"]["id"]})


def record_message(span, prefix, message):
    span.set_attributes({f"{prefix}.role": message["role"], f"{prefix}.content": message["content"]})
    if "call_id" in message:
        span.set_attribute(f"{prefix}.tool_call_id", message["call_id"])
    if "call" in message:
        call = f"{prefix}.tool_calls.0.tool_call"
        span.set_attributes({
            f"{call}.id": message["call"]["id"],
            f"{call}.function.name": message["call"]["name"],
            f"{call}.function.arguments": json.dumps(message["call"]["arguments"]),
        })


class FileExporter(SpanExporter):
    """Appends OTLP export requests to a file. Requests one after another are one valid OTLP message."""

    def __init__(self, path):
        self.file = open(path, "wb")

    def export(self, spans):
        self.file.write(encode_spans(spans).SerializeToString())
        return SpanExportResult.SUCCESS

    def shutdown(self):
        self.file.close()


def main():
    sends = "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter() if sends else FileExporter("traces.bin")))
    tracer = trace.get_tracer("support_agent", tracer_provider=provider)
    for number in ORDERS:
        request = f"Please refund order {number}." if number % 2 else f"Where is order {number}?"
        answer(tracer, request, number)
    provider.shutdown()
    print(f"{len(ORDERS)} requests answered, spans sent" if sends else f"{len(ORDERS)} requests answered, spans in traces.bin")


main()
