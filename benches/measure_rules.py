#!/usr/bin/env python3
"""Measures each rule of the `offline` judge on real agent runs with known faults, and writes benches/results/offline_rules.json.

  benches/measure_rules.py --gradus BIN --gold DIR --scorer score_truth.py [--nestful DIR] [--show-misses]

The data is not part of this project. DIR has one folder per source under `real/` (source.json, gold.jsonl, traces); the
scorer joins verdicts and labels. `--nestful` is a checkout of https://github.com/IBM/NESTFUL.

Definitions
- A flag is an outcome with a score below 0.5. It belongs to the rule that the outcome line names.
- `steps` and `replies` count flags on labelled units, `runs` counts runs with at least one flag of the rule. A run is right or
  wrong by its end state. Precision is flags on wrong units / flags on labelled units, with a Wilson 95 % interval.
- Totals leave out sources whose labels are not about the evaluator (`grades` in source.json), and sources that mark only
  faults, where every flag would be right by construction.
- Good runs flagged "without refused calls": a good run counts only if one of its flags is about something else than steps that
  the environment rejected. The steps of a flag are the step that it is on; of a flag on the whole run, those that its evidence
  names ("Step 7 repeats step 6"), and a flag whose evidence names no step is about the whole run. Rejected are the steps that
  the gold classes as refused (`refused_call`, `refused_write`); in sources without labelled steps, those whose recorded result
  is an error or begins with "Error: ". "Without error results" takes the results in all sources.
- A reading in flag_readings.json is one reader's verdict on one flag, made from the recorded run without looking at its label.
"""
import argparse
import collections
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import nestful_provenance
import value_corruption
from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
CATALOG = ROOT / "crates" / "eval" / "src" / "offline" / "rule_catalog.rs"
READINGS = ROOT / "benches" / "flag_readings.json"
RESULTS = ROOT / "benches" / "results" / "offline_rules.json"
SAMPLE_SIZE = 100
SAMPLE_SEED = 19
MAX_QUOTE = 60


def load_scorer(path):
    spec = importlib.util.spec_from_file_location("score_truth", path)
    scorer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    return scorer


def read_catalog():
    pattern = r'= "([a-z_.]+)", "([a-z_]+)", (Hard|Soft), "((?:[^"\\]|\\.)*)";'
    return [dict(id=found[0], evaluator=found[1], evidence=found[2].lower(), about=found[3]) for found in re.findall(pattern, CATALOG.read_text())]


# ---------------------------------------------------------------- sources

class SourceReader:
    """Runs Gradus for the scorer, and keeps what the scorer drops: rules, and which results are errors."""

    def __init__(self, scorer):
        self.scorer, self.error_steps, self.outcomes = scorer, set(), []

    def read_trajectories(self, gradus, paths, folder):
        trajectories = []
        for line in self.scorer.run_command([gradus, "traces", "--format", "jsonl", *paths], folder):
            self.error_steps |= {(line["trajectory_id"], step["index"]) for step in line["steps"] if is_error_result(step)}
            steps = [dict(index=step["index"], tool=step["tool"], arguments=step.get("arguments"), raw=step.get("arguments_raw"),
                          spans=step.get("span_ids") or []) for step in line["steps"]]
            trajectories.append(dict(
                id=line["trajectory_id"], session=line.get("session_id"), traces=line.get("trace_ids") or [], steps=steps,
                turn=line.get("turn_index"), previous=line.get("parent_trajectory_id") or line.get("previous_trajectory_id"),
                answer_spans=(line.get("answer_span_ids") or []) + [line.get("root_span_id")]))
        return trajectories

    def read_verdicts(self, gradus, paths, folder, extra):
        self.outcomes = judge_files(self.scorer, gradus, paths, folder, extra)
        verdicts = {}
        for line in self.outcomes:
            key = line["trajectory_id"], line.get("step_index"), line["evaluator"]
            verdict = dict(state=self.scorer.verdict_state(line), why=line.get("explanation") or line.get("reason") or "",
                           rule=line.get("rule"), target=key[:2], steps=steps_of_flag(line))
            states = self.scorer.STATES
            if key not in verdicts or states.index(verdict["state"]) < states.index(verdicts[key]["state"]):
                verdicts[key] = verdict
        return verdicts


def is_error_result(step):
    """Marked as an error, or a text that begins with one, also inside of the envelope of the Model Context Protocol."""
    text = (step.get("observation") or "").lstrip()
    return step.get("is_error") or re.match(r'(\{.{0,80}"text": "|\[.{0,80}"text": ")?Error: ', text) is not None


def steps_of_flag(line):
    """What a flag is about: (trajectory, step) pairs, or the trajectory as a whole, with no step."""
    own = line.get("step_index")
    named = [own] if own is not None else [int(found) for piece in line.get("evidence") or () for found in re.findall(r"^Step (\d+) ", piece)]
    return {(line["trajectory_id"], step) for step in named or [None]}


def judge_files(scorer, gradus, paths, folder, extra=()):
    """All outcome lines of `gradus eval --judge offline`."""
    with tempfile.TemporaryDirectory(dir=folder) as state:
        outcomes = os.path.join(state, "outcomes.jsonl")
        command = [gradus, "eval", *map(str, paths), "--judge", "offline", "-q", "--state-dir", state, "--jsonl", outcomes, *extra]
        list(scorer.run_command(command, folder))
        return list(scorer.read_jsonl(outcomes)) if os.path.exists(outcomes) else []


def read_source(scorer, folder, gradus):
    reader = SourceReader(scorer)
    scorer.read_trajectories, scorer.read_verdicts = reader.read_trajectories, reader.read_verdicts
    result = scorer.score_source(str(folder), gradus, [])
    result.update(outcomes=reader.outcomes, error_steps=reader.error_steps, rows=scorer.tabulate_source(result))
    graded = result["about"].get("grades")
    result["off_topic"] = {name for name in result["scopes"] if graded and name not in graded}
    return result


# ---------------------------------------------------------------- rules

def flags_of(unit, evaluator, rule=None):
    return [verdict for verdict in unit["verdicts"].get(evaluator, ()) if verdict["state"] == "flag" and rule in (None, verdict["rule"])]


def count_rule(scorer, rule, units):
    """Flags of a rule on labelled units, by level; None if it has none."""
    counts = {}
    for level, name in (("step", "steps"), ("reply", "replies"), ("run", "runs")):
        flagged = collections.Counter(unit["wrong"] for unit in units if unit["level"] == level and flags_of(unit, rule["evaluator"], rule["id"]))
        if flagged:
            counts[name] = dict(wrong=flagged[True], right=flagged[False], precision=scorer.rate(flagged[True], flagged.total()))
    return counts or None


def measure_rule(scorer, rule, sources):
    by_source, totals = {}, collections.defaultdict(collections.Counter)
    all_flags = 0
    for name, result in sources.items():
        all_flags += sum(line.get("rule") == rule["id"] and scorer.verdict_state(line) == "flag" for line in result["outcomes"])
        counts = count_rule(scorer, rule, result["units"])
        if not counts:
            continue
        by_source[name] = counts
        if rule["evaluator"] in result["off_topic"]:
            counts["not_in_totals"] = "the labels are about other evaluators"
            continue
        for level, unit_level in (("steps", "step"), ("replies", "reply"), ("runs", "run")):
            has_good = any(unit["level"] == unit_level and not unit["wrong"] for unit in result["units"])
            if level in counts and has_good:
                totals[level].update(wrong=counts[level]["wrong"], right=counts[level]["right"])
    total = {level: dict(**sums, precision=scorer.rate(sums["wrong"], sums.total())) for level, sums in totals.items()}
    return dict(rule, flags=all_flags, total=total, by_source=by_source)


def measure_evaluator(scorer, name, sources):
    """Coverage, labelled-right steps flagged and good runs flagged of one evaluator."""
    coverage, by_source, sums = collections.Counter(), {}, collections.Counter()
    for source, result in sources.items():
        counts = result["verdict_counts"].get(name)
        if not counts:
            continue
        coverage.update(counts)
        is_graded = name not in result["off_topic"]
        row = dict(counts)
        steps = [unit for unit in result["units"] if unit["level"] == "step" and name in unit["verdicts"]]
        if "step" in result["scopes"][name] and steps:
            tally = scorer.tally_units(steps, name)
            row.update(wrong_steps_found=tally["found"], right_steps_flagged=tally["false_alarms"])
            if is_graded and tally["false_alarms"]["n"]:
                sums.update(wrong=tally["found"]["n"], found=tally["found"]["k"], right=tally["false_alarms"]["n"], alarms=tally["false_alarms"]["k"])
        refused = {target for unit in result["units"] if str(unit.get("error_class")).startswith("refused") for target in unit.get("targets", ())}
        if not any(unit["level"] == "step" for unit in result["units"]):
            refused = result["error_steps"]
        good = [flags_of(unit, name) for unit in result["units"] if unit["level"] == "run" and not unit["wrong"]]
        failed = [flags_of(unit, name) for unit in result["units"] if unit["level"] == "run" and unit["wrong"]]
        if good:
            without_refused = sum(any(flag["steps"] - refused for flag in flags) for flags in good)
            without_errors = sum(any(flag["steps"] - refused - result["error_steps"] for flag in flags) for flags in good)
            flagged = sum(map(bool, good))
            row.update(failed_runs_flagged=scorer.rate(sum(map(bool, failed)), len(failed)), good_runs_flagged=scorer.rate(flagged, len(good)),
                       good_runs_flagged_without_refused_calls=scorer.rate(without_refused, len(good)),
                       good_runs_flagged_without_error_results=scorer.rate(without_errors, len(good)))
            if is_graded:
                sums.update(good=len(good), flagged=flagged, without_refused=without_refused, without_errors=without_errors,
                            failed=len(failed), failed_flagged=sum(map(bool, failed)))
        if not is_graded:
            row["not_in_totals"] = "the labels are about other evaluators"
        by_source[source] = row
    rate = scorer.rate
    total = dict(coverage, wrong_steps_found=rate(sums["found"], sums["wrong"]), right_steps_flagged=rate(sums["alarms"], sums["right"]),
                 failed_runs_flagged=rate(sums["failed_flagged"], sums["failed"]), good_runs_flagged=rate(sums["flagged"], sums["good"]),
                 good_runs_flagged_without_refused_calls=rate(sums["without_refused"], sums["good"]),
                 good_runs_flagged_without_error_results=rate(sums["without_errors"], sums["good"]))
    return dict(total=total, by_source=by_source)


def provenance_by_agent(scorer, result):
    units = [unit for unit in result["units"] if unit["level"] == "step"]
    tables = {}
    for agent in sorted({unit["agent"] for unit in units}) + ["all"]:
        tally = scorer.tally_units([unit for unit in units if agent in ("all", unit["agent"])], "argument_provenance")
        tables[agent] = dict(wrong_calls_found=tally["found"], right_calls_flagged=tally["false_alarms"])
    return tables


def deed_rule(scorer, result):
    """`completion.deed_missing` on WorkBench, by whether the request is conditional."""
    tables = {}
    for group in sorted({unit["group"] for unit in result["units"] if unit["group"]}):
        tally = scorer.tally_units([unit for unit in result["units"] if unit["level"] == "run" and unit["group"] == group], "task_completion")
        tables[group] = dict(failed_runs_found=tally["found"], good_runs_flagged=tally["false_alarms"])
    return tables


# ---------------------------------------------------------------- corrupted values

def provenance_lines(scorer, gradus, path, folder):
    lines = judge_files(scorer, gradus, [path], folder, ["-e", "argument_provenance"])
    return {(line["trajectory_id"], line["step_index"]): line for line in lines if line["evaluator"] == "argument_provenance"}


def read_sessions(scorer, gradus, path, folder):
    """The trajectories of each session in the order of its turns."""
    sessions = collections.defaultdict(list)
    for line in scorer.run_command([gradus, "traces", "--format", "jsonl", str(path)], folder):
        sessions[line["session_id"]].append(line)
    for members in sessions.values():
        members.sort(key=lambda trajectory: trajectory["turn_index"] or 1)
    return sessions


def session_calls(members):
    return [(trajectory, position) for trajectory in members for position in range(len(trajectory["steps"]))]


def known_messages(messages, number):
    """What tools and users said before the tool call with this number (from 0)."""
    texts, count = [], 0
    for message in messages:
        calls = message.get("tool_calls") or []
        if message.get("role") != "assistant":
            texts.append(str(message.get("content") or ""))
        count += len(calls)
        if count > number:
            break
    return "\n".join(texts)


def corrupt_messages(run, number, path, value, name):
    """A copy of the run with one argument of one call replaced."""
    copy, count = json.loads(json.dumps(run)), 0
    copy["id"] = name
    for message in copy["messages"]:
        for call in message.get("tool_calls") or []:
            if count == number:
                arguments = json.loads(call["function"]["arguments"])
                call["function"]["arguments"] = json.dumps(value_corruption.replace_value(arguments, path, value))
            count += 1
    return copy


def corrupt_trajectory(trajectory, position, path, value, name):
    copy = json.loads(json.dumps(trajectory))
    copy.update(trajectory_id=name, session_id=name)
    step = copy["steps"][position]
    step.update(arguments=value_corruption.replace_value(step["arguments"], path, value), arguments_raw=None)
    return copy


def measure_corruption(scorer, gradus, folder, traces, is_good, messages=None):
    """Corrupts values in the good runs of a file. `messages`: runs as message lists by id, else the file's own trajectories."""
    sessions = {name: members for name, members in read_sessions(scorer, gradus, traces, folder).items() if is_good(name)}
    lines = provenance_lines(scorer, gradus, traces, folder)
    trials, calls, flagged_calls, flagged_runs, impossible = [], 0, 0, set(), collections.Counter()
    for session, members in sessions.items():
        whole = messages[session] if messages else [{key: one.get(key) for key in ("system_prompt", "query", "steps", "final_answer")} for one in members]
        # The simulated server's port and the id of the bench differ from run to run.
        run_values = value_corruption.RunValues(re.sub(r"127\.0\.0\.1:\d+", "", json.dumps(whole, ensure_ascii=False)))
        seed = session if messages else session.split("/", 1)[-1]
        for number, (trajectory, position) in enumerate(session_calls(members)):
            step = trajectory["steps"][position]
            if not value_corruption.is_changing_tool(step["tool"]):
                continue
            line = lines.get((trajectory["trajectory_id"], step["index"]))
            calls += 1
            if line and scorer.verdict_state(line) == "flag":
                flagged_calls += 1
                flagged_runs.add(session)
            if not line or line.get("label") != "explained":
                continue
            known = known_messages(whole["messages"], number) if messages else value_corruption.known_text(trajectory, position)
            for path, value, kind in value_corruption.corruption_targets(trajectory, position, known):
                corrupted = value_corruption.corrupt_value(value, kind, run_values, f"{seed} {number} {path}")
                if corrupted is None:
                    impossible[kind] += 1
                else:
                    trials.append(dict(session=session, number=number, trajectory=trajectory, position=position, path=path, value=value,
                                       kind=kind, corrupted=corrupted, tool=step["tool"]))
    cases = pathlib.Path(folder) / "corrupted.jsonl"
    with open(cases, "w") as file:
        for at, trial in enumerate(trials):
            place = trial["path"], trial["corrupted"], f"corrupted~{at}"
            copy = (corrupt_messages(messages[trial["session"]], trial["number"], *place) if messages
                    else corrupt_trajectory(trial["trajectory"], trial["position"], *place))
            file.write(json.dumps(copy) + "\n")
    judged, corrupted_sessions = provenance_lines(scorer, gradus, cases, folder), read_sessions(scorer, gradus, cases, folder)
    caught, total, reasons, misses = collections.Counter(), collections.Counter(), collections.Counter(), []
    for at, trial in enumerate(trials):
        number = trial["number"] if messages else trial["position"]
        trajectory, position = session_calls(corrupted_sessions[f"corrupted~{at}"])[number]
        line = judged.get((trajectory["trajectory_id"], trajectory["steps"][position]["index"]))
        total[trial["kind"]] += 1
        if line and scorer.verdict_state(line) == "flag":
            caught[trial["kind"]] += 1
            continue
        why = value_corruption.explain_miss(line, trial["path"], trial["corrupted"])
        reasons[trial["kind"] + ": " + re.sub(r"\d+(\.\d+)?", "N", why)[:MAX_QUOTE]] += 1
        parameter = ".".join(map(str, trial["path"]))
        misses.append(f"{trial['session']} call {trial['number'] + 1} {trial['tool']} | {parameter} | {trial['kind']} | {trial['value']} -> {trial['corrupted']} | {why}")
    names, kinds = value_corruption.NAME_KIND, value_corruption.KINDS
    result = dict(good_runs=len(sessions), changing_calls=calls, good_runs_flagged=scorer.rate(len(flagged_runs), len(sessions)),
                  good_changing_calls_flagged=scorer.rate(flagged_calls, calls), caught=scorer.rate(sum(caught[kind] for kind in kinds), sum(total[kind] for kind in kinds)),
                  caught_by_kind={kind: scorer.rate(caught[kind], total[kind]) for kind in kinds if total[kind]},
                  names_caught=scorer.rate(caught[names], total[names]), caught_with_names=scorer.rate(caught.total(), total.total()),
                  not_corruptible=dict(impossible), missed_because=dict(reasons.most_common()))
    return result, misses


def corrupt_tau_bench(scorer, gradus, gold, folder):
    source = gold / "real" / "tau_bench"
    is_good = {row["id"]: row["success"] is True for row in scorer.read_jsonl(str(source / "gold.jsonl"))}
    traces = source / "traces.jsonl.gz"
    messages = {row["id"]: row for row in scorer.read_jsonl(str(traces))}
    return measure_corruption(scorer, gradus, folder, traces, lambda session: is_good.get(session, False), messages)


def corrupt_bench(scorer, gradus, folder):
    """Runs of the built-in benchmark, played by its scripted agents."""
    out, traces = pathlib.Path(folder) / "bench", pathlib.Path(folder) / "bench.bin"
    command = [gradus, "bench", "--policy", "oracle,flawed", "--no-grading", "--out", out, "--state-dir", folder, "--traces", traces, "-q"]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    trials = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    good = {trial["session"] for trial in trials if trial["passed"] and trial["safe"] and trial["clean"] and is_faultless(trial)}
    return measure_corruption(scorer, gradus, folder, traces, good.__contains__)


def is_faultless(trial):
    """Whether the script planted no wrong step in the run."""
    return all(step["is_valid"] and step["tool_fits_thought"] and step["thought_fits_request"] for step in (trial.get("truth") or {}).get("steps", []))


# ---------------------------------------------------------------- NESTFUL

def measure_nestful(scorer, gradus, checkout, folder):
    data = checkout / "data" / "executable"
    items = json.loads((data / "executable-data.json").read_text())
    functions = {function["name"]: function for function in json.loads((data / "executable-spec.json").read_text())}
    gold, cases = [], pathlib.Path(folder) / "nestful.jsonl"
    with open(cases, "w") as file:
        for number, item in enumerate(items):
            trajectory, arguments = nestful_provenance.build_item(number, item, functions)
            file.write(json.dumps(trajectory) + "\n")
            gold += [(trajectory["trajectory_id"], *argument) for argument in arguments]
    lines = provenance_lines(scorer, gradus, cases, folder)
    right, reported, total = collections.Counter(), collections.Counter(), collections.Counter()
    flags = sum(scorer.verdict_state(line) == "flag" for line in lines.values())
    skipped = collections.Counter()
    for trajectory, step, name, value, sources, referred in gold:
        if isinstance(value, bool) or not sources:
            skipped["flag" if isinstance(value, bool) else "neither in the question nor in the schema"] += 1
            continue
        found = nestful_provenance.reported_source(lines.get((trajectory, step)), name, value)
        label = " or ".join(sorted(sources))
        total[label] += 1
        reported[label] += found[0] is not None
        right[label] += nestful_provenance.agrees(sources, referred, found)
    rate = scorer.rate
    return dict(items=len(items), calls=len(lines), calls_flagged=flags, arguments_with_known_source=rate(right.total(), total.total()),
                of_reported_sources=rate(right.total(), reported.total()),
                by_source={label: dict(right=rate(right[label], total[label]), reported=reported[label]) for label in sorted(total)},
                left_out=dict(skipped))


# ---------------------------------------------------------------- flags read by hand

def draw_flags(scorer, sources):
    """Flags of all sources in a fixed random order, so that a change of one rule keeps most of the sample."""
    flags = []
    for source, result in sources.items():
        for line in result["outcomes"]:
            if scorer.verdict_state(line) == "flag":
                key = source, line["trajectory_id"], line.get("step_index"), line.get("rule")
                order = hashlib.sha256(f"{SAMPLE_SEED} {key}".encode()).hexdigest()
                flags.append((order, key, line))
    flags.sort(key=lambda flag: flag[0])
    return len(flags), [(key, line) for _, key, line in flags[:SAMPLE_SIZE]]


def list_readings(scorer, sources):
    readings = {}
    if READINGS.exists():
        readings = {(one["source"], one["trajectory"], one["step"], one["rule"]): one for one in json.loads(READINGS.read_text())}
    count, drawn = draw_flags(scorer, sources)
    listed, counts, by_rule = [], collections.Counter(), collections.defaultdict(collections.Counter)
    for key, line in drawn:
        reading = readings.get(key, dict(reading="unread", reason=""))
        counts[reading["reading"]] += 1
        by_rule[key[3]][reading["reading"]] += 1
        source, trajectory, step, rule = key
        listed.append(dict(source=source, run=trajectory, step=step, rule=rule, explanation=" ".join((line.get("explanation") or "").split())[:MAX_QUOTE],
                           reading=reading["reading"], reason=reading["reason"]))
    return dict(flags_in_all_sources=count, drawn=len(drawn), seed=SAMPLE_SEED, counts=dict(counts), right=scorer.rate(counts["right"], len(drawn)),
                by_rule={rule: dict(found) for rule, found in sorted(by_rule.items())}, flags=listed)


# ---------------------------------------------------------------- report

def check_bars(results):
    """The bars of the project, each with the measured share."""
    bars = []

    def add(name, value, wanted, is_met):
        bars.append(dict(bar=name, wanted=wanted, measured=value, met=is_met))

    def add_at_most(name, value, limit):
        if value["n"]:
            add(name, value, f"<= {limit}", value["share"] <= limit)

    def add_at_least(name, value, limit):
        if value["n"]:
            add(name, value, f">= {limit}", value["share"] >= limit)
    for name, evaluator in results["evaluators"].items():
        add_at_most(f"{name}: right steps flagged", evaluator["total"]["right_steps_flagged"], 0.02)
        add_at_most(f"{name}: good runs flagged, without refused calls", evaluator["total"]["good_runs_flagged_without_refused_calls"], 0.03)
        for source, row in evaluator["by_source"].items():
            if "good_runs_flagged" in row and "not_in_totals" not in row:
                value = row["good_runs_flagged_without_refused_calls"]
                if value["share"] > 0.03:
                    add_at_most(f"{name}: good runs flagged in {source}, without refused calls", value, 0.03)
    found = results["evaluators"]["call_validity"]["total"]["wrong_steps_found"]
    add("call_validity: wrong steps found", found, ">= 125", found["k"] >= 125)
    if "workbench" in results["sources"]:
        value = results["argument_provenance_on_workbench"]["all"]
        add_at_least("argument_provenance on WorkBench: wrong calls found", value["wrong_calls_found"], 0.33)
        add_at_most("argument_provenance on WorkBench: right calls flagged", value["right_calls_flagged"], 0.02)
        deed = results["deed_rule_on_workbench"]["unconditional"]
        add("completion.deed_missing: failed runs found", deed["failed_runs_found"], ">= 120", deed["failed_runs_found"]["k"] >= 120)
    for name, corruption in results["corrupted_values"].items():
        add_at_least(f"corrupted values caught, {name}", corruption["caught"], 0.95)
        if corruption["names_caught"]["n"]:
            add_at_least(f"corrupted values caught, {name}, short names included", corruption["caught_with_names"], 0.95)
        add_at_most(f"good runs flagged by argument_provenance, {name}", corruption["good_runs_flagged"], 0.01)
        add_at_most(f"good changing calls flagged, {name}", corruption["good_changing_calls_flagged"], 0.01)
    if "nestful" in results:
        add_at_least("NESTFUL: arguments with the right source", results["nestful"]["arguments_with_known_source"], 0.95)
    add_at_least("flags read as right", results["flags_read_by_hand"]["right"], 0.80)
    return bars


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradus", type=pathlib.Path, required=True, metavar="BIN")
    parser.add_argument("--gold", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--scorer", type=pathlib.Path, required=True, metavar="score_truth.py")
    parser.add_argument("--nestful", type=pathlib.Path, metavar="DIR", help="a checkout of IBM/NESTFUL")
    parser.add_argument("--show-misses", action="store_true", help="print each corrupted value that was not flagged")
    options = parser.parse_args()
    scorer, gradus = load_scorer(options.scorer), str(options.gradus.resolve())
    folders = sorted(folder for folder in (options.gold / "real").iterdir() if (folder / "source.json").exists())
    sources = {folder.name: read_source(scorer, folder, gradus) for folder in folders}
    names = sorted({name for result in sources.values() for name in result["scopes"]})
    results = {
        "machine": machine(),
        "gradus": subprocess.run([gradus, "--version"], capture_output=True, text=True).stdout.strip(),
        "about": "Precision of each rule of the offline judge on public runs with known faults (dev split), by benches/measure_rules.py. "
                 "Intervals are Wilson 95 % intervals and treat units as independent. End-state labels do not say which step failed, "
                 "so precision at run level is a lower bound for hard rules. The rules were adjusted with this data, its corrupted values "
                 "and the flags read by hand in view: before that adjustment 135 of 217 corrupted values of tau-bench were caught and 242 of "
                 "518 NESTFUL arguments had a reported source. Short names were counted apart only after their misses had been seen, so both "
                 "shares are given. Other data will give other figures.",
        "sources": {name: dict(origin=result["about"].get("source"), licence=result["about"].get("licence"), runs=len(result["gold"]),
                               good_runs=sum(row.get("success") is True for row in result["gold"]),
                               failed_runs=sum(row.get("success") is False for row in result["gold"]),
                               wrong_steps=sum(unit["level"] == "step" and unit["wrong"] for unit in result["units"]),
                               right_steps=sum(unit["level"] == "step" and not unit["wrong"] for unit in result["units"]))
                    for name, result in sources.items()},
    }
    results["rules"] = [measure_rule(scorer, rule, sources) for rule in read_catalog()]
    results["evaluators"] = {name: measure_evaluator(scorer, name, sources) for name in names}
    if "workbench" in sources:
        results["argument_provenance_on_workbench"] = provenance_by_agent(scorer, sources["workbench"])
        results["deed_rule_on_workbench"] = deed_rule(scorer, sources["workbench"])
    results["corrupted_values"] = {}
    with tempfile.TemporaryDirectory() as folder:
        trials = [("bench", lambda: corrupt_bench(scorer, gradus, folder))]
        if "tau_bench" in sources:
            trials.insert(0, ("tau_bench", lambda: corrupt_tau_bench(scorer, gradus, options.gold, folder)))
        for name, measure in trials:
            results["corrupted_values"][name], misses = measure()
            if options.show_misses:
                print("\n".join(f"{name} {miss}" for miss in misses))
        if options.nestful:
            results["nestful"] = measure_nestful(scorer, gradus, options.nestful, folder)
    results["flags_read_by_hand"] = list_readings(scorer, sources)
    results["bars"] = check_bars(results)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    for bar in results["bars"]:
        print("met   " if bar["met"] else "MISSED", bar["bar"], bar["wanted"], scorer.format_rate(bar["measured"]).strip())


if __name__ == "__main__":
    main()
