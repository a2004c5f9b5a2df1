"""Compares what `gradus-stats` says about judges with packages that others wrote: scikit-learn (kappa), irrCAC (AC1), statsmodels (Wilson), judgy
(Rogan and Gladen). Run by run.py in an environment that has them.

  python statistics_packages.py MEASURE_TABLE

MEASURE_TABLE is the built example of crates/stats. Exits with 1 and a line for each figure that differs by more than 1e-6.
"""
import itertools
import json
import math
import random
import subprocess
import sys
import warnings

import judgy
import numpy
import pandas
from irrCAC.raw import CAC
from sklearn.metrics import accuracy_score, cohen_kappa_score, precision_score, recall_score
from statsmodels.stats.proportion import proportion_confint

TOLERANCE = 1e-6


def make_tables():
    """Counts of accepted and right, accepted and wrong, rejected and right, rejected and wrong, with a judged population. Both truths and both labels occur."""
    draw = random.Random(20)
    tables = [[20, 5, 10, 15], [1, 1, 1, 1], [98, 1, 1, 100], [30, 2, 3, 1]]
    tables += [[draw.randint(1, limit) for limit in (120, 30, 30, 120)] for _ in range(40)]
    return [{"table": table, "population": [draw.randint(1, 2_000), draw.randint(1, 800)]} for table in tables]


def expand_table(table):
    cells = [(1, 1), (1, 0), (0, 1), (0, 0)]
    cases = list(itertools.chain.from_iterable([cell] * count for cell, count in zip(cells, table)))
    return numpy.array([judge for judge, _ in cases]), numpy.array([truth for _, truth in cases])


def lee_interval(accepted, population, positive, right, negative, wrong):
    """The calibration-aware interval of Lee et al. (2025), written from the paper: no package has it."""
    z = 1.959963984540054
    p, n = (accepted * population + z * z / 2) / (population + z * z), population + z * z
    q1, m1 = (positive * right + 1) / (right + 2), right + 2
    q0, m0 = (negative * wrong + 1) / (wrong + 2), wrong + 2
    if q0 + q1 <= 1:
        return None
    theta = (p + q0 - 1) / (q0 + q1 - 1)
    bias = 2 * z * z * (theta * q1 * (1 - q1) / m1 - (1 - theta) * q0 * (1 - q0) / m0)
    half = z / (q0 + q1 - 1) * math.sqrt(p * (1 - p) / n + (1 - theta) ** 2 * q0 * (1 - q0) / m0 + theta**2 * q1 * (1 - q1) / m1)
    return [min(max(bound, 0.0), 1.0) for bound in (theta + bias - half, theta + bias + half)]


def reference_figures(table, population):
    judge, truth = expand_table(table)
    accepted_right, accepted_wrong, rejected_right, rejected_wrong = table
    right, wrong = accepted_right + rejected_right, accepted_wrong + rejected_wrong
    rates = {
        "true_positive_rate": (recall_score(truth, judge), accepted_right, right),
        "true_negative_rate": (recall_score(truth, judge, pos_label=0), rejected_wrong, wrong),
        "precision": (precision_score(truth, judge), accepted_right, accepted_right + accepted_wrong),
        "accuracy": (accuracy_score(truth, judge), accepted_right + rejected_wrong, len(truth)),
        "base_rate": (truth.mean(), right, len(truth)),
    }
    figures = {}
    for name, (value, count, cases) in rates.items():
        low, high = proportion_confint(count, cases, method="wilson")
        figures |= {name: value, f"{name} lower": low, f"{name} upper": high}
    figures["kappa"] = cohen_kappa_score(truth, judge)
    figures["ac1"] = CAC(pandas.DataFrame({"judge": judge, "truth": truth}), digits=12).gwet()["est"]["coefficient_value"]
    judged = numpy.repeat([1, 0], population)
    if accepted_right / right + rejected_wrong / wrong > 1:
        figures["rogan_gladen"] = judgy.estimate_success_rate(truth, judge, judged, bootstrap_iterations=100)[0]
    interval = lee_interval(population[0] / sum(population), sum(population), accepted_right / right, right, rejected_wrong / wrong, wrong)
    if interval:
        figures |= {"rogan_gladen lower": interval[0], "rogan_gladen upper": interval[1]}
    return figures


def gradus_figures(result):
    figures = {}
    for name, measure in result["measures"].items():
        if isinstance(measure, dict) and "value" in measure:
            figures |= {name: measure["value"], f"{name} lower": measure["lower"], f"{name} upper": measure["upper"]}
    if result["rogan_gladen"] is not None:
        figures["rogan_gladen"] = result["rogan_gladen"]
    if result["rogan_gladen_interval"]:
        figures["rogan_gladen lower"], figures["rogan_gladen upper"] = result["rogan_gladen_interval"]
    return figures


def main():
    warnings.simplefilter("ignore")
    tables = make_tables()
    lines = "".join(json.dumps(table) + "\n" for table in tables)
    ran = subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{sys.argv[1]} failed: {ran.stderr.strip()}")
    compared, wrong = 0, []
    for table, line in zip(tables, ran.stdout.splitlines(), strict=True):
        ours = gradus_figures(json.loads(line))
        for name, expected in reference_figures(table["table"], table["population"]).items():
            compared += 1
            got = ours.get(name)
            if got is None or abs(got - expected) > TOLERANCE:
                wrong.append(f"{table}: {name}: {got} instead of {expected}")
    print("\n".join(wrong) or f"{compared} figures of {len(tables)} tables agree")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
