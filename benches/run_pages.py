#!/usr/bin/env python3
"""How fast the page answers over a large store: for each page, the server's time to the last byte over loopback.

  benches/run_pages.py GRADUS [--spans 1000000] [--requests 100] [--out FILE]

The traces are those of run_collecting.py: a ReAct agent's, graded by rules as they arrive. The store is made anew.
"""
import argparse
import http.client
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from collecting import spans
from collecting.servers import PROTOBUF, free_ports, without_proxies
from machine import machine

TEMPLATE = 100_000
DAY_NS = 86_400_000_000_000


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def close(self):
        """The next request opens a new connection: one that says nothing for long is closed by the server."""
        self.connection.close()

    def post(self, body):
        self.connection.request("POST", "/v1/traces", bytes(body), PROTOBUF)
        answer = self.connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"the server answers {answer.status}")

    def get(self, path):
        """Milliseconds, and the answer."""
        started = time.perf_counter()
        self.connection.request("GET", path, headers={"accept": "text/html"})
        answer = self.connection.getresponse()
        body = answer.read()
        took = (time.perf_counter() - started) * 1000
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        return took, body.decode()


def fill(client, count):
    """The template again and again, under other ids, over the last ten days."""
    template = spans.template(min(count, TEMPLATE))
    client.close()
    rounds = math.ceil(count / template.spans)
    now = time.time_ns()
    spacing = 10 * DAY_NS // (rounds * template.traces)
    for turn in range(rounds):
        base = now - 10 * DAY_NS + turn * template.traces * spacing
        for number in range(len(template.bodies)):
            client.post(template.body(number, (turn + 1) * 0x9E37_79B9_7F4A_7C15, base, spacing))
    return rounds * template.spans


def settle(client):
    started = time.monotonic()
    while "\ngradus_traces_due 0.0\n" not in client.get("/metrics")[1]:
        if time.monotonic() - started > 3600:
            raise SystemExit("the traces were not assembled")
        time.sleep(1)


def pages(client):
    listed = client.get("/traces")[1]
    trace = re.search(r'data-id="([0-9a-f]{32})"', listed).group(1)
    older = re.search(r'rel="next" href="([^"]+)"', listed).group(1).replace("&#38;", "&")
    return {"overview": "/", "overview, 24 hours": "/?range=24h", "overview, one agent, all time": "/?project=bench&agent=code_agent&range=all", "traces": "/traces", "older traces": older,
            "traces, a label": "/traces?label=thought_to_tool%3Dincorrect", "traces, words": "/traces?q=refund+order", "traces, a condition": "/traces?where=span_kind+%3D%3D+%27TOOL%27+and+status_code+%3D%3D+%27ERROR%27",
            "rows alone": "/traces/rows", "one trace": f"/traces/{trace}", "its spans": f"/traces/{trace}/spans", "review": "/review", "review, all": "/review?which=all", "agreement": "/agreement",
            "runs": "/runs", "rubrics": "/rubrics", "alerts": "/alerts", "server": "/server"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gradus")
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--out")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        http_port, grpc_port = free_ports(2)
        config = pathlib.Path(folder) / "gradus.toml"
        config.write_text("[serve]\nquiet_s = 0.5\n")
        command = [given.gradus, "serve", "--data", f"{folder}/data", "--config", config, "--http", f"127.0.0.1:{http_port}", "--grpc", f"127.0.0.1:{grpc_port}"]
        with open(pathlib.Path(folder) / "log.txt", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=without_proxies())
        try:
            client = Client(http_port)
            for _ in range(300):
                try:
                    client.get("/readyz")
                    break
                except OSError:
                    client = Client(http_port)
                    time.sleep(0.1)
            started = time.monotonic()
            count = fill(client, given.spans)
            settle(client)
            print(f"{count:,} spans after {time.monotonic() - started:.0f} s", flush=True)
            found = {}
            for name, path in pages(client).items():
                times, size = [], 0
                # What takes long is kept for some seconds: the first look is the one that waits.
                first = client.get(path)[0]
                for _ in range(given.requests):
                    took, text = client.get(path)
                    times.append(took)
                    size = max(size, len(text.encode()))
                times.sort()
                found[name] = {"p50_ms": round(statistics.median(times), 1), "p95_ms": round(times[math.ceil(0.95 * len(times)) - 1], 1), "first_ms": round(first, 1), "bytes": size}
                print(f"{name:32} p50 {found[name]['p50_ms']:7.1f} ms   p95 {found[name]['p95_ms']:7.1f} ms   first {first:7.1f} ms   {size / 1000:6.1f} KB", flush=True)
        finally:
            process.terminate()
            process.wait(60)
    result = {"machine": machine(), "spans": count, "requests": given.requests, "pages": found}
    if given.out:
        pathlib.Path(given.out).write_text(json.dumps(result, indent=2) + "\n")
    slow = [name for name, one in found.items() if one["p95_ms"] >= 100]
    large = [name for name, one in found.items() if one["bytes"] >= 100_000]
    sys.exit(f"too slow: {slow}; too large: {large}" if slow or large else 0)


if __name__ == "__main__":
    main()
