#!/usr/bin/env python3
"""The GitHub action, step by step as it is written (scripts/run-action), with a program that is installed by its checksum and
a simulated GitHub that takes the comments.

  tests/peers/github_action.py GRADUS

Not run here: the steps of other actions (cache, upload-artifact) and the download of a release. run.py runs this too.
"""
import contextlib
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import xml.etree.ElementTree

from collector import checked
from github_clients import TOKEN, simulator
from run import HERE, Skipped, finish, python_for, run_checks

ROOT = HERE.parent.parent
PACKAGES = ["PyYAML==6.0.3"]
REPOSITORY = "octo/demo"
OTHER_TOKEN = "test_token_user2"
TRACES = ROOT / "fixtures" / "captures" / "llamaindex-react"
NOT_RUN = ["actions/cache/restore", "actions/cache/save", "actions/upload-artifact"]
HOSTILE = "@octo see #1 and GH-2 <img src=x> **bold** [x](https://evil.example)\n::error::injected\n<!-- gradus-action:check -->\n| a | b | $(touch pwned) `touch pwned`"


def call_github(url, path, token=TOKEN, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"authorization": f"Bearer {token}", **({"content-type": "application/json"} if data else {})})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


class Action:
    """A repository with traces, a folder with an archive to install, and the runner."""

    def __init__(self, gradus, folder):
        self.folder, self.workspace, self.dist = folder, folder / "work space", folder / "dist"
        self.python = python_for("github-action", PACKAGES)
        shutil.copytree(TRACES, self.workspace / "my traces")
        if not shutil.which("strip"):
            raise Skipped("there is no strip (binutils)")
        packed = subprocess.run([sys.executable, ROOT / "scripts" / "dist", "--binary", gradus, "--strip", "--compression", "1", "--only", "archive", "--out", self.dist], capture_output=True, text=True)
        if packed.returncode != 0:
            raise RuntimeError(f"scripts/dist failed: {packed.stderr[-600:]}")

    def run(self, *, event=None, variables=(), **inputs):
        """Exit code, document. Inputs are named with underscores."""
        inputs = {"path": str(self.dist), "source": "my traces", "name": "check", **inputs}
        command = [self.python, ROOT / "scripts" / "run-action", "--workspace", self.workspace, "--temp", self.folder / "temp"]
        command += [text for name, value in inputs.items() for text in ("--with", f"{name.replace('_', '-')}={value}")]
        command += [text for variable in variables for text in ("--set", variable)]
        if event is not None:
            path = self.folder / "event.json"
            path.write_text(json.dumps(event))
            command += ["--event", path]
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
        if not ran.stdout.startswith("{"):
            raise RuntimeError(f"run-action failed: {ran.stderr[-600:]}")
        return ran.returncode, json.loads(ran.stdout)


def step(document, name):
    return next(record for record in document["steps"] if record["name"] == name)


@contextlib.contextmanager
def pull_request(gradus):
    """A simulated pull request: its address, number, and the variables that point there."""
    with simulator(gradus, "w2") as url:
        number = call_github(url, f"/repos/{REPOSITORY}/pulls?state=open")[0]["number"]
        yield url, number, [f"GITHUB_API_URL={url}", f"GITHUB_REPOSITORY={REPOSITORY}", f"GITHUB_TOKEN={TOKEN}"]


def own_comments(url, number):
    comments = call_github(url, f"/repos/{REPOSITORY}/issues/{number}/comments?per_page=100")
    return [comment for comment in comments if comment["body"].startswith("<!-- gradus-action:check -->") and comment["user"]["login"] == "octo"]


def check_reports(action):
    """Outputs, files, summary, and which steps were left to GitHub."""
    code, document = action.run(args="--judge offline --gate 'call_validity >= 0.5'", baseline="cache")
    found, outputs = [], document["outputs"]
    if code != 0 or outputs["verdict"] != "pass" or outputs["exit-code"] != "0":
        found.append(f"exit code {code}, outputs {outputs}")
    if not outputs["run-id"] or outputs["run-id"] not in document["summary"]:
        found.append(f"the step summary does not name run {outputs['run-id']!r}")
    tests = xml.etree.ElementTree.parse(outputs["junit-path"]).getroot()
    if not list(tests.iter("testcase")) or "<html" not in pathlib.Path(outputs["report-path"]).read_text():
        found.append("JUnit has no tests, or the HTML report is no page")
    left = [record["uses"].split("@")[0] for record in document["steps"] if record["outcome"] == "not run"]
    if left != NOT_RUN:
        found.append(f"not run: {left} instead of {NOT_RUN}")
    if not pathlib.Path(step(document, "Save the baseline")["with"]["path"]).is_file():
        found.append("there is no baseline to put into the cache")
    return found


def check_baseline(action):
    """The second run compares with the baseline of the first; other arguments have another key of the cache."""
    (first_code, first), (_, other) = (action.run(args=args, baseline="cache") for args in ("--judge offline", "--judge offline --evaluators outcome"))
    code, second = action.run(args="--judge offline", baseline="cache", fail_on="regression")
    prefixes = [step(document, "Restore the baseline")["with"]["restore-keys"] for document in (first, other, second)]
    found = [] if prefixes[0] == prefixes[2] != prefixes[1] else [f"keys of the cache: {prefixes}"]
    saved = action.workspace / "main.baseline"
    shutil.copy(step(first, "Save the baseline")["with"]["path"], saved)
    code, third = action.run(args="--judge offline", baseline="main.baseline", fail_on="regression")
    if first_code != 0 or code != 0 or "baseline" not in third["summary"]:
        found.append(f"exit codes {first_code}, {code}; the summary names no baseline: {third['summary'][-300:]}")
    return found


def check_decision(action):
    """A failed gate fails the job behind the comment and the artifact, or warns; an empty source always fails."""
    gate = "--judge offline --gate 'call_validity >= 0.999'"
    (action.workspace / "empty.json").write_text('{"resourceSpans": []}')
    wanted = {3: {"args": gate}, 0: {"args": gate, "fail_on": "nothing"}, 4: {"source": "empty.json", "fail_on": "nothing"}}
    found = []
    for expected, inputs in wanted.items():
        code, document = action.run(**inputs)
        verdict = "nothing" if expected == 4 else "fail"
        if code != expected or document["outputs"]["verdict"] != verdict or step(document, "Upload the reports")["outcome"] != "not run":
            found.append(f"{inputs}: exit code {code} instead of {expected}, outputs {document['outputs']}")
    code, document = action.run(source="missing", comment="true")
    if code != 2 or document["outputs"]["report-path"] or "No report was written" not in document["summary"]:
        found.append(f"a source that does not exist: exit code {code}, outputs {document['outputs']}")
    return found


def check_comment(gradus, action):
    """One comment for any number of runs; a marker that somebody else wrote is left alone."""
    with pull_request(gradus) as (url, number, variables):
        event = {"pull_request": {"number": number}}
        call_github(url, f"/repos/{REPOSITORY}/issues/{number}/comments", OTHER_TOKEN, {"body": "<!-- gradus-action:check -->\nmine"})
        _, first = action.run(event=event, variables=variables, comment="true", args="--judge offline --gate 'outcome >= 0.1'")
        _, second = action.run(event=event, variables=variables, comment="true", args="--judge offline --gate 'call_validity >= 0.999'")
        comments = own_comments(url, number)
        everything = call_github(url, f"/repos/{REPOSITORY}/issues/{number}/comments?per_page=100")
        refused_code, refused = action.run(event=event, variables=[*variables[:2], "GITHUB_TOKEN=none"], comment="true")
    found = []
    if len(comments) != 1 or str(comments[0]["id"]) != first["outputs"]["comment-id"] or first["outputs"]["comment-id"] != second["outputs"]["comment-id"]:
        found.append(f"{len(comments)} comments, ids {first['outputs']['comment-id']!r} and {second['outputs']['comment-id']!r}")
    elif "check: ❌ failed" not in comments[0]["body"]:
        found.append(f"the comment is not that of the second run: {comments[0]['body'][:200]}")
    if not any(comment["body"].endswith("mine") for comment in everything):
        found.append("the comment of somebody else was overwritten")
    if refused_code != 0 or "::warning::" not in step(refused, "Comment on the pull request")["log"]:
        found.append(f"a token that is refused: exit code {refused_code}")
    _, push = action.run(comment="true", variables=variables)
    if "no pull request" not in step(push, "Comment on the pull request")["log"]:
        found.append("a push is taken for a pull request")
    return found


def write_hostile_traces(action):
    """A trajectory whose request, tool and answer attack the comment, the log and the shell."""
    lines = [{"query": f"{HOSTILE} {index}", "final_answer": HOSTILE, "steps": [{"thought": HOSTILE, "tool": f"close @octo #1 {index}", "arguments": {"text": HOSTILE}, "observation": f"Error: {HOSTILE}", "is_error": True}]} for index in range(3)]
    messages = [[{"role": "user", "content": line["query"]},
                 {"role": "assistant", "content": HOSTILE, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": line["steps"][0]["tool"], "arguments": json.dumps({"text": HOSTILE})}}]},
                 {"role": "tool", "tool_call_id": "c1", "content": line["steps"][0]["observation"]},
                 {"role": "assistant", "content": HOSTILE}] for line in lines]
    path = action.workspace / "hostile $(touch pwned) 'a\"b.jsonl"
    path.write_text("".join(json.dumps({"messages": conversation}) + "\n" for conversation in messages))
    return path.name


def check_hostile_text(gradus, action):
    source = write_hostile_traces(action)
    with pull_request(gradus) as (url, number, variables):
        code, document = action.run(event={"pull_request": {"number": number}}, variables=variables, comment="true", source=source, args="--judge offline --name '; touch pwned $(touch pwned)'")
        body = own_comments(url, number)[0]["body"]
    found = [f"the comment has {text!r}" for text in ("@octo", "#1", "GH-2", "<img", "https://evil", "[x](", "**bold**") if text in body.split("\n", 3)[3]]
    if body.count("<!--") != 1:
        found.append("the report has a comment of its own")
    if code != 0 or "octo" not in body:
        found.append(f"exit code {code}; the comment does not show the text at all")
    if list(action.folder.rglob("pwned")):
        found.append("a command from an input or a trace was run")
    log = step(document, "Run gradus")["log"]
    token = log.split("::stop-commands::", 1)[1].splitlines()[0]
    before, _, rest = log.partition(f"::stop-commands::{token}")
    if any(line.startswith("::") for line in (before + rest.split(f"::{token}::", 1)[1]).splitlines()):
        found.append("a line of the output can be a workflow command")
    return found


def check_refusals(action):
    """Bad inputs end with 2 and one message before anything runs, and a wrong checksum installs nothing."""
    wanted = {
        "name": {"name": "a\nb=c"}, "command": {"command": "eval; touch pwned"}, "args": {"args": "--gate 'open"}, "fail-on": {"fail_on": "maybe"}, "source": {"source": " \n "},
        "baseline": {"baseline": "missing.baseline"}, "regression needs a baseline": {"fail_on": "regression"}, "SHA-256 is": {"sha256": "0" * 64}, "version": {"version": "../../x"}, "path": {"path": "nowhere"},
    }
    found = []
    for message, inputs in wanted.items():
        code, document = action.run(**inputs)
        log = "".join(record["log"] for record in document["steps"])
        if code != 2 or message not in log or step(document, "Run gradus")["outcome"] != "skipped":
            found.append(f"{inputs}: exit code {code}, log {log[-300:]!r}")
    archive, = action.dist.glob("*.tar.gz")
    changed = action.folder / "changed"
    shutil.copytree(action.dist, changed)
    (changed / archive.name).write_bytes(archive.read_bytes() + b"x")
    code, document = action.run(path=str(changed))
    return found + ([] if code == 2 and "SHA-256 is" in step(document, "Install gradus")["log"] else [f"a changed archive was installed: {code}"])


def check_documentation(action):
    """The guide names every input and output with its default, and its workflow uses inputs that exist."""
    dump = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin.read()), default=str))"

    def load_yaml(text):
        return json.loads(subprocess.run([action.python, "-c", dump], input=text, capture_output=True, text=True, check=True).stdout)

    described, guide = load_yaml((ROOT / "action.yml").read_text()), (ROOT / "docs" / "how-to" / "github-action.md").read_text()
    rows = {cells[1].strip("` "): cells[2].strip("` ") for cells in (line.split("|") for line in guide.splitlines() if line.startswith("| `"))}
    found = [f"the guide does not describe the input {name}" for name in described["inputs"] if name not in rows]
    plain = {name: inputs.get("default", "") for name, inputs in described["inputs"].items() if name not in ("version", "artifact", "github-token")}
    found += [f"the guide says that {name} is {rows[name]!r} by default, and it is {default!r}" for name, default in plain.items() if rows.get(name) != default]
    found += [f"the guide does not name the output {name}" for name in described["outputs"] if f"`{name}`" not in guide]
    workflow = load_yaml(guide.split("```yaml\n", 1)[1].split("```", 1)[0])
    used = next(step["with"] for step in workflow["jobs"]["grade"]["steps"] if "gradus@" in step.get("uses", ""))
    found += [f"the workflow of the guide has an unknown input {name}" for name in used if name not in described["inputs"]]
    code, document = action.run(source="my traces", args=used["args"].replace("0.95", "0.5"), baseline=used["baseline"], fail_on=used["fail-on"])
    return found + ([] if code == 0 else [f"the workflow of the guide ends with {code}: {document['steps'][3]['log'][-300:]}"])


def main():
    gradus = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        made = functools.lru_cache(lambda: Action(gradus, pathlib.Path(folder)))
        checks = {
            "action, reports": lambda: check_reports(made()),
            "action, baseline": lambda: check_baseline(made()),
            "action, decision": lambda: check_decision(made()),
            "action, comment": lambda: check_comment(gradus, made()),
            "action, hostile text": lambda: check_hostile_text(gradus, made()),
            "action, refusals": lambda: check_refusals(made()),
            "action, documentation": lambda: check_documentation(made()),
        }
        counts = run_checks({name: checked(check) for name, check in checks.items()})
    finish(*counts)


if __name__ == "__main__":
    main()
