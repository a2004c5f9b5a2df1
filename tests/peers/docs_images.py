#!/usr/bin/env python3
"""Makes the pictures of docs/images, in a real browser: what the tutorial's agent did, and a conversation with a shop.

  tests/peers/docs_images.py GRADUS FOLDER

scripts/screenshots --docs runs it.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

import page_world
from collector import Server, clean_environment, free_ports
from page import PACKAGES, chromium
from run import OTEL, python_for

AGENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "agent.py"
SIZE = {"width": 1280, "height": 760}
MAX_BYTES = 300_000
# Run in an environment that has Playwright: the server's address, Chromium, the folder, pages by name.
DRAW = """
import json, sys
from playwright.sync_api import sync_playwright
given = json.loads(sys.argv[1])
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=given["chromium"], args=["--no-sandbox"])
    page = browser.new_page(viewport=given["size"], color_scheme="light")
    for name, path in given["pages"].items():
        page.goto(given["url"] + path)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=f"{given['folder']}/{name}.png")
"""


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def wrong_trace(url):
    """A trace with a step that was found wrong, as soon as there is one."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = get(f"{url}/api/v1/traces?score=thought_to_tool%3C0.9&limit=1")["items"]
        if found:
            return found[0]["trace_id"]
        time.sleep(0.5)
    raise SystemExit("nothing was found wrong")


def conversation(url):
    """A session of three turns, the second of which goes wrong; its page, as soon as it is graded."""
    now = time.time_ns()
    for number, (request, steps, answer) in enumerate([page_world.GOOD[0], page_world.BAD[0], page_world.GOOD[3]]):
        body = page_world.trace("support", "support_agent", "1.5.0", "gpt-4o", request, steps, answer, now - (700 - 100 * number) * 1_000_000_000)[1]
        page_world.with_attributes(body, "AGENT", {"session.id": "chat-42"})
        page_world.send(url, body)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        listed = get(f"{url}/api/v1/sessions?project=support")["items"]
        if listed and listed[0]["trajectories"] == 3 and listed[0]["flagged"] and sum(one["trajectories"] for one in listed[0]["outcomes"]) == 3:
            return "/sessions/chat-42?project=support"
        time.sleep(0.5)
    raise SystemExit("the conversation was not graded")


def main():
    gradus, images = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(gradus, folder, *free_ports(2))
        try:
            url = f"http://127.0.0.1:{server.http_port}"
            environment = {**clean_environment(), "OTEL_EXPORTER_OTLP_ENDPOINT": url}
            subprocess.run([python_for("tutorial", OTEL), AGENT], cwd=folder, env=environment, check=True, timeout=300)
            pages = {"trace": f"/traces/{wrong_trace(url)}#step-2", "overview": "/?range=all&project=shop", "session": conversation(url)}
            given = {"url": url, "chromium": chromium(), "size": SIZE, "folder": str(images), "pages": pages}
            subprocess.run([python_for("page", PACKAGES), "-c", DRAW, json.dumps(given)], check=True, timeout=300)
        finally:
            server.stop()
    for name in pages:
        size = (images / f"{name}.png").stat().st_size
        print(f"{name}.png: {size:,} bytes")
        if size > MAX_BYTES:
            sys.exit(f"{name}.png is larger than {MAX_BYTES:,} bytes")


if __name__ == "__main__":
    main()
