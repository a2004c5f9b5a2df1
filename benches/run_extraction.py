#!/usr/bin/env python3
"""Measures reading and extraction, side by side in one run, and writes benches/results/extraction.json.

  benches/run_extraction.py [--gigabytes 1.0]

What it compares:
  - decoding and extraction in this library with decoding the same protobuf with prost alone (benches/extraction.rs);
  - that with benches/extract_baseline.py on the LlamaIndex captures: the work alone, and a whole process per capture
    folder, as a CI job or a shell loop would run them;
  - memory and CPU time while a file of the given size is read;
  - wall time with one core against all cores, as protobuf, gzip and JSON Lines, and whether the output is the same;
  - the reader on hostile ReAct texts of 1 MB.

It makes its own virtual environment (package opentelemetry-proto) below the cache folder.
"""
import argparse
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import venv

from machine import cpu_of, machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
CAPTURES = ROOT / "fixtures" / "captures"
CACHE = pathlib.Path(os.environ.get("GRADUS_TEST_CACHE") or pathlib.Path.home() / ".cache" / "gradus")
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def python_with_protobuf():
    folder = CACHE / "bench-venv"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "opentelemetry-proto==1.45.0"], check=True)
        (folder / "ready").touch()
    return str(python)


def whole_processes(gradus, python, folders):
    ours = sum(cpu_of([gradus, "traces", "--format", "jsonl", *map(str, sorted(folder.glob("*.bin")))])[0] for folder in folders)
    baseline = ROOT / "benches" / "extract_baseline.py"
    theirs = sum(cpu_of([python, baseline, folder, "--passes", "1"])[0] for folder in folders)
    return {"capture_folders": len(folders), "gradus_cpu_ms": round(ours * 1e3, 1), "python_cpu_ms": round(theirs * 1e3, 1),
            "times_less_cpu": round(theirs / ours, 1)}


# Copies the LlamaIndex captures until the file is large enough; every copy gets trace ids of its own.
MAKE_LARGE = """
import gzip, hashlib, pathlib, sys
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
out, size, folders = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
requests = []
for folder in folders:
    for path in sorted(pathlib.Path(folder).rglob("*.bin")):
        body = path.read_bytes()
        request = ExportTraceServiceRequest()
        request.ParseFromString(gzip.decompress(body) if body[:2] == b"\\x1f\\x8b" else body)
        requests.append(request)
written, copy = 0, 0
with open(out, "wb") as file:
    while written < size:
        copy += 1
        for request in requests:
            for r in request.resource_spans:
                for s in r.scope_spans:
                    for span in s.spans:
                        span.trace_id = hashlib.blake2b(span.trace_id, key=copy.to_bytes(8, "big"), digest_size=16).digest()
            written += file.write(request.SerializeToString())
"""


def large_file(gradus, python, gigabytes):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "large.bin"
        llamaindex = [str(folder) for folder in sorted(CAPTURES.glob("llamaindex-*"))]
        subprocess.run([python, "-c", MAKE_LARGE, path, str(int(gigabytes * 1e9)), *llamaindex], check=True)
        size = path.stat().st_size
        cpu, memory, wall = cpu_of([gradus, "traces", "--format", "jsonl", path])
    return {"bytes": size, "peak_memory_mib": round(memory, 1), "cpu_s": round(cpu, 2), "wall_s": round(wall, 2),
            "megabytes_per_cpu_second": round(size / 1e6 / cpu)}


# One request a line, as the collector's file exporter writes it.
MAKE_LINES = """
import sys
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
import json
request = ExportTraceServiceRequest()
request.ParseFromString(open(sys.argv[1], "rb").read())
with open(sys.argv[2], "w") as out:
    for one in request.resource_spans:
        line = ExportTraceServiceRequest(resource_spans=[one])
        out.write(json.dumps(MessageToDict(line), separators=(",", ":")) + "\\n")
"""


def all_cores(gradus, python, megabytes=200, rounds=5):
    """Wall seconds with one core and with all, the fastest of several rounds each; they alternate."""
    cores = sorted(os.sched_getaffinity(0))
    found = {"cores": len(cores)}
    with tempfile.TemporaryDirectory() as folder:
        plain, zipped, lines = (pathlib.Path(folder) / name for name in ("plain.bin", "plain.bin.gz", "lines.jsonl"))
        llamaindex = [str(folder) for folder in sorted(CAPTURES.glob("llamaindex-*"))]
        subprocess.run([python, "-c", MAKE_LARGE, plain, str(int(megabytes * 1e6)), *llamaindex], check=True)
        with open(plain, "rb") as source, gzip.open(zipped, "wb", 6) as target:
            shutil.copyfileobj(source, target)
        subprocess.run([python, "-c", MAKE_LINES, plain, lines], check=True)
        for path in (plain, zipped, lines):
            command = [gradus, "traces", "--format", "jsonl", path]
            one, many = [], []
            for _ in range(rounds):
                one.append(cpu_of(command, preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]))[2])
                many.append(cpu_of(command)[2])
            outputs = {hashlib.sha256(subprocess.run(command, capture_output=True, check=True, preexec_fn=limit).stdout).hexdigest()
                       for limit in (None, lambda: os.sched_setaffinity(0, cores[:1]))}
            found[path.name] = {"bytes": path.stat().st_size, "one_core_s": round(min(one), 3), "all_cores_s": round(min(many), 3),
                                "times_faster": round(min(one) / min(many), 2), "same_output": len(outputs) == 1}
    return found


HOSTILE = {
    "Action: repeated": "Thought: x\n" + "Action: a\n" * 100_000,
    "Action Input: { repeated": "Thought: x\nAction: a\nAction Input: {\n" * 26_000,
    "open braces": "Thought: x\nAction: a\nAction Input: " + "{" * 1_000_000,
    "open fences": "Thought: x\nAction: a\nAction Input: ```json\n" * 23_000,
    "Final Answer: before a late input": "Thought: x\n" + "Final Answer: y\n" * 62_000 + "Action: a\nAction Input: {}",
    "open code": "Thought: x\n<code>\n" + "f(" * 490_000,
}


def hostile_texts(gradus):
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in HOSTILE.items():
            path = pathlib.Path(folder) / "hostile.txt"
            path.write_text(text)
            runs = [cpu_of([gradus, "traces", "--format", "jsonl", path]) for _ in range(9)]
            results[name] = {"bytes": len(text), "cpu_ms": round(min(run[0] for run in runs) * 1e3, 1)}
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    arguments = parser.parse_args()
    subprocess.run(["cargo", "build", "--profile", "dist", "--features", "gradus/jemalloc", "--quiet", "--manifest-path", ROOT / "Cargo.toml"], check=True)
    gradus, python = str(TARGET / "dist" / "gradus"), python_with_protobuf()
    bench = subprocess.run(["cargo", "bench", "--quiet", "-p", "gradus", "--bench", "extraction"], cwd=ROOT, check=True, capture_output=True, text=True)
    against_prost = json.loads(bench.stdout)
    llamaindex = sorted(CAPTURES.glob("llamaindex-*"))
    baseline = subprocess.run([python, ROOT / "benches" / "extract_baseline.py", *llamaindex], check=True, capture_output=True, text=True)
    baseline = json.loads(baseline.stdout)
    ours = next(result for result in against_prost if result["set"] == "llamaindex")
    results = {
        "machine": machine(),
        "against_prost": against_prost,
        "against_python_in_process": {
            "python_cpu_us": baseline["cpu_us"], "gradus_cpu_us": ours["decode_and_extract_us"],
            "times_less_cpu": round(baseline["cpu_us"] / ours["decode_and_extract_us"], 1),
            "steps_found": {"python": baseline["steps"], "gradus": ours["steps"]},
        },
        "against_python_whole_process": whole_processes(gradus, python, [folder for framework in llamaindex for folder in sorted(framework.iterdir())]),
        "large_file": large_file(gradus, python, arguments.gigabytes),
        "all_cores": all_cores(gradus, python),
        "hostile_react_texts": hostile_texts(gradus),
    }
    path = ROOT / "benches" / "results" / "extraction.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
