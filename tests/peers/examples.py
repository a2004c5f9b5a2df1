#!/usr/bin/env python3
"""Runs the examples as a reader would: the agents on `gradus simulate` with the scripted model of the examples, graded live by
`gradus serve`, with verdicts in a real Phoenix; the gate of the CI repository, with and without its planted mistake; the
notebook, cell by cell.

  tests/peers/examples.py GRADUS

Packages are those of each requirements.txt. run.py runs this too, and says there what is skipped and why.
"""
import contextlib
import functools
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from collector import GRADED_WITHIN_S, Server, checked, free_ports, traces_of
from experiment import AGENTS
from github_clients import TOKEN, simulator
from phoenix_server import Phoenix
from run import HERE, finish, python_for, run_checks

EXAMPLES = HERE.parents[1] / "examples"
RUN_ACTION = HERE.parents[1] / "scripts" / "run-action"
RUNNER_PACKAGES = ["PyYAML==6.0.3"]
AGENT, CI, NOTEBOOK = EXAMPLES / "github-agent", EXAMPLES / "ci-repository", EXAMPLES / "notebook"
PYTHON_PACKAGE = HERE.parents[1] / "packaging" / "python" / "src"
NOTEBOOK_PACKAGES = ["arize-phoenix-evals==2.13.0", "arize-phoenix-client==3.5.0", "openai==3.49.0", "pandas==3.1.1", "httpx2==2.16.0", "pydantic==2.14.3"]
RUNS_WITHIN_S = 600

sys.path.insert(0, str(EXAMPLES))
from scripted_model import SCRIPT  # noqa: E402

# What each trajectory of an agent has to say, in the order of the script.
WANTED = [(request, [(thought, tool, arguments) for thought, tool, arguments in steps], answer) for request, (steps, answer) in SCRIPT.items()]
REFUSED = "Close issue 99 of octo/demo."


def environment(**extra):
    kept = {name: value for name, value in os.environ.items() if not re.match(r"(?i)GRADUS_(?!TEST_CACHE)|OTEL_|OPENAI_|ANTHROPIC_|PHOENIX_|GITHUB_|.*_proxy$", name)}
    return kept | extra


def run(words, folder, code=0, **extra):
    ran = subprocess.run([str(word) for word in words], cwd=folder, env=environment(**extra), capture_output=True, text=True, timeout=RUNS_WITHIN_S)
    if ran.returncode != code:
        raise RuntimeError(f"{' '.join(map(str, words))[:200]} ended with {ran.returncode} instead of {code}: {(ran.stdout + ran.stderr).strip()[-1500:]}")
    return ran


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


@contextlib.contextmanager
def model():
    """The variables that lead to the scripted model."""
    with subprocess.Popen([sys.executable, EXAMPLES / "scripted_model.py", "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield {"OPENAI_BASE_URL": process.stdout.readline().strip(), "OPENAI_API_KEY": "none"}
        finally:
            process.terminate()


@contextlib.contextmanager
def world(gradus):
    """A simulated GitHub, the scripted model and a collector: its folder, the collector, and the variables of an agent."""
    with tempfile.TemporaryDirectory() as folder, simulator(gradus, "w2") as github, model() as variables:
        server = Server(gradus, folder, *free_ports(2))
        try:
            yield pathlib.Path(folder), server, {**variables, "GITHUB_API_URL": github, "GITHUB_TOKEN": TOKEN,
                                                 "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.http_port}"}
        finally:
            if wrong := server.stop():
                raise RuntimeError("; ".join(wrong))


def read_as_it_was(gradus, folder, source):
    """Where trajectories differ from the script."""
    found = []
    got = {one["query"]: one for one in lines(run([gradus, "traces", "--format", "jsonl", source], folder).stdout)}
    if sorted(got) != sorted(SCRIPT):
        found.append(f"{sorted(got)} were asked")
    for request, steps, answer in WANTED:
        one = got.get(request, {})
        # LangChain's instrumentation records no arguments where there are none.
        did = [(step["thought"], step["tool"], step["arguments"] or {}) for step in one.get("steps", [])]
        found += [] if did == steps else [f"{request}: {did} instead of {steps}"]
        found += [] if one.get("final_answer") == answer else [f"{request}: answered {one.get('final_answer')!r}"]
        found += [f"{request}: {defect}" for defect in one.get("defects", [])]
        failed = [step["is_error"] for step in one.get("steps", [])]
        found += [] if failed == [request == REFUSED] * len(steps) else [f"{request}: failed steps {failed}"]
    return found


def graded_live(server, project):
    """The requests of the project in which the server found something wrong, once it has graded all of them."""
    end = time.monotonic() + GRADED_WITHIN_S
    while True:
        traces = traces_of(server, project)
        queries = {one["trajectory_id"]: one["query"] for trace in traces for one in trace["trajectories"]}
        outcomes = [one for trace in traces for one in trace["outcomes"]]
        if set(queries.values()) == set(SCRIPT) == {queries[one["trajectory_id"]] for one in outcomes}:
            return {queries[one["trajectory_id"]] for one in outcomes if one["score"] == 0}
        if time.monotonic() > end:
            raise RuntimeError(f"after {GRADED_WITHIN_S} s only {len(outcomes)} verdicts on {sorted(queries.values())}")
        time.sleep(0.2)


def changes_on_github(variables):
    """What the agent left behind on the simulator."""
    with urllib.request.urlopen(f"{variables['GITHUB_API_URL']}/_gradus/diff") as answer:
        return answer.read().decode()


@checked
def agent_on_github(gradus, framework, project):
    """One of the three agents: what it did is read as it was, and graded as it came."""
    peer = AGENTS[framework]
    python = python_for(framework, peer["packages"], peer["folder"])
    with world(gradus) as (folder, server, variables):
        run([python, AGENT / f"{framework.replace('-', '_')}_agent.py", *SCRIPT], AGENT, **variables)
        found = read_as_it_was(gradus, folder, f"gradus://127.0.0.1:{server.http_port}/{project}")
        changes = changes_on_github(variables)
        found += [] if "octo/demo/issues/5" in changes and "closed" in changes else [f"issue 5 was not closed: {changes}"]
        wrong = graded_live(server, project)
        return found + ([] if REFUSED in wrong and "Which repositories do I have?" not in wrong else [f"wrong are {wrong}"])


@checked
def agent_in_phoenix(gradus):
    """The agent of the specification: spans in both, verdicts of a model in Phoenix."""
    peer = AGENTS["llamaindex"]
    python = python_for("llamaindex", peer["packages"], peer["folder"])
    with Phoenix() as phoenix, world(gradus) as (folder, server, variables):
        run([python, AGENT / "llamaindex_agent.py", *SCRIPT], AGENT, PHOENIX_COLLECTOR_ENDPOINT=phoenix.url, **variables)
        phoenix.settled()
        source = f"phoenix://127.0.0.1:{phoenix.port}/github-agent"
        found = read_as_it_was(gradus, folder, source) + read_as_it_was(gradus, folder, f"gradus://127.0.0.1:{server.http_port}/github-agent")
        evaluators = "query_to_thought,thought_to_tool,sequence_optimality"
        run([gradus, "eval", source, "--judge", "gpt-4o", "--evaluators", evaluators, "--log-to-phoenix", "--quiet"], folder, **variables)
        wanted = {"Query to thought": [9, 0], "Thought to tool": [8, 1], "Sequence optimality": [3, 1]}
        got = count_annotations(phoenix, "github-agent")
        found += [] if got == wanted else [f"annotations {got} instead of {wanted}"]
        return found + check_notebook(gradus, phoenix, folder, variables)


def count_annotations(phoenix, project):
    """By name: how many are right and how many wrong, as Phoenix tells."""
    spans = phoenix.pages(f"/v1/projects/{project}/spans?limit=1000")
    asked = "&".join(f"span_ids={urllib.parse.quote(span['context']['span_id'])}" for span in spans)
    counts = {}
    for one in phoenix.pages(f"/v1/projects/{project}/span_annotations?limit=1000&{asked}"):
        counts.setdefault(one["name"], [0, 0])[one["result"]["score"] == 0] += 1
    return counts


# Runs the cells of a notebook in one namespace, and prints what the checks need as JSON.
RUN_CELLS = """
import json, sys
names = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
evaluation = names["evaluation"]
verdicts = [(one.evaluator, one.span_ids[0], one.label) for one in evaluation.verdicts]
classified = [(name, span, row.label) for name, table in (("query_to_thought", names["query_thought"]), ("thought_to_tool", names["thought_tool"]), ("sequence_optimality", names["of_root"])) for span, row in table.iterrows()]
print("\\n" + json.dumps({
    "accuracies": {name: [one.value, names["accuracies"].get(name)] for name, one in evaluation.accuracies.items() if name in names["accuracies"]},
    "verdicts": sorted(verdicts), "classified": sorted(classified),
    "tools": [{one.tool: one.uses for one in evaluation.tools}, dict(names["steps"]["tool_call"].value_counts().drop("No tool used").items())],
}, default=int))
"""


def check_notebook(gradus, phoenix, folder, variables):
    """Both halves of the notebook give the same table."""
    if not PYTHON_PACKAGE.is_dir():
        return ["there is no Python package"]
    cells = json.loads((NOTEBOOK / "spec_pipeline.ipynb").read_text())["cells"]
    first = next("".join(cell["source"]) for cell in cells if "import gradus" in "".join(cell["source"]))
    found = [] if len(first.strip().splitlines()) <= 11 else ["the first half is no longer about ten lines"]
    python = python_for("examples-notebook", NOTEBOOK_PACKAGES)
    work = folder / "notebook"
    work.mkdir()
    ran = run([python, "-c", RUN_CELLS, NOTEBOOK / "spec_pipeline.ipynb"], work, PYTHONPATH=str(PYTHON_PACKAGE), GRADUS_BIN=gradus,
              PHOENIX_COLLECTOR_ENDPOINT=phoenix.url, **variables)
    result = json.loads(ran.stdout.splitlines()[-1])
    wanted = {"query_to_thought": 1.0, "thought_to_tool": 8 / 9, "sequence_optimality": 0.75, "combined": 4 / 5}
    for name, value in wanted.items():
        ours, theirs = result["accuracies"].get(name, [None, None])
        if ours is None or theirs is None or max(abs(ours - value), abs(theirs - value)) > 1e-9:
            found.append(f"notebook, {name}: gradus {ours}, llm_classify {theirs}, expected {value}")
    if result["verdicts"] != result["classified"]:
        found.append(f"notebook: {result['verdicts']} are the verdicts of gradus, {result['classified']} those of llm_classify")
    found += [] if result["tools"][0] == result["tools"][1] else [f"notebook: tool usage {result['tools']}"]
    for table in ("gradus-results/combined.csv", "gradus-results/thought_to_tool.csv", "classify-results/thought_to_tool.csv"):
        found += [] if (work / table).is_file() else [f"notebook: {table} was not written"]
    logged = count_annotations(phoenix, "github-agent")
    names = {"Query to thought": "GitHub Query Interpretation Eval (Query-to-Thought)", "Thought to tool": "GitHub Tool Calling Eval (Thought-to-Tool)",
             "Sequence optimality": "GitHub Sequence Optimality Eval"}
    return found + [f"notebook: {ours} has {logged.get(ours)} annotations, {theirs} {logged.get(theirs)}" for ours, theirs in names.items() if logged.get(ours) != logged.get(theirs) or not logged.get(ours)]


def workflow_step():
    """The words that the workflow gives to the action, and what else it says."""
    text = (CI / ".github" / "workflows" / "gradus.yml").read_text()
    return dict(re.findall(r"^ {10}(\w+): (.+)$", text.split("- uses: ./", 1)[1].split("env:")[0], re.M))


def run_workflow(gradus, repository, given, variables, verdict):
    """Runs the steps of the action with the inputs of the workflow; where it and the gates do not say what they should."""
    # No release is there to be installed, and no pull request to be commented on.
    given = given | {"path": gradus, "comment": "false", "version": "", "args": given["args"].replace("--trials 3", "--trials 1")}
    python = python_for("github-action", RUNNER_PACKAGES)
    words = [python, RUN_ACTION, "--workspace", repository, *(word for name, value in given.items() for word in ("--with", f"{name}={value}"))]
    document = json.loads(run(words, repository, code={"pass": 0, "fail": 3}[verdict], **variables).stdout)
    found = [] if document["outputs"].get("verdict") == verdict else [f"the action says {document['outputs']}"]
    summary = html.unescape(document["summary"].replace("\\", ""))
    return found + ([] if "pass >= baseline - 0.05" in summary else [f"the gate is not in the summary: {summary[-1500:]}"])


@checked
def gate_of_the_repository(gradus):
    """Passes on the main branch, fails with the planted mistake, and passes again with a new baseline."""
    peer = AGENTS["openai-agents"]
    python = python_for("openai-agents", peer["packages"], peer["folder"])
    with tempfile.TemporaryDirectory() as folder, model() as variables:
        repository = pathlib.Path(folder, "repository")
        shutil.copytree(CI, repository)
        programs = pathlib.Path(folder, "programs")
        programs.mkdir()
        (programs / "python").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        (programs / "python").chmod(0o755)
        (programs / "gradus").symlink_to(gradus)
        variables |= {"PATH": f"{programs}:{os.environ['PATH']}"}
        given, found = workflow_step(), []
        found += [] if set(given) >= {"command", "source", "args", "baseline", "comment", "version"} else [f"the workflow gives {sorted(given)}"]
        gate, patch, accept = re.findall(r"^```sh\n(.*?)^```$", (CI / "README.md").read_text(), re.S | re.M)
        # One trial says as much of a scripted model as three.
        once = lambda command: command.strip().splitlines()[-1].replace("--trials 3", "--trials 1")
        shell = lambda command, code=0: run(["sh", "-c", command], repository, code=code, **variables)
        found += run_workflow(gradus, repository, given, variables, "pass")
        shell(patch)
        found += run_workflow(gradus, repository, given, variables, "fail")
        failed = shell(once(gate), code=3)
        found += [] if "FAIL       pass >= baseline" in failed.stdout and "refund-twice" in failed.stdout else [f"the failure was not explained: {failed.stdout[-800:]}"]
        shell("patch -R -p1 < planted-mistake.patch && rm main.baseline && " + once(accept))
        found += [] if (repository / "main.baseline").is_file() else ["the baseline was not written"]
        return found


@checked
def packages_are_those_tested(_):
    """requirements.txt names the packages that the agents run with here."""
    # One agent is there for its exporter, and is no example.
    agents = {package for name, peer in AGENTS.items() if name != "phoenix-otel" for package in peer["packages"]}
    wanted = {AGENT: agents, CI: set(AGENTS["openai-agents"]["packages"]), NOTEBOOK: set(NOTEBOOK_PACKAGES)}
    found = []
    for folder, packages in wanted.items():
        named = {line for line in (folder / "requirements.txt").read_text().splitlines() if "==" in line}
        found += [f"{folder.name}: {sorted(named ^ packages)} are not in both"] if named != packages else []
    return found


def main():
    gradus = os.path.abspath(sys.argv[1])
    finish(*run_checks({
        "examples, packages": functools.partial(packages_are_those_tested, gradus),
        "examples, CI repository": functools.partial(gate_of_the_repository, gradus),
        "examples, LlamaIndex": functools.partial(agent_on_github, gradus, "llamaindex", "github-agent"),
        "examples, LangGraph": functools.partial(agent_on_github, gradus, "langgraph", "github-agent-langgraph"),
        "examples, OpenAI Agents": functools.partial(agent_on_github, gradus, "openai-agents", "github-agent-openai-agents"),
        "examples, Phoenix and notebook": functools.partial(agent_in_phoenix, gradus),
    }))


if __name__ == "__main__":
    main()
