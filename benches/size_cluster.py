#!/usr/bin/env python3
"""Says how many cores and how much disk a number of spans a day needs, from measured constants.

  benches/size_cluster.py [SPANS_A_DAY ...] [--days 30] [--peak 3] [--cores 8] [--span-bytes N] [--steps-judged 0.1] [--judge-seconds 2]

The constants are in benches/results/scale.json (`run_scale.py GRADUS --sections postgres`). docs/explanation/sizing.md explains the model.
"""
import argparse
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results" / "scale.json"

DAY_S = 86_400
# The share of a core that may be busy at the peak: the rest is for queries, checkpoints and the failure of a server.
BUSY = 0.6
# What one database server is assumed to have at most. Beyond it, projects are spread over several databases.
LARGEST_DATABASE_CORES = 64
# A burst that the simulation adds to the busiest hour: so many times the load, for so many minutes.
BURST, BURST_MINUTES = 3, 10


def read_constants():
    if not RESULTS.exists():
        sys.exit(f"size_cluster.py: there is no {RESULTS.relative_to(ROOT)}; run benches/run_scale.py GRADUS --sections postgres")
    found = json.loads(RESULTS.read_text())["postgres"]
    one = found["servers_1"]
    return {
        "store_s": one["cpu_us_a_span_until_stored"] / 1e6,
        "grade_s": (one["cpu_us_a_span_until_it_rests"] - one["cpu_us_a_span_until_stored"]) / 1e6,
        "database_store_s": one["postgres_cpu_us_a_span_until_stored"] / 1e6,
        "database_grade_s": (one["postgres_cpu_us_a_span_until_it_rests"] - one["postgres_cpu_us_a_span_until_stored"]) / 1e6,
        "bytes": one["database_bytes_a_span"],
        "commits": one["commits_a_span"],
        "commits_a_second": found["database"]["commits_a_second"],
        "graded_a_second": found["database"]["spans_graded_a_second"],
    }  # fmt: skip


def size_cluster(spans_a_day, constants, options):
    """What is needed at the busiest hour."""
    peak = spans_a_day / DAY_S * options.peak
    server_cores = peak * (constants["store_s"] + constants["grade_s"]) / BUSY
    database_cores = peak * (constants["database_store_s"] + constants["database_grade_s"]) / BUSY
    # Servers write what they derive one after the other: a database has a rate at which it can be graded, whatever its cores.
    grading_share = spans_a_day / DAY_S / (constants["graded_a_second"] * BUSY)
    commit_share = peak * constants["commits"] / constants["commits_a_second"]
    databases = max(1, math.ceil(max(database_cores / LARGEST_DATABASE_CORES, grading_share, commit_share)))
    return {
        "spans_a_day": spans_a_day, "peak_a_second": peak, "server_cores": server_cores,
        "servers": max(2, math.ceil(server_cores / options.cores)) if spans_a_day > 1e6 else 1,
        "database_cores": database_cores, "databases": databases,
        "disk_tb": spans_a_day * options.days * (options.span_bytes or constants["bytes"]) / 1e12,
        "judge_calls_a_second": peak / options.spans_a_step * options.steps_judged,
        "judge_calls_at_once": peak / options.spans_a_step * options.steps_judged * options.judge_seconds,
        "longest_wait_min": simulate_day(spans_a_day, constants, options, databases),
    }  # fmt: skip


def simulate_day(spans_a_day, constants, options, databases):
    """Two days, minute by minute: a load that rises and falls by the sine, so that the busiest hour has `peak` times the mean, a burst
    on its top, and a grading rate that what is stored leaves. The longest time that a span waits for its verdict, in minutes."""
    mean, waiting, longest = spans_a_day / DAY_S, 0.0, 0.0
    capacity = constants["graded_a_second"] * databases
    exponent = fit_exponent(options.peak)
    shape = [math.sin(math.pi * minute / 1440) ** exponent for minute in range(1440)]
    scale = 1440 / sum(shape)
    for minute in range(2 * 1440):
        arriving = mean * scale * shape[minute % 1440]
        if abs(minute % 1440 - 720) < BURST_MINUTES / 2:
            arriving *= BURST
        waiting = max(0.0, waiting + (arriving - capacity) * 60)
        longest = max(longest, waiting / capacity / 60)
    return longest


def fit_exponent(peak):
    """The power of a sine whose largest value is `peak` times its mean."""
    low, high = 0.01, 500.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(math.sin(math.pi * minute / 1440) ** middle for minute in range(1440)) / 1440
        low, high = (middle, high) if 1 / mean < peak else (low, middle)
    return low


def two_digits(number):
    if number >= 100:
        return f"{float(f'{number:.2g}'):,.0f}"
    return f"{float(f'{number:.2g}'):g}"


def table_of(amounts, constants, options):
    lines = [
        f"| Spans a day | At the peak, a second | Servers of {options.cores} cores | Databases, cores each | Disk for {options.days} days | Judge calls at once | Longest wait for a verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for amount in amounts:
        one = size_cluster(amount, constants, options)
        power = round(math.log10(amount), 2)
        name = f"10^{power:g}" if power == round(power) else f"{amount:,.0f}"
        cores = max(1, math.ceil(one["database_cores"] / one["databases"]))
        wait = "at once" if one["longest_wait_min"] < 0.1 else f"{two_digits(one['longest_wait_min'])} min"
        lines.append(
            f"| {name} | {two_digits(one['peak_a_second'])} | {one['servers']} | {one['databases']} × {cores} | {two_digits(one['disk_tb'])} TB "
            f"| {two_digits(one['judge_calls_at_once'])} | {wait} |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spans_a_day", nargs="*", type=float, default=[10.0**power for power in range(6, 11)])
    parser.add_argument("--days", type=int, default=30, help="how long spans are kept")
    parser.add_argument("--peak", type=float, default=3, help="the busiest hour, in times the mean")
    parser.add_argument("--cores", type=int, default=8, help="of one server")
    parser.add_argument("--span-bytes", type=float, help="a stored span, if yours are smaller or larger than those of the benchmark")
    parser.add_argument("--spans-a-step", type=float, default=2.5)
    parser.add_argument("--steps-judged", type=float, default=0.1, help="the share of steps that a model judges")
    parser.add_argument("--judge-seconds", type=float, default=2, help="one call of a judge")
    options = parser.parse_args()
    if options.peak <= 1.0 or min(options.spans_a_day) <= 0:
        sys.exit("size_cluster.py: --peak must be above 1, and the spans above 0")
    print(table_of(options.spans_a_day, read_constants(), options), end="")


if __name__ == "__main__":
    main()
