#!/usr/bin/env python3
"""The Python package: its own tests, its types, its snippets in the documentation, and its pytest plugin with real
agents of four frameworks against a scripted model.

  tests/peers/pytest_plugin.py GRADUS

The package is on the path beside a distribution that declares its entry points, as the wheel does; GRADUS_BIN names the
program.
"""
import functools
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

from experiment import AGENTS
from loopback import answering_model, tool_call
from run import HERE, OTEL, PEERS, finish, python_for, run_checks

ROOT = HERE.parents[1]
PACKAGE = ROOT / "packaging" / "python"
PYTEST = ["pytest==9.0.1", "pytest-xdist==3.8.0"]
PACKAGES = [*PYTEST, "pandas==2.3.3", "mypy==1.19.0", "basedpyright==1.33.0", *OTEL]

FRAMEWORKS = {
    "langgraph": (AGENTS["langgraph"]["packages"], AGENTS["langgraph"]["folder"]),
    "openai_agents": (AGENTS["openai-agents"]["packages"], AGENTS["openai-agents"]["folder"]),
    "llamaindex": (PEERS["llamaindex"]["packages"], None),
    "pydantic_ai": (PEERS["pydantic-ai"]["packages"], None),
}
PEER_NAMES = {"pydantic_ai": "pydantic-ai"}
# pytest comes from an environment of its own, behind the packages of the agent, which stay as they are.
START = "import sys; sys.path.append(sys.argv.pop(1)); import pytest; sys.exit(pytest.main(sys.argv[1:]))"


def write_distribution(folder):
    """The metadata that an installed wheel has: pip would write them from the same table."""
    text = (PACKAGE / "pyproject.toml").read_text()
    version = re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
    entries = re.search(r"^\[project\.entry-points\.pytest11\]\n((?:\w.*\n)+)", text, re.M).group(1).replace('"', "")
    info = pathlib.Path(folder, f"gradus-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: gradus\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[pytest11]\n{entries}")


def environment_for(gradus, folder, **more):
    kept = {key: value for key, value in os.environ.items() if not re.match(r"(?i)GRADUS_|OTEL_|PHOENIX_|OPENAI_|ANTHROPIC_|PYTEST_|.*_proxy$", key)}
    path = os.pathsep.join([str(PACKAGE / "src"), str(folder)])
    # The home folder is an empty one, and bytecode stays out of the source.
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "GRADUS_BIN": gradus, "HOME": str(folder), **more}


def last_lines(ran, count=60):
    return (ran.stdout + ran.stderr).strip().splitlines()[-count:]


def check_package(gradus):
    python = python_for("python-package", PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        write_distribution(folder)
        words = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", PACKAGE / "tests"]
        ran = subprocess.run(words, cwd=folder, env=environment_for(gradus, folder), capture_output=True, text=True, timeout=600)
    return [] if ran.returncode == 0 else last_lines(ran)


def check_types(_):
    python = python_for("python-package", PACKAGES)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for words in (["-m", "mypy", "--cache-dir", folder], ["-m", "basedpyright", "--pythonpath", str(python), "--level", "error"]):
            ran = subprocess.run([python, *words], cwd=PACKAGE, capture_output=True, text=True, timeout=600)
            found += [] if ran.returncode == 0 else last_lines(ran)
    return found


def python_blocks(page):
    """The Python of a page of the documentation, and for a text block behind it what has to be printed."""
    found = []
    for kind, body in re.findall(r"^```(python|text)\n(.*?)^```$", page.read_text(), re.S | re.M):
        if kind == "python":
            found.append([body, None])
        elif found:
            found[-1][1] = body
    return found


def send_capture(url, body):
    headers = {"content-type": "application/json" if body.startswith(b"{") else "application/x-protobuf"}
    headers |= {"content-encoding": "gzip"} if body.startswith(b"\x1f\x8b") else {}
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(urllib.request.Request(url, body, headers)).read()


def check_reference(gradus):
    """Runs the snippets of the reference one after another, in a folder with recorded traces and a running server."""
    python = python_for("python-package", PACKAGES)
    blocks = python_blocks(ROOT / "docs" / "reference" / "python.md")
    blocks += [block for block in python_blocks(PACKAGE / "README.md") if "import gradus" in block[0]]
    end = "--- end of block"
    script = "".join(f"{body}\nprint({end!r}, flush=True)\n" for body, _ in blocks)
    captures = ROOT / "fixtures" / "captures" / "llamaindex-react"
    with tempfile.TemporaryDirectory() as folder:
        write_distribution(folder)
        for name in ("traces", "traces-v2"):
            pathlib.Path(folder, name).symlink_to(captures)
        server = subprocess.Popen([gradus, "serve", "--ephemeral"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            address = json.loads(server.stdout.readline())["http"]
            for file in sorted(captures.rglob("*.bin")):
                send_capture(f"{address}/v1/traces", file.read_bytes())
            script = script.replace("http://127.0.0.1:4318", address)
            ran = subprocess.run([python, "-c", script], cwd=folder, env=environment_for(gradus, folder), capture_output=True, text=True, timeout=300)
        finally:
            server.stdin.close()
            server.wait(20)
    printed = ran.stdout.split(f"{end}\n")
    if len(printed) != len(blocks) + 1:
        return [f"it ended after {len(printed) - 1} of {len(blocks)} blocks", *last_lines(ran, 15)]
    return [line for (body, expected), output in zip(blocks, printed) for line in compare_text(body, expected, output)]


def compare_text(body, expected, output):
    from tutorial import pattern

    if expected is None or pattern(expected).match(output):
        return []
    return [f"after: {body.strip().splitlines()[-1]}", *(f"  expected  {line}" for line in expected.splitlines()), *(f"  printed   {line}" for line in output.splitlines())]


def check_guide(gradus):
    """Writes the files of the guide and runs the tests among them. A file whose name has `fails` in it has to fail, and what
    pytest prints has to be what the page shows behind it."""
    from tutorial import pattern

    blocks = python_blocks(ROOT / "docs" / "how-to" / "test-with-pytest.md")
    blocks += [block for block in python_blocks(PACKAGE / "README.md") if block[0].startswith("# test_")]
    found = []
    with tempfile.TemporaryDirectory() as folder, answering_model(reply_in_guide) as model:
        write_distribution(folder)
        words, environment = pytest_in("langgraph", gradus, folder, model.url)
        shown, together = [], []
        for body, expected in blocks:
            name = re.match(r"# (\w+\.py)\n", body)
            if name is None:
                found.append(f"a block names no file: {body.strip().splitlines()[0]}")
                continue
            pathlib.Path(folder, name.group(1)).write_text(body)
            if expected is not None:
                shown.append(([name.group(1)], expected, "fails" in name.group(1)))
            elif name.group(1).startswith("test_"):
                together.append(name.group(1))
        for names, expected, is_failing in [*shown, (together, "...\n", False)]:
            ran = subprocess.run([*words, *names], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
            if ran.returncode != int(is_failing):
                found += [f"{' '.join(names)} ended with {ran.returncode}", *last_lines(ran, 40)]
            elif not pattern(expected).match(ran.stdout):
                found += [f"{' '.join(names)} printed:", *ran.stdout.splitlines(), "instead of:", *expected.splitlines()]
    return found


def text_of(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def reply_to(messages, is_text, unsteady):
    """What the scripted model says, as an agent and as a judge."""
    texts = [text_of(message) for message in messages]
    requests = {"How many lamps are there?": "lamps", "Order 3 lamps.": "hasty", "How many unicorns are there?": "broken", "Count the chairs, sometimes.": "chairs"}
    # A judge is shown the request inside of its question; an agent as a message of its own.
    request = next((requests[text.strip()] for text in reversed(texts) if text.strip() in requests), None)
    if request is None:
        return json.dumps({"explanation": "The call does what the thought says.", "label": "correct"})
    results = sum(message["role"] == "tool" or text.startswith("Observation:") for message, text in zip(messages, texts))
    look = {"lamps": "lamp", "hasty": "lamp", "broken": "unicorn", "chairs": "chair"}[request]
    calls = [("get_stock", {"article": look})]
    if request == "hasty":
        calls.insert(0, ("place_order", {"article": "lamp", "count": 3}))
    if results < len(calls):
        name, arguments = calls[results]
        thought = f"I call {name} for the {look}."
        if is_text:
            return f"Thought: {thought}\nAction: {name}\nAction Input: {json.dumps(arguments)}"
        return {"content": thought, "tool_calls": [tool_call(f"call_{results}", name, **arguments)]}
    answers = {"lamps": "There are 12 lamps.", "hasty": "I ordered 3 lamps.", "broken": "There are no unicorns.", "chairs": "There are 12 chairs."}
    answer = "I lost count." if request == "chairs" and next(unsteady) == 1 else answers[request]
    return f"Thought: I can answer now.\nAnswer: {answer}" if is_text else answer


def reply_in_guide(messages):
    """What the model says to the agent of the guide, and as its judge."""
    plans = {
        "Close the issue about the login.": ([("list_issues", {}), ("close_issue", {"number": 7})], "Issue 7 is closed."),
        "Which issues are open?": ([("list_issues", {})], "Issues 7 and 9 are open."),
        "Close issue 12.": ([("close_issue", {"number": 12})], "Done: issue 12 is closed."),
    }
    plan = next((plans[text_of(message)] for message in messages if text_of(message) in plans), None)
    if plan is None:
        return json.dumps({"explanation": "The call does what the thought says.", "label": "correct"})
    calls, answer = plan
    results = sum(message["role"] == "tool" for message in messages)
    if results == len(calls):
        return answer
    name, arguments = calls[results]
    thought = f"I close issue {arguments['number']}." if arguments else "I look at the issues."
    return {"content": thought, "tool_calls": [tool_call(f"call_{results}", name, **arguments)]}


def pytest_in(framework, gradus, folder, model_url):
    """The words that start pytest with the packages of a framework, and the environment for them."""
    packages, place = FRAMEWORKS[framework]
    python = python_for(PEER_NAMES.get(framework, framework), packages, place)
    site = next(python_for("pytest", PYTEST).parents[1].glob("lib/python*/site-packages"))
    more = {"MODEL_URL": f"{model_url}/v1", "OPENAI_BASE_URL": f"{model_url}/v1", "OPENAI_API_KEY": "none"}
    return [python, "-c", START, site, "-p", "no:cacheprovider"], environment_for(gradus, folder, **more)


def check_framework(gradus, name):
    choose = functools.partial(reply_to, is_text=name == "llamaindex", unsteady=itertools.count(1))
    with tempfile.TemporaryDirectory() as folder, answering_model(choose) as model:
        write_distribution(folder)
        words, environment = pytest_in(name, gradus, folder, model.url)
        words += ["-q", "-rA", HERE / "pytest_agents" / f"test_{name}.py"]
        # With workers, too: each has its own server and its own spans.
        words += ["-n", "2"] if name == "langgraph" else []
        ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    if ran.returncode != 0:
        return last_lines(ran)
    counts = re.search(r"test_trials: (.*)", ran.stdout)
    if counts is None or counts.group(1) != "2 of 3 trials passed; 2 of 3 have to":
        return [f"trials: {counts and counts.group(1)}"]
    return [] if re.search(r"\b6 passed", ran.stdout) else last_lines(ran)


def main():
    gradus = os.path.abspath(sys.argv[1])
    checks = {"python package": check_package, "python types": check_types, "python reference": check_reference, "pytest guide": check_guide}
    checks |= {f"pytest plugin, {name}": functools.partial(check_framework, name=name) for name in FRAMEWORKS}
    chosen = sys.argv[2:] or list(checks)
    finish(*run_checks({name: functools.partial(check, gradus) for name, check in checks.items() if name in chosen}))


if __name__ == "__main__":
    main()
