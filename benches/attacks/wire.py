"""What attackers put on the wire: OTLP spans as bytes and as JSON, and HTTP/2 frames. Standard library only, so that frames can be malformed."""
import gzip
import json
import secrets
import struct
import time

from collecting.spans import attribute, part, varint

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
MAX_FRAME = 16_384
INITIAL_WINDOW_SIZE = 4
EXPORT_PATH = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def new_trace_id():
    return secrets.token_bytes(16)


def new_span_id():
    return secrets.token_bytes(8)


def encode_span(trace_id, span_id, name, attributes, parent=b"", start_ns=None, end_ns=None, raw=b""):
    """A span message; `raw` is appended as it is, for values that `attribute` does not write."""
    start_ns = time.time_ns() if start_ns is None else start_ns
    end_ns = start_ns + 1_000_000 if end_ns is None else end_ns
    head = part(1, trace_id) + part(2, span_id) + (part(4, parent) if parent else b"") + part(5, name.encode()) + b"\x30\x01"
    mask = (1 << 64) - 1
    times = b"\x39" + struct.pack("<Q", start_ns & mask) + b"\x41" + struct.pack("<Q", end_ns & mask)
    return head + times + b"".join(attribute(key, value) for key, value in attributes.items()) + raw


def encode_export(spans, project):
    """An ExportTraceServiceRequest with all spans in one scope."""
    resource = part(1, attribute("openinference.project.name", project, 1) + attribute("service.name", project, 1))
    scope = part(2, part(1, part(1, b"soak")) + b"".join(part(2, span) for span in spans))
    return part(1, resource + scope)


def encode_resource_spans(resource, scopes):
    """A ResourceSpans (as an ExportTraceServiceRequest) of encoded resource attributes and one list of spans for each scope."""
    return part(1, part(1, resource) + b"".join(part(2, b"".join(part(2, span) for span in spans)) for spans in scopes))


def project_attribute(project):
    return attribute("openinference.project.name", project, 1)


class SharedTail:
    """Spans or log records that all end in the same bytes. The tail is compressed once and a request costs only its heads:
    gzip members can be concatenated."""

    def __init__(self, tail):
        self.size, self.compressed = len(tail), gzip.compress(tail, 6)

    def compress_export(self, heads, project):
        """A gzip request with one record for each head."""
        prefixes = [b"\x12" + varint(len(head) + self.size) + head for head in heads]
        scope_size = sum(len(prefix) + self.size for prefix in prefixes)
        before = part(1, project_attribute(project)) + b"\x12" + varint(scope_size)
        opening = b"\x0a" + varint(len(before) + scope_size) + before
        return gzip.compress(opening, 1) + b"".join(gzip.compress(prefix, 1) + self.compressed for prefix in prefixes)


def export_json(spans, project):
    """The same as OTLP JSON; a span is (trace_id, span_id, parent, name, attributes)."""
    now = time.time_ns()

    def text_attributes(values):
        return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]

    lines = [{"traceId": trace.hex(), "spanId": span.hex(), "parentSpanId": parent.hex(), "name": name, "kind": 1,
              "startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 1_000_000), "attributes": text_attributes(values)}
             for trace, span, parent, name, values in spans]
    resource = {"attributes": text_attributes({"openinference.project.name": project, "service.name": project})}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": lines}]}]}).encode()


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(**values):
    """A SETTINGS frame; `window` is the only one that attackers use."""
    payload = b"".join(struct.pack(">HI", INITIAL_WINDOW_SIZE, value) for value in values.values())
    return frame(SETTINGS, 0, 0, payload)


def literal(name, value):
    """A header without compression and without an entry in the table (RFC 7541, 6.2.2)."""
    def text(one):
        one = one.encode() if isinstance(one, str) else one
        if len(one) < 127:
            return bytes([len(one)]) + one
        return b"\x7f" + varint(len(one) - 127) + one
    return b"\x00" + text(name) + text(value)


def header_block(method, path, headers=()):
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "127.0.0.1"), *headers]
    return b"".join(literal(name, value) for name, value in fields)


def headers_frame(stream, block, end_stream=True, end_headers=True):
    return frame(HEADERS, END_STREAM * end_stream | END_HEADERS * end_headers, stream, block)


def data_frames(stream, body, end_stream=True):
    pieces = [body[at:at + MAX_FRAME] for at in range(0, len(body), MAX_FRAME)] or [b""]
    last = len(pieces) - 1
    return b"".join(frame(DATA, END_STREAM * (end_stream and at == last), stream, piece) for at, piece in enumerate(pieces))


class FrameReader:
    """Takes bytes as they arrive and gives whole frames: (kind, flags, stream, payload)."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, received):
        self.buffer += received
        while len(self.buffer) >= 9:
            length = int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < 9 + length:
                return
            kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big")
            payload = bytes(self.buffer[9:9 + length])
            del self.buffer[:9 + length]
            yield kind, flags, stream, payload


def ping_replies(frames):
    """The answers to PING and SETTINGS among these frames: what keeps a connection looking alive."""
    answers = [frame(PING, ACK, 0, payload) for kind, flags, _, payload in frames if kind == PING and not flags & ACK]
    answers += [frame(SETTINGS, ACK, 0) for kind, flags, _, _ in frames if kind == SETTINGS and not flags & ACK]
    return b"".join(answers)
