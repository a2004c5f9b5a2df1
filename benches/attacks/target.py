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

    @staticmethod
    def smoke():
        # Connections stay above the server's default limit: fewer would not show anything.
        return Sizes(nodes=1_200_000, spans=40_000, connections=2_100, streams=64, stalled=60, senders=4, searchers=24, dripped=15_000)


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

    def connect(self, port=None, timeout=20, receive_buffer=None):
        connection = socket.socket()
        connection.settimeout(timeout)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.bind((self.address, 0))
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
        # Requests under way have a few seconds; the process ends anyway.
        for thread in threads:
            thread.join(0.2)
