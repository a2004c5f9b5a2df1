"""Traces that are large or grow: many spans in one, chains, stars, one span a request, many traces tied together."""
import gzip
import itertools
import struct
import threading

from collecting.spans import part

from . import wire
from .target import GZIP, PROTOBUF

A_REQUEST = 50_000
START_NS = 1_763_000_000_000_000_000


def number_id(number):
    """Span ids in order, so that a chain can name its parents without a table."""
    return struct.pack(">Q", number + 1)


def tool_spans(trace, numbers):
    """Children of the first span, each as small as a span can be."""
    kind = {"openinference.span.kind": "TOOL", "tool.name": "t"}
    return [wire.encode_span(trace, number_id(number), "c", kind if number else {"openinference.span.kind": "AGENT"},
                             number_id(0) if number else b"", START_NS + number * 1000, START_NS + number * 1000 + 500) for number in numbers]


def chain_spans(trace, numbers):
    """Each is the child of the one before."""
    return [wire.encode_span(trace, number_id(number), "c", {"openinference.span.kind": ("AGENT", "LLM", "CHAIN", "TOOL")[number % 4], "tool.name": "t"},
                             number_id(number - 1) if number else b"", START_NS + number * 1000, START_NS + 10**12 - number * 1000) for number in numbers]


def model_spans(trace, numbers):
    """Model calls and tool runs in turn, with texts that look like steps."""
    return [wire.encode_span(trace, number_id(number), "c", {"openinference.span.kind": ("LLM" if number % 2 else "TOOL") if number else "AGENT", "tool.name": "t",
                             "input.value": f"q{number}", "output.value": "Thought: x\nAction: t\nAction Input: {}"}, number_id(0) if number else b"",
                             START_NS + number * 1_000_000, START_NS + number * 1_000_000 + 500) for number in numbers]


def same_times(trace, numbers):
    """All of them run at the same time and call the same tool with the same id."""
    return [wire.encode_span(trace, number_id(number), "c", {"openinference.span.kind": "TOOL" if number else "AGENT", "tool.name": "t", "tool_call.id": "call"},
                             number_id(0) if number else b"", START_NS, START_NS + 1) for number in numbers]


def send_large_traces(target, make_spans):
    """A whole large trace, then another, until the attack is stopped. The bodies are prepared; each trace has an id of its own."""
    size, marker = target.sizes.spans, wire.new_trace_id()
    ranges = [range(at, min(at + A_REQUEST, size)) for at in range(0, size, A_REQUEST)]
    bodies = [(wire.encode_export(make_spans(marker, numbers), target.project), len(numbers)) for numbers in ranges]
    yield
    while not target.stop.is_set():
        trace = wire.new_trace_id()
        for body, count in bodies:
            target.send_until_taken("/v1/traces", gzip.compress(body.replace(marker, trace), 1), {**PROTOBUF, **GZIP}, count)
        target.stop.wait(5)


def attack_tools(target):
    return send_large_traces(target, tool_spans)


def attack_chain(target):
    return send_large_traces(target, chain_spans)


def attack_models(target):
    return send_large_traces(target, model_spans)


def attack_same_times(target):
    return send_large_traces(target, same_times)


def attack_drip(target):
    """One more span every few hundred milliseconds for traces that are large already."""
    size, marker = target.sizes.dripped, wire.new_trace_id()
    body = wire.encode_export(model_spans(marker, range(size)), target.project)
    next_number = itertools.count(size)
    yield
    traces = [wire.new_trace_id() for _ in range(3)]
    for trace in traces:
        target.send("/v1/traces", gzip.compress(body.replace(marker, trace), 1), {**PROTOBUF, **GZIP}, size)
    while not target.stop.is_set():
        for trace in traces:
            target.send("/v1/traces", wire.encode_export(model_spans(trace, [next(next_number)]), target.project), PROTOBUF, 1)
        target.stop.wait(0.3)


def attack_sessions(target):
    """Thousands of one-call traces of one session, so that they are tied to one conversation; some repeat a growing message list."""
    numbers, history = itertools.count(), [f"question {number}" for number in range(40)]
    lock = threading.Lock()
    yield

    def call(number):
        trace = wire.new_trace_id()
        values = {"openinference.span.kind": "LLM", "session.id": f"session-{number % 3}", "llm.model_name": "m", "output.value": "yes"}
        for at, text in enumerate(history[:number % 40 + 1]):
            values[f"llm.input_messages.{at}.message.role"] = "user"
            values[f"llm.input_messages.{at}.message.content"] = text
        return wire.encode_span(trace, wire.new_span_id(), "chat", values)

    def send(_):
        with lock:
            batch = [next(numbers) for _ in range(200)]
        body = wire.encode_export([call(number) for number in batch], target.project)
        target.send("/v1/traces", gzip.compress(body, 1), {**PROTOBUF, **GZIP}, len(batch))
        target.stop.wait(0.2)

    target.run_threads(2, send)


def attack_message_links(target):
    """LLM root spans without a session, each with 64 KB of messages in list form, 320 a request. Links of one request (256) and
    JSON values of one attribute should bound what linking costs."""
    pairs = ",".join(["""["user","a"],["ai","b"]"""] * (64_000 // 24))
    numbers = itertools.count()
    fixed = {"openinference.span.kind": "LLM", "llm.model_name": "m", "output.value": "yes"}
    yield

    def send(_):
        spans = [wire.encode_span(wire.new_trace_id(), wire.new_span_id(), "chat", {**fixed, "llm.input_messages": f'[{pairs},["user","{next(numbers)}"]]'})
                 for _ in range(target.sizes.linked_spans)]
        target.send("/v1/traces", gzip.compress(wire.encode_export(spans, target.project), 1), {**PROTOBUF, **GZIP}, len(spans))

    target.run_threads(2, send)


def send_projects(target, traces, spans):
    """Traces of so many spans, each in a project of its own. They are not counted as acknowledged: that goes by the attacker's project."""
    number_width, trace, numbers = 10, wire.new_trace_id(), itertools.count()
    children = b"".join(part(2, span) for span in tool_spans(trace, range(spans)))
    resource = lambda number: part(1, wire.project_attribute(f"{target.project}-{number:0{number_width}}"))
    yield

    def send(_):
        body = b"".join(part(1, resource(next(numbers)) + part(2, children.replace(trace, wire.new_trace_id()))) for _ in range(traces))
        target.send("/v1/traces", gzip.compress(body, 1), {**PROTOBUF, **GZIP}, 0)

    target.run_threads(2, send)


def attack_project_names(target):
    """A new project for each of thousands of small traces. The limit of 10,000 projects should hold, and the overview stay fast."""
    return send_projects(target, target.sizes.small_projects, 2)


def attack_large_projects(target):
    """A new project for each trace of 3,001 spans, which is just above what counts as small. One large trace at a time should be
    assembled, whatever its project."""
    return send_projects(target, target.sizes.large_projects, 3_001)


CLOCKS = [0, 1, 10**9, 2**63 - 1, 2**63, 2**64 - 1, 7_000_000_000 * 10**9, -1, 253_402_300_800 * 10**9]


def attack_clocks(target):
    """Times that no clock shows: zero, the far future, an end before the beginning, an overflow."""
    pairs = list(itertools.product(CLOCKS, CLOCKS))
    turns = itertools.cycle(pairs)
    yield

    def send(_):
        spans = []
        for start, end in itertools.islice(turns, 20):
            trace, root = wire.new_trace_id(), wire.new_span_id()
            spans.append(wire.encode_span(trace, root, "agent", {"openinference.span.kind": "AGENT", "input.value": "q"}, b"", start, end))
            spans.append(wire.encode_span(trace, wire.new_span_id(), "t", {"openinference.span.kind": "TOOL", "tool.name": "t"}, root, end, start))
        # Times outside of what is stored may be refused in part, so nothing is counted as acknowledged.
        target.send("/v1/traces", wire.encode_export(spans, target.project), PROTOBUF, 0)
        target.stop.wait(0.1)

    target.run_threads(2, send)
