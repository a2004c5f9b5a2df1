"""The clients that behave: a sender of real-looking traces, a reader, a prober of /healthz, and who looks when traces are graded.

They ask at fixed times, whether or not earlier answers have come (so a server that stands still is not measured once but as
often as it was asked), and a latency counts from the time at which the request was due.
"""
import dataclasses
import http.client
import json
import os
import socket
import threading
import time

from collecting.clients import percentiles, rejected
from collecting.spans import Maker, attribute, part, varint

SENDER, ANONYMOUS_SENDER, READER, PROBER = "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"
PROJECT = "good"
TIMEOUT_S = 30


@dataclasses.dataclass
class Sample:
    due_at: float
    latency_ms: float
    outcome: str


class PacedClient:
    """Runs `act(connection holder)` so many times a second."""

    def __init__(self, server, address, rate, threads, requests_per_connection):
        self.server, self.address, self.rate = server, address, rate
        self.requests_per_connection = requests_per_connection
        self.samples, self.lock, self.done = [], threading.Lock(), threading.Event()
        self.began, self.next_slot, self.in_flight, self.paused = time.monotonic(), 0, {}, False
        for number in range(threads):
            threading.Thread(target=self.run, args=(number,), daemon=True).start()

    def run(self, number):
        connection, used = None, 0
        while not self.done.is_set():
            if self.paused:
                self.done.wait(0.02)
                continue
            with self.lock:
                due_at = self.began + self.next_slot / self.rate
                self.next_slot += 1
                self.in_flight[number] = due_at
            if self.done.wait(max(0.0, due_at - time.monotonic())):
                return
            if connection is None or used >= self.requests_per_connection:
                if connection:
                    connection.close()
                connection, used = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=TIMEOUT_S, source_address=(self.address, 0)), 0
            outcome = self.attempt(connection, used > 0)
            used += 1
            if not outcome.isdigit():
                connection.close()
                connection = None
            with self.lock:
                self.samples.append(Sample(due_at, (time.monotonic() - due_at) * 1000, outcome))
                self.in_flight.pop(number, None)

    def pause(self):
        self.paused = True

    def resume(self):
        """Goes on from now: what was not asked meanwhile is not made up for."""
        with self.lock:
            self.began, self.next_slot, self.paused = time.monotonic(), 0, False

    def attempt(self, connection, is_reused):
        """The status, or what went wrong. A kept connection that the server has closed meanwhile is opened again, as exporters do."""
        try:
            return str(self.act(connection))
        except TimeoutError:
            return "timeout"
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            if is_reused:
                connection.close()
                return self.attempt(connection, False)
            return type(error).__name__
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__

    def exchange(self, connection, method, path, body=None, headers=None):
        if connection.sock is None:
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def wait_through(self, end, within_s=TIMEOUT_S * 2):
        """Until everything that was due before `end` has been answered or given up."""
        limit = time.monotonic() + within_s
        while time.monotonic() < limit:
            with self.lock:
                if self.began + self.next_slot / self.rate >= end and all(due >= end for due in self.in_flight.values()):
                    return
            time.sleep(0.05)

    def summary(self, begin, end, fine=("200",)):
        with self.lock:
            chosen = [sample for sample in self.samples if begin <= sample.due_at < end]
        outcomes = {}
        for sample in chosen:
            if sample.outcome not in fine:
                outcomes[sample.outcome] = outcomes.get(sample.outcome, 0) + 1
        # A request without an answer waited, too: leaving it out would make a dead server look fast.
        return {**(percentiles([sample.latency_ms for sample in chosen]) if chosen else {"requests": 0}), "refused": outcomes}


class Prober(PacedClient):
    def __init__(self, server):
        super().__init__(server, PROBER, 10, 8, 1)

    def act(self, connection):
        return self.exchange(connection, "GET", "/healthz")[0]


class TraceMaker:
    """Small traces of a ReAct agent, with new ids and the time of now."""

    def __init__(self, count=40):
        maker = Maker(20_261)
        self.traces = []
        while len(self.traces) < count:
            _, spans = maker.trace()
            if len(spans) <= 8:
                self.traces.append(spans)
        self.resource = part(1, b"".join(attribute(key, value, 1) for key, value in [("service.name", PROJECT), ("openinference.project.name", PROJECT)]))

    def body(self, number):
        """(trace id, span ids, bytes)."""
        spans = self.traces[number % len(self.traces)]
        trace_id, mask, now = os.urandom(16), int.from_bytes(os.urandom(8), "big"), time.time_ns() - 30_000_000_000
        fresh = lambda old: (int.from_bytes(old, "big") ^ mask).to_bytes(8, "big")
        out, ids = [], []
        for span_id, parent, name, start_ms, end_ms, rest in spans:
            ids.append(fresh(span_id))
            head = part(1, trace_id) + part(2, ids[-1]) + (part(4, fresh(parent)) if parent else b"") + part(5, name.encode()) + b"\x30\x01"
            times = b"\x39" + (now + start_ms * 1_000_000).to_bytes(8, "little") + b"\x41" + (now + end_ms * 1_000_000).to_bytes(8, "little")
            span = head + times + rest
            out.append(b"\x12" + varint(len(span)) + span)
        scope = b"".join(out)
        return trace_id.hex(), ids, part(1, self.resource + b"\x12" + varint(len(scope)) + scope)


class Sender(PacedClient):
    """Posts a whole small trace each time and keeps what was acknowledged."""

    def __init__(self, server, maker, rate=20, address=SENDER):
        self.maker, self.sent_at, self.graded_at, self.span_ids, self.count = maker, {}, {}, {}, 0
        super().__init__(server, address, rate, 12, 50)

    def act(self, connection):
        with self.lock:
            self.count += 1
            number = self.count
        trace_id, ids, body = self.maker.body(number)
        headers = {"content-type": "application/x-protobuf", **self.server.headers("sender")}
        status, reply = self.exchange(connection, "POST", "/v1/traces", body, headers)
        if status == 200 and rejected(reply):
            return "partly rejected"
        if status == 200:
            with self.lock:
                self.sent_at[trace_id] = time.monotonic()
                self.span_ids[trace_id] = len(ids)
        return status

    def grading(self, begin, end):
        """How long after it was acknowledged a trace was seen graded."""
        with self.lock:
            sent = {trace: at for trace, at in self.sent_at.items() if begin <= at < end}
            delays = sorted(self.graded_at[trace] - at for trace, at in sent.items() if trace in self.graded_at)
        at = lambda share: round(delays[min(len(delays) - 1, int(len(delays) * share))], 1) if delays else None
        return {"sent": len(sent), "graded": len(delays), "delay_p50_s": at(0.5), "delay_p99_s": at(0.99)}


class Reader(PacedClient):
    """Looks at lists and at one trace, and sees in the lists which traces are graded."""

    def __init__(self, server, sender):
        self.sender, self.turn = sender, 0
        super().__init__(server, READER, 4, 8, 20)

    def act(self, connection):
        with self.lock:
            self.turn += 1
            turn = self.turn
        headers = self.server.headers("reader")
        if turn % 4 == 1:
            with self.sender.lock:
                trace = next(reversed(self.sender.sent_at), None)
            return self.exchange(connection, "GET", f"/api/v1/traces/{trace}" if trace else "/api/v1/projects", headers=headers)[0]
        if turn % 4 == 3:
            return self.exchange(connection, "GET", "/api/v1/traces?limit=20", headers=headers)[0]
        status, body = self.exchange(connection, "GET", f"/api/v1/traces?project={PROJECT}&limit=200", headers=headers)
        if status == 200:
            self.note_graded(json.loads(body)["items"])
        return status

    def note_graded(self, items):
        now = time.monotonic()
        with self.sender.lock:
            for item in items:
                if item["trajectories"] and item["trace_id"] in self.sender.sent_at:
                    self.sender.graded_at.setdefault(item["trace_id"], now)
