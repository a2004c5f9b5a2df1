#!/usr/bin/env python3
"""Real exporters against a real `gradus serve`: what they sent is there at once, whole, read as what the agent did, and
graded soon after.

  tests/peers/collector.py GRADUS

  - Python: LlamaIndex's ReAct agent under OpenInference, exported over HTTP and gRPC, plain and with gzip;
  - Node: spans made by hand, exported as JSON and protobuf over HTTP, and over gRPC;
  - both with no configuration at all, when the default ports are free;
  - schemathesis: what the server's own description allows, and what it does not, gives no 5xx.

run.py runs this too, and says there what is skipped and why.
"""
import contextlib
import functools
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

from loopback import scripted_model
from run import CACHE, HERE, PEERS, NotInstalled, Skipped, differences, finish, python_for, run_checks

OTEL = ["opentelemetry-sdk==1.45.2", "opentelemetry-exporter-otlp==1.45.1"]
PYTHON_PACKAGES = ["llama-index-core==0.14.25", "llama-index-llms-openai==0.8.3", "openinference-instrumentation-llama-index==4.6.1", *OTEL]
SCHEMATHESIS = ["schemathesis==4.32.5"]
# The newest that run on Node 20.
NODE_PACKAGES = {"@opentelemetry/api": "1.9.1", "@opentelemetry/sdk-trace": "2.12.1", "@opentelemetry/resources": "2.12.1",
                 "@opentelemetry/exporter-trace-otlp-http": "0.223.1", "@opentelemetry/exporter-trace-otlp-proto": "0.223.1",
                 "@opentelemetry/exporter-trace-otlp-grpc": "0.223.1"}
DEFAULT_PORTS = (4317, 4318)
# Bounds for what hangs, not for what is slow: a busy machine takes ten times as long.
STARTS_WITHIN_S = 300
ANSWERS_WITHIN_S = 120
GRADED_WITHIN_S = 300
ENDS_WITHIN_S = 120
# It finishes what it has begun, which takes its time on a busy machine.
SCHEMATHESIS_ENDS_WITHIN_S = 600
RUNS_WITHIN_S = 600
SCHEMATHESIS_WITHIN_S = 90


def clean_environment(**extra):
    """Without proxies and without what an exporter would read, but for what is given here."""
    kept = {key: value for key, value in os.environ.items() if "proxy" not in key.lower() and not key.startswith("OTEL_")}
    return kept | extra


def exporting(service, port, compression, **extra):
    """The environment of an exporter that is told where to send."""
    told = {"OTEL_SERVICE_NAME": service, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    return clean_environment(**told, **({"OTEL_EXPORTER_OTLP_COMPRESSION": compression} if compression != "none" else {}), **extra)


class Server:
    """`gradus serve` with a store of its own; stopped with SIGTERM and looked over in the end."""

    def __init__(self, gradus, folder, http_port=None, grpc_port=None, settings="", quiet_s=0.3):
        self.gradus, self.data, self.log = gradus, pathlib.Path(folder) / "data", pathlib.Path(folder) / "log.txt"
        self.http_port, self.grpc_port = http_port or 4318, grpc_port or 4317
        config = pathlib.Path(folder) / "gradus.toml"
        config.write_text(f"[serve]\nquiet_s = {quiet_s}\n{settings}")
        command = [gradus, "serve", "--data", self.data, "--config", config]
        if http_port:
            command += ["--http", f"127.0.0.1:{http_port}", "--grpc", f"127.0.0.1:{grpc_port}"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=clean_environment(), cwd=folder)
        end = time.monotonic() + STARTS_WITHIN_S
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                raise RuntimeError(f"gradus serve did not become ready: {self.tail()}")
            time.sleep(0.02)

    def ready(self):
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def tail(self):
        return self.log.read_text(errors="replace").strip()[-1500:]

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=ANSWERS_WITHIN_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def get(self, path):
        return self.request("GET", path)

    def json(self, path):
        status, body = self.get(path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body[:300]!r}")
        return json.loads(body)

    def spans(self, project):
        path = f"/api/v1/projects/{urllib.parse.quote(project, safe='')}/spans"
        status, body = self.get(path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body[:300]!r}")
        return [json.loads(line) for line in body.splitlines() if line.strip()]

    def stop(self):
        """What is wrong with how it ends and what it leaves behind."""
        self.process.terminate()
        try:
            status = self.process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return [f"it did not end within {ENDS_WITHIN_S} s of SIGTERM"]
        found = [] if status == 0 else [f"it ended with status {status} on SIGTERM: {self.tail()}"]
        check = subprocess.run([self.gradus, "store", "check", "--data", self.data], capture_output=True, text=True)
        return found + ([] if check.returncode == 0 else [f"store check: {(check.stdout + check.stderr).strip()[-500:]}"])


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def checked(check):
    """A check whose own trouble is one of its differences."""
    @functools.wraps(check)
    def run(*arguments):
        try:
            return check(*arguments)
        except (RuntimeError, OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
            return [f"{type(error).__name__}: {error}"]

    return run


@checked
def python_agent(server, protocol, compression):
    python = python_for("collector-python", PYTHON_PACKAGES)
    peer, project = PEERS["llamaindex"], f"agent {protocol} {compression}"
    port = server.grpc_port if protocol == "grpc" else server.http_port
    with scripted_model(peer["replies"]) as model:
        environment = exporting(project, port, compression, MODEL_URL=model.url + "/v1", OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
        ran = subprocess.run([python, HERE / "agents" / peer["agent"], *peer["queries"]], env=environment, capture_output=True, text=True, timeout=RUNS_WITHIN_S)
    if ran.returncode != 0:
        return [f"the agent failed: {ran.stderr.strip()[-600:]}"]
    traces = traces_of(server, project)
    trajectories = [one for trace in traces for one in trace["trajectories"]]
    found = differences(peer["trajectories"], trajectories)
    found += [f"unexpected defect {defect}" for one in trajectories for defect in one["defects"]]
    if found:
        return found + ([f"the exporter said: {ran.stderr.strip()[-600:]}"] if ran.stderr.strip() else [])
    return graded(server, project, trajectories)


def traces_of(server, project):
    items = server.json("/api/v1/traces?" + urllib.parse.urlencode({"project": project}))["items"]
    return [server.json(f"/api/v1/traces/{item['trace_id']}") for item in items]


def graded(server, project, trajectories):
    """Whether the server comes to the verdicts that `gradus eval` comes to."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "trajectories.jsonl"
        source.write_text("".join(json.dumps(one) + "\n" for one in trajectories))
        command = [server.gradus, "eval", source, "--judge", "offline", "--jsonl", "-", "--quiet", "--state-dir", folder]
        ran = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, cwd=folder)
    if ran.returncode != 0:
        return [f"gradus eval failed on the trajectories: {ran.stderr.strip()[-500:]}"]
    wanted = verdicts(json.loads(line) for line in ran.stdout.splitlines())
    end = time.monotonic() + GRADED_WITHIN_S
    while (got := verdicts(outcome for trace in traces_of(server, project) for outcome in trace["outcomes"])) != wanted:
        if time.monotonic() > end:
            return [f"graded after {GRADED_WITHIN_S} s: {got}", f"gradus eval says: {wanted}"]
        time.sleep(0.2)
    return [] if wanted else ["nothing was graded"]


def verdicts(outcomes):
    found = {(one.get("step_index"), one.get("evaluator"), one.get("outcome"), one.get("label")) for one in outcomes}
    return sorted(found, key=str)


def node_packages():
    """The folder with the exporters for Node, made once."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise NotInstalled("there is no node or no npm")
    folder = CACHE / "peer-collector-node"
    made, wanted = folder / "packages.txt", json.dumps(NODE_PACKAGES)
    if not (made.exists() and made.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": NODE_PACKAGES}))
        npm = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], cwd=folder, capture_output=True, text=True)
        if npm.returncode != 0:
            raise NotInstalled((npm.stderr.strip().splitlines() or ["npm failed"])[-1])
        made.write_text(wanted)
    return folder / "node_modules"


def run_node(exporter, environment):
    """What was sent, and what went wrong."""
    environment = environment | {"NODE_PATH": str(node_packages())}
    ran = subprocess.run(["node", HERE / "agents" / "node_spans.cjs", exporter], env=environment, capture_output=True, text=True, timeout=RUNS_WITHIN_S)
    if ran.returncode != 0 or ran.stderr.strip():
        return [], [f"node: {(ran.stderr.strip() or ran.stdout.strip())[:800]}"]
    return json.loads(ran.stdout.splitlines()[-1]), []


@checked
def node_spans(server, exporter, compression):
    project = f"node {exporter} {compression}"
    port = server.grpc_port if exporter == "grpc" else server.http_port
    sent, found = run_node(exporter, exporting(project, port, compression))
    if found:
        return found
    by_id = {span["span_id"]: span for span in server.spans(project)}
    found = [] if len(by_id) == len(sent) else [f"{len(by_id)} spans instead of {len(sent)}"]
    for span in sent:
        got = by_id.get(span["span_id"])
        found += differences(span, got, span["name"]) if got else [f"{span['name']} is not there"]
        lost = set(span["attributes"]) ^ set((got or span)["attributes"])
        found += [f"{span['name']}: attribute {key!r} is not in both" for key in sorted(lost)]
    models = server_models(server, project)
    found += [] if models == ["chat"] else [f"?kind=LLM gives {models}"]
    traces = traces_of(server, project)
    if [trace["trajectories"][0]["query"] for trace in traces] != [sent[0]["attributes"]["input.value"]]:
        found.append(f"the trace is read as {[one['query'] for trace in traces for one in trace['trajectories']]}")
    return found


def server_models(server, project):
    status, body = server.get(f"/api/v1/projects/{urllib.parse.quote(project, safe='')}/spans?kind=LLM")
    return [json.loads(line)["name"] for line in body.splitlines() if line.strip()] if status == 200 else f"status {status}: {body[:200]!r}"


@checked
def no_configuration(gradus):
    for port in DEFAULT_PORTS:
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise Skipped(f"port {port} is taken") from None
    python = python_for("collector-python", PYTHON_PACKAGES)
    node_packages()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(gradus, folder)
        try:
            ran = subprocess.run([python, HERE / "agents" / "no_configuration.py"], env=clean_environment(), capture_output=True, text=True, timeout=RUNS_WITHIN_S)
            found = [f"python: {ran.stderr.strip()[-600:]}"] if ran.returncode != 0 else []
            sent = {f"python {name}": trace for name, trace in json.loads(ran.stdout or "{}").items()}
            for exporter in ("http", "proto", "grpc"):
                spans, wrong = run_node(exporter, clean_environment())
                found += wrong
                sent |= {f"node {exporter}": span["trace_id"] for span in spans[:1]}
            for name, trace in sent.items():
                status, body = server.get(f"/api/v1/traces/{trace}")
                found += [] if status == 200 else [f"{name} did not find the server: GET /api/v1/traces/{trace}: {status} {body[:200]!r}"]
        finally:
            left = server.stop()
    return found + left


@checked
def fuzzed(server):
    """Sends captured traces, so that there is something to find, and then what schemathesis thinks of."""
    python = python_for("collector-schemathesis", SCHEMATHESIS)
    captures = HERE.parents[1] / "fixtures" / "captures"
    for folder in ("llamaindex-react", "plain-openai-oi"):
        for body in sorted((captures / folder).glob("*/*.bin")):
            content = body.read_bytes()
            headers = {"content-type": "application/x-protobuf"} | ({"content-encoding": "gzip"} if content.startswith(b"\x1f\x8b") else {})
            while (answer := server.request("POST", "/v1/traces", content, headers))[0] in (429, 503):
                time.sleep(1)
            status, reply = answer
            if status != 200:
                return [f"POST /v1/traces of {body.relative_to(captures)}: {status} {reply[:300]!r}"]
    with tempfile.TemporaryDirectory() as folder:
        command = [python.parent / "schemathesis", "run", f"http://127.0.0.1:{server.http_port}/openapi.json", "--checks", "not_a_server_error",
                   "--phases", "examples,coverage,fuzzing", "--max-examples", "20", "--seed", "1", "--request-timeout", "60", "--no-color",
                   "--continue-on-failure", "--warnings", "off"]
        with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder) as running:
            try:
                output, _ = running.communicate(timeout=SCHEMATHESIS_WITHIN_S)
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGINT)
                try:
                    output, _ = running.communicate(timeout=SCHEMATHESIS_ENDS_WITHIN_S)
                except subprocess.TimeoutExpired:
                    running.kill()
                    output, _ = running.communicate()
    found = [] if server.process.poll() is None else [f"the server ended with status {server.process.returncode}: {server.tail()}"]
    # Stopped for its time, it ends with a status of its own: what it found until then counts.
    lines = output.strip().splitlines()
    told = next((number for number, line in enumerate(lines) if line.strip("= ") in ("FAILURES", "ERRORS")), None)
    if told is not None:
        found += lines[told:told + 80]
    elif running.returncode != 0 and not any(line.strip() == "Test cases:" for line in lines):
        found += [f"schemathesis ended with status {running.returncode}", *lines[-40:]]
    return found


def main():
    gradus = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        try:
            server = Server(gradus, folder, *free_ports(2))
        except RuntimeError as error:
            print(f"peer collector: FAILED\n  {error}")
            finish(0, 1, 0)
        try:
            checks = {}
            for protocol in ("http/protobuf", "grpc"):
                for compression in ("none", "gzip"):
                    checks[f"collector, python {protocol} {compression}"] = functools.partial(python_agent, server, protocol, compression)
            for exporter, compression in (("http", "none"), ("http", "gzip"), ("proto", "none"), ("proto", "gzip"), ("grpc", "none"), ("grpc", "gzip")):
                checks[f"collector, node {exporter} {compression}"] = functools.partial(node_spans, server, exporter, compression)
            checks["collector, no configuration"] = functools.partial(no_configuration, gradus)
            checks["collector, schemathesis"] = functools.partial(fuzzed, server)
            checks["collector, its end"] = server.stop
            counts = run_checks(checks)
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
    finish(*counts)


if __name__ == "__main__":
    main()
