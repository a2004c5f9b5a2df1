"""Spans made by hand for phoenix_parity.py: attributes of every type and in every odd form, which captures of real
agents do not have. They are encoded as OTLP here, so that neither side's encoder has a part in it."""
import json
import struct


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def part(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def any_value(value):
    if value is None:
        return b""
    if isinstance(value, str):
        return part(1, value.encode())
    if isinstance(value, bool):
        return b"\x10" + bytes([value])
    if isinstance(value, int):
        return b"\x18" + varint(value)
    if isinstance(value, float):
        return b"\x21" + struct.pack("<d", value)
    if isinstance(value, list):
        return part(5, b"".join(part(1, any_value(item)) for item in value))
    return part(6, b"".join(key_value(1, key, item) for key, item in value.items()))


def key_value(field, key, value):
    return part(field, part(1, key.encode()) + part(2, any_value(value)))


def span(number, name, attributes, parent=None, trace=1, start_us=0, length_us=1000, status=0, message="", events=()):
    start = 1_790_000_000_000_000_000 + start_us * 1000
    body = part(1, trace_id(trace)) + part(2, span_id(number)) + part(5, name.encode())
    body += part(4, span_id(parent)) if parent else b""
    body += b"\x39" + struct.pack("<Q", start) + b"\x41" + struct.pack("<Q", start + length_us * 1000)
    body += b"".join(key_value(9, key, value) for key, value in attributes)
    for event, attributes in events:
        time = b"\x09" + struct.pack("<Q", start)
        body += part(11, time + part(2, event.encode()) + b"".join(key_value(3, key, value) for key, value in attributes))
    return body + part(15, part(2, message.encode()) + b"\x18" + varint(status))


def trace_id(number):
    return bytes.fromhex(f"{0xFEED0000 + number:032x}")


def span_id(number):
    return bytes.fromhex(f"{0xFEED0000 + number:016x}")


def export(spans):
    return part(1, part(2, b"".join(part(2, body) for body in spans)))


def message(role, *parts, **more):
    return {"role": role, "parts": list(parts), **more}


TEXT = {"type": "text", "content": "Grüße"}
MESSAGES = [message("user", TEXT), message("assistant", TEXT, {"type": "reasoning", "content": "hm"}, {"type": "tool_call", "id": "c1", "name": "find", "arguments": {"q": [1.0, "é"]}}),
            message("tool", {"type": "tool_call_response", "id": "c1", "response": {"n": 1e16}}, name="find"),
            message("user", TEXT, TEXT, {"type": "uri", "modality": "image", "uri": "gs://x"}, {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "QUJD"}, {"type": "robot"})]
REPLY = [message("assistant", {"type": "text", "content": 5}, {"type": "tool_call", "name": "find", "arguments": "{}"}, finish_reason="tool_call")]

# Each is the attributes of one span, in order; a key can come twice.
ATTRIBUTES = [
    [("metadata", json.dumps({"topic": "agent", "count": 5, "flag": True, "rate": 0.25, "list": [1, {"a": "b"}], "none": None, "text": "12"}))],
    [("metadata", json.dumps({"topic": "Agent", "count": "7", "flag": "true", "rate": 1 / 3, "text": "12 apples"}))],
    [("metadata", json.dumps({"topic": None, "count": "many", "flag": 0, "rate": -2.5, "text": ""}))],
    [("metadata", json.dumps({"topic": "billing", "count": 3.0, "flag": False, "rate": 1e20, "text": " 3 "}))],
    [("metadata", json.dumps({"count": True, "flag": 1.0, "rate": "0.25", "text": "+3", "nested": {"a": {"b": "c"}}}))],
    [("metadata", {"topic": "agent", "count": 2}), ("metadata.more", "dotted")],
    [("metadata", "not JSON"), ("my_metadata", "[1, 2]"), ("x.document.metadata", "null")],
    [("metadata", 5), ("tool.parameters", '{"a": {"b": [{"c": 1}]}}'), ("llm.prompt_template.variables", '{"x": "ü"}')],
    [("a", 1), ("a.b", 2), ("a.b.c", 3), ("a..d", 4), (" p . q ", 5), ("", "empty"), ("e.", 1), ("z.00.b", 1), ("z.0.c", 2), ("z.-1.c", 3)],
    [("list.0", "x"), ("list.1", "y"), ("tree.0.a", 1), ("tree.2.a", 2), ("tree.1", 3), ("0.x", 1), ("m.0.1.b", 1)],
    [("docs.10.t", "k"), ("docs.9.t", "j"), ("both.0.a", 1), ("both.name", "n"), ("twice", 1), ("twice", 2)],
    [("numbers", [1, 2.5]), ("mixed", ["a", 1, None, {"k": "v"}]), ("map", {"k": {"l": [1, {"m": None}]}}), ("lists", [[1], [{"x": 1}]]), ("none", None), ("void", []), ("hollow", {})],
    [("input.value", {"q": "é", "n": 1.0, "o": [True, None]}), ("output.value", {"kept": 1})],
    [("input.value", 0), ("input.mime_type", "text/plain")],
    [("input.value", [1e16, 1e-7, "\x7f\n"])],
    [("openinference.span.kind", "llm"), ("llm.token_count.prompt", "12"), ("llm.token_count.completion", 7.9), ("llm.token_count.total", "many"), ("llm.model_name", "GPT-4o")],
    [("openinference.span.kind", "LLM"), ("llm.token_count.prompt", 100), ("llm.token_count.completion", 20), ("llm.token_count.total", 120), ("llm.model_name", "gpt-4o-mini")],
    [("openinference.span.kind", "ROBOT"), ("session.id", "s1"), ("user.id", "u")],
    [("openinference.span.kind", "Tool"), ("tool.name", "lookup"), ("custom.attr", "x"), ("my_attr", 4)],
    [("gen_ai.operation.name", "chat"), ("gen_ai.system", "OpenAI"), ("gen_ai.request.model", "gpt-4o"), ("gen_ai.request.temperature", 0.5), ("gen_ai.request.max_tokens", 100),
     ("gen_ai.request.stop_sequences", ["END", "STOP"]), ("gen_ai.output.type", "json"), ("gen_ai.usage.input_tokens", 10), ("gen_ai.usage.output_tokens", "5"),
     ("gen_ai.usage.cache_read.input_tokens", 3.0), ("gen_ai.conversation.id", "c1"), ("gen_ai.response.finish_reasons", ["stop", "length"]), ("gen_ai.response.id", "r1"),
     ("gen_ai.response.model", "gpt-4ö"), ("gen_ai.system_instructions", json.dumps([TEXT, TEXT])), ("gen_ai.input.messages", json.dumps(MESSAGES)),
     ("gen_ai.output.messages", json.dumps(REPLY)), ("gen_ai.tool.definitions", json.dumps([{"name": "find", "parameters": {"type": "object", "p": 1.0}, "description": "é"}, {"type": "mcp", "name": "x", "extra": 1}]))],
    [("gen_ai.operation.name", "chat"), ("gen_ai.provider.name", "aws.bedrock"), ("gen_ai.output.messages", json.dumps(REPLY)), ("llm.output_messages.1.message.role", "own"), ("gen_ai.response.finish_reasons", "stop")],
    [("gen_ai.input.messages", json.dumps([message("user", {"content": "no type"})])), ("gen_ai.output.messages", json.dumps([message("assistant", TEXT)])), ("gen_ai.provider.name", "Somebody")],
    [("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", "find"), ("gen_ai.tool.call.id", "c1"), ("gen_ai.tool.description", ""), ("gen_ai.tool.call.arguments", '{"q": 1}'), ("gen_ai.tool.call.result", '["é"]')],
    [("gen_ai.tool.name", "find"), ("gen_ai.tool.call.arguments", "not JSON"), ("gen_ai.tool.call.result", {"n": 1.5})],
    [("gen_ai.tool.name", "find"), ("gen_ai.tool.call.arguments", [1, 2]), ("gen_ai.tool.call.result", "text")],
    [("gen_ai.retrieval.query.text", "lamps"), ("gen_ai.retrieval.documents", json.dumps([{"id": "d", "score": 1, "content": {"a": 1}, "metadata": {"m": 1}}, {"id": "", "score": "0.5", "metadata": "text"}]))],
    [("gen_ai.embeddings.dimension.count", 3), ("gen_ai.request.model", "emb"), ("gen_ai.request.encoding_formats", ["float"]), ("gen_ai.request.seed", 7)],
    [("gen_ai.operation.name", "invoke_agent"), ("gen_ai.agent.name", "a"), ("gen_ai.usage.input_tokens", True), ("gen_ai.usage.output_tokens", 1.5)],
    [("gen_ai.operation.name", "invoke_workflow"), ("gen_ai.request.model", ""), ("gen_ai.request.stream", True), ("gen_ai.output.type", "text")],
]

EXCEPTION = ("exception", [("exception.type", "ValueError"), ("exception.stacktrace", "…"), ("other", 1)])


def requests():
    """One request for all of them, in trees of four, some with a parent that was never sent."""
    spans = []
    for index, attributes in enumerate(ATTRIBUTES):
        number, place = index + 1, index % 4
        parent = {0: None, 1: number - 1, 2: number - 2, 3: 9999}[place]
        status, text = [(0, ""), (1, ""), (2, "Timeout: tried 3 times"), (2, "")][place]
        events = [EXCEPTION, ("note", [("k", [1, 2]), ("m", {"a": None})])] if place == 2 else []
        spans.append(span(number, f"Step {index} Straße {'retry' if index % 3 else 'LOOKUP'}", attributes, parent, trace=index // 4 + 1,
                          start_us=index * 1_000_003, length_us=(index + 1) * 12_345, status=status, message=text, events=events))
    return [export(spans)]
