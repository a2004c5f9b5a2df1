"""A real Phoenix on loopback, with a folder and ports of its own and an embedded SQLite: what the checks against Phoenix
start, ask and stop. The environment is the one that the benchmarks make, so that there is only one of it.

  with Phoenix() as phoenix:
      phoenix.send(body, project="shop")    one OTLP request, as exporters send it
      phoenix.settled(count)                waits until so many spans are stored
"""
import contextlib
import http.client
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import tempfile
import time
import urllib.parse

from run import HERE, python_for

PACKAGES = ["arize-phoenix==20.26.1", "arize-phoenix-client==3.5.0"]
SERVE = HERE.parents[1] / "benches" / "collecting" / "phoenix_serve.py"
STARTS_WITHIN_S = 240
STORED_WITHIN_S = 240


def python():
    """The Python with Phoenix and its client in it; several minutes when it is not there yet."""
    return python_for("phoenix", PACKAGES, folder="collecting-phoenix")


def environment(**extra):
    """Without proxies and without what would tell anybody where another Phoenix is."""
    kept = {key: value for key, value in os.environ.items()
            if "proxy" not in key.lower() and not key.startswith(("OTEL_", "PHOENIX_"))}
    return kept | extra


class Phoenix:
    """One server process. `port` is its HTTP port, `url` its address, `key` what it wants to hear if it has keys."""

    def __init__(self, folder=None, ports=None, key=None, **settings):
        self.python, self.key = python(), key
        self.temporary = None if folder else tempfile.TemporaryDirectory(prefix="phoenix-")
        self.folder = pathlib.Path(folder or self.temporary.name)
        self.data, self.log = self.folder / "data", self.folder / "log.txt"
        self.data.mkdir(parents=True, exist_ok=True)
        self.port, self.grpc_port = ports or free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        told = {"PHOENIX_WORKING_DIR": str(self.data), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(self.port),
                "PHOENIX_GRPC_PORT": str(self.grpc_port), "PHOENIX_TELEMETRY_ENABLED": "false",
                "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false", "PHOENIX_DISABLE_AGENT_ASSISTANT": "true"}
        if key:
            told |= {"PHOENIX_ENABLE_AUTH": "true", "PHOENIX_SECRET": "0" * 31 + "a1", "PHOENIX_ADMIN_SECRET": key}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.python, SERVE], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=environment(**told, **settings), cwd=self.folder)
        end = time.monotonic() + STARTS_WITHIN_S
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"Phoenix did not start: {self.tail()}")
            time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        if self.temporary:
            self.temporary.cleanup()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def ready(self):
        try:
            return self.request("GET", "/healthz")[0] == 200
        except OSError:
            return False

    def tail(self):
        return self.log.read_text(errors="replace").strip()[-1500:]

    def request(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = dict(headers or {}) | ({"authorization": f"Bearer {self.key}"} if self.key else {})
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def json(self, path):
        status, body = self.request("GET", path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body[:300]!r}")
        return json.loads(body)

    def send(self, body, project=None):
        """One OTLP request; again while the queue is full. gzip is told by its first bytes."""
        headers = {"content-type": "application/x-protobuf"} | ({"x-project-name": project} if project else {})
        headers |= {"content-encoding": "gzip"} if body.startswith(b"\x1f\x8b") else {}
        while (answer := self.request("POST", "/v1/traces", body, headers))[0] in (429, 503):
            time.sleep(0.5)
        if answer[0] != 200:
            raise RuntimeError(f"POST /v1/traces: {answer[0]} {answer[1][:300]!r}")

    def stored(self):
        """Spans in its database, read beside it."""
        database = sqlite3.connect(f"file:{self.data / 'phoenix.db'}?mode=ro", uri=True, timeout=30)
        with contextlib.closing(database):
            return database.execute("SELECT count(*) FROM spans").fetchone()[0]

    def settled(self, count=None, quiet_s=3.0):
        """Waits until so many spans are stored, or until no more come; how many there are."""
        # On a busy machine it stores less often.
        quiet_s *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        end, before, since = time.monotonic() + STORED_WITHIN_S, -1, time.monotonic()
        while time.monotonic() < end:
            now = self.stored()
            if now != before:
                before, since, end = now, time.monotonic(), time.monotonic() + STORED_WITHIN_S
            if count is not None and now >= count or count is None and time.monotonic() - since > quiet_s:
                return now
            time.sleep(0.2)
        raise RuntimeError(f"{before} spans are stored after {STORED_WITHIN_S} s, {count} were sent")

    def pages(self, path):
        """All of a list, whatever its pages."""
        found, cursor = [], None
        while True:
            mark = "&" if "?" in path else "?"
            page = self.json(path + (f"{mark}cursor={urllib.parse.quote(cursor)}" if cursor else ""))
            found += page["data"]
            cursor = page["next_cursor"]
            if not cursor:
                return found


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
