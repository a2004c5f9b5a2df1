#!/usr/bin/env python3
"""Plays the built-in suite with scripted agents and writes benches/results/bench.json.

  benches/run_bench.py GRADUS [--build "how GRADUS was built"]

Three measurements: how long 52 tasks x 10 trials take (played, traced, verified, held against the rules); whether oracle
and flawed agents come out as scripted, replays included, and what the offline judge makes of them; how long the demo takes.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(gradus, folder, *words):
    begin = time.monotonic()
    done = subprocess.run([gradus, *words], cwd=folder, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"gradus {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return seconds, done.stdout


def bench(gradus, folder, *words):
    out = pathlib.Path(folder, "out.json")
    seconds, _ = run(gradus, folder, "bench", "--quiet", "--json", str(out), *words)
    return seconds, json.loads(out.read_text())["bench"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradus")
    parser.add_argument("--build", default="cargo build --profile dist")
    arguments = parser.parse_args()
    gradus = str(pathlib.Path(arguments.gradus).resolve())
    with tempfile.TemporaryDirectory() as folder:
        played, _ = run(gradus, folder, "bench", "--quiet", "--policy", "oracle", "--trials", "10", "--no-grading")
        graded, ten = bench(gradus, folder, "--policy", "oracle", "--trials", "10")
        flawed_s, flawed = bench(gradus, folder, "--policy", "oracle,flawed", "--trials", "3", "--replay")
        demo, _ = run(gradus, folder, "demo")
    oracle = ten["agents"][0]
    by_policy = flawed["scores"]["policies"]
    runs = sum(row["runs"] for row in by_policy.values())
    # Each policy by itself: of a rare one all runs may be wrong and the mean still good. What a replay leaves open is not
    # found; where there is nothing to find, finding nothing is no success.
    shares = {}
    for name, row in by_policy.items():
        told = row["runs"] - row["unobservable"]
        shares[name] = round((told - row["unexpected"] - row["untold"]) / told, 5) if told else None
    low = {name: share for name, share in shares.items() if share is None or share < 0.99}
    result = {
        "machine": machine(),
        "build": arguments.build,
        "oracle_10_trials": {
            "tasks": oracle["tasks"], "trials": oracle["trials"],
            "played_s": round(played, 2), "played_and_graded_s": round(graded, 2),
            "success": oracle["success"], "clean": oracle["clean"], "calls_ratio": oracle["calls_ratio"],
        },
        "oracle_and_flawed_3_trials_with_replay": {
            "runs": runs, "unobservable": sum(row["unobservable"] for row in by_policy.values()),
            "untold": sum(row["untold"] for row in by_policy.values()),
            "as_scripted_share_by_policy": shares, "lowest_share": min(share or 0 for share in shares.values()),
            "seconds": round(flawed_s, 2), "not_applicable": len(flawed["not_applicable"]),
            "policies": by_policy, "offline_judge": flawed["scores"]["dimensions"], "replay": flawed["scores"]["replay"],
            "unexpected": flawed["unexpected"][:20],
        },
        "demo_s": round(demo, 2),
    }
    target = ROOT / "benches" / "results" / "bench.json"
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    if low:
        sys.exit(f"less than 99 % of the runs came out as scripted: {low}")


if __name__ == "__main__":
    main()
