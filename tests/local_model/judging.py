"""Asks a model about labelled cases through `gradus eval`, in small groups that are kept one by one, so that a run that was
killed goes on where it was."""
import hashlib
import json
import os
import subprocess
import tempfile
import time

# Cases of one call of `gradus eval`. What is lost when it is killed is less than this: answers are kept one by one in its state.
GROUP = 20
# Questions at once. Weights are read from memory once for all tokens that are computed together, which is what takes time on a CPU.
SLOTS = 4
# Environment of the judge: nothing of the user's keys and addresses.
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "ANTHROPIC_", "GRADUS_")) and "proxy" not in key.lower()}


class JudgeFailed(Exception):
    """`gradus eval` ended otherwise than with a judged run."""


def run_eval(gradus, judge_options, rubric, trajectories, state, options=()):
    """The outcome lines of one evaluator over these trajectories."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "cases.jsonl"), os.path.join(folder, "outcomes.jsonl")
        with open(source, "w") as file:
            file.writelines(json.dumps(trajectory) + "\n" for trajectory in trajectories)
        command = [gradus, "eval", source, *judge_options, "--evaluators", rubric, "--jsonl", out, "--state-dir", str(state), "--concurrency", str(SLOTS),
                   "--timeout", "3600", "--quiet", *options]
        ran = subprocess.run(command, env=CLEAN, cwd=folder, capture_output=True, text=True)
        if ran.returncode not in (0, 4) or not os.path.exists(out):
            raise JudgeFailed(f"gradus eval ended with {ran.returncode}: {ran.stderr.strip()[-400:]}")
        with open(out) as file:
            return [json.loads(line) for line in file]


class KeptAnswers:
    """The groups that were judged, in one file of lines for each model."""

    def __init__(self, path):
        self.path = path
        self.groups = {}
        if path.exists():
            for line in path.read_text().splitlines():
                # A line that a crash cut off is judged again.
                try:
                    group = json.loads(line)
                except ValueError:
                    continue
                self.groups[group["key"]] = group

    def keep(self, group):
        self.groups[group["key"]] = group
        with open(self.path, "a") as file:
            file.write(json.dumps(group) + "\n")
            file.flush()
            os.fsync(file.fileno())


def group_key(suite, cases):
    content = json.dumps([suite, *[[case["case"], case["truth"], case["trajectory"]] for case in cases]], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def has_answers(kept, suite, cases):
    """Whether all groups of these cases were judged on this machine."""
    return all(group_key(suite, cases[start:start + GROUP]) in kept.groups for start in range(0, len(cases), GROUP))


def judge_suite(gradus, server, alias, suite, cases, kept, state, options=(), report=print):
    """Judges cases of one rubric, group by group. Yields each group that is done, new or kept."""
    for start in range(0, len(cases), GROUP):
        group = cases[start:start + GROUP]
        key = group_key(suite, group)
        if key not in kept.groups:
            began, cpu = time.monotonic(), server.cpu_seconds()
            lines = run_eval(gradus, server.judge_options, group[0]["rubric"], [case["trajectory"] for case in group], state / suite, options)
            wall_s, cpu_s = time.monotonic() - began, server.cpu_seconds() - cpu
            kept.keep({"key": key, "suite": suite, "rubric": group[0]["rubric"], "wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2),
                       "answers": [answer_about(case, lines) for case in group]})
            report(f"{alias}: {suite}: {group[0]['rubric']}: {min(start + GROUP, len(cases))} of {len(cases)} in {wall_s:.0f} s")
        yield kept.groups[key]


def answer_about(case, lines):
    """What the judge said about a case, beside what is true of it."""
    line = next((line for line in lines if line["trajectory_id"] == case["case"] and line["step_index"] == case["step_index"]), {})
    return {"case": case["case"], "truth": case["truth"], "flaw": case.get("flaw"), "outcome": line.get("outcome", "missing"), "label": line.get("label"),
            "label_probability": line.get("label_probability"), "reason": line.get("reason"), "calls": line.get("calls", 0), "cached": line.get("cached", False),
            "tokens": line.get("tokens"), "shortened": line.get("shortened", []), "explanation": (line.get("explanation") or "")[:400]}
