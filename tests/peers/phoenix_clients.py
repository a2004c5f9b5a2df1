#!/usr/bin/env python3
"""Phoenix's own client packages against a real Phoenix and against `gradus serve`: the same spans in both, the same
questions to both, the same answers from both.

  tests/peers/phoenix_clients.py GRADUS

  - every method of `phoenix.client` that has to do with traces (agents/phoenix_methods.py), conditions included;
  - a notebook's worth of work as a script (agents/phoenix_notebook.py), unchanged on both;
  - the forms that older clients speak, written and read by pyarrow (agents/phoenix_legacy.py).

run.py runs this too, and says there what is skipped and why.
"""
import functools
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import phoenix_server
from collector import Server, checked, free_ports
from loopback import scripted_model
from run import HERE, finish, python_for, run_checks

CAPTURES = HERE.parents[1] / "fixtures" / "captures"
PROJECT = "captures"
# One of each kind of instrumentation; all of them would take Phoenix minutes.
FRAMEWORKS = ["agent-framework", "crewai-native", "google-adk", "google-adk-openinference", "langchain-create-agent", "langgraph-react-traceloop",
              "llamaindex-react", "litellm", "openai-agents-responses", "plain-anthropic-oi", "plain-openai-oi-rooted", "plain-openai-traceloop",
              "plain-openai-v2-latest", "pydantic-ai", "smolagents-toolcalling", "strands-latest", "vercel-ai-openinference"]
SCENARIOS = 4
NOTEBOOK = ["arize-phoenix-otel==0.17.2", "arize-phoenix-client==3.5.0", "pandas==3.1.1", "llama-index-core==0.14.25", "llama-index-llms-openai==0.8.3", "openinference-instrumentation-llama-index==4.6.1"]
# The last Phoenix with a client in it, and what it can still be run with.
LEGACY = ["arize-phoenix==13.23.0", "arize-phoenix-evals==2.13.0", "graphql-core==3.3.0a9"]
QUERIES = ["How many lamps are there?", "How many chairs?"]
REPLIES = ['Thought: I look up the lamps.\nAction: get_stock\nAction Input: {"article": "lamp"}', "Thought: I can answer now.\nAnswer: There are 12 lamps.",
           "Thought: I guess.\nAction: get_price\nAction Input: {}", "Thought: I can answer now.\nAnswer: I do not know."]


def requests():
    """The requests of some captures, as exporters sent them; Phoenix takes no JSON."""
    for framework in FRAMEWORKS:
        for scenario in sorted(path for path in (CAPTURES / framework).iterdir() if path.is_dir())[:SCENARIOS]:
            bodies = (unzipped(path.read_bytes()) for path in sorted(scenario.glob("[0-9]*.bin")))
            yield from (body for body in bodies if not body.startswith(b"{"))


def unzipped(body):
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


def send(server, body):
    headers = {"content-type": "application/x-protobuf", "x-project-name": PROJECT}
    status, answer = server.request("POST", "/v1/traces", body, headers)
    if status != 200:
        raise RuntimeError(f"POST /v1/traces: {status} {answer[:300]!r}")


@checked
def methods(phoenix, server):
    for body in requests():
        phoenix.send(body, PROJECT)
        send(server, body)
    phoenix.settled()
    command = [phoenix.python, HERE / "agents" / "phoenix_methods.py", phoenix.url, f"http://127.0.0.1:{server.http_port}", PROJECT]
    ran = subprocess.run(command, env=phoenix_server.environment(), capture_output=True, text=True, timeout=900)
    told, *lines, last = ran.stdout.splitlines() or ["", ""]
    print(f"  {told}; {last}", flush=True)
    if ran.returncode != 0 or not last.endswith("differ"):
        return [f"the client failed: {ran.stderr.strip()[-1500:]}"]
    return lines


@checked
def notebook(phoenix, server):
    """The same script against both, an agent of its own each time: the same data frames, but for ids and times."""
    python = python_for("phoenix-notebook", NOTEBOOK)
    frames = []
    for port, grpc_port in ((phoenix.port, phoenix.grpc_port), (server.http_port, server.grpc_port)):
        with tempfile.TemporaryDirectory() as folder, scripted_model(REPLIES) as model:
            told = {"PHOENIX_COLLECTOR_ENDPOINT": f"http://127.0.0.1:{port}", "PHOENIX_GRPC_PORT": str(grpc_port), "PHOENIX_PROJECT_NAME": "notebook",
                    "MODEL_URL": model.url + "/v1", "MODEL_CALLS": str(len(REPLIES))}
            ran = subprocess.run([python, HERE / "agents" / "phoenix_notebook.py", folder, *QUERIES], env=phoenix_server.environment(**told), capture_output=True, text=True, timeout=300)
            if ran.returncode != 0:
                return [f"the notebook failed on port {port}: {(ran.stdout + ran.stderr).strip()[-1500:]}"]
            frames.append({path.stem: json.loads(path.read_text()) for path in pathlib.Path(folder).glob("*.json")})
    found = []
    for name, wanted in frames[0].items():
        columns = [sorted({column for row in rows for column in row if row[column] is not None}) for rows in (wanted, frames[1][name])]
        if columns[0] != columns[1]:
            found.append(f"{name}: other columns: {sorted(set(columns[0]) ^ set(columns[1]))}")
        theirs, ours = (sorted(map(without_ids, rows)) for rows in (wanted, frames[1][name]))
        if not theirs or theirs != ours:
            different = next((pair for pair in zip(theirs, ours) if pair[0] != pair[1]), "")
            found.append(f"{name}: {len(ours)} rows instead of {len(theirs)}, or others: {str(different)[:1500]}")
    return found


def without_ids(row):
    """What is the same in two runs of one script."""
    kept = {key: value for key, value in row.items() if value is not None and not key.endswith(("_id", "_time", "_at", ".span_id", "index.None")) and key not in ("id", "events")}
    return json.dumps(kept, sort_keys=True)


@checked
def legacy(server):
    python = python_for("phoenix-legacy", LEGACY)
    ran = subprocess.run([python, HERE / "agents" / "phoenix_legacy.py", f"http://127.0.0.1:{server.http_port}", PROJECT], env=phoenix_server.environment(), capture_output=True, text=True, timeout=600)
    *lines, last = ran.stdout.splitlines() or [""]
    print(f"  {last}", flush=True)
    if ran.returncode != 0 or not last.endswith("wrong"):
        return [f"the client failed: {ran.stderr.strip()[-1500:]}"]
    return lines


def main():
    gradus = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, phoenix_server.Phoenix() as phoenix:
        server = Server(gradus, folder, *free_ports(2))
        try:
            checks = {"phoenix clients, methods": functools.partial(methods, phoenix, server),
                      "phoenix clients, notebook": functools.partial(notebook, phoenix, server),
                      "phoenix clients, older ones": functools.partial(legacy, server),
                      "phoenix clients, its end": server.stop}
            counts = run_checks(checks)
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
    finish(*counts)


if __name__ == "__main__":
    main()
