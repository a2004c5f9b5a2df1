"""Where an attacker goes, from which address and with which key; and what it counts."""
import dataclasses
import http.client
import socket
import threading
import time

from collecting.clients import rejected

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
GZIP = {"content-encoding": "gzip"}


@dataclasses.dataclass
class Sizes:
    """How large an attack is. Nodes are JSON values in one attribute, spans those of one trace."""

    nodes: int = 4_700_000
    spans: int = 400_000
    connections: int = 2_100
    streams: int = 256
    stalled: int = 150
    senders: int = 8
    searchers: int = 48
    dripped: int = 100_000
    # Spans that share one resource, or one parent.
    copies: int = 6_000
    siblings: int = 2_900
    # One attribute of one span.
    text_bytes: int = 19_000_000
    # JSON texts inside each other, and calls of one message.
    nested_texts: int = 900
    tool_calls: int = 32_000
    # Spans or log records of one request that consist of empty attributes.
    empty_records: int = 122
    annotation_rows: int = 100_000
    linked_spans: int = 320
    # Traces of one request, each in a project of its own.
    small_projects: int = 1_000
    large_projects: int = 25

    @staticmethod
    def smoke():
        # Connections stay above the server's default limit: fewer would not show anything.
        return Sizes(nodes=1_200_000, spans=25_000, connections=2_100, streams=64, stalled=60, senders=4, searchers=24, dripped=10_000,
                     copies=3_000, siblings=1_000, text_bytes=6_000_000, nested_texts=500, tool_calls=16_000, empty_records=60, annotation_rows=20_000,
                     linked_spans=100, small_projects=300, large_projects=10)


class Target:
    """One server as one attacker sees it."""

    def __init__(self, name, address, sizes):
        self.name, self.address, self.sizes = name, address, sizes
        # Which server it is, is known when the attack begins.
        self.http_port, self.grpc_port, self.keys, self.large_trace = 0, 0, {}, ""
        self.project = f"attack-{name}"
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.outcomes, self.acknowledged_spans, self.notes = {}, 0, {}

    def key_headers(self, scope):
        key = self.keys.get(scope)
        return {"authorization": f"Bearer {key}"} if key else {}

    def further_address(self, number):
        """An address of this attacker only, for attacks that come from several."""
        return f"127.1.{self.address.rpartition('.')[2]}.{number + 1}"

    def connect(self, port=None, timeout=20, receive_buffer=None, address=None):
        connection = socket.socket()
        connection.settimeout(timeout)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.bind((address or self.address, 0))
        connection.connect(("127.0.0.1", port or self.http_port))
        return connection

    def request(self, method, path, body=None, headers=None, timeout=60):
        """Sends one request on a connection of its own and counts its status; None where there was no answer."""
        return self.exchange(method, path, body, headers, timeout)[0]

    def exchange(self, method, path, body, headers, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=timeout, source_address=(self.address, 0))
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            reply = answer.read()
            self.count(answer.status)
            return answer.status, reply
        except TimeoutError:
            self.count("timeout")
        except (OSError, http.client.HTTPException):
            self.count("broken off")
        finally:
            connection.close()
        return None, b""

    def send(self, path, body, headers, spans):
        """Sends spans with the attacker's own key; pauses where it was not taken, so that a refusal is no busy loop."""
        status, reply = self.exchange("POST", path, body, {**headers, **self.key_headers("ingest")})
        if status == 200 or status == 202:
            with self.lock:
                self.acknowledged_spans += max(0, spans - rejected(reply))
        else:
            self.stop.wait(0.2)
        return status

    def send_until_taken(self, path, body, headers, spans):
        """Sends again while the server is busy. False where it refuses this body for good, or the attack is stopped."""
        while not self.stop.is_set():
            status = self.send(path, body, headers, spans)
            if status in (200, 400, 413):
                return status == 200
        return False

    def read(self, *paths):
        """Asks with the attacker's own key and discards the answers."""
        for path in paths:
            if not self.stop.is_set():
                self.request("GET", path, headers=self.key_headers("read"))

    def count(self, outcome, number=1):
        with self.lock:
            self.outcomes[str(outcome)] = self.outcomes.get(str(outcome), 0) + number

    def results(self):
        return {"outcomes": dict(sorted(self.outcomes.items())), "acknowledged_spans": self.acknowledged_spans, **self.notes}

    def run_threads(self, count, action):
        """Runs `action(number)` again and again in so many threads until the attack is stopped."""
        def loop(number):
            while not self.stop.is_set():
                began = time.monotonic()
                try:
                    action(number)
                except (OSError, http.client.HTTPException):
                    self.count("broken off")
                # What fails at once is not tried thousands of times a second.
                if time.monotonic() - began < 0.01:
                    self.stop.wait(0.01)

        threads = [threading.Thread(target=loop, args=(number,), daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        self.stop.wait()
        # Requests under way have a second, all together; the process ends anyway.
        end = time.monotonic() + 1
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
