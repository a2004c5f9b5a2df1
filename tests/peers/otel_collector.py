#!/usr/bin/env python3
"""packaging/collector/collector.yaml, as far as it can be tried without a collector, which no package registry
offers ready-made. scripts/test-collector runs it in a real one.

  tests/peers/otel_collector.py GRADUS

  - structure: components, pipelines and keys, as release 0.152 of the collector knows them;
  - sampling: the policies keep every run of the recorded framework variants (fixtures/captures);
  - redaction: the patterns mask credentials and leave ordinary text alone;
  - delivery: exporters of the real SDK send to Gradus, with a key and gzip, and to another backend at once, through a 503.

run.py runs this too.
"""
import collections
import gzip
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from collector import Server, checked, clean_environment, free_ports
from run import HERE, finish, python_for, run_checks

ROOT = HERE.parent.parent
CONFIG = ROOT / "packaging" / "collector" / "collector.yaml"
PACKAGES = ["PyYAML==6.0.3", "opentelemetry-sdk==1.45.2", "opentelemetry-exporter-otlp-proto-http==1.45.1"]

QUEUE = {"enabled": None, "queue_size": None, "num_consumers": None}
RETRY = {"enabled": None, "initial_interval": None, "max_interval": None, "max_elapsed_time": None}
EXPORTER = {"endpoint": None, "compression": None, "timeout": None, "headers": "any", "sending_queue": QUEUE, "retry_on_failure": RETRY}
# The keys of the components as their sources declare them (mapstructure); None is a value, "any" anything below.
KEYS = {
    "receivers/otlp": {"protocols": {"grpc": {"endpoint": None}, "http": {"endpoint": None}}},
    "processors/memory_limiter": {"check_interval": None, "limit_percentage": None, "spike_limit_percentage": None},
    "processors/redaction": {"allow_all_keys": None, "blocked_key_patterns": None, "blocked_values": None, "summary": None},
    "processors/tail_sampling": {"decision_wait": None, "num_traces": None, "decision_cache": {"sampled_cache_size": None, "non_sampled_cache_size": None}, "policies": "any"},
    "processors/batch": {"timeout": None, "send_batch_size": None, "send_batch_max_size": None},
    "exporters/otlphttp": EXPORTER,
}
POLICY = {"name", "type", "string_attribute"}
STRING_ATTRIBUTE = {"key", "values", "enabled_regex_matching"}
DURATION = re.compile(r"\d+(ms|s|m|h)")
# Traces of a capture that are no runs: an MCP client that asks a server what it offers.
WITHOUT_RUNS = {"openai-agents-mcp": {"mcp.method.name"}}
SECRETS = ["ghp_" + "a" * 36, "github_pat_" + "b" * 30, "sk-" + "c" * 40, "AKIA" + "D" * 16, "Bearer " + "e" * 40, "mona@example.com"]
ORDINARY = ["Close the issue about the login failure in octo-demo/api.", '{"owner": "octo", "number": 12}', "risk-averse", "gen_ai.usage.input_tokens", "the bearer of news", "100 tokens @ 2 dollars"]
MASKED_KEYS = ["http.request.header.authorization", "llm.api_key", "db.password", "client.secret", "x.access_token"]
ORDINARY_KEYS = ["llm.token_count.prompt", "gen_ai.usage.output_tokens", "input.value", "gen_ai.request.max_tokens", "llm.input_messages.0.message.content"]


def load_config():
    import yaml
    return yaml.safe_load(CONFIG.read_text())


# Structure


def unknown_keys(value, known, path):
    if known == "any" or known is None:
        return [] if known == "any" or not isinstance(value, dict) else [f"{path}: a table where a value is expected"]
    return [found for key, inner in value.items() for found in (unknown_keys(inner, known[key], f"{path}.{key}") if key in known else [f"{path}: unknown key {key}"])]


def check_structure():
    config, found = load_config(), []
    defined = {kind: set(config[kind]) for kind in ("receivers", "processors", "exporters")}
    used = {kind: {name for pipeline in config["service"]["pipelines"].values() for name in pipeline[kind]} for kind in defined}
    found += [f"{kind}: defined {sorted(defined[kind])}, used {sorted(used[kind])}" for kind in defined if defined[kind] != used[kind]]
    for kind in defined:
        for name, settings in config[kind].items():
            known = KEYS.get(f"{kind}/{name.split('/')[0]}")
            found += [f"{kind}/{name}: not a component that was looked up"] if known is None else unknown_keys(settings, known, f"{kind}/{name}")
    for policy in config["processors"]["tail_sampling/gradus"]["policies"]:
        if set(policy) != POLICY or policy["type"] != "string_attribute" or set(policy["string_attribute"]) - STRING_ATTRIBUTE:
            found.append(f"policy {policy}")
    for name, pipeline in config["service"]["pipelines"].items():
        order = [processor.split("/")[0] for processor in pipeline["processors"]]
        if order[0] != "memory_limiter" or order[-1] != "batch" or order != sorted(order, key=["memory_limiter", "redaction", "tail_sampling", "batch"].index):
            found.append(f"{name}: processors in the order {order}")
        if "gradus" in name and "redaction" not in order:
            found.append(f"{name}: not redacted")
    text = CONFIG.read_text()
    described = set(re.findall(r"^#   ([A-Z_]+) ", text, re.MULTILINE))
    needed = set(re.findall(r"\$\{env:([A-Z_]+)\}", text))
    found += [f"variables: {sorted(needed)} are used, {sorted(described)} described"] if needed != described else []
    durations = [value for exporter in config["exporters"].values() for key, value in exporter.get("retry_on_failure", {}).items() if key != "enabled"]
    return found + [f"not a duration: {value}" for value in durations if not DURATION.fullmatch(str(value))]


# Sampling


def read_traces(folder):
    """Attributes of the spans of each trace of a capture."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    traces = collections.defaultdict(list)
    for path in sorted(folder.rglob("*.bin")):
        body = path.read_bytes()
        request = ExportTraceServiceRequest()
        try:
            request.ParseFromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        except DecodeError:
            continue
        for resource_spans in request.resource_spans:
            of_resource = {a.key: a.value.string_value for a in resource_spans.resource.attributes}
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    traces[path.parent.name, span.trace_id].append({**of_resource, **{a.key: a.value.string_value for a in span.attributes}})
    return traces


def is_sampled(spans, policies):
    """As the processor decides: one span with a matching attribute, of its own or of its resource, is enough."""
    return any(re.search(value, span.get(policy["string_attribute"]["key"], "")) for span in spans for policy in policies for value in policy["string_attribute"]["values"])


def check_sampling():
    policies, found, count = load_config()["processors"]["tail_sampling/gradus"]["policies"], [], 0
    for capture in sorted((ROOT / "fixtures" / "captures").iterdir()):
        traces = read_traces(capture)
        count += len(traces)
        dropped = [key for key, spans in traces.items() if not is_sampled(spans, policies) and not any(WITHOUT_RUNS.get(capture.name, set()) & set(span) for span in spans)]
        if dropped:
            found.append(f"{capture.name}: {len(dropped)} of {len(traces)} traces would be dropped, e.g. of {dropped[0][0]}")
    if is_sampled([{"http.request.method": "GET", "service.name": "shop"}], policies):
        found.append("a plain HTTP trace would be kept")
    unused = [policy["name"] for policy in policies if not any(is_sampled(spans, [policy]) for capture in (ROOT / "fixtures" / "captures").iterdir() for spans in read_traces(capture).values())]
    return found + ([f"policies that keep nothing: {unused}"] if unused else []) + ([] if count > 500 else [f"only {count} traces were read"])


# Redaction


def check_redaction():
    settings = load_config()["processors"]["redaction/gradus"]
    values, keys = ([re.compile(pattern) for pattern in settings[name]] for name in ("blocked_values", "blocked_key_patterns"))

    def mask(text):
        for pattern in values:
            text = pattern.sub("****", text)
        return text

    found = [f"not masked: {secret}" for secret in SECRETS if secret.split()[-1] in mask(f'{{"content": "use {secret} now"}}')]
    found += [f"masked: {text}" for text in ORDINARY if mask(text) != text]
    found += [f"key is not masked: {key}" for key in MASKED_KEYS if not any(pattern.search(key) for pattern in keys)]
    return found + [f"key is masked: {key}" for key in ORDINARY_KEYS if any(pattern.search(key) for pattern in keys)]


# Delivery


class Backend:
    """Keeps what arrives. With `forward_to` it refuses the first request with 503 and Retry-After and hands the others on."""

    def __init__(self, forward_to=None):
        self.requests, self.refused = [], 0
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, reply, headers = 200, b"", {"content-type": "application/x-protobuf"}
                if forward_to and not backend.refused:
                    backend.refused, status, headers = 1, 503, {"retry-after": "1"}
                elif forward_to:
                    connection = http.client.HTTPConnection("127.0.0.1", forward_to, timeout=60)
                    connection.request("POST", self.path, body, {key: value for key, value in self.headers.items() if key.lower() in ("content-type", "content-encoding", "authorization")})
                    answer = connection.getresponse()
                    status, reply = answer.status, answer.read()
                    connection.close()
                backend.requests.append((status, dict(self.headers.items()), body))
                self.send_response(status)
                for key, value in {**headers, "content-length": str(len(reply))}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(reply)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def export_both(gradus_url, backend_url, key):
    """A run of an agent, exported to both with the settings of collector.yaml: runs in the environment with the SDK."""
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{gradus_url}/v1/traces", headers={"authorization": f"Bearer {key}"}, compression=Compression.Gzip, timeout=60)))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{backend_url}/v1/traces", compression=Compression.Gzip)))
    tracer = provider.get_tracer("otel_collector")
    with tracer.start_as_current_span("agent", attributes={"openinference.span.kind": "AGENT", "input.value": "How many lamps are there?", "output.value": "12 lamps."}):
        with tracer.start_as_current_span("get_stock", attributes={"openinference.span.kind": "TOOL", "tool.name": "get_stock", "input.value": '{"article": "lamp"}', "output.value": "12"}):
            pass
    if not provider.force_flush(120_000):
        sys.exit("not everything was exported")
    provider.shutdown()


def check_delivery(gradus, python):
    with tempfile.TemporaryDirectory() as folder:
        http_port, grpc_port = free_ports(2)
        added = subprocess.run([gradus, "keys", "add", "collector", "--scopes", "ingest", "--data", pathlib.Path(folder) / "data"], capture_output=True, text=True)
        key = re.search(r"gradus_\w+", added.stdout).group()
        reader = re.search(r"gradus_\w+", subprocess.run([gradus, "keys", "add", "reader", "--scopes", "read", "--data", pathlib.Path(folder) / "data"], capture_output=True, text=True).stdout).group()
        server, backend = Server(gradus, folder, http_port, grpc_port, "require_key = true\n"), Backend()
        front = Backend(forward_to=http_port)
        try:
            ran = subprocess.run([python, __file__, "--export", front.url, backend.url, key], capture_output=True, text=True, timeout=300, env=clean_environment())
            refused = subprocess.run([python, __file__, "--export", f"http://127.0.0.1:{http_port}", backend.url, reader], capture_output=True, text=True, timeout=300, env=clean_environment())
            status, body = server.request("GET", "/api/v1/projects/shop/spans", headers={"authorization": f"Bearer {reader}"})
        finally:
            front.close()
            backend.close()
            found = server.stop()
    spans = [json.loads(line) for line in body.splitlines() if line.strip()] if status == 200 else []
    if ran.returncode != 0 or [code for code, _, _ in front.requests] != [503, 200]:
        found.append(f"answers {[code for code, _, _ in front.requests]} instead of 503 and then 200: {ran.stderr[-400:]}")
    # Both exports reached the other backend; the second one had no key for Gradus.
    if len(backend.requests) != 2 or any(headers.get("Content-Encoding") != "gzip" for _, headers, _ in backend.requests):
        found.append(f"the other backend got {len(backend.requests)} requests instead of 2")
    if len(spans) != 2 or len({span["context"]["trace_id"] if "context" in span else span.get("trace_id") for span in spans}) != 1:
        found.append(f"Gradus has {len(spans)} spans instead of the 2 of the first export (status {status}); {refused.stderr[-200:]}")
    return found


CHECKS = {"structure": check_structure, "sampling": check_sampling, "redaction": check_redaction}


def main():
    if sys.argv[1] == "--export":
        return export_both(*sys.argv[2:])
    if sys.argv[1] == "--inside":
        return print(json.dumps(CHECKS[sys.argv[2]]()))
    gradus = os.path.abspath(sys.argv[1])

    def inside(name):
        ran = subprocess.run([python_for("otel-collector", PACKAGES), __file__, "--inside", name], capture_output=True, text=True, timeout=600)
        return json.loads(ran.stdout) if ran.returncode == 0 else [ran.stderr.strip()[-600:]]

    checks = {f"collector.yaml, {name}": (lambda name=name: inside(name)) for name in CHECKS}
    checks["collector.yaml, delivery"] = lambda: check_delivery(gradus, python_for("otel-collector", PACKAGES))
    finish(*run_checks({name: checked(check) for name, check in checks.items()}))


if __name__ == "__main__":
    main()
