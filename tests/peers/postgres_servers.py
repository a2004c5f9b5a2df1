"""Servers on one PostgreSQL, and traces for them, for the tests that start several of them."""
import json
import os
import pathlib
import random
import signal
import subprocess
import urllib.error
import urllib.request

from postgres_cluster import free_port, wait_for


class Node:
    """One server, with a state folder of its own."""

    def __init__(self, gradus, address, folder, name, settings="", variables=None):
        self.gradus, self.address, self.variables = gradus, address, variables or {}
        self.folder = pathlib.Path(folder, name)
        self.folder.mkdir(exist_ok=True)
        self.configure(settings)
        self.start()

    def configure(self, settings):
        (self.folder / "gradus.toml").write_text(f"[serve]\nquiet_s = 0.3\ngive_up_s = 3\n{settings}")

    def start(self):
        self.port, grpc = free_port(), free_port()
        self.log = open(self.folder / "log", "ab")
        command = [self.gradus, "serve", "--http", f"127.0.0.1:{self.port}", "--grpc", f"127.0.0.1:{grpc}", "--data", "state", "--config", "gradus.toml"]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=self.log, stderr=self.log, env=environment(self.address) | self.variables)
        wait_for(self.is_up, f"{self.folder.name} to answer")
        return self

    def is_up(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.folder.name} ended: {self.read_log()[-800:]}")
        try:
            return self.get("/healthz")["status"] == "ok"
        except (OSError, ValueError):
            return False

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return json.load(answer)

    def send(self, spans):
        """Whether the spans were acknowledged."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/traces", json.dumps(spans).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status == 200
        except (OSError, urllib.error.HTTPError):
            return False

    def read_log(self):
        return (self.folder / "log").read_text()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=60)
        self.log.close()


def environment(address):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GRADUS_", "OPENAI_", "ANTHROPIC_", "PG"))}
    return {**kept, "GRADUS_STORE": address}


def text(key, value):
    return {"key": key, "value": {"stringValue": value}}


def span(trace, number, parent=None, name="step", **attributes):
    at = 1_790_000_000_000_000_000 + number * 1_000_000
    made = {"traceId": trace, "spanId": f"{number + 1:016x}", "name": name, "kind": 1, "startTimeUnixNano": str(at), "endTimeUnixNano": str(at + 900_000),
            "attributes": [text(key.replace("__", "."), value) for key, value in attributes.items()], "status": {}}
    if parent is not None:
        made["parentSpanId"] = f"{parent + 1:016x}"
    return made


def agent_run(trace):
    """An agent that looks two articles up and answers: its root, two model calls, two tool calls."""
    kind = "openinference__span__kind"
    root = span(trace, 0, name="agent", **{kind: "AGENT", "input__value": f"how many lamps are there? ({trace[:8]})", "output__value": "12 lamps"})
    steps = [root]
    for step in range(2):
        steps.append(span(trace, 1 + 2 * step, 0, "get_stock", **{kind: "TOOL", "tool__name": "get_stock", "input__value": '{"article": "lamp"}', "output__value": "12"}))
        steps.append(span(trace, 2 + 2 * step, 0, "chat", **{kind: "CHAIN", "input__value": "?", "output__value": "!"}))
    return steps


def request_of(spans, project="shop"):
    return {"resourceSpans": [{"resource": {"attributes": [text("openinference.project.name", project), text("service.name", project)]}, "scopeSpans": [{"scope": {"name": "t"}, "spans": spans}]}]}


def trace_ids(count, seed):
    draw = random.Random(seed)
    return [f"{draw.getrandbits(128):032x}" for _ in range(count)]


def run(gradus, folder, address, *arguments):
    return subprocess.run([gradus, *arguments], cwd=folder, env=environment(address), capture_output=True, text=True, timeout=300)
