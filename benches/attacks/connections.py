"""Connections that are open and ask for nothing, by the thousand and without a key."""
import selectors
import time

from . import wire


def hold_silent(target, opening, answer_pings):
    """Keeps as many connections open as it may; answers PINGs where it should look alive, and reports how many are left."""
    selector, readers, most_held = selectors.DefaultSelector(), {}, 0
    refused_until = 0.0
    while not target.stop.is_set():
        while len(readers) < target.sizes.connections and time.monotonic() > refused_until and not target.stop.is_set():
            try:
                # Both ports, in turn.
                connection = target.connect(target.grpc_port if len(readers) % 2 else target.http_port, timeout=2)
                connection.sendall(opening)
                connection.setblocking(False)
            except OSError:
                target.count("not connected")
                refused_until = time.monotonic() + 0.5
                break
            readers[connection] = wire.FrameReader()
            selector.register(connection, selectors.EVENT_READ)
        most_held = max(most_held, len(readers))
        for key, _ in selector.select(0.1):
            connection = key.fileobj
            try:
                received = connection.recv(65_536)
                if received and answer_pings:
                    connection.send(wire.ping_replies(list(readers[connection].feed(received))))
            except OSError:
                received = b""
            if not received:
                selector.unregister(connection)
                del readers[connection]
                connection.close()
                target.count("closed by the server")
                refused_until = max(refused_until, time.monotonic() + 0.01)
    target.notes.update(held=len(readers), most_held=most_held)
    for connection in readers:
        connection.close()


def attack_silent_http2(target):
    yield
    hold_silent(target, wire.PREFACE + wire.settings(), False)


def attack_alive_http2(target):
    """The same, with every PING answered."""
    yield
    hold_silent(target, wire.PREFACE + wire.settings(), True)


def attack_silent_http1(target):
    """One small request each, then silence on a connection that stays open."""
    yield
    hold_silent(target, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", False)


def attack_half_prefaces(target):
    yield
    hold_silent(target, wire.PREFACE[:10], False)
