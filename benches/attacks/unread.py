"""Responses that are asked for and not read."""
import select
import selectors
import time

from . import wire


def large_paths(target):
    """What answers with much: a large trace in several forms, and exports."""
    trace = target.large_trace
    return [f"/api/v1/traces/{trace}", f"/traces/{trace}/spans", "/api/v1/projects/seed/spans", "/v1/projects/seed/spans?limit=1000", "/api/v1/traces?limit=500&project=seed", f"/traces/{trace}"]


def attack_http1(target):
    """Many readers with a small window that take the first bytes and stop."""
    yield
    head = "".join(f"{name}: {value}\r\n" for name, value in target.key_headers("read").items())
    paths = large_paths(target)
    held = []
    while not target.stop.is_set():
        while len(held) < target.sizes.stalled and not target.stop.is_set():
            try:
                connection = target.connect(receive_buffer=4096)
                connection.sendall(f"GET {paths[len(held) % len(paths)]} HTTP/1.1\r\nhost: localhost\r\n{head}\r\n".encode())
            except OSError:
                target.count("not connected")
                break
            held.append(connection)
        target.stop.wait(1)
        # Not read: whether a connection has ended shows in its state only.
        poller = select.poll()
        for connection in held:
            poller.register(connection, select.POLLRDHUP)
        ended = {number for number, _ in poller.poll(0)}
        target.count("closed by the server", len(ended))
        for connection in [one for one in held if one.fileno() in ended]:
            held.remove(connection)
            connection.close()
    target.notes["held"] = len(held)


def attack_http2(target):
    """Many streams on few connections with a window of 0; every PING is answered, so the connections look alive."""
    yield
    headers, paths = list(target.key_headers("read").items()), large_paths(target)
    blocks = [wire.header_block("GET", path, headers) for path in paths]

    def open_one():
        connection = target.connect(target.grpc_port)
        connection.sendall(wire.PREFACE + wire.settings(window=0))
        connection.sendall(b"".join(wire.headers_frame(2 * number + 1, blocks[number % len(blocks)]) for number in range(target.sizes.streams)))
        return connection, wire.FrameReader()

    held = []
    while not target.stop.is_set():
        while len(held) < 4 and not target.stop.is_set():
            try:
                held.append(open_one())
            except OSError:
                target.count("not connected")
                break
        ready = select.select([connection for connection, _ in held], [], [], 0.5)[0] if held else []
        for connection, reader in [one for one in held if one[0] in ready]:
            try:
                received = connection.recv(65_536)
                if received:
                    connection.sendall(wire.ping_replies(list(reader.feed(received))))
                    continue
            except OSError:
                pass
            target.count("closed by the server")
            held.remove((connection, reader))
            connection.close()
        if not held:
            time.sleep(0.2)
    target.notes["held"] = len(held)


def attack_zero_windows(target):
    """GET /healthz on 100 streams of each connection with a window of 0, from two addresses; a stream that is reset is asked for
    again. What nobody reads should end after 30 s, and other probes of /healthz should not wait for it."""
    yield
    block, streams = wire.header_block("GET", "/healthz"), 100
    addresses = [target.further_address(number) for number in range(2)]
    selector, held = selectors.DefaultSelector(), {}

    def ask(connection, first, count):
        connection.sendall(b"".join(wire.headers_frame(first + 2 * number, block) for number in range(count)))
        target.count("streams", count)
        return first + 2 * count

    def open_one():
        connection = target.connect(address=addresses[len(held) % len(addresses)], timeout=2)
        connection.sendall(wire.PREFACE + wire.settings(window=0))
        held[connection] = [wire.FrameReader(), ask(connection, 1, streams)]
        selector.register(connection, selectors.EVENT_READ)

    def answer(connection):
        """Keeps the connection looking alive; False where it has ended."""
        reader, next_stream = held[connection]
        received = connection.recv(65_536)
        frames = list(reader.feed(received))
        connection.sendall(wire.ping_replies(frames))
        if resets := sum(kind == wire.RST_STREAM for kind, _, _, _ in frames):
            target.count("reset by the server", resets)
            held[connection][1] = ask(connection, next_stream, resets)
        return bool(received)

    while not target.stop.is_set():
        while len(held) < target.sizes.stalled and not target.stop.is_set():
            try:
                open_one()
            except OSError:
                target.count("not connected")
                break
        for key, _ in selector.select(0.2):
            try:
                is_open = answer(key.fileobj)
            except OSError:
                is_open = False
            if not is_open:
                target.count("closed by the server")
                selector.unregister(key.fileobj)
                del held[key.fileobj]
                key.fileobj.close()
    target.notes["held"] = len(held)
