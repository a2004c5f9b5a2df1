#!/usr/bin/env python3
"""Tests the offline judge on planted flaws, and writes benches/results/judge_test_offline.json.

  benches/run_judge_test.py [--gradus BIN] [--cases 200] [--seed 0]

All rubrics that the offline judge has rules for, and the evaluators that are rules only.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "dist"
ABOUT = ("Right runs of the benchmark and the same with one planted flaw. The rules were written while other planted flaws of the same "
         "benchmark (`gradus bench --policy flawed`: wrong tools, missing, invented and wrong parameters, off-topic thoughts, repetitions, "
         "ignored errors) and its right runs were at hand, so the figures are no proof of quality on other data. The offline judge abstains "
         "where it can prove nothing: rates of judged cases are about few cases, `flagged_of_flawed` and `flagged_of_originals` about all.")


def share(found):
    if found["value"] is None:
        return {"value": None, "cases": found["cases"]}
    low, high = found["interval"]["low"], found["interval"]["high"]
    return {"value": round(found["value"], 4), "low": round(low, 4), "high": round(high, 4), "cases": found["cases"], "clusters": found["clusters"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradus", default=TARGET / "gradus")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    command = [pathlib.Path(arguments.gradus).resolve(), "judge", "test", "--judge", "offline", "--rubric", "all", "--cases", str(arguments.cases),
               "--seed", str(arguments.seed), "--probes", "--quiet", "--json", "-"]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)
    judge = report["judges"][0]
    rates = ["detection", "false_alarms", "could_not_judge", "flagged_of_flawed", "flagged_of_originals"]
    rubrics = {one["rubric"]: {"rubric_hash": one["rubric_hash"], "cases": one["cases"], "fitness": one["fitness"],
                               **{name: share(one[name]) for name in rates},
                               "flaws": {flaw["flaw"]: {"detection": share(flaw["detection"]), "could_not_judge": share(flaw["could_not_judge"])}
                                         for flaw in one["flaws"]}}
               for one in judge["rubrics"]}
    probes = [{"probe": one["probe"], "rubric": one["rubric"], "flips": share(one["flips"]), "not_compared": one["not_compared"]} for one in judge["probes"]]
    result = {"machine": machine(), "about": ABOUT, "seed": report["seed"], "cases": report["cases"], "flawed_cases": report["flawed_cases"],
              "clusters": report["clusters"], "harmless": report["harmless"], "shortages": report["shortages"], "rubrics": rubrics, "probes": probes,
              "seconds": round(time.monotonic() - begun, 1)}
    path = ROOT / "benches/results/judge_test_offline.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
