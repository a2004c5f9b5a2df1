"""One attacker as a process of its own. It prepares once and says `ready`. For each line that names a server it attacks, in a
child, until the next line comes; then the child says what it counted."""
import contextlib
import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import threading

from . import catalogue
from .target import Sizes, Target


def run(name, sizes):
    """Inside the process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    target = Target(name, catalogue.address(name), Sizes(**sizes))
    attack = catalogue.ATTACKS[name](target)
    next(attack)
    print("ready", flush=True)
    while line := sys.stdin.readline():
        stop_reader, stop_writer = os.pipe()
        # What was prepared is shared; threads begin in the child.
        child = os.fork()
        if child == 0:
            os.close(stop_writer)
            attack_once(target, attack, json.loads(line), stop_reader)
        os.close(stop_reader)
        has_more = sys.stdin.readline()
        os.close(stop_writer)
        _, status = os.waitpid(child, 0)
        if status != 0:
            print(json.dumps({"outcomes": {"no result": 1}, "acknowledged_spans": 0}), flush=True)
        if not has_more:
            return


def attack_once(target, attack, server, stop_reader):
    # In the world attackers have machines of their own. Here they would take the server's processor: a hundred threads of the
    # lowest niceness together still weigh more than one of the server's, so they run only when nobody else wants to.
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)
    for field, value in server.items():
        setattr(target, field, value)

    def wait_for_stop():
        os.read(stop_reader, 1)
        target.stop.set()
        # Whatever still waits for an answer is not waited for.
        signal.alarm(10)

    threading.Thread(target=wait_for_stop, daemon=True).start()
    with contextlib.suppress(StopIteration):
        next(attack)
    target.stop.wait()
    print(json.dumps(target.results()), flush=True)
    os._exit(0)


class Attacker:
    """The process, from outside."""

    def __init__(self, script, name, sizes):
        self.name, self.is_ready = name, False
        arguments = json.dumps(dataclasses.asdict(sizes))
        self.process = subprocess.Popen([sys.executable, script, "--worker", name, arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_until_ready(self):
        if self.is_ready:
            return
        line = self.process.stdout.readline().strip()
        if line != "ready":
            raise RuntimeError(f"attack {self.name} could not be prepared: {line or 'it ended'}")
        self.is_ready = True

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def begin(self, server):
        self.tell(json.dumps({"http_port": server.port, "grpc_port": server.grpc_port, "keys": server.attacker_keys(), "large_trace": server.large_trace}))

    def stop(self):
        self.tell("stop")

    def results(self):
        """What it counted, after it was stopped."""
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.kill()
        self.process.wait()
