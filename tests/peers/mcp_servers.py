#!/usr/bin/env python3
"""`gradus tools --mcp` with servers of the official Python SDK, of both of its generations, over both transports.

  tests/peers/mcp_servers.py GRADUS

run.py runs this too, and says there what is skipped and why.
"""
import contextlib
import functools
import json
import os
import shlex
import socket
import subprocess
import sys
import time

from collector import clean_environment
from run import HERE, finish, python_for, run_checks

GENERATIONS = {"1": ["mcp==1.30.0"], "2": ["mcp==2.3.0"]}
SERVER = HERE / "agents" / "mcp_server.py"
EFFECTS = {"get_stock": "reads", "order": "writes", "clear_out": "destroys"}
CALLS = [
    ("get_stock", {"article": "lamp"}, 0, '"in_stock": 12'),
    # What went wrong is told by the first generation only.
    ("get_stock", {"article": "unicorn"}, 1, "Error executing tool get_stock"),
    ("get_stock", {"artikel": "lamp"}, 1, "article"),
    ("order", {"article": "lamp", "count": 3}, 0, "ordered 3 lamp"),
    ("clear_out", {}, 0, "all gone"),
]


@contextlib.contextmanager
def by_command(python):
    yield shlex.join([str(python), str(SERVER)])


@contextlib.contextmanager
def by_address(python):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([python, SERVER, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
    try:
        end = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(120)


def check(gradus, packages, name, reached):
    def ask(*arguments):
        return subprocess.run([gradus, "tools", *arguments], env=clean_environment(), capture_output=True, text=True, timeout=600)

    with reached(python_for(name, packages)) as server:
        listed = ask("--mcp", server, "--json")
        if listed.returncode != 0:
            return [listed.stderr.strip()]
        tools = json.loads(listed.stdout)
        found = [] if {tool["name"]: tool["effect"] for tool in tools} == EFFECTS else [f"listed: {listed.stdout}"]
        for tool, arguments, status, wanted in CALLS:
            seen = ask(tool, "--mcp", server, "--call", json.dumps(arguments))
            said = " ".join(seen.stdout.split())
            if seen.returncode != status or wanted not in said:
                found.append(f"{tool} {arguments}: {seen.returncode} {said} {seen.stderr.strip()}")
    return found


def main():
    gradus = os.path.abspath(sys.argv[1])
    checks = {}
    for generation, packages in GENERATIONS.items():
        for way in (by_command, by_address):
            name = f"mcp-{generation}"
            checks[f"{name}, {way.__name__.replace('_', ' ')}"] = functools.partial(check, gradus, packages, name, way)
    finish(*run_checks(checks))


if __name__ == "__main__":
    main()
