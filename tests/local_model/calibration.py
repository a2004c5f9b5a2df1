"""What `gradus judge calibrate`, `gradus judge test` and a panel make of real models, where the truth is known."""
import json
import subprocess
import tempfile

from cases import LABELS
from judging import CLEAN, SLOTS, JudgeFailed, run_eval

# Labelled cases of a calibration; fewer than 20 trajectories correct nothing.
DRAWN = 24


def call_gradus(gradus, *arguments, folder=None):
    """Standard output of a command that must end with 0."""
    ran = subprocess.run([str(gradus), *map(str, arguments)], env=CLEAN, cwd=folder, capture_output=True, text=True)
    if ran.returncode != 0:
        raise JudgeFailed(f"gradus {' '.join(map(str, arguments[:3]))} ended with {ran.returncode}: {ran.stderr.strip()[-400:]}")
    return ran.stdout


def calibrate_rubric(gradus, judge_options, rubric, cases, state):
    """Labels a random part of the verdicts with the truth, and holds the corrected share of good verdicts against the true share. `state` has
    the verdicts in its cache, so nothing is asked."""
    good = LABELS[rubric][0]
    truth = {case["case"]: case["truth"] for case in cases}
    name = f"calibrated-{rubric}"
    options = ["--logprobs", "--name", name, "--fresh"]
    lines = run_eval(gradus, judge_options, rubric, [case["trajectory"] for case in cases], state, options)
    asked = {case["case"]: case["step_index"] for case in cases}
    scored = [line for line in lines if line["outcome"] == "scored" and asked.get(line["trajectory_id"]) == line["step_index"]]
    if len(scored) < len([line for line in lines if line["outcome"] == "scored"]):
        raise JudgeFailed(f"{rubric}: a case is about one question, and more were judged")
    true_share = sum(truth[line["trajectory_id"]] == good for line in scored) / len(scored)
    with tempfile.TemporaryDirectory() as folder:
        about = [name, "--evaluator", rubric, "--state-dir", state]
        call_gradus(gradus, "judge", "calibrate", *about, "--cases", DRAWN, "--seed", 1, "--write-cases", "drawn.jsonl", folder=folder)
        with open(f"{folder}/drawn.jsonl") as file:
            drawn = [json.loads(line) for line in file]
        for case in drawn:
            case["label"], case["labeller"] = truth[case["trajectory_id"]], "construction"
        with open(f"{folder}/drawn.jsonl", "w") as file:
            file.writelines(json.dumps(case) + "\n" for case in drawn)
        call_gradus(gradus, "judge", "calibrate", *about, "--labels", "drawn.jsonl", "--output", "calibration.json", folder=folder)
        call_gradus(gradus, "report", name, "--calibration", "calibration.json", "--json", "report.json", "--state-dir", state, folder=folder)
        with open(f"{folder}/report.json") as file:
            metric = next(metric for metric in json.load(file)["metrics"] if metric["name"] == rubric)
    calibration, interval = metric["calibration"], metric["interval"]
    raw = {"share": round(metric["value"], 3), "low": round(interval["low"], 3), "high": round(interval["high"], 3)}
    found = {"verdicts": len(scored), "labelled": len(drawn), "true_share": round(true_share, 3), "raw": raw,
             "raw_interval_contains_truth": raw["low"] <= true_share <= raw["high"]}
    if calibration["status"] != "corrected":
        return found | {"not_corrected": calibration.get("reason", calibration["status"])}
    low, high = calibration["interval"]["low"], calibration["interval"]["high"]
    return found | {"corrected": {"share": round(calibration["value"], 3), "low": round(low, 3), "high": round(high, 3)},
                    "estimator": calibration["estimator"], "corrected_interval_contains_truth": low <= true_share <= high}


def summarize_calibrations(rubrics):
    corrected = [one for one in rubrics.values() if "corrected" in one]
    return {"rubrics": rubrics, "corrected_intervals_with_the_truth": f"{sum(one['corrected_interval_contains_truth'] for one in corrected)} of {len(corrected)}",
            "raw_intervals_with_the_truth": f"{sum(one['raw_interval_contains_truth'] for one in rubrics.values())} of {len(rubrics)}"}


def run_judge_test(gradus, judge_options, rubric, count, state):
    """The report of `gradus judge test`, without what other files have."""
    printed = call_gradus(gradus, "judge", "test", *judge_options, "--rubric", rubric, "--cases", count, "--json", "-", "--state-dir", state,
                          "--concurrency", SLOTS, "--timeout", 3600)
    return json.loads(printed)


def judge_with_panel(gradus, models, rubric, cases, state):
    """Two models as one judge. Two different votes are a tie, which has no score."""
    good, bad = LABELS[rubric]
    truth = {case["case"]: case["truth"] for case in cases}
    judge_options = [option for options in models for option in options]
    lines = run_eval(gradus, judge_options, rubric, [case["trajectory"] for case in cases], state, ["--logprobs", "--name", "panel", "--fresh"])
    of = lambda label: [line for line in lines if truth.get(line["trajectory_id"]) == label]
    decided = lambda lines: [line for line in lines if line["outcome"] == "scored"]
    count = lambda lines, label: sum(line["label"] == label for line in decided(lines))
    return {"rubric": rubric, "cases": len(cases), "ties": sum(line["outcome"] == "abstained" for line in lines),
            "right_cases_called_good": f"{count(of(good), good)} of {len(decided(of(good)))}",
            "wrong_cases_called_bad": f"{count(of(bad), bad)} of {len(decided(of(bad)))}"}
