#!/usr/bin/env python3
"""Measures `gradus compare` on two runs with 100,000 verdicts each, and writes benches/results/comparing.json.

  benches/run_comparing.py [--gradus BIN] [--tasks N] [--trials K]

Both runs are made by `gradus eval --judge offline` from generated trajectories: N tasks with K trials and one to three
steps. The second version calls its tool with a wrong parameter in every tenth run. Times are those of the process that
compares: wall clock, CPU, and the largest resident set. The best of five.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "dist"
TOOL = {"name": "read_file", "description": "Reads a file.", "schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
NO_TOKENS = {"prompt": 0, "completion": 0}


def trajectory(version, task, trial):
    chance = random.Random(f"{version} {task} {trial}")
    steps = []
    for index in range(1, chance.randint(1, 3) + 1):
        wrong = version == 2 and index == 1 and chance.random() < 0.1
        arguments = {"file": task} if wrong else {"path": f"{task}-{index}.md"}
        steps.append({"index": index, "thought": f"I read {task}-{index}.md.", "tool": "read_file", "tool_call_id": None, "arguments": arguments,
                      "arguments_raw": None, "observation": f"# {task} {'text ' * 40}", "is_error": False, "parallel_with_previous": False, "agent": None,
                      "span_ids": [], "start": None, "end": None, "tokens": NO_TOKENS})
    return {"trajectory_id": f"{version}-{task}-{trial}", "trace_ids": [], "session_id": None, "project": None, "agent": None,
            "agent_version": f"{version}.0", "model": None, "query": f"Show me file {task}", "final_answer": "Here it is.", "steps": steps,
            "tools": [TOOL], "tokens": {"prompt": 100, "completion": 10}, "cost_usd": None, "defects": [], "parent_trajectory_id": None,
            "parent_step_index": None, "answer_span_ids": [], "root_span_id": None, "start": "2026-11-17T10:00:00Z", "end": "2026-11-17T10:00:01Z",
            "is_error": False}


def measure(command, folder):
    """Wall clock and CPU seconds of a command, and its largest resident set in MB."""
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status != 0:
        raise SystemExit(f"{command}: exit status {os.waitstatus_to_exitcode(status)}")
    return {"wall_s": round(wall, 3), "cpu_s": round(usage.ru_utime + usage.ru_stime, 3), "max_rss_mb": round(usage.ru_maxrss / 1024, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradus", default=str(TARGET / "gradus"))
    parser.add_argument("--tasks", type=int, default=1_500)
    parser.add_argument("--trials", type=int, default=5)
    given = parser.parse_args()
    gradus = os.path.abspath(given.gradus)
    with tempfile.TemporaryDirectory() as folder:
        verdicts = []
        for version in (1, 2):
            path = pathlib.Path(folder, f"v{version}.jsonl")
            with open(path, "w") as out:
                for task in range(given.tasks):
                    for trial in range(given.trials):
                        out.write(json.dumps(trajectory(version, task, trial)) + "\n")
            subprocess.run([gradus, "eval", path, "--judge", "offline", "--quiet", "--name", f"v{version}", "--jsonl", f"o{version}.jsonl"],
                           cwd=folder, check=True, stdout=subprocess.DEVNULL)
            with open(pathlib.Path(folder, f"o{version}.jsonl")) as lines:
                verdicts.append(sum(1 for _ in lines))
        runs = [measure([gradus, "compare", "v1", "v2"], folder) for _ in range(5)]
    best = min(runs, key=lambda run: run["wall_s"])
    found = {"machine": machine(), "tasks": given.tasks, "trials": given.trials, "verdicts": verdicts, "best": best, "all": runs,
             "bars": {"wall_s": {"wanted": "< 1", "met": best["wall_s"] < 1}, "max_rss_mb": {"wanted": "< 200", "met": best["max_rss_mb"] < 200}}}
    (ROOT / "benches" / "results" / "comparing.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
