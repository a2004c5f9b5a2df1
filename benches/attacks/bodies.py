"""Requests that take their time: lengths that are only announced, bodies and headers by the byte."""
import contextlib
import struct
import time

from . import wire

ANNOUNCED = [20 << 20, 16 << 20, (20 << 20) - 1, 1 << 20]


def http1_head(target, length, key=True, path="/v1/traces", kind="application/x-protobuf", origin=None):
    lines = [f"POST {path} HTTP/1.1", f"host: {origin or 'localhost'}", *([f"origin: http://{origin}"] if origin else []), f"content-type: {kind}", f"content-length: {length}" if length else "transfer-encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in (target.key_headers("ingest") if key else {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def hold(target, openers, drip=None, every_s=1.0):
    """Opens connections and keeps them; one that the server closes is opened again. `drip(connection)` is called for each in turn."""
    held = []
    while not target.stop.is_set():
        began = time.monotonic()
        while len(held) < len(openers) and not target.stop.is_set():
            try:
                held.append(openers[len(held) % len(openers)]())
            except OSError:
                target.count("not connected")
                break
        for connection in list(held):
            try:
                if drip:
                    drip(connection)
                connection.setblocking(False)
                closed = False
                with contextlib.suppress(BlockingIOError):
                    closed = not connection.recv(65_536)
                connection.settimeout(20)
            except OSError:
                closed = True
            if closed:
                target.count("closed by the server")
                connection.close()
                held.remove(connection)
            if target.stop.is_set():
                break
        target.stop.wait(max(0.05, every_s - (time.monotonic() - began)))
    target.notes["held"] = len(held)
    for connection in held:
        connection.close()


def attack_announced(target):
    """A few connections announce more than the memory budget and send nothing."""
    def opener(length, path="/v1/traces", kind="application/x-protobuf"):
        def open_one():
            connection = target.connect()
            connection.sendall(http1_head(target, length, path=path, kind=kind))
            return connection
        return open_one

    lengths = ANNOUNCED * 5
    openers = [opener(length) for length in lengths]
    openers += [opener(length, f"/v1/projects/{target.project}/spans", "application/json") for length in lengths]
    yield
    hold(target, openers, every_s=0.25)


def attack_slow_bodies(target):
    """A byte a second on many connections: with a length, in chunks, and on HTTP/2 streams."""
    def plain():
        connection = target.connect()
        connection.sendall(http1_head(target, 19_000_000) + b"x")
        return connection

    def chunked():
        connection = target.connect()
        connection.sendall(http1_head(target, None) + b"1\r\nx\r\n")
        return connection

    def drip(connection):
        connection.send(b"1\r\nx\r\n")

    yield
    count = target.sizes.stalled
    hold(target, [plain, chunked] * count, drip)


# What each of six addresses announces: 8 to 80 MB in bodies that are each below the limit of a request.
TRICKLED_MB = [(8,), (19,), (19, 19), (19, 19, 19), (19, 19, 19, 8), (19, 19, 19, 19, 4)]
TRICKLED_BYTES_A_SECOND = 20_000


def attack_trickled_bodies(target):
    """Bodies from six addresses that arrive at 20 KB/s. The memory budget should count what has arrived, not what is announced,
    and the time of a body (30 s) should end them."""
    def opener(address, megabytes):
        def open_one():
            connection = target.connect(address=address)
            connection.sendall(http1_head(target, megabytes * 1_000_000))
            return connection
        return open_one

    yield
    openers = [opener(target.further_address(number), one) for number, announced in enumerate(TRICKLED_MB) for one in announced]
    hold(target, openers, lambda connection: connection.send(bytes(TRICKLED_BYTES_A_SECOND)))


def attack_slow_sign_in(target):
    """Forms of the sign-in page at a byte a second, without a key. The time of a body (30 s) and the connections that are reserved
    for others should hold."""
    def open_one():
        connection = target.connect()
        # Forms of other origins are refused before their body.
        origin = f"127.0.0.1:{target.http_port}"
        connection.sendall(http1_head(target, 60_000, key=False, path="/sign-in", kind="application/x-www-form-urlencoded", origin=origin) + b"key=")
        return connection

    yield
    hold(target, [open_one] * (2 * target.sizes.stalled), lambda connection: connection.send(b"x"))


def attack_slow_streams(target):
    """Bodies on HTTP/2 streams that begin and never end."""
    yield
    headers = [("content-type", "application/grpc"), ("te", "trailers"), *target.key_headers("ingest").items()]
    block = wire.header_block("POST", wire.EXPORT_PATH, headers)
    message = b"\x00" + struct.pack(">I", 1 << 20) + b"x" * 1000

    def open_one():
        connection = target.connect(target.grpc_port)
        streams = range(1, 2 * min(target.sizes.streams, 100), 2)
        connection.sendall(wire.PREFACE + wire.settings() + b"".join(wire.headers_frame(stream, block, end_stream=False) for stream in streams))
        for stream in list(streams)[:60]:
            connection.sendall(wire.frame(wire.DATA, 0, stream, message))
        return connection

    hold(target, [open_one] * 20)


def attack_slow_headers(target):
    """Half a request each, without a key."""
    def open_one():
        connection = target.connect()
        connection.sendall(b"GET /traces HTTP/1.1\r\nhost: localhost\r\nx: ")
        return connection

    yield
    hold(target, [open_one] * target.sizes.connections, lambda connection: connection.send(b"y"))
