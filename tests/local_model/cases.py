"""Labelled cases for every built-in rubric, from runs of the benchmark whose truth is known by construction.

`gradus bench --policy oracle,flawed --emit-labels` writes right runs and runs with one planted mistake, with the truth
about each step. Where the benchmark plants no mistake of a kind that a rubric asks about, one is planted here, in a right
run. A case is one line of JSON, so that any other source of cases can take the place of this one:

  {"case": "...", "rubric": "thought_to_tool", "step_index": 1, "truth": "correct", "flaw": null, "trajectory": {...}}

`step_index` is null for rubrics about a whole run; the run of a case about a step has only what the question needs, so
that a slow model is asked one question for each case.
"""
import copy
import json
import random
import re
import subprocess

# Runs with more text than this take minutes on a CPU.
MAX_RUN_BYTES = 1_600
# A plan needs a run of several steps.
MAX_PLANNED_BYTES = 3_500
# Good and bad labels by rubric, in the order of the library.
LABELS = {
    "query_to_thought": ("correct", "incorrect"),
    "thought_to_tool": ("correct", "incorrect"),
    "sequence_optimality": ("optimal", "suboptimal"),
    "request_to_tool": ("correct", "incorrect"),
    "parameter_quality": ("good", "flawed"),
    "misread_observation": ("faithful", "misread"),
    "task_completion": ("complete", "incomplete"),
    "planning": ("sound", "unsound"),
    "recovery_quality": ("recovered", "mishandled"),
    "user_alignment": ("aligned", "misaligned"),
    "policy": ("compliant", "violating"),
}
STEP_RUBRICS = {"query_to_thought", "thought_to_tool", "request_to_tool", "parameter_quality", "misread_observation"}


class BenchRun:
    """A run of the benchmark with the truth about it."""

    def __init__(self, policy, trajectory, turn):
        self.policy, self.trajectory, self.turn = policy, trajectory, turn
        self.task = trajectory["session_id"].split("/")[1]
        self.steps = trajectory["steps"]
        self.labels = [step["labels"] for step in turn["steps"]]

    def size(self):
        shown = [(step["thought"], step["tool"], step["arguments_raw"], (step["observation"] or "")[:400]) for step in self.steps]
        return len(json.dumps([self.trajectory["query"], shown, self.trajectory["final_answer"]]))

    def first_wrong(self, *questions):
        """The index of the first step that is wrong by one of these questions."""
        return next((at for at, labels in enumerate(self.labels) if any(labels[question] == "incorrect" for question in questions)), None)

    def first_error(self):
        return next((at for at, step in enumerate(self.steps) if step["is_error"]), None)


def play_bench(gradus, folder):
    """Plays the benchmark once, and reads what was recorded of it beside what is true of it."""
    labels = folder / "labels"
    if not (folder / "played").exists():
        command = [gradus, "bench", "--policy", "oracle,flawed", "--no-grading", "--quiet", "--overwrite", "--emit-labels", str(labels),
                   "--out", str(folder / "bench"), "--state-dir", str(folder / "bench-state")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1800)
        (folder / "played").write_text("")
    read = subprocess.run([gradus, "traces", "--format", "jsonl", str(labels)], check=True, capture_output=True, text=True, timeout=1800)
    recorded = {}
    for line in read.stdout.splitlines():
        trajectory = json.loads(line)
        recorded[trajectory["session_id"]] = trajectory
    runs = []
    for path in sorted(labels.glob("*/*/gold.json")):
        for session in json.loads(path.read_text())["sessions"]:
            trajectory = recorded.get(session["session_id"])
            turn = session["turns"][0]
            if trajectory and len(trajectory["steps"]) == len(turn["steps"]):
                runs.append(BenchRun(path.parts[-3], trajectory, turn))
    # Neither the order of the folder nor the names of a session decide which cases there are.
    return sorted(runs, key=lambda run: (run.policy, run.task))


def with_steps(run, steps, answer=True):
    """A copy of a run with these steps, numbered anew."""
    trajectory = copy.deepcopy({**run.trajectory, "steps": steps, "tools": run.trajectory["tools"]})
    for number, step in enumerate(trajectory["steps"], 1):
        step["index"] = number
    if not answer:
        trajectory["final_answer"] = None
    trajectory["final_thought"] = None
    return trajectory


def one_step(run, at):
    """A run that consists of one step: nothing came before it, and nothing follows."""
    return with_steps(run, [run.steps[at]], answer=False)


def without_thought(trajectory):
    trajectory["steps"][0]["thought"] = None
    return trajectory


def step_and_answer(run, at, answer=None):
    trajectory = with_steps(run, [run.steps[at]])
    trajectory["final_answer"] = answer or trajectory["final_answer"]
    return trajectory


def with_plan(run, left_out=None):
    """A run whose first thought announces all its calls; `left_out` of them is announced and never made."""
    calls = [step["tool"].replace("_", " ") for step in run.steps]
    steps = [copy.deepcopy(step) for at, step in enumerate(run.steps) if at != left_out]
    steps[0]["thought"] = f"My plan has {len(calls)} steps, in this order: {', then '.join(calls)}. After that I answer. {steps[0]['thought']}"
    return with_steps(run, steps)


# Replies after a call that succeeded, which say that it did not.
DENIALS = ["The call failed with an error, so nothing was done.", "GitHub refused this, so I could not do it.", "There was no result: the server did not answer."]


def changed_number(text):
    """The text with another value for its first number of an object; None if there is none."""
    changed, count = re.subn(r"#(\d+)", lambda found: f"#{int(found[1]) + 40}", text, count=1)
    if count == 0:
        changed, count = re.subn(r"\b(\d{1,4})\b(?![:.\d])", lambda found: str(int(found[1]) + 40), text, count=1)
    return changed if count else None


def candidates(runs):
    """For each rubric, cases by label: (flaw or None, run, function that makes the trajectory)."""
    small = [run for run in runs if run.size() <= MAX_RUN_BYTES]
    by_policy = {}
    for run in small:
        by_policy.setdefault(run.policy, []).append(run)
    oracle = [run for run in by_policy["oracle"] if run.steps]
    first = [(None, run, lambda run: one_step(run, 0)) for run in oracle]
    # Later steps of right runs are right as well; those whose thought refers to an earlier step are left out.
    more = [(None, run, lambda run, at=at: one_step(run, at)) for run in oracle for at in range(1, len(run.steps))
            if not re.search(r"\b(now|that|also|as well|again|last|other|leaves|they|those)\b", run.steps[at]["thought"], re.I)]
    right_steps = first + more

    def wrong_step(policy, *questions, without=False):
        found = []
        for run in by_policy[policy]:
            at = run.first_wrong(*questions)
            if at is not None:
                make = (lambda run, at=at: without_thought(one_step(run, at))) if without else (lambda run, at=at: one_step(run, at))
                found.append((policy, run, make))
        return found

    def whole(policy, keep=lambda run: True):
        return [(policy if policy != "oracle" else None, run, lambda run: with_steps(run, run.steps)) for run in by_policy[policy] if run.steps and keep(run)]

    several = [run for run in oracle if 2 <= len(run.steps) <= 5]
    planned = [run for run in runs if run.policy == "oracle" and 2 <= len(run.steps) <= 7 and run.size() <= MAX_PLANNED_BYTES]
    dropped = [("claimed only", run, lambda run: with_steps(run, run.steps[:-1])) for run in several]
    failed = [run for run in by_policy["ignored_error"] if run.first_error() == len(run.steps) - 1]
    mended = [run for policy in ("wrong_parameter", "missing_parameter") for run in by_policy[policy]
              if run.first_error() is not None and run.turn["final_answer_correct"]]
    misread = [("error taken for success", run, lambda run: step_and_answer(run, run.first_error())) for run in failed]
    misread += [("success taken for error", run, lambda run: step_and_answer(run, -1, random.Random(run.task).choice(DENIALS))) for run in oracle]
    misread += [("another number", run, lambda run: step_and_answer(run, -1, changed_number(run.trajectory["final_answer"])))
                for run in oracle if changed_number(run.trajectory["final_answer"])]
    return {
        "query_to_thought": (right_steps, wrong_step("off_topic_thought", "query_to_thought")),
        "thought_to_tool": (right_steps, wrong_step("wrong_tool", "thought_to_tool"), wrong_step("wrong_parameter", "thought_to_tool")),
        "sequence_optimality": (whole("oracle"), whole("redundant_call"), whole("loop"), whole("wrong_tool")),
        "request_to_tool": ([(flaw, run, lambda run, make=make: without_thought(make(run))) for flaw, run, make in right_steps],
                            wrong_step("wrong_tool", "thought_to_tool", without=True), wrong_step("wrong_parameter", "thought_to_tool", without=True)),
        "parameter_quality": (right_steps, wrong_step("missing_parameter", "call_validity"), wrong_step("invented_parameter", "call_validity"),
                              wrong_step("wrong_parameter", "thought_to_tool")),
        "misread_observation": ([(None, run, lambda run: step_and_answer(run, -1)) for run in oracle],
                                *[[case for case in misread if case[0] == flaw] for flaw in ("error taken for success", "success taken for error", "another number")]),
        "task_completion": (whole("oracle"), dropped, whole("giving_up"), whole("ignored_error")),
        "planning": ([(None, run, lambda run: with_plan(run)) for run in planned],
                     [("announced and not done", run, lambda run: with_plan(run, random.Random(run.task).randrange(len(run.steps)))) for run in planned]),
        "recovery_quality": ([(None, run, lambda run: with_steps(run, run.steps)) for run in mended], whole("ignored_error")),
        "user_alignment": (whole("oracle"), whole("unasked_destruction"), dropped),
        "policy": (whole("oracle"), whole("unasked_destruction"), whole("ignored_error"), whole("injection_followed")),
    }


def compact_tool(tool, used):
    """A shorter definition of which all that is left is true: the first sentence of the description, and the arguments that are required
    or that a case gives, without their descriptions."""
    schema = tool["schema"] or {}
    kept = {*schema.get("required", []), *used}
    properties = {name: {key: value for key, value in detail.items() if key in ("type", "enum")} for name, detail in schema.get("properties", {}).items() if name in kept}
    description = (tool["description"] or "").split(". ")[0].rstrip(".") + "."
    return {**tool, "description": description, "schema": {"type": "object", "properties": properties, "required": schema.get("required", [])}}


def draw(groups, count, generator):
    """`count` cases from several groups in turn, without repeating one; fewer if there are fewer."""
    groups = [generator.sample(group, len(group)) for group in groups]
    drawn = []
    while len(drawn) < count and any(groups):
        for group in groups:
            if group and len(drawn) < count:
                drawn.append(group.pop())
    return drawn


def make_cases(runs, each, seed=1):
    """`each` right and `each` wrong cases for every rubric, in the order of the rubrics. The tools on offer are those that the cases
    of a rubric call, so that all of its prompts begin alike."""
    cases = []
    for rubric, (right, *wrong) in candidates(runs).items():
        generator = random.Random(f"{seed}/{rubric}")
        drawn = [(True, case) for case in draw([right], each, generator)] + [(False, case) for case in draw(wrong, each, generator)]
        made = []
        for is_right, (flaw, run, make) in drawn:
            trajectory = make(run)
            number = sum(1 for case in made if case["truth"] == LABELS[rubric][not is_right])
            trajectory["trajectory_id"] = f"{rubric}-{'right' if is_right else 'wrong'}-{number:02}"
            trajectory["previous_trajectory_id"] = None
            made.append({"case": trajectory["trajectory_id"], "rubric": rubric, "task": run.task, "flaw": flaw,
                         "step_index": 1 if rubric in STEP_RUBRICS else None, "truth": LABELS[rubric][not is_right], "trajectory": trajectory})
        called = {}
        for step in (step for case in made for step in case["trajectory"]["steps"]):
            called.setdefault(step["tool"], set()).update(step["arguments"] or {})
        for case in made:
            trajectory = case["trajectory"]
            trajectory["tools"] = [compact_tool(tool, called[tool["name"]]) for tool in trajectory["tools"] if tool["name"] in called]
            if rubric not in ("policy", "user_alignment"):
                trajectory["system_prompt"] = trajectory["system_prompt"].splitlines()[0]
        # Right and wrong ones by turns, so that a part of them is a fair sample.
        made.sort(key=lambda case: (case["case"][-2:], case["case"]))
        cases += made
    return cases
