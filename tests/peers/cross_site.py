#!/usr/bin/env python3
"""Web pages of other origins against a real `gradus serve` and a real `gradus simulate`, in a real Chromium: forms,
`fetch`, beacons, with every content type that a page can send unasked, to every route that changes something. Nothing may
come of it.

  tests/peers/cross_site.py GRADUS

What the page does is in cross_site_browser.py. run.py runs this too, and says there what is skipped and why.
"""
import contextlib
import functools
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from collector import Server, checked, clean_environment, free_ports
from page import PACKAGES, chromium, due_count
from run import HERE, finish, python_for, run_checks

SOURCE = HERE.parent.parent / "crates" / "server" / "src"
TRACE, SPAN, NEW_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
PLANTED = "planted by a web page"
# What each route would have taken; the others get an empty object.
BODIES = {
    "/v1/traces": {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": TRACE, "spanId": SPAN, "name": PLANTED, "startTimeUnixNano": "1", "endTimeUnixNano": "2"}]}]}]},
    "/v1/projects": {"name": PLANTED},
    "/v1/projects/default/spans": {"data": [{"name": PLANTED, "span_kind": "AGENT", "status_code": "OK", "context": {"trace_id": TRACE, "span_id": NEW_SPAN}, "start_time": "2026-01-01T00:00:00+00:00", "end_time": "2026-01-01T00:00:01+00:00", "attributes": {}}]},
    "/v1/span_annotations": {"data": [{"name": "thought_to_tool", "annotator_kind": "HUMAN", "span_id": SPAN, "result": {"label": PLANTED, "score": 1}}]},
    "/v1/trace_annotations": {"data": [{"name": "thought_to_tool", "annotator_kind": "HUMAN", "trace_id": TRACE, "result": {"label": PLANTED, "score": 1}}]},
    "/v1/trace_notes": {"data": {"trace_id": TRACE, "note": PLANTED}},
    "/v1/span_notes": {"data": {"span_id": SPAN, "note": PLANTED}},
    "/api/v1/annotations": {"items": [{"target": f"span:{SPAN}", "name": "n", "label": PLANTED}]},
    "/_gradus/seed": {"extends": "w1"},
    "/_gradus/clock": {"advance_s": 3600},
}
# The simulator's own; its state is compared before and after.
CONTROL = [["POST", "/_gradus/seed"], ["POST", "/_gradus/reset"], ["POST", "/_gradus/clock"], ["PUT", "/_gradus/snapshots/x"], ["POST", "/user/repos"]]


def write_routes(server):
    """All routes that change something, as the source and the API's description list them."""
    found = set()
    for path in SOURCE.rglob("*.rs"):
        for route, handlers in re.findall(r'\.route\(\s*"([^"]+)",([^\n]*)', path.read_text()):
            found |= {(method.upper(), route) for method in re.findall(r"\b(post|put|patch|delete)\(", handlers)}
    for route, operations in server.json("/openapi.json")["paths"].items():
        found |= {(method.upper(), route) for method in operations if method in ("post", "put", "patch", "delete")}
    return sorted([method, re.sub(r"\{[^}]*\}", "default", route)] for method, route in found)


class AttackPages(http.server.BaseHTTPRequestHandler):
    """An empty page of another origin."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><body>")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def attack_pages():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), AttackPages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def simulator(gradus):
    process = subprocess.Popen([gradus, "simulate", "--port", "0"], stdout=subprocess.PIPE, text=True, env=clean_environment())
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)


def browse(targets, port, kinds_wanted):
    """What was sent and how it was answered, from a page on another port and from one on another host."""
    pages = [f"http://127.0.0.1:{port}/", f"http://localhost:{port}/"]
    given = json.dumps({"chromium": chromium(), "pages": pages, "targets": targets, "bodies": BODIES})
    ran = subprocess.run([python_for("page", PACKAGES), HERE / "cross_site_browser.py"], input=given, env=clean_environment(), capture_output=True, text=True, timeout=500)
    if ran.returncode != 0:
        return [f"the browser: {(ran.stdout + ran.stderr).strip()[-1500:]}"]
    seen = json.loads(ran.stdout)
    found = sorted({f"{one['kind']} {one['method']} {one['url']}: {one['status']}" for one in seen if one["status"] not in (403, 415)})
    found = found[:20] + ([f"and {len(found) - 20} more"] if len(found) > 20 else [])
    # The check is worth nothing unless the browser really sent each kind of request, and was answered.
    kinds = {one["kind"] for one in seen}
    return found + [f"no {kind} was answered: {sorted(kinds)}" for kind in kinds_wanted - kinds]


def stored(server):
    labels = server.get("/labels?format=jsonl")
    return {"projects": server.json("/v1/projects"), "traces": server.json("/api/v1/traces"), "labels": labels[1].decode(), "annotations": server.json("/api/v1/annotations")}


@checked
def check_serve(gradus):
    chromium()
    python_for("page", PACKAGES)
    with tempfile.TemporaryDirectory() as folder, attack_pages() as port:
        http_port, grpc_port, phoenix_port = free_ports(3)
        server = Server(gradus, folder, http_port, grpc_port, settings=f"phoenix_port = {phoenix_port}\n")
        try:
            # Somebody's own trace, so that there is something to label and to delete.
            own = json.dumps(BODIES["/v1/traces"]).replace(PLANTED, "own").encode()
            status, said = server.request("POST", "/v1/traces", own, {"content-type": "application/json"})
            if status != 200:
                return [f"a client that is no browser is refused: {status} {said!r}"]
            end = time.monotonic() + 60
            while not (items := server.json("/api/v1/traces")["items"]) or due_count(server) != 0:
                if time.monotonic() > end:
                    return [f"the own trace did not arrive: {items}"]
                time.sleep(0.05)
            before, routes = stored(server), write_routes(server)
            if len(routes) < 20:
                return [f"only {len(routes)} routes were found"]
            hosts = [f"127.0.0.1:{http_port}", f"localhost:{http_port}", f"127.0.0.1:{phoenix_port}", f"127.0.0.1:{grpc_port}"]
            found = browse([[f"http://{host}", method, route] for host in hosts for method, route in routes], port, {"form", "fetch", "beacon"})
            after = stored(server)
            if after != before:
                found.append(f"something was planted: {json.dumps(after)[:1000]}")
            if PLANTED.encode() in b"".join(path.read_bytes() for path in server.data.rglob("*") if path.is_file()):
                found.append("something planted is in the store's files")
            return found
        finally:
            server.stop()


@checked
def check_simulate(gradus):
    chromium()
    python_for("page", PACKAGES)
    with attack_pages() as port, simulator(gradus) as url:
        def state():
            return urllib.request.urlopen(f"{url}/_gradus/state", timeout=30).read() + urllib.request.urlopen(f"{url}/_gradus/snapshots", timeout=30).read()

        before = state()
        found = browse([[url, method, route] for method, route in CONTROL], port, {"form", "fetch", "beacon"})
        return found + (["the simulator's state was changed"] if state() != before else [])


def main():
    gradus = os.path.abspath(sys.argv[1])
    finish(*run_checks({"cross-site serve": functools.partial(check_serve, gradus), "cross-site simulate": functools.partial(check_simulate, gradus)}))


if __name__ == "__main__":
    main()
