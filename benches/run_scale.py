#!/usr/bin/env python3
"""Measures scale-out and writes benches/results/scale.json, one section at a time: sections that are not measured keep
their numbers.

  benches/run_scale.py GRADUS [--sections archive,spark,postgres,lists,sizing] [--spans 100000] [--phoenix-spans 20000] [--spark-traces 4000,40000]
                       [--list-spans 10000000] [--note TEXT]

GRADUS is an installed program, built with `--profile dist --features dist`.

  - archive: bytes a span in an archive and as they were sent, CPU and peak memory of writing and of grading it, beside
    grading the same spans from files;
  - spark: CPU of all processes of a standalone cluster that grades the same spans with one and with two workers, and their
    ratio, for several numbers of traces. Needs a Java runtime;
  - postgres: 1, 2 and 3 servers on one PostgreSQL, and Phoenix on the same: CPU a span of the servers and of PostgreSQL, apart;
  - lists: pages and API of a server on PostgreSQL over many spans. One day is sent; its rows are copied to the 29 days before inside of
    PostgreSQL (benches/collecting/copied_days.py), because assembling and grading 10,000,000 spans takes hours on two cores. Needs about
    4.5 KB of disk a span;
  - sizing: three other clusters, beside what the constants of `postgres` predict of them (docs/explanation/sizing.md).
"""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import sys
import tempfile

from collecting import postgres, spans
from machine import cpu_of, machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results" / "scale.json"
sys.path.insert(0, str(ROOT / "tests" / "peers"))

from archive_traces import BEGIN_NS, DAY_NS, make_exports  # noqa: E402

STEPS, PADDING, SPANS_A_TRACE = 4, 60, 9


def write_exports(path, traces):
    with open(path, "w") as file:
        for export in make_exports(traces, together=16, steps=STEPS, padding=PADDING, days=3):
            file.write(export + "\n")


def write_requests(folder, count):
    """Requests of benches/collecting: ReAct traces with random prose, about 4 KB a span, over three days."""
    template = spans.template(count)
    folder.mkdir()
    spacing_ns = 3 * DAY_NS // max(1, template.traces)
    for number in range(len(template.bodies)):
        (folder / f"{number:06}.bin").write_bytes(template.body(number, 0, BEGIN_NS, spacing_ns))
    return template.bytes


def measure_archive(options, folder):
    requests, archive, count = folder / "requests", folder / "archive", options.spans
    sent_bytes = write_requests(requests, count)
    writing = cpu_of([options.gradus, "store", "archive", archive, requests])
    manifest = json.loads((archive / "manifest.json").read_text())
    if manifest["records"] != count:
        sys.exit(f"the archive has {manifest['records']} records instead of {count}")
    found = {
        "spans": count, "traces": manifest["traces"], "files": len(manifest["parts"]), "sent_bytes_a_span": round(sent_bytes / count),
        "archive_bytes_a_span": round(sum(part["bytes"] for part in manifest["parts"]) / count), "write": per_span(writing, count),
    }  # fmt: skip
    for name, source in (("grade_archive", archive), ("grade_files", requests)):
        found[name] = per_span(cpu_of([options.gradus, "eval", "-q", "--judge", "offline", "--state-dir", folder / name, source]), count)
    return found


def per_span(measured, count):
    cpu, memory, wall = measured
    return {"cpu_us_a_span": round(cpu / count * 1e6, 1), "peak_memory_mib": round(memory), "wall_s": round(wall, 1)}


def measure_spark(options, folder):
    """With several numbers of traces: the fewer there are, the more of the CPU is what starting an executor costs."""
    loader = importlib.machinery.SourceFileLoader("test_spark", str(ROOT / "scripts" / "test-spark"))
    test_spark = importlib.util.module_from_spec(importlib.util.spec_from_loader("test_spark", loader))
    loader.exec_module(test_spark)
    python = test_spark.python_for("spark", test_spark.PACKAGES)
    return {f"traces_{traces}": measure_clusters(options, folder, test_spark, python, traces) for traces in options.spark_traces}


def measure_clusters(options, folder, test_spark, python, traces):
    """CPU of the sessions of workers, with everything below them, when the driver has all rows and still runs."""
    exports = folder / "exports.jsonl"
    write_exports(exports, traces)
    found = {"spans": traces * SPANS_A_TRACE}
    for workers in (1, 2):
        place = folder / f"cluster-{traces}-{workers}"
        place.mkdir()
        cluster = test_spark.Cluster(python, place, workers)
        try:
            rows = place / "rows.jsonl"
            settings = {"partitions": 8, "usual_batches": True, "hold": str(place / "go-on"), "executor_environment": {"GRADUS_BIN": str(options.gradus)}}
            driver = cluster.start_driver(python, exports, rows, settings)
            test_spark.wait_until("the driver has all rows", lambda: driver.poll() is not None or pathlib.Path(f"{rows}.done").exists())
            java, others = map(sum, zip(*(session_cpu(worker.pid) for worker in cluster.workers)))
            found[f"cpu_s_{workers}_workers"], found[f"java_cpu_s_{workers}_workers"] = round(java + others, 1), round(java, 1)
            with open(rows) as lines:
                found[f"rows_{workers}_workers"] = sum(1 for _ in lines)
            (place / "go-on").touch()
            cluster.await_driver(driver)
        finally:
            cluster.close()
    found["ratio"] = round(found["cpu_s_2_workers"] / found["cpu_s_1_workers"], 2)
    return found


def session_cpu(session):
    """CPU seconds of all processes of a session and of their children that have ended: of Java, and of all others."""
    java = others = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text().rsplit(")", 1)
            fields = rest.split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session:
            ticks = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            java, others = (java + ticks, others) if name.endswith("(java") else (java, others + ticks)
    return java, others


SECTIONS = {"archive": measure_archive, "spark": measure_spark, "postgres": postgres.measure, "lists": postgres.measure_lists, "sizing": postgres.measure_sizing}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradus", type=pathlib.Path)
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--phoenix-spans", type=int, default=20_000)
    parser.add_argument("--list-spans", type=int, default=10_000_000)
    parser.add_argument("--spark-traces", type=lambda text: [int(number) for number in text.split(",")], default=[4_000, 40_000])
    parser.add_argument("--note", help="stands with the results: what else the machine did meanwhile")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    options.gradus = options.gradus.resolve()
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    options.known = known
    for name in options.sections.split(","):
        with tempfile.TemporaryDirectory() as folder:
            note = {"note": options.note} if options.note else {}
            known[name] = {**note, **SECTIONS[name](options, pathlib.Path(folder)), "machine": machine()}
        print(name, json.dumps(known[name], indent=2), flush=True)
        options.out.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
