"""Traces of a small agent as OTLP JSON exports, for tests and measurements of archives: each trace is an agent that looks
something up and answers. Every export holds spans of several traces, and every trace is spread over two exports."""
import hashlib
import json

TOOLS = json.dumps([{"type": "function", "function": {"name": "get_stock", "description": "How many there are of an article.", "parameters": {"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}}}])
BEGIN_NS = 1_794_873_600_000_000_000  # 2026-11-17T00:00:00Z
DAY_NS = 86_400_000_000_000


def make_spans(number, steps=1, padding=0, days=1):
    """The spans of one trace. Every fifth run calls a tool that fails, every seventh one with wrong arguments."""
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    trace, root = digest[:32], digest[32:48]
    begin = BEGIN_NS + (number % days) * DAY_NS + number * 1_000_000
    article = f"lamp {number}"
    question = f"How many of {article} are there?" + " Please look carefully." * padding

    def span(span_id, parent, name, at, attributes, failed=False):
        return {
            "traceId": trace, "spanId": span_id, **({"parentSpanId": parent} if parent else {}), "name": name, "kind": 1, "startTimeUnixNano": str(begin + at), "endTimeUnixNano": str(begin + at + 900_000),
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()], "status": {"code": 2, "message": "no such article"} if failed else {"code": 1},
        }  # fmt: skip

    spans = [span(root, None, "agent", 0, {"openinference.span.kind": "AGENT", "input.value": question, "output.value": f"There are {number} of {article}."})]
    messages = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": question}
    for step in range(steps):
        arguments = json.dumps({"item": article} if number % 7 == 0 else {"article": article})
        result = "error: no such article" if number % 5 == 0 else json.dumps({"article": article, "in_stock": number})
        call = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-4o", "llm.tools.0.tool.json_schema": json.dumps(json.loads(TOOLS)[0]), **messages}
        call["llm.output_messages.0.message.role"] = "assistant"
        call["llm.output_messages.0.message.content"] = f"Thought {step}: I look up how many of {article} there are."
        call["llm.output_messages.0.message.tool_calls.0.tool_call.id"] = f"call_{step}"
        call["llm.output_messages.0.message.tool_calls.0.tool_call.function.name"] = "get_stock"
        call["llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments"] = arguments
        ids = hashlib.sha256(f"{number} {step}".encode()).hexdigest()
        spans.append(span(ids[:16], root, "llm", (2 * step + 1) * 1_000_000, call))
        spans.append(span(ids[16:32], root, "get_stock", (2 * step + 2) * 1_000_000, {"openinference.span.kind": "TOOL", "tool.name": "get_stock", "input.value": arguments, "output.value": result}, failed=number % 5 == 0))
    return spans


def make_export(spans):
    return {"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}, "scopeSpans": [{"scope": {"name": "archive"}, "spans": spans}]}]}


def make_exports(traces, together=4, first=0, **how):
    """Exports as JSON texts. Spans of a trace are in the export of its group and in the next one."""
    late = []
    for begin in range(first, first + traces, together):
        spans = late
        late = []
        for number in range(begin, min(begin + together, first + traces)):
            made = make_spans(number, **how)
            spans = spans + made[:-1]
            late.append(made[-1])
        yield json.dumps(make_export(spans))
    if late:
        yield json.dumps(make_export(late))
