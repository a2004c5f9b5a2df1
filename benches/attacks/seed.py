"""What the store holds before the attacks: text to search in, spans to filter, and a large trace to ask for."""
import gzip
import http.client
import random
import time

from . import wire
from .target import GZIP, PROTOBUF
from .traces import model_spans

ADDRESS = "127.0.0.6"
BATCH = 250


def post(server, body, within_s=120):
    """Sends until it is taken; a server that starts may refuse for a while."""
    end = time.monotonic() + within_s
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60, source_address=(ADDRESS, 0))
        try:
            connection.request("POST", "/v1/traces", gzip.compress(body, 1), {**PROTOBUF, **GZIP, **server.headers("sender")})
            answer = connection.getresponse()
            answer.read()
            if answer.status == 200:
                return
            refusal = f"status {answer.status}"
        except (OSError, http.client.HTTPException) as error:
            refusal = str(error)
        finally:
            connection.close()
        if time.monotonic() > end:
            raise RuntimeError(f"the store could not be filled: {refusal}")
        time.sleep(0.2)


def fill(server, traces, large_spans):
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(50_000)]
    text = lambda count: " ".join(rng.choices(words, k=count))
    start = time.time_ns() - 3600 * 10**9
    for first in range(0, traces, BATCH):
        spans = []
        for number in range(first, min(first + BATCH, traces)):
            trace, root, at = wire.new_trace_id(), wire.new_span_id(), start + number * 10**6
            spans.append(wire.encode_span(trace, root, "agent", {"openinference.span.kind": "AGENT", "input.value": text(60), "output.value": text(60)}, b"", at, at + 1000))
            spans.append(wire.encode_span(trace, wire.new_span_id(), "tool", {"openinference.span.kind": "TOOL", "tool.name": f"t{number % 50}", "input.value": '{"q": "x"}', "output.value": text(40)}, root, at + 100, at + 200))
        post(server, wire.encode_export(spans, "seed"))
    large = wire.new_trace_id()
    for first in range(0, large_spans, 5_000):
        post(server, wire.encode_export(model_spans(large, range(first, min(first + 5_000, large_spans))), "seed"))
    server.large_trace = large.hex()
