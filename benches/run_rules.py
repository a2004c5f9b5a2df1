#!/usr/bin/env python3
"""Measures what judging by rules costs a step, and writes benches/results/rules_cpu.json.

  benches/run_rules.py --captures DIR [--gradus BIN] [--rounds 15]

CPU time of `gradus eval --judge offline` with the core set, less that of `gradus traces`, which reads the same files,
divided by the steps. Journal, summary and report are included. `long` is one trajectory with 1,000 and with 10,000
steps: the cost of a step must not grow with their number.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "dist"


def cpu_seconds(command, folder):
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime


def cost_of_step(gradus, source, rounds):
    with tempfile.TemporaryDirectory() as folder:
        lines = subprocess.run([gradus, "traces", "--format", "jsonl", source], cwd=folder, capture_output=True, text=True).stdout.splitlines()
        steps = sum(len(json.loads(line)["steps"]) for line in lines)
        # By turns, so that other work on the machine disturbs both alike.
        measured = [(cpu_seconds([gradus, "traces", "--format", "jsonl", source], folder),
                     cpu_seconds([gradus, "eval", source, "--judge", "offline", "--evaluators", "core", "--quiet", "--fresh"], folder)) for _ in range(rounds)]
        read, judged = map(min, zip(*measured))
    return {"steps": steps, "read_cpu_s": round(read, 3), "judged_cpu_s": round(judged, 3), "us_per_step": round((judged - read) * 1e6 / steps, 1)}


def long_run(path, count):
    step = lambda at: {"index": at, "thought": f"I read {at}.md.", "tool": "read_file", "tool_call_id": None, "arguments": {"path": f"{at}.md"},
                       "arguments_raw": None, "observation": f"# {at} and some text about it", "is_error": False, "parallel_with_previous": False,
                       "agent": None, "span_ids": [], "start": None, "end": None, "tokens": {"prompt": 0, "completion": 0}}
    run = {"trajectory_id": "long", "trace_ids": [], "session_id": None, "project": None, "agent": None, "agent_version": None, "model": None,
           "query": "Read all files.", "final_answer": "Done.", "steps": [step(at) for at in range(1, count + 1)],
           "tools": [{"name": "read_file", "description": "Reads a file.", "schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}],
           "tokens": {"prompt": 0, "completion": 0}, "cost_usd": None, "defects": [], "parent_trajectory_id": None, "parent_step_index": None,
           "answer_span_ids": [], "root_span_id": None, "start": None, "end": None, "is_error": False}
    path.write_text(json.dumps(run) + "\n")
    return str(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", required=True)
    parser.add_argument("--gradus", default=str(TARGET / "gradus"))
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    gradus = os.path.abspath(given.gradus)
    with tempfile.TemporaryDirectory() as folder:
        long = {str(count): cost_of_step(gradus, long_run(pathlib.Path(folder, f"{count}.jsonl"), count), given.rounds) for count in (1_000, 10_000)}
    captures = cost_of_step(gradus, os.path.abspath(given.captures), given.rounds)
    found = {"machine": machine(), "captures": captures, "long": long, "bars": {"us_per_step": {"wanted": "<= 150", "met": captures["us_per_step"] <= 150}}}
    (ROOT / "benches" / "results" / "rules_cpu.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
