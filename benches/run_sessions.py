#!/usr/bin/env python3
"""Reads 1 GB of session files of a coding agent with `gradus traces --coverage`: megabytes a second of processor time, and peak memory.

  benches/run_sessions.py --gradus FILE [--megabytes N] [--results FILE]

The files are made by this script in the form of Claude Code sessions: 40 files with turns of 30 steps, whose results are source code of this
repository. GRADUS must be built with the profile `dist`.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from machine import machine  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = 40
STEPS_OF_TURN = 30


def source_texts():
    """Texts as tools return them."""
    paths = sorted((ROOT / "crates").glob("*/src/**/*.rs"))
    return [path.read_text()[:12_000] for path in paths if path.stat().st_size > 2_000]


def write_session(path, size, texts, draw):
    session, written, minute = str(uuid.UUID(int=draw.getrandbits(128))), 0, 0
    common = {"isSidechain": False, "userType": "external", "cwd": "/home/dev/shop", "sessionId": session, "version": "2.1.20", "gitBranch": "main"}
    with open(path, "w") as file:
        def add(kind, message, **more):
            nonlocal written, minute, parent
            minute += 1
            line = {"parentUuid": parent, **common, "type": kind, "message": message, "uuid": str(uuid.UUID(int=draw.getrandbits(128))),
                    "timestamp": f"2026-11-{1 + minute // 86400 % 28:02}T{minute // 3600 % 24:02}:{minute // 60 % 60:02}:{minute % 60:02}.000Z", **more}
            parent = line["uuid"]
            written += file.write(json.dumps(line) + "\n")

        parent = None
        while written < size:
            add("user", {"role": "user", "content": f"Find what is slow in module {draw.randint(1, 999)} and fix it."})
            for number in range(STEPS_OF_TURN):
                call = f"toolu_{draw.getrandbits(64):016x}"
                content = [{"type": "text", "text": "I look at the next file."},
                           {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": f"/home/dev/shop/src/file_{number}.rs"}}]
                add("assistant", {"id": f"msg_{draw.getrandbits(64):016x}", "type": "message", "role": "assistant", "model": "model", "content": content,
                                  "usage": {"input_tokens": 900, "output_tokens": 60}})
                text = draw.choice(texts)
                add("user", {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": text}]},
                    toolUseResult={"type": "text", "file": {"content": text, "numLines": text.count("\n")}})
            add("assistant", {"id": f"msg_{draw.getrandbits(64):016x}", "type": "message", "role": "assistant", "model": "model",
                              "content": [{"type": "text", "text": "It is faster now."}], "usage": {"input_tokens": 900, "output_tokens": 20}})
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gradus", required=True)
    parser.add_argument("--megabytes", type=int, default=1_000)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "benches" / "results" / "sessions.json")
    arguments = parser.parse_args()
    draw, texts = random.Random(21), source_texts()
    with tempfile.TemporaryDirectory() as folder:
        total = sum(write_session(os.path.join(folder, f"{number:02}.jsonl"), arguments.megabytes * 1_000_000 // FILES, texts, draw) for number in range(FILES))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run([arguments.gradus, "traces", "--coverage", "--format", "json", folder], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ran.returncode != 0:
            sys.exit(f"error: exit code {ran.returncode}: {ran.stderr[-400:]}")
    found = json.loads(ran.stdout)["total"]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    result = {"about": "Session files of a coding agent, made by the script, read with `gradus traces --coverage`. CPU is user and system time of the whole process.",
              "machine": machine(), "files": FILES, "bytes": total, "trajectories": found["trajectories"], "steps": found["steps"],
              "cpu_s": round(cpu, 2), "mb_per_cpu_second": round(total / 1e6 / cpu), "peak_memory_mib": round(after.ru_maxrss / 1024)}
    arguments.results.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
