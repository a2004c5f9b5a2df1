#!/usr/bin/env python3
"""Holds many connections open against `gradus serve` and writes benches/results/load.json.

  benches/run_load.py GRADUS [--connections 1000] [--seconds 60] [--batch 20] [--config gradus.toml]

Each connection posts batches of spans (about 4 KB each, new ids every time) one after another, and waits as long as
429 and 503 tell it to. Any other status, a broken connection or a missing answer is an error, and then this fails; so
it does when the store holds other than the acknowledged spans in the end, or finds itself damaged.
"""
import argparse
import asyncio
import json
import os
import pathlib
import resource
import sys
import tempfile
import time

from collecting import servers, spans
from collecting.clients import percentiles, rejected, retry_after
from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Load:
    """What all connections together saw."""

    def __init__(self, port, template, seconds):
        self.port, self.template, self.end = port, template, time.monotonic() + seconds
        self.statuses, self.errors, self.latencies, self.acknowledged, self.bytes = {}, {}, [], 0, 0
        self.sent, self.connected, self.waited_s, self.without_retry_after = 0, 0, 0.0, 0
        self.base = time.time_ns() - 3_600 * 10**9

    def fresh(self):
        """A batch under ids of its own."""
        number = self.sent % len(self.template.bodies)
        self.sent += 1
        mask = int.from_bytes(os.urandom(16), "big")
        return len(self.template.bodies[number][1]), self.template.body(number, mask, self.base, 1_000_000)

    def failed(self, error):
        name = f"{type(error).__name__}: {error}"
        self.errors[name] = self.errors.get(name, 0) + 1

    async def connection(self, delay_s):
        await asyncio.sleep(delay_s)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as error:
            self.failed(error)
            return
        self.connected += 1
        try:
            while time.monotonic() < self.end:
                count, body = self.fresh()
                while not await self.post(reader, writer, count, body):
                    if time.monotonic() >= self.end:
                        break
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError) as error:
            self.failed(error)
        writer.close()

    async def post(self, reader, writer, count, body):
        """Whether the batch was taken; otherwise it has waited."""
        start = time.monotonic()
        writer.write(b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\n"
                     b"content-length: %d\r\n\r\n" % len(body))
        writer.write(body)
        status, headers, reply = await asyncio.wait_for(self.answer(reader), 60)
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == 200:
            if refused := rejected(reply):
                raise ValueError(f"{refused} spans of a batch were rejected: {reply[:200]!r}")
            self.latencies.append((time.monotonic() - start) * 1000)
            self.acknowledged, self.bytes = self.acknowledged + count, self.bytes + len(body)
            return True
        if status not in (429, 503):
            raise ValueError(f"status {status}: {reply[:200]!r}")
        self.without_retry_after += "retry-after" not in headers
        if headers.get("connection") == "close":
            raise ValueError(f"the connection was closed with status {status}")
        pause = min(retry_after(headers.get("retry-after")), max(0.0, self.end - time.monotonic()))
        self.waited_s += pause
        await asyncio.sleep(pause)
        return False

    @staticmethod
    async def answer(reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int((await reader.readline()).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        else:
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body


async def sample(server, load, samples):
    began = time.monotonic()
    while True:
        samples.append({"s": round(time.monotonic() - began, 1), "memory_mib": server.memory_mib(), "spans": load.acknowledged,
                        "open_files": len(os.listdir(f"/proc/{server.process.pid}/fd"))})
        await asyncio.sleep(1)


async def run(server, template, options):
    load, samples = Load(server.port, template, options.seconds), []
    sampler = asyncio.create_task(sample(server, load, samples))
    began, cpu = time.monotonic(), server.cpu_s()
    # Connecting takes a moment each; all at the same instant would measure the backlog of the kernel.
    connections = [asyncio.create_task(load.connection(number * 0.001)) for number in range(options.connections)]
    await asyncio.gather(*connections)
    took = time.monotonic() - began
    sampler.cancel()
    return load, samples, took, server.cpu_s() - cpu


def raise_open_files(wanted):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted, hard))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradus", help="the binary")
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--batch", type=int, default=20, help="spans a request")
    parser.add_argument("--config", help="a gradus.toml for the server")
    parser.add_argument("--output", help="the results file, if not benches/results/load.json")
    options = parser.parse_args()
    raise_open_files(options.connections * 2 + 200)
    template = spans.template(options.batch * 500, options.batch)
    with tempfile.TemporaryDirectory() as folder, servers.Gradus(folder, options.gradus, options.config) as server:
        time.sleep(1)
        idle = server.memory_mib()
        load, samples, took, cpu = asyncio.run(run(server, template, options))
        peak, stored = server.memory_mib("VmHWM"), server.stored()
        server.settle()
        after, disk = server.memory_mib(), server.disk_bytes()
        status, stopping = server.stop()
        results = {
            "machine": machine(), "version": server.version(), "connections": options.connections, "connected": load.connected,
            "seconds": round(took, 1), "spans_per_request": options.batch, "bytes_per_span": round(template.bytes / template.spans),
            "statuses": {str(key): value for key, value in sorted(load.statuses.items())}, "errors": load.errors,
            "refusals_without_retry_after": load.without_retry_after, "seconds_waited_because_told": round(load.waited_s, 1),
            "spans_acknowledged": load.acknowledged, "spans_stored": stored, "spans_per_second": round(load.acknowledged / took),
            "server_cpu_s": round(cpu, 1), "latency_of_accepted": percentiles(load.latencies) if load.latencies else None,
            "memory_mib": {"idle": idle, "peak": peak, "at_rest_after": after}, "disk_bytes": disk,
            "exit_status": status, "seconds_to_stop": stopping, "store_check": server.check(), "samples": samples}
    path = pathlib.Path(options.output or ROOT / "benches" / "results" / "load.json")
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps({key: value for key, value in results.items() if key != "samples"}, indent=1))
    wrong = load.errors or stored != load.acknowledged or status != 0 or results["store_check"] != "clean" or load.connected < options.connections
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
