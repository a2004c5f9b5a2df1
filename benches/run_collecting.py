#!/usr/bin/env python3
"""Measures collecting, side by side with Phoenix, and writes benches/results/collecting.json.

  benches/run_collecting.py GRADUS [--spans 100000] [--phoenix-spans N] [--skip-phoenix] [--config gradus.toml]
  benches/run_collecting.py GRADUS --large 10000000

Both are sent the same spans (benches/collecting/spans.py: ReAct traces, about 4 KB a span, 100 a request, protobuf,
not compressed) over 8 keep-alive connections that wait when they are told to. For each:
  - CPU time of the server until every acknowledged span is stored: for gradus that is the last acknowledgement, for
    Phoenix the moment its database holds them all; and until it rests again (gradus grades what it was sent by then);
  - bytes and calls of writing, spans a second until stored, memory idle and at its peak, bytes on disk, refusals, start to the first
    span taken;
  - all model spans of the project as a table (gradus: its stream into a CSV file; Phoenix: its client's data frame),
    with the longest answer time of /healthz meanwhile.
`--large N` fills a gradus store with N spans over 30 days in 5 projects and times listing and opening traces; it
writes benches/results/collecting_large.json. Give `--keep DIR` to keep that store, and again to use it without filling.

Phoenix gets an environment of its own below the cache folder; without it that half is skipped (with CI=true: failed).
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from collecting import large, servers, spans
from collecting.clients import Senders, Watcher
from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = ROOT / "benches" / "collecting"


def packing(template):
    """How far zstd packs a request (level 3, as it is sent, 50 requests)."""
    program = ("import struct, sys, zstandard\nraw = packed = 0\nwhile head := sys.stdin.buffer.read(8):\n"
               "    body = sys.stdin.buffer.read(struct.unpack('<Q', head)[0])\n"
               "    raw, packed = raw + len(body), packed + len(zstandard.compress(body, 3))\nprint(raw / packed)")
    some = b"".join(len(body).to_bytes(8, "little") + body for body, _ in template.bodies[:50])
    try:
        ran = subprocess.run([servers.environment("zstd", servers.ZSTD), "-c", program], input=some, capture_output=True, check=True)
    except (servers.NotInstalled, subprocess.CalledProcessError) as error:
        return f"not measured: {error}"
    return round(float(ran.stdout), 1)


def table(server, command):
    """Runs a client that makes the table, while the server is watched."""
    server.settle()
    idle, cpu = server.memory_mib(), server.cpu_s()
    with Watcher(server) as watcher:
        ran = subprocess.run(command, capture_output=True, text=True, env=servers.without_proxies())
    if ran.returncode != 0:
        return {"error": ran.stderr.strip()[-600:]}
    found = json.loads(ran.stdout.splitlines()[-1])
    return {**found, "server_cpu_s": round(server.cpu_s() - cpu, 2), "server_memory_before_mib": idle, **watcher.found()}


def wait_until_stored(server, wanted, patience_s=120):
    """Waits for what was acknowledged to be in the store; the number found, which stays lower when it stops growing."""
    seen, since = -1, time.monotonic()
    while (found := server.stored()) < wanted:
        if found > seen:
            seen, since = found, time.monotonic()
        elif time.monotonic() - since > patience_s:
            break
        time.sleep(0.25)
    return found


def measure(server, template, count, table_command):
    time.sleep(2)
    found = {"version": server.version(), "spans": count, "start_to_first_accepted_ms": server.start_to_first_accepted_ms,
             "memory_idle_mib": server.memory_mib()}
    base, spacing = time.time_ns() - 86_400 * 10**9, int(80_000 * 10**9 / template.traces)
    mask, left, bodies = int.from_bytes(os.urandom(16), "big"), count, []
    for number, (_, places) in enumerate(template.bodies):
        if left <= 0:
            break
        left -= len(places)
        body = bytes(template.body(number, mask, base, spacing))
        bodies.append((len(places), lambda body=body: body, {}))
    found["model_spans"] = sum(make().count(spans.MODEL) for _, make, _ in bodies)
    cpu = server.cpu_s()
    senders, shown = Senders(server.port, bodies), time.monotonic()
    while senders.running():
        time.sleep(0.02)
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            print(f"  {server.name}: {senders.spans:,} acknowledged, {server.stored():,} stored", file=sys.stderr, flush=True)
    acknowledged_cpu, acknowledged_s = server.cpu_s() - cpu, time.monotonic() - senders.started
    if senders.failure:
        sys.exit(f"{server.name}: sending stopped after {senders.spans} spans: {senders.failure}\n{server.tail()}")
    stored = wait_until_stored(server, senders.spans)
    # Durable when acknowledged is gradus's promise, and the count is looked at only to hold it to that.
    durable = server.name == "gradus"
    stored_cpu = acknowledged_cpu if durable else server.cpu_s() - cpu
    stored_s = acknowledged_s if durable else time.monotonic() - senders.started
    time.sleep(7)  # a trace is graded when it was quiet for 5 s
    rests_cpu = server.settle() - cpu
    written_bytes, write_calls = server.written()
    found |= {"acknowledged": senders.spans, "stored": stored, "payload_bytes": senders.bytes, "refused": senders.refusals(),
              "seconds_until_acknowledged": round(acknowledged_s, 2), "seconds_until_stored": round(stored_s, 2),
              "spans_per_second": round(stored / stored_s, 1),
              "cpu_s_until_stored": round(stored_cpu, 2), "cpu_us_per_span_until_stored": round(stored_cpu * 1e6 / stored, 1),
              "cpu_s_until_it_rests": round(rests_cpu, 2), "cpu_us_per_span_until_it_rests": round(rests_cpu * 1e6 / stored, 1),
              "written_bytes_per_span": round(written_bytes / stored), "write_calls_per_span": round(write_calls / stored, 2),
              "memory_peak_mib": server.memory_mib("VmHWM"), "memory_after_mib": server.memory_mib(),
              "disk_bytes_while_running": server.disk_bytes()}
    found["table_of_model_spans"] = table(server, table_command)
    status, took = server.stop()
    found |= {"exit_status": status, "seconds_to_stop": took, "disk_bytes": server.disk_bytes()}
    return found


def measure_gradus(options, template):
    with tempfile.TemporaryDirectory() as folder, servers.Gradus(folder, options.gradus, options.config) as server:
        command = [sys.executable, HERE / "table.py", str(server.port), "bench", str(pathlib.Path(folder) / "table.csv")]
        found = measure(server, template, options.spans, command)
        return {**found, "store_check": server.check()}


def measure_phoenix(options, template):
    with tempfile.TemporaryDirectory() as folder, servers.Phoenix(folder) as server:
        command = [server.python, HERE / "phoenix_table.py", str(server.port), "bench"]
        return measure(server, template, options.phoenix_spans or options.spans, command)


def ratios(ours, theirs):
    """How many times more Phoenix takes; for each span where the numbers of spans differ."""
    def times(*path, each=False):
        values = []
        for found in (theirs, ours):
            value = found
            for key in path:
                value = (value or {}).get(key)
            values.append(value and (value / found["stored"] if each else value))
        return round(values[0] / values[1], 1) if all(values) else None

    return {"cpu_per_span_until_stored": times("cpu_us_per_span_until_stored"), "cpu_per_span_until_it_rests": times("cpu_us_per_span_until_it_rests"),
            "seconds_per_span": times("seconds_until_stored", each=True), "memory_idle": times("memory_idle_mib"), "memory_peak": times("memory_peak_mib"),
            "disk_per_span": times("disk_bytes", each=True), "start": times("start_to_first_accepted_ms"),
            "table_seconds_per_row": times("table_of_model_spans", "seconds", each=True),
            "table_client_memory": times("table_of_model_spans", "client_peak_memory_mib"),
            "table_health_max": times("table_of_model_spans", "health_max_ms")}


def faults(found):
    """Where gradus did not keep what it promised."""
    table = found["table_of_model_spans"]
    faults = {f"{found['stored']} stored of {found['acknowledged']} acknowledged": found["stored"] != found["acknowledged"],
              f"the table: {table.get('error') or table.get('rows')} for {found['model_spans']} model spans": table.get("rows") != found["model_spans"],
              f"the server ended with status {found['exit_status']}": found["exit_status"] != 0,
              f"store check: {found['store_check']}": found["store_check"] != "clean"}
    return [text for text, is_so in faults.items() if is_so]


def show(results):
    rows = [("spans", "stored"), ("CPU µs a span until stored", "cpu_us_per_span_until_stored"),
            ("CPU µs a span until it rests", "cpu_us_per_span_until_it_rests"), ("spans a second", "spans_per_second"),
            ("bytes written a span", "written_bytes_per_span"), ("write calls a span", "write_calls_per_span"),
            ("memory idle, MiB", "memory_idle_mib"), ("memory peak, MiB", "memory_peak_mib"), ("bytes on disk", "disk_bytes"),
            ("refusals", "refused"), ("start to first span, ms", "start_to_first_accepted_ms")]
    rows += [(f"table: {label}", f"table.{key}") for label, key in (
        ("rows", "rows"), ("seconds", "seconds"), ("client memory, MiB", "client_peak_memory_mib"),
        ("server memory, MiB", "server_memory_mib"), ("longest /healthz, ms", "health_max_ms"))]
    systems = [name for name in ("gradus", "phoenix") if "stored" in results.get(name, {})]
    print(f"{'':32}" + "".join(f"{name:>18}" for name in systems))
    for label, key in rows:
        cells = []
        for name in systems:
            found = results[name]
            value = found["table_of_model_spans"].get(key[6:], "failed") if key.startswith("table.") else found[key]
            cells.append(f"{value:,}" if isinstance(value, (int, float)) else str(value or 0))
        print(f"{label:32}" + "".join(f"{cell:>18}" for cell in cells))
    if "times_less" in results:
        print("times less:", ", ".join(f"{name} {value}" for name, value in results["times_less"].items()))


def run_side_by_side(options):
    count = max(options.spans, options.phoenix_spans or 0)
    template = spans.template(count)
    results = {"machine": machine(), "spans": options.spans, "phoenix_spans": options.phoenix_spans or options.spans,
               "payload": {"bytes_per_span": round(template.bytes / template.spans), "spans_per_request": spans.BATCH, "spans_per_trace": round(template.spans / template.traces, 1),
                           "model_spans": template.model_spans, "zstd_ratio_of_a_request": packing(template), "seed": spans.SEED},
               "connections": 8}
    results["gradus"] = measure_gradus(options, template)
    skipped = False
    if options.skip_phoenix:
        results["phoenix"] = {"skipped": "--skip-phoenix"}
    else:
        try:
            results["phoenix"] = measure_phoenix(options, template)
            results["times_less"] = ratios(results["gradus"], results["phoenix"])
        except servers.NotInstalled as reason:
            print(f"Phoenix: SKIPPED, it could not be installed: {reason}")
            results["phoenix"], skipped = {"skipped": str(reason)}, True
    write("collecting.json", results, options)
    show(results)
    wrong = faults(results["gradus"])
    for fault in wrong:
        print(f"gradus: {fault}")
    return bool(wrong) or (skipped and os.environ.get("CI") == "true")


def run_large(options):
    template = spans.template(min(options.large, 100_000))
    results = {"machine": machine(), "payload": {"bytes_per_span": round(template.bytes / template.spans), "zstd_ratio_of_a_request": packing(template)},
               "projects": large.PROJECTS, "days": large.DAYS}
    with contextlib.nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory() as folder:
        os.makedirs(folder, exist_ok=True)
        with servers.Gradus(folder, options.gradus, options.config) as server:
            results |= {"version": server.version(), "start_to_first_accepted_ms": server.start_to_first_accepted_ms}
            if server.stored() < options.large:
                results["filling"] = large.fill(server, template, options.large - server.stored())
                results["cpu_s_until_it_rests"] = round(server.settle(5, 24 * 3600), 1)
            results |= {"stored": server.stored(), "disk_bytes": server.disk_bytes(), "memory_mib": server.memory_mib()}
            results["latency"] = large.ask(server, options.requests)
            results["memory_peak_mib"] = server.memory_mib("VmHWM")
            status, took = server.stop()
            results |= {"exit_status": status, "seconds_to_stop": took}
    write("collecting_large.json", results, options)
    print(f"{results['stored']:,} spans, {results['disk_bytes'] / 1e9:.2f} GB on disk")
    for name, found in results["latency"].items():
        print(f"{name:26}" + (found["error"] if "error" in found else "".join(f"{key[:-3]:>6} {found[key]:>9,.2f} ms" for key in ("p50_ms", "p95_ms", "p99_ms"))))
    return any("error" in found for found in results["latency"].values()) or results["exit_status"] != 0


def write(name, results, options):
    path = pathlib.Path(options.output or ROOT / "benches" / "results" / name)
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradus", help="the binary")
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--phoenix-spans", type=int, help="as many as --spans unless given")
    parser.add_argument("--skip-phoenix", action="store_true")
    parser.add_argument("--config", help="a gradus.toml for the server")
    parser.add_argument("--large", type=int, metavar="N", help="fill a store with N spans and time questions to it")
    parser.add_argument("--requests", type=int, default=large.REQUESTS, help="of each kind, with --large")
    parser.add_argument("--keep", metavar="DIR", help="where --large keeps its store")
    parser.add_argument("--output", help="the results file, if not the one in benches/results")
    options = parser.parse_args()
    sys.exit(run_large(options) if options.large else run_side_by_side(options))


if __name__ == "__main__":
    main()
