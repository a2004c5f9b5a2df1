#!/usr/bin/env python3
"""Measures judging, side by side with `llm_classify` in one run, and writes benches/results/judging.json.

  benches/run_judging.py [--cases 20000] [--rounds 3]

Both judge the same questions at the same endpoint (tests/endpoint, which answers at once or after 50 ms):
  - CPU time for each judged case, `gradus eval` as a whole process (reading the cases, journal, cache and report
    included) against the `llm_classify` call alone, without its imports, at its cheapest and at its fastest setting;
  - cases a second with 100 in flight and an endpoint that takes 50 ms, against what that allows;
  - the same run again, when every verdict is in the cache;
  - peak memory for 100,000 cases;
  - the `offline` judge on the same cases.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from judge_baseline import TOOLS, make_rows
from machine import cpu_of, machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
IN_FLIGHT = 100


def write_cases(path, count):
    tools = [{"name": name, "description": text, "schema": {
        "type": "object", "properties": {argument: {"type": "string"} for argument in arguments}, "required": arguments}}
        for name, text, arguments in TOOLS]
    with open(path, "w") as file:
        for number, row in enumerate(make_rows(count)):
            step = {"index": 1, "thought": row["thought"], "tool": row["tool_call"], "tool_call_id": None,
                    "arguments": json.loads(row["action_input"]), "arguments_raw": row["action_input"],
                    "observation": "[]", "is_error": False, "parallel_with_previous": False, "agent": None,
                    "span_ids": [], "start": None, "end": None, "tokens": {"prompt": 0, "completion": 0}}
            file.write(json.dumps({
                "trajectory_id": f"case-{number}", "trace_ids": [], "session_id": None, "project": None, "agent": None,
                "agent_version": None, "model": None, "query": row["original_question"], "final_answer": None,
                "steps": [step], "tools": tools, "tokens": {"prompt": 0, "completion": 0}, "cost_usd": None,
                "defects": [], "parent_trajectory_id": None, "parent_step_index": None, "answer_span_ids": [],
                "root_span_id": None, "start": None, "end": None, "is_error": False}) + "\n")


class Endpoint:
    """The test endpoint in a process of its own."""

    def __init__(self, latency_ms):
        command = [str(TARGET / "dist" / "examples" / "endpoint"), "0", str(latency_ms)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def judge(cases, url, state, *extra):
    command = [str(TARGET / "dist" / "gradus"), "eval", str(cases), "-e", "thought_to_tool", "--quiet",
               "--concurrency", str(IN_FLIGHT), "--state-dir", str(state), *extra]
    return cpu_of(command, env={**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}, stderr=subprocess.DEVNULL)


def baseline(url, rows, concurrency):
    command = [sys.executable, str(ROOT / "benches" / "judge_baseline.py"), "--setup", "--base-url", url,
               "--rows", str(rows), "--concurrency", str(concurrency)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    if found["judged"] != rows:
        sys.exit(f"llm_classify judged only {found['judged']} of {rows}")
    return found


def spread(values, digits=1):
    return {"least": round(min(values), digits), "median": round(statistics.median(values), digits),
            "most": round(max(values), digits)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=2_000, help="rows for llm_classify")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    build = ["cargo", "build", "--profile", "dist", "--features", "gradus/jemalloc", "--quiet", "--workspace", "--bins", "--examples", "--manifest-path", ROOT / "Cargo.toml"]
    subprocess.run(build, check=True)
    at_once, after_50, cached, offline, endpoint_us, cheapest, fastest = ([] for _ in range(7))
    rates, memory = [], 0.0
    with tempfile.TemporaryDirectory() as folder, Endpoint(0) as fast, Endpoint(50) as slow:
        folder = pathlib.Path(folder)
        cases, many = folder / "cases.jsonl", folder / "many.jsonl"
        write_cases(cases, options.cases)
        write_cases(many, 100_000)
        # Turn and turn about, so that a busy moment of the machine hits both.
        for round_ in range(options.rounds):
            before = fast.cpu_s()
            cpu, _, _ = judge(cases, fast.url, folder / f"fast-{round_}")
            endpoint_us.append((fast.cpu_s() - before) * 1e6 / options.cases)
            at_once.append(cpu * 1e6 / options.cases)
            cheapest.append(baseline(fast.url, options.rows, 20))
            cached.append(judge(cases, fast.url, folder / f"fast-{round_}")[0] * 1e6 / options.cases)
            fastest.append(baseline(fast.url, options.rows, IN_FLIGHT))
            offline.append(judge(cases, "", folder / f"off-{round_}", "--judge", "offline")[0] * 1e6 / options.cases)
            cpu, _, wall = judge(cases, slow.url, folder / f"slow-{round_}")
            after_50.append(cpu * 1e6 / options.cases)
            rates.append(options.cases / wall)
        cpu, memory, wall = judge(many, slow.url, folder / "many")
        many_us, many_rate = cpu * 1e6 / 100_000, 100_000 / wall
    ideal = IN_FLIGHT / 0.050
    theirs = min(run["cpu_ms_per_row"] for run in cheapest + fastest) * 1e3
    results = {
        "machine": machine(),
        "cases": options.cases, "rows_for_llm_classify": options.rows, "rounds": options.rounds, "in_flight": IN_FLIGHT,
        "prompt": "thought_to_tool, one step each; about 3.4 KB for gradus, 1.4 KB for llm_classify",
        "cpu_us_per_case": {
            "gradus_endpoint_at_once": spread(at_once), "gradus_endpoint_50_ms": spread(after_50),
            "gradus_from_cache": spread(cached), "gradus_offline_judge": spread(offline),
            "llm_classify_20_in_flight": spread([run["cpu_ms_per_row"] * 1e3 for run in cheapest]),
            "llm_classify_100_in_flight": spread([run["cpu_ms_per_row"] * 1e3 for run in fastest]),
        },
        "times_less_cpu": {
            "medians_at_100_in_flight": round(statistics.median(run["cpu_ms_per_row"] for run in fastest) * 1e3 / statistics.median(at_once), 1),
            "medians_llm_classify_at_its_cheapest": round(statistics.median(run["cpu_ms_per_row"] for run in cheapest) * 1e3 / statistics.median(at_once), 1),
            "its_best_run_against_our_worst": round(theirs / max(at_once), 1),
        },
        "endpoint_cpu_us_per_request": spread(endpoint_us),
        "cases_per_second_at_50_ms": {
            "ideal": ideal, "gradus": spread(rates), "share_of_ideal": spread([rate / ideal for rate in rates], 3),
            "llm_classify_at_once_100_in_flight": spread([run["rows_per_s"] for run in fastest]),
        },
        "hundred_thousand_cases_at_50_ms": {
            "peak_memory_mib": round(memory, 1), "cpu_us_per_case": round(many_us, 1),
            "cases_per_second": round(many_rate, 1), "share_of_ideal": round(many_rate / ideal, 3),
        },
        "llm_classify": {"peak_memory_mib": max(run["peak_rss_mb"] for run in fastest), "versions": fastest[0]["versions"]},
    }
    path = ROOT / "benches" / "results" / "judging.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
