#!/usr/bin/env python3
"""Asks `gradus simulate` for simple things as fast as it answers, and writes benches/results/simulator.json.

  benches/run_simulator.py GRADUS [--seconds 3] [--build "how GRADUS was built"]

Connections are kept open and send one request after another. The simulator has one thread, so what it answers in a second
of its own CPU time is what one core answers; the rate by the clock has this client in it, which takes more CPU than the
simulator. Start is measured from the call to the printed address.
"""
import argparse
import json
import os
import pathlib
import selectors
import socket
import subprocess
import sys
import time

from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKEN = "test_token_user1"
CONNECTIONS = 8
# Simple reads: one object each, and a list.
READS = {
    "one user": "/user",
    "one repository": "/repos/octo/demo",
    "one issue": "/repos/octo/demo/issues/5",
    "one file": "/repos/octo/demo/contents/src/app.py",
    "one reference": "/repos/octo/demo/git/ref/heads/main",
    "a list of 9 labels": "/repos/octo/demo/labels",
}


def start(gradus, seed):
    begin = time.monotonic()
    process = subprocess.Popen([gradus, "simulate", "--port", "0", "--seed", seed], stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    return process, port, (time.monotonic() - begin) * 1000


def stop(process):
    process.terminate()
    process.stdout.close()
    if process.wait(10) != 0:
        sys.exit(f"gradus simulate ended with status {process.returncode}")


def cpu_s(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Connection:
    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode()
        self.buffer = b""

    def send(self):
        self.socket.sendall(self.request)

    def receive(self):
        """The size of a whole answer, once it is there."""
        self.buffer += self.socket.recv(1 << 16)
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return 0
        at = self.buffer.index(b"content-length: ") + 16
        whole = head + 4 + int(self.buffer[at:self.buffer.index(b"\r", at)])
        if len(self.buffer) < whole:
            return 0
        if not self.buffer.startswith(b"HTTP/1.1 200"):
            sys.exit(f"not answered as it should be: {self.buffer[:300]!r}")
        self.buffer = self.buffer[whole:]
        return whole


def measure(process, port, path, seconds):
    selector = selectors.DefaultSelector()
    connections = [Connection(port, path) for _ in range(CONNECTIONS)]
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        connection.send()
    count = size = 0
    begin, cpu = time.monotonic(), cpu_s(process)
    while time.monotonic() - begin < seconds:
        for key, _ in selector.select(1):
            if got := key.data.receive():
                count, size = count + 1, got
                key.data.send()
    wall, cpu = time.monotonic() - begin, cpu_s(process) - cpu
    for connection in connections:
        connection.socket.close()
    return {"requests": count, "answer_bytes": size, "requests_per_second": round(count / wall),
            "requests_per_cpu_second": round(count / cpu), "cpu_us_per_request": round(cpu / count * 1e6, 1)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("gradus")
    arguments.add_argument("--seconds", type=float, default=3)
    arguments.add_argument("--build", default="release")
    given = arguments.parse_args()
    starts = {}
    for seed in ("w0", "w4"):
        times = []
        for _ in range(10):
            process, _, took_ms = start(given.gradus, seed)
            stop(process)
            times.append(took_ms)
        times.sort()
        starts[seed] = {"best": round(times[0], 1), "median": round(times[len(times) // 2], 1)}
    process, port, _ = start(given.gradus, "w2")
    reads = {name: measure(process, port, path, given.seconds) for name, path in READS.items()}
    memory = next(int(line.split()[1]) for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    stop(process)
    results = {"machine": machine(), "build": given.build, "start_ms": starts, "connections": CONNECTIONS, "reads": reads,
               "peak_memory_mib": round(memory / 1024, 1)}
    (ROOT / "benches/results/simulator.json").write_text(json.dumps(results, indent=1) + "\n")
    for name, read in reads.items():
        print(f"{name}: {read['requests_per_cpu_second']} requests a CPU second, {read['requests_per_second']} by the clock, {read['answer_bytes']} bytes each")
    print(f"start: {starts}")


if __name__ == "__main__":
    main()
