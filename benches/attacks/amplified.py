"""Small requests that become large: values that are copied for each span, empty values, texts that grow in answers."""
import base64
import gzip
import itertools
import os
import struct

from collecting.spans import attribute, part

from . import traces, wire
from .target import GZIP, PROTOBUF

HEADERS = {**PROTOBUF, **GZIP}
# Attributes of one span or log record that are allowed.
MAX_ATTRIBUTES = 65_536
RESOURCE_BYTES, RANDOM_RESOURCE_BYTES = 300_000, 330_000
VERSION_BYTES, NAME_BYTES = 3_500_000, 3_000_000


def send_traces(target, makers, threads=2):
    """Sends (body, span count) of each maker in turn."""
    turns = itertools.count()

    def send(_):
        body, count = makers[next(turns) % len(makers)]()
        target.send("/v1/traces", gzip.compress(body, 1), HEADERS, count)

    target.run_threads(threads, send)


def attack_resource_copies(target):
    """One large resource and thousands of scopes with one tiny span each, in one trace and in as many traces (490 KB, 17 KB as
    gzip). A resource should be stored and counted once, not for each span or trace: the memory budget should hold."""
    copies, project = target.sizes.copies, wire.project_attribute(target.project)
    repeated = project + attribute("service.version", "v" * RESOURCE_BYTES, 1)
    random = project + attribute("service.version", base64.b64encode(os.urandom(RANDOM_RESOURCE_BYTES * 3 // 4)).decode(), 1)
    tiny = lambda trace, number: part(1, trace) + part(2, traces.number_id(number))
    marker = wire.new_trace_id()
    one_trace = wire.encode_resource_spans(repeated, [[tiny(marker, number)] for number in range(copies)])

    def many_traces(count):
        return wire.encode_resource_spans(random, [[tiny(wire.new_trace_id(), number)] for number in range(count)]), count

    yield
    # So many traces may be refused whole, a quarter of them may not.
    makers = [lambda: (one_trace.replace(marker, wire.new_trace_id()), copies), lambda: many_traces(copies), lambda: many_traces(copies // 4)]
    send_traces(target, makers, target.sizes.senders)


def attack_shared_names(target):
    """A service version of 3.5 MB over 2,900 root tool spans, and a tool span whose name of 3 MB its nameless children inherit.
    What is shared should not be copied for each step: the memory of assembly should stay in proportion to the request."""
    siblings, marker = target.sizes.siblings, wire.new_trace_id()
    kind = {"openinference.span.kind": "TOOL"}
    span = lambda number, name, parent=b"": wire.encode_span(marker, traces.number_id(number), name, kind, parent)
    version = wire.project_attribute(target.project) + attribute("service.version", "v" * VERSION_BYTES, 1)
    roots = wire.encode_resource_spans(version, [[span(number, "t") for number in range(siblings)]])
    children = [span(number, "", traces.number_id(0)) for number in range(1, siblings + 1)]
    named = wire.encode_export([span(0, "x " * (NAME_BYTES // 2)), *children], target.project)
    yield
    send_traces(target, [lambda: (roots.replace(marker, wire.new_trace_id()), siblings), lambda: (named.replace(marker, wire.new_trace_id()), siblings + 1)])


def attack_log_values(target):
    """Four requests of 16 MB with log records of 65,535 empty attributes each, all of one trace. The values of a request that need
    more memory than they have bytes, and those of an assembled trace, should be bounded."""
    tail = wire.SharedTail(b"\x32\x00" * (MAX_ATTRIBUTES - 1))
    yield

    def send(_):
        trace = wire.new_trace_id()
        for _ in range(4):
            heads = [b"\x09" + struct.pack("<Q", traces.START_NS) + part(9, trace) + part(10, wire.new_span_id()) for _ in range(target.sizes.empty_records)]
            target.send_until_taken("/v1/logs", tail.compress_export(heads, target.project), HEADERS, 0)

    target.run_threads(2, send)


def attack_empty_values(target):
    """488 spans of 65,536 empty attributes in one trace, over four requests; then a page of spans and the trace are read.
    Reading should stay within the memory budget as receiving does."""
    tail = wire.SharedTail(b"\x4a\x00" * MAX_ATTRIBUTES)
    yield

    def send_and_read(_):
        trace = wire.new_trace_id()
        for _ in range(4):
            heads = [wire.encode_span(trace, wire.new_span_id(), "s", {}) for _ in range(target.sizes.empty_records)]
            target.send_until_taken("/v1/traces", tail.compress_export(heads, target.project), HEADERS, len(heads))
        target.read(f"/v1/projects/{target.project}/spans?limit=1", f"/api/v1/traces/{trace.hex()}")

    target.run_threads(2, send_and_read)


def attack_control_answers(target):
    """Tool outputs of 19 MB of U+0001, three in a trace, which grow six times as JSON; then the trace and the spans are read again
    and again. Answers should wait in files and within the budget of unread responses."""
    tail = wire.SharedTail(attribute("output.value", "\x01" * target.sizes.text_bytes))
    kind = {"openinference.span.kind": "TOOL", "tool.name": "t"}
    yield

    def send_and_read(_):
        trace = wire.new_trace_id()
        for _ in range(3):
            head = wire.encode_span(trace, wire.new_span_id(), "step", kind)
            target.send_until_taken("/v1/traces", tail.compress_export([head], target.project), HEADERS, 1)
        for _ in range(5):
            target.read(f"/api/v1/traces/{trace.hex()}", f"/api/v1/projects/{target.project}/spans")

    target.run_threads(2, send_and_read)
