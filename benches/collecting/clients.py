"""The clients the measurements use: senders of spans, a watcher of a server, a timer of requests."""
import http.client
import math
import threading
import time

from .servers import PROTOBUF


def rejected(reply):
    """Spans that an ExportTraceServiceResponse says were not taken."""
    if len(reply) < 4 or reply[0] != 0x0A or reply[2] != 0x08:
        return 0
    number = shift = 0
    for byte in reply[3:]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return number


class Senders:
    """Sends bodies over keep-alive connections, waits when the server says so, and stops at the first error."""

    def __init__(self, port, bodies, connections=8):
        self.port, self.bodies, self.lock = port, iter(bodies), threading.Lock()
        self.statuses, self.spans, self.bytes, self.failure = {}, 0, 0, None
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(connections)]
        self.started = time.monotonic()
        for thread in self.threads:
            thread.start()

    def next(self):
        with self.lock:
            return None if self.failure else next(self.bodies, None)

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            while (item := self.next()) is not None:
                count, make, headers = item
                body = make()
                while not self.send(connection, body, headers, count):
                    pass
        except Exception as error:
            self.failure = self.failure or f"{type(error).__name__}: {error}"
        connection.close()

    def send(self, connection, body, headers, count):
        connection.request("POST", "/v1/traces", body, PROTOBUF | headers)
        answer = connection.getresponse()
        reply = answer.read()
        with self.lock:
            self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        if answer.status == 200:
            if refused := rejected(reply):
                raise ValueError(f"{refused} spans were rejected: {reply[:200]!r}")
            with self.lock:
                self.spans, self.bytes = self.spans + count, self.bytes + len(body)
            return True
        if answer.status not in (429, 503):
            raise ValueError(f"status {answer.status}: {reply[:300]!r}")
        time.sleep(retry_after(answer.getheader("retry-after")))
        return False

    def running(self):
        return any(thread.is_alive() for thread in self.threads)

    def refusals(self):
        return {str(status): count for status, count in sorted(self.statuses.items()) if status != 200}


def retry_after(value):
    try:
        return min(30.0, max(0.0, float(value)))
    except (TypeError, ValueError):
        return 1.0


class Watcher:
    """Asks for a server's health every 50 ms and looks at its memory, in a thread of its own."""

    def __init__(self, server):
        self.server, self.latencies, self.memory_mib, self.failed, self.done = server, [], 0.0, 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def run(self):
        while not self.done.is_set():
            start = time.monotonic()
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=600)
                connection.request("GET", self.server.health)
                answer = connection.getresponse()
                answer.read()
                self.failed += answer.status != 200
                connection.close()
            except OSError:
                self.failed += 1
            self.latencies.append((time.monotonic() - start) * 1000)
            self.memory_mib = max(self.memory_mib, self.server.memory_mib())
            self.done.wait(0.05)

    def found(self):
        return {"server_memory_mib": self.memory_mib, "health_asked": len(self.latencies), "health_failed": self.failed,
                "health_max_ms": round(max(self.latencies, default=0), 1)}


def percentiles(values):
    """p50, p95 and p99, each the smallest value that so many are not above."""
    values = sorted(values)
    at = {f"p{p}_ms": values[max(0, math.ceil(len(values) * p / 100) - 1)] for p in (50, 95, 99)}
    return {**{name: round(value, 2) for name, value in at.items()}, "max_ms": round(values[-1], 2), "requests": len(values)}


class Asker:
    """Times GET requests on one keep-alive connection."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def get(self, path):
        """Status, body and milliseconds."""
        start = time.perf_counter()
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        body = answer.read()
        return answer.status, body, (time.perf_counter() - start) * 1000
