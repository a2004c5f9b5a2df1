#!/usr/bin/env python3
"""Reads a project from a running Phoenix and writes benches/results/phoenix_read.json.

  benches/run_phoenix_read.py GRADUS [--spans 100000] [--runs 3]

Phoenix is filled over OTLP once, which takes about 10 ms a span, and its folder is kept below the cache folder. Then
`gradus traces phoenix://...` reads all of it and lists the trajectories. Claims: reading is bounded by Phoenix, so our
CPU time is below 5 % of the wall time, and the peak memory below 100 MB. Wall time grows when others use the machine, which
flatters us, so our CPU time must also be below 5 % of Phoenix's, which answers on one core. It fails when they do not hold,
and when other than the sent spans are read.
"""
import argparse
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import sqlite3
import sys
import tempfile
import time

from collecting import servers, spans
from machine import cpu_of, machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPU_SHARE, MEMORY_MB = 0.05, 100.0


class KeptPhoenix(servers.Phoenix):
    """A Phoenix whose folder is there already, or will be needed again."""

    def stored(self):
        database = sqlite3.connect(f"file:{self.data / 'phoenix.db'}?mode=ro", uri=True, timeout=60)
        with contextlib.closing(database):
            query = "SELECT count(*) FROM spans JOIN traces ON traces.id = spans.trace_rowid JOIN projects ON projects.id = traces.project_rowid WHERE projects.name = 'bench'"
            return database.execute(query).fetchone()[0]


def fill(folder, template):
    """Sends all spans and waits until they are stored; only done once."""
    with KeptPhoenix(folder) as phoenix:
        missing = template.spans - phoenix.stored()
        if missing and missing != template.spans:
            sys.exit(f"{folder} holds a part of the spans only: remove it")
        base = time.time_ns() - 3_600 * 10**9
        connection = http.client.HTTPConnection("127.0.0.1", phoenix.port, timeout=120)
        for number in range(len(template.bodies) if missing else 0):
            body = bytes(template.body(number, 0, base, 1_000_000))
            while True:
                connection.request("POST", "/v1/traces", body, servers.PROTOBUF)
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    break
                if answer.status != 503:
                    sys.exit(f"Phoenix answered {answer.status}")
                time.sleep(1)
        while (stored := phoenix.stored()) < template.spans:
            print(f"\r{stored} of {template.spans} spans are stored", end="", file=sys.stderr, flush=True)
            time.sleep(5)
        print(file=sys.stderr)
        phoenix.stop()


def read(gradus, phoenix, template):
    """One read of everything; CPU, memory and time, and what Phoenix spent on it."""
    before, load = phoenix.cpu_s(), round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        with open(out, "wb") as stdout:
            command = [gradus, "traces", f"phoenix://127.0.0.1:{phoenix.port}/bench", "--coverage", "--format", "json"]
            cpu, memory, wall = cpu_of(command, stdout=stdout, cwd=folder, env=servers.without_proxies())
        found = json.loads(out.read_text())["total"]
    if found["spans"] != template.spans:
        sys.exit(f"{found['spans']} spans were read, {template.spans} were sent")
    theirs = phoenix.cpu_s() - before
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 3), "cpu_share": round(cpu / wall, 4), "peak_memory_mib": round(memory, 1),
            "spans_per_s": round(template.spans / wall), "phoenix_cpu_s": round(theirs, 2), "cpu_of_phoenix_cpu": round(cpu / theirs, 4),
            "load_average_before": load, "trajectories": found["trajectories"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gradus")
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", default=ROOT / "benches" / "results" / "phoenix_read.json")
    options = parser.parse_args()
    gradus, template = str(pathlib.Path(options.gradus).resolve()), spans.template(options.spans)
    version = hashlib.sha256(pathlib.Path(spans.__file__).read_bytes() + repr(servers.PHOENIX).encode()).hexdigest()[:10]
    folder = spans.CACHE / f"phoenix-read-{version}-{options.spans}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "filled").exists():
        fill(folder, template)
        (folder / "filled").write_text("")
    with KeptPhoenix(folder) as phoenix:
        runs = [read(gradus, phoenix, template) for _ in range(options.runs)]
    results = {"machine": machine(), "phoenix": ", ".join(servers.PHOENIX), "spans": template.spans, "traces": template.traces,
               "bytes_sent": template.bytes, "claims": {"cpu_share_below": CPU_SHARE, "cpu_of_phoenix_cpu_below": CPU_SHARE, "peak_memory_mb_below": MEMORY_MB}, "runs": runs}
    pathlib.Path(options.output).write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(runs, indent=1))
    if any(max(run["cpu_share"], run["cpu_of_phoenix_cpu"]) >= CPU_SHARE or run["peak_memory_mib"] * 1.048576 >= MEMORY_MB for run in runs):
        sys.exit("a claim does not hold")


if __name__ == "__main__":
    main()
