#!/usr/bin/env python3
"""Setting a server up in a real browser: the first start, alerts that are made on the page, and their badge and band.

  tests/peers/page_setup.py GRADUS [CHECK...]
  tests/peers/page_setup.py GRADUS --screenshots FOLDER     the pages of it, light and dark, wide and narrow

What is tried is in page_setup_browser.py. run.py runs this too, and says there what is skipped and why.
"""
import contextlib
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from collector import RUNS_WITHIN_S, Server, checked, clean_environment, free_ports
from github_clients import npm_folder
from page import AXE, PACKAGES, chromium
from run import HERE, finish, python_for, run_checks

# A trace is graded when a check asks for it, not before the page has shown that it arrived.
QUIET_S = 600
# Webhooks of the page may go to this machine, which is private.
ALERT_SETTINGS = """alert_networks = ["127.0.0.0/8"]

[[alert]]
name = "from the file"
when = "error_rate > 0.99 over 1h, at least 1000 trajectories"
"""


@contextlib.contextmanager
def receiver():
    """A receiver of webhooks: 404 below /missing, else 200. Its address, and what it got."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            posted.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            self.send_response(404 if self.path.startswith("/missing") else 200)
            self.send_header("content-length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", posted
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def world(gradus, settings="", quiet_s=QUIET_S):
    with tempfile.TemporaryDirectory() as folder, receiver() as (hook, posted):
        server = Server(gradus, folder, *free_ports(2), settings=settings, quiet_s=quiet_s)
        try:
            yield f"http://127.0.0.1:{server.http_port}", {"hook": hook}, posted
        finally:
            server.stop()


def browse(url, ids, what, *more):
    given = json.dumps({"url": url, "ids": ids, "chromium": chromium(), "axe": str(npm_folder("page-axe", AXE) / "node_modules/axe-core/axe.min.js")})
    words = [python_for("page", PACKAGES), HERE / "page_setup_browser.py", given, what, *more]
    ran = subprocess.run(words, env=clean_environment(), capture_output=True, text=True, timeout=3 * RUNS_WITHIN_S)
    return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).strip().splitlines()[-25:]


@checked
def first_start(gradus):
    with world(gradus) as (url, ids, _):
        return browse(url, ids, "first_start")


@checked
def without_script(gradus):
    with world(gradus) as (url, ids, _):
        return browse(url, ids, "without_script")


@checked
def load_the_demo(gradus):
    with world(gradus, quiet_s=0.3) as (url, ids, _):
        return browse(url, ids, "load_the_demo")


@checked
def alerts_from_the_page(gradus):
    with world(gradus, settings=ALERT_SETTINGS, quiet_s=0.3) as (url, ids, posted):
        found = browse(url, ids, "alerts_from_the_page")
        tests = [body for path, body in posted if path == "/hook" and body["kind"] == "test"]
        fired = [body for path, body in posted if path.startswith("/missing") and body["kind"] == "fired"]
        found += [] if len(tests) == 1 and tests[0]["rule"] == "calls" else [f"test notices: {tests}"]
        return found + ([] if len(fired) >= 2 else [f"a webhook that answers 404 was tried {len(fired)} times"])


def main():
    gradus = os.path.abspath(sys.argv[1])
    if "--screenshots" in sys.argv:
        folder = pathlib.Path(sys.argv[sys.argv.index("--screenshots") + 1]).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with world(gradus, settings=ALERT_SETTINGS, quiet_s=0.3) as (url, ids, _):
            sys.exit("\n".join(browse(url, ids, "screenshots", str(folder))) or 0)
    checks = {check.__name__: check for check in [first_start, without_script, load_the_demo, alerts_from_the_page]}
    wanted = {name: check for name, check in checks.items() if len(sys.argv) < 3 or name in sys.argv[2:]}
    finish(*run_checks({f"page {name}": functools.partial(check, gradus) for name, check in wanted.items()}))


if __name__ == "__main__":
    main()
