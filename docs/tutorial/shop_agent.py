"""A support agent for a shop, in two versions. It needs nothing but Python.

A real agent asks a language model which tool to call. Here a seeded random number plays the model: like a model, the
agent does not always do the same. SHOP_SEED draws other numbers, and SHOP_VERSION chooses the version. Version 2 has a fault: in one of three trials it
refunds an order without looking it up, and takes an order number from nowhere.

Spans are sent as OTLP JSON to OTEL_EXPORTER_OTLP_ENDPOINT, with OpenInference attribute names.
"""

import json
import os
import random
import sys
import time
import urllib.request

VERSION = os.environ.get("SHOP_VERSION", "1")
REQUEST = sys.stdin.read().strip()
ORDER = int("".join(letter for letter in REQUEST if letter.isdigit()))
CHANCE = random.Random(" ".join([REQUEST, os.environ.get("GRADUS_TRIAL", "0"), os.environ.get("SHOP_SEED", "")]))
SCHEMA = {"type": "object", "properties": {"order_id": {"type": "integer"}}, "required": ["order_id"]}
TOOLS = [{"type": "function", "function": {"name": name, "description": about, "parameters": SCHEMA}}
         for name, about in [("get_order", "Looks up an order."), ("refund_order", "Pays the amount of an order back.")]]
SPANS = []


def add_span(name, parent, attributes):
    now = time.time_ns()
    span_id = f"{len(SPANS) + 1:016x}"
    fields = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    SPANS.append({"traceId": TRACE, "spanId": span_id, "parentSpanId": parent, "name": name, "kind": 1,
                  "startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 1_000_000), "attributes": fields})
    return span_id


def ask_model(thought, tool=None, arguments=None):
    attributes = {"openinference.span.kind": "LLM", "llm.model_name": "scripted",
                  "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": REQUEST,
                  "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": thought}
    for at, schema in enumerate(TOOLS):
        attributes[f"llm.tools.{at}.tool.json_schema"] = json.dumps(schema)
    if tool:
        call = "llm.output_messages.0.message.tool_calls.0.tool_call"
        attributes[f"{call}.function.name"] = tool
        attributes[f"{call}.function.arguments"] = json.dumps(arguments)
    add_span("chat", ROOT, attributes)


def call_tool(thought, tool, order):
    ask_model(thought, tool, {"order_id": order})
    result = {"order_id": order, "state": "refunded" if tool == "refund_order" else "shipped"}
    add_span(tool, ROOT, {"openinference.span.kind": "TOOL", "tool.name": tool,
                          "input.value": json.dumps({"order_id": order}), "output.value": json.dumps(result)})


TRACE = f"{random.getrandbits(128):032x}"
ROOT = f"{10**9:016x}"
is_careless = VERSION == "2" and CHANCE.random() < 1 / 3
if not is_careless:
    call_tool(f"I look up order {ORDER} first.", "get_order", ORDER)
    if CHANCE.random() < 0.1:
        call_tool("I look at it once more.", "get_order", ORDER)
refunded = CHANCE.randrange(5000, 9999) if is_careless else ORDER
call_tool("The order can be refunded.", "refund_order", refunded)
answer = f"I refunded order {ORDER}."
ask_model(answer)
add_span("agent", "", {"openinference.span.kind": "AGENT", "input.value": REQUEST, "output.value": answer})
SPANS[-1]["spanId"] = ROOT
resource = [{"key": "service.name", "value": {"stringValue": "shop"}},
            {"key": "service.version", "value": {"stringValue": f"{VERSION}.0"}}]
export = {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"spans": SPANS}]}]}
if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
    url = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].rstrip("/") + "/v1/traces"
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(export).encode(), {"content-type": "application/json"}))
print(answer)
