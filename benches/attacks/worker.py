"""One attacker as a process of its own: it prepares, says `ready`, begins when told `go`, and stops when its input ends."""
import contextlib
import dataclasses
import json
import os
import resource
import subprocess
import sys
import threading

from . import catalogue
from .target import Sizes, Target


def run(name, arguments):
    """Inside the process."""
    # In the world attackers have machines of their own. Here they would take the server's processor.
    os.nice(19)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sizes = Sizes(**arguments.pop("sizes"))
    target = Target(name, catalogue.address(name), sizes=sizes, **arguments)
    attack = catalogue.ATTACKS[name](target)
    next(attack)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return

    def wait_for_end():
        sys.stdin.read()
        target.stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    with contextlib.suppress(StopIteration):
        next(attack)
    target.stop.wait()
    print(json.dumps(target.results()), flush=True)
    # Threads that wait for an answer are not waited for.
    os._exit(0)


class Attacker:
    """The process, from outside."""

    def __init__(self, script, name, server, sizes):
        self.name = name
        arguments = {"http_port": server.port, "grpc_port": server.grpc_port, "keys": server.attacker_keys(), "sizes": dataclasses.asdict(sizes), "large_trace": server.large_trace}
        self.process = subprocess.Popen([sys.executable, script, "--worker", name, json.dumps(arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_until_ready(self):
        line = self.process.stdout.readline().strip()
        if line != "ready":
            raise RuntimeError(f"attack {self.name} could not be prepared: {line or 'it ended'}")

    def begin(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self, within_s=20):
        """Stops it; what it counted."""
        try:
            output, _ = self.process.communicate(timeout=within_s)
            return json.loads(output)
        except (subprocess.TimeoutExpired, ValueError, BrokenPipeError):
            self.process.kill()
            self.process.wait()
            return {"outcomes": {"no result": 1}, "acknowledged_spans": 0}
