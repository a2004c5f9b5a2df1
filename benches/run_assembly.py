#!/usr/bin/env python3
"""Measures how the time to assemble one trace grows with its spans, and writes benches/results/assembly.json.

  benches/run_assembly.py [--most 1000000]

Each shape is assembled with 1,000 spans, 10,000 and so on. Linear assembly takes the same time a span at every size.
"""
import argparse
import json
import pathlib
import subprocess

from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000)
    options = parser.parse_args()
    command = ["cargo", "run", "--profile", "dist", "--quiet", "--locked", "-p", "gradus-core", "--example", "assembly_scale"]
    printed = subprocess.run([*command, "--", str(options.most)], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in printed.splitlines()]
    growth = {}
    for row in rows:
        print(f"{row['shape']:<14} {row['spans']:>9,} spans {row['us_per_span']:>9.2f} us a span")
        growth.setdefault(row["shape"], []).append(row["us_per_span"])
    growth = {shape: round(times[-1] / times[0], 2) for shape, times in growth.items()}
    print("us a span at the largest size, as a multiple of the smallest:", growth)
    result = {"machine": machine(), "rows": rows, "growth_from_smallest_to_largest": growth}
    (ROOT / "benches" / "results" / "assembly.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
