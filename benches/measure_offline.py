#!/usr/bin/env python3
"""Measures the `offline` judge on labelled data, and writes benches/results/offline_judge.json.

  benches/measure_offline.py --captures DIR --gold DIR --scorer score_labels.py

The data is not part of this project: DIRs are folders of captures with gold.json files and of public labelled calls
(tool_calls.jsonl, github_mcp_calls.jsonl, action_action_labels.jsonl). All goes through `gradus eval`, as a user's
data would; only repetitions are asked for pair by pair.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from machine import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "dist"


def trajectory(number, query, tools, call):
    step = {"index": 1, "thought": None, "tool": call["name"], "tool_call_id": None, "arguments": call.get("arguments"),
            "arguments_raw": None, "observation": None, "is_error": False, "parallel_with_previous": False, "agent": None,
            "span_ids": [], "start": None, "end": None, "tokens": {"prompt": 0, "completion": 0}}
    tools = [{"name": tool["name"], "description": tool.get("description"),
              "schema": tool.get("parameters") or tool.get("inputSchema")} for tool in tools]
    return {"trajectory_id": f"call-{number}", "trace_ids": [], "session_id": None, "project": None, "agent": None,
            "agent_version": None, "model": None, "query": query, "final_answer": None, "steps": [step], "tools": tools,
            "tokens": {"prompt": 0, "completion": 0}, "cost_usd": None, "defects": [], "parent_trajectory_id": None,
            "parent_step_index": None, "answer_span_ids": [], "root_span_id": None, "start": None, "end": None,
            "is_error": False}


def call_validity(trajectories):
    """The labels that the rules give, in order; None where they give none."""
    with tempfile.TemporaryDirectory() as folder:
        cases, out = pathlib.Path(folder) / "cases.jsonl", pathlib.Path(folder) / "out.jsonl"
        cases.write_text("".join(json.dumps(one) + "\n" for one in trajectories))
        command = [str(TARGET / "gradus"), "eval", str(cases), "--judge", "offline", "-e", "call_validity",
                   "--jsonl", str(out), "--state-dir", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line)["label"] for line in out.read_text().splitlines()]


def tool_calls(gold):
    items = [json.loads(line) for line in (gold / "tool_calls.jsonl").read_text().splitlines()]
    items = [item for item in items if item["label"] in ("correct", "incorrect")]

    def question(item):
        return "\n".join(message["content"] for message in item["messages"] if message["role"] == "user")
    labels = call_validity([trajectory(at, question(item), item["tools"], item["call"]) for at, item in enumerate(items)])
    flagged, total = collections.Counter(), collections.Counter()
    for item, label in zip(items, labels, strict=True):
        kind = item["error_class"] or "correct"
        total[kind] += 1
        flagged[kind] += label == "incorrect"
    result = {f"recall_{kind}": f"{flagged[kind]} of {total[kind]} ({flagged[kind] / total[kind]:.3f})"
              for kind in sorted(total) if kind != "correct"}
    result["false_alarms_on_correct"] = f"{flagged['correct']} of {total['correct']} ({flagged['correct'] / total['correct']:.4f})"
    return result


def github_mcp(gold):
    tools = json.loads((gold / "github_mcp_tools.json").read_text())
    tools = list(tools.values()) if isinstance(tools, dict) else tools
    items = [json.loads(line) for line in (gold / "github_mcp_calls.jsonl").read_text().splitlines()]
    labels = call_validity([trajectory(at, None, tools, item["call"]) for at, item in enumerate(items)])
    flagged, total = collections.Counter(), collections.Counter()
    for item, label in zip(items, labels, strict=True):
        kind = "accepted" if item["server_accepts"] else f"rejected_{item['error_class']}"
        total[kind] += 1
        flagged[kind] += label == "incorrect"
    return {kind: f"{flagged[kind]} of {total[kind]} flagged" for kind in sorted(total)}


def repetition(gold):
    lines = (gold / "action_action_labels.jsonl").read_text()
    answers = subprocess.run([str(TARGET / "examples" / "repetition")], input=lines, capture_output=True, text=True, check=True)
    hits = collections.Counter()
    for line, answer in zip(lines.splitlines(), answers.stdout.split(), strict=True):
        hits[json.loads(line)["label"] == "Repetition", answer == "true"] += 1
    found, alarms, missed = hits[True, True], hits[False, True], hits[True, False]
    return {"precision": round(found / (found + alarms), 3), "recall": round(found / (found + missed), 3),
            "found": found, "false_alarms": alarms, "missed": missed}


def captures(folder, scorer):
    command = [sys.executable, str(scorer), "--gradus", str(TARGET / "gradus"), str(folder)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=pathlib.Path(scorer).parent).stdout
    results = {}
    for line in text.splitlines():
        found = re.match(r"(thought_to_tool|query_to_thought|sequence_optimality)\s+(.*)", line)
        if found:
            names = ["good", "bad", "unjudged", "flaws_found", "false_alarms", "balanced_accuracy"]
            results[found[1]] = dict(zip(names, map(float, found[2].split()), strict=True))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=pathlib.Path, required=True)
    parser.add_argument("--gold", type=pathlib.Path, required=True)
    parser.add_argument("--scorer", type=pathlib.Path, required=True)
    options = parser.parse_args()
    subprocess.run(["cargo", "build", "--profile", "dist", "--features", "gradus/jemalloc", "--quiet", "--workspace", "--examples", "--bins", "--manifest-path", ROOT / "Cargo.toml"], check=True)
    results = {
        "machine": machine(),
        "about": "The rules were written with these captures and these labelled calls at hand, so the figures are no proof for other data. "
                 "The captures repeat a few scripted flaws over many frameworks: one wrong tool, one unknown tool, one off-topic thought.",
        "captures": captures(options.captures.resolve(), options.scorer.resolve()),
        "tool_calls": tool_calls(options.gold),
        "github_mcp_calls": github_mcp(options.gold),
        "repetition": repetition(options.gold),
    }
    path = ROOT / "benches" / "results" / "offline_judge.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
