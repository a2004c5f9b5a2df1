"""Splits OTLP exports by trace, so that an engine can bring the spans of a trace together.

An export holds spans of many traces, and a trace is spread over many exports. JSON and protobuf are split without
decoding more than the ids.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any, Dict, Iterator, List, Mapping, Tuple, Union

OtlpRecord = Union[bytes, bytearray, memoryview, str, Mapping[str, Any]]

#: The names of the nested lists of an export of spans and of one of log records.
_JSON_LISTS = (("resourceSpans", "scopeSpans", "spans"), ("resource_spans", "scope_spans", "spans"), ("resourceLogs", "scopeLogs", "logRecords"), ("resource_logs", "scope_logs", "log_records"))

#: Bytes that a JSON document can begin with.
_JSON_BEGINNINGS = (b"{", b"[")


def is_json(record: bytes) -> bool:
    """Whether a record is JSON and not protobuf. A protobuf export begins with the byte 0x0a."""
    return record[:64].lstrip()[:1] in _JSON_BEGINNINGS and record[:1] != b"\x0a"


def unpack_record(record: Union[bytes, bytearray, memoryview]) -> bytes:
    """The bytes of a record without compression. Records are joined, and two compressed streams cannot be."""
    data = bytes(record)
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        raise ValueError("a record that is compressed with zstd: decompress it first")
    return data


def split_otlp(record: OtlpRecord) -> Iterator[Tuple[str, bytes]]:
    """The parts of an OTLP export of spans or log records, one for each trace, with the trace id in hexadecimal.

    Takes protobuf or JSON, also compressed with gzip, and returns the same without compression. Metrics are left out.
    """
    if isinstance(record, (bytes, bytearray, memoryview)):
        data = unpack_record(record)
        if not is_json(data):
            yield from _split_protobuf(data)
            return
        record = data.decode("utf-8")
    document = json.loads(record) if isinstance(record, str) else record
    if not isinstance(document, Mapping):
        raise ValueError("an OTLP export is a JSON object")
    yield from _split_json(document)


def _split_json(document: Mapping[str, Any]) -> Iterator[Tuple[str, bytes]]:
    parts: Dict[str, Dict[str, List[Any]]] = {}
    for resources, scopes, records in _JSON_LISTS:
        for resource in document.get(resources) or ():
            head = {name: value for name, value in resource.items() if name != scopes}
            by_trace: Dict[str, List[Any]] = {}
            for scope in resource.get(scopes) or ():
                scope_head = {name: value for name, value in scope.items() if name != records}
                found: Dict[str, List[Any]] = {}
                for one in scope.get(records) or ():
                    found.setdefault(_json_trace_id(one), []).append(one)
                for trace, several in found.items():
                    by_trace.setdefault(trace, []).append({**scope_head, records: several})
            for trace, several in by_trace.items():
                parts.setdefault(trace, {}).setdefault(resources, []).append({**head, scopes: several})
    for trace, part in parts.items():
        yield trace, json.dumps(part, separators=(",", ":")).encode("utf-8")


def _json_trace_id(span: Mapping[str, Any]) -> str:
    text = str(span.get("traceId") or span.get("trace_id") or "")
    if len(text) == 32:
        return text.lower()
    try:
        # Some exporters follow the JSON mapping of protobuf and not the one of OTLP.
        return base64.b64decode(text, validate=True).hex()
    except ValueError:
        return text.lower()


def _split_protobuf(data: bytes) -> Iterator[Tuple[str, bytes]]:
    parts: Dict[str, List[bytes]] = {}
    for number, _, resource in _fields(data):
        if number != 1:
            continue
        head = [raw for field, raw, _ in _fields(resource) if field != 2]
        by_trace: Dict[str, List[bytes]] = {}
        for field, _, scope in _fields(resource):
            if field != 2:
                continue
            scope_head = b"".join(raw for inner, raw, _ in _fields(scope) if inner != 2)
            spans: Dict[str, List[bytes]] = {}
            for inner, raw, span in _fields(scope):
                if inner == 2:
                    # A span has its trace in field 1, a log record in field 9.
                    trace = next((value.hex() for name, _, value in _fields(span) if name in (1, 9) and len(value) == 16), "")
                    spans.setdefault(trace, []).append(raw)
            for trace, found in spans.items():
                by_trace.setdefault(trace, []).append(_message(2, scope_head + b"".join(found)))
        for trace, scopes in by_trace.items():
            parts.setdefault(trace, []).append(_message(1, b"".join([*head, *scopes])))
    for trace, resources in parts.items():
        yield trace, b"".join(resources)


def _fields(data: bytes) -> Iterator[Tuple[int, bytes, bytes]]:
    """The fields of a protobuf message: number, the bytes of the whole field, and the value of a field with a length."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = _varint(data, at)
        kind, value = tag & 7, b""
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 1:
            at += 8
        elif kind == 2:
            length, at = _varint(data, at)
            value = data[at : at + length]
            at += length
        elif kind == 5:
            at += 4
        else:
            raise ValueError(f"not an OTLP export: a field of type {kind} at byte {begin}")
        if at > len(data):
            raise ValueError(f"not an OTLP export, or cut off: a field at byte {begin} is longer than the message")
        yield tag >> 3, data[begin:at], value


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"not an OTLP export: a number that does not end at byte {at}")


def _message(number: int, body: bytes) -> bytes:
    head = bytearray([number << 3 | 2])
    length = len(body)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body
