#!/usr/bin/env python3
"""Real agents in an experiment: `gradus experiment` runs them on a dataset, several trials at a time, against a scripted
model. Their spans are told apart by trial, and checks and grades are those that the script makes certain.

  tests/peers/experiment.py GRADUS
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from loopback import answering_model, tool_call
from run import HERE, OTEL, PEERS, finish, python_for, run_checks

# The model answers the last request without looking anything up.
ITEMS = [
    {"id": "lamps", "request": "How many lamps are there?", "expected_tools": ["get_stock"], "answer_contains": "12", "tags": ["stock"]},
    {"id": "chairs", "request": "How many chairs are there?", "expected_tools": {"mode": "exact", "tools": ["get_stock"]}, "answer_matches": "12 chairs", "tags": ["stock"]},
    {"id": "thanks", "request": "Thank you.", "expected_tools": {"mode": "exact", "tools": []}, "answer_contains": "welcome"},
    {"id": "sofas", "request": "How many sofas are there?", "expected_tools": ["get_stock"], "must_not_call": ["delete_article"], "tags": ["stock"]},
]
TRIALS = 2

AGENTS = {
    "langgraph": {
        "packages": ["langgraph==1.2.20", "langchain==1.4.7", "langchain-core==1.7.2", "langchain-openai==1.7.3", "openinference-instrumentation-langchain==0.1.80", *OTEL],
        "folder": "peer-experiment-langgraph",
        "agent": "langgraph_agent.py",
    },
    "openai-agents": {
        "packages": ["openai-agents==0.24.0", "openinference-instrumentation-openai-agents==2.6.0", *OTEL],
        "folder": "peer-experiment-openai-agents",
        "agent": "openai_agents_agent.py",
    },
    # Sends over gRPC, to the port that PHOENIX_GRPC_PORT names.
    "phoenix-otel": {
        "packages": ["arize-phoenix-otel==0.17.2", "openai==3.49.0", "openinference-instrumentation-openai==0.1.66"],
        "folder": "peer-experiment-phoenix-otel",
        "agent": "phoenix_otel_agent.py",
    },
    "llamaindex": {
        "packages": PEERS["llamaindex"]["packages"],
        "folder": "peer-llamaindex",
        "agent": "llamaindex_react.py",
        "arguments": '"$GRADUS_REQUEST"',
        "is_text": True,
    },
}


def text_of(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def reply_to(messages, is_text):
    """What the model says: it looks up lamps and chairs, then answers with what it has found."""
    request = next(text_of(message) for message in reversed(messages) if any(item["request"] in text_of(message) for item in ITEMS))
    article = next((word for word in ["lamp", "chair"] if word in request), None)
    has_looked = any(message["role"] == "tool" or text_of(message).startswith("Observation:") for message in messages)
    if article and not has_looked:
        if is_text:
            return f'Thought: I look up how many there are.\nAction: get_stock\nAction Input: {{"article": "{article}"}}'
        return {"content": "I look up how many there are.", "tool_calls": [tool_call("call_1", "get_stock", article=article)]}
    answer = f"There are 12 {article}s." if article else "You are welcome." if "Thank" in request else "There are 3 sofas."
    return f"Thought: I can answer now.\nAnswer: {answer}" if is_text else answer


def check(gradus, name, peer):
    python = python_for(name, peer["packages"], peer["folder"])
    choose = functools.partial(reply_to, is_text=peer.get("is_text", False))
    kept = {key: value for key, value in os.environ.items() if not re.match(r"(?i)GRADUS_|OTEL_|OPENAI_|ANTHROPIC_|.*_proxy$", key)}
    with tempfile.TemporaryDirectory() as folder, answering_model(choose) as model:
        pathlib.Path(folder, "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
        command = f"{python} {HERE / 'agents' / peer['agent']} {peer.get('arguments', '')}"
        environment = {**kept, "MODEL_URL": model.url + "/v1"}
        words = [gradus, "experiment", "items.jsonl", "--agent", command, "--trials", str(TRIALS), "--jobs", "2", "--pass-env", "MODEL_URL",
                 "--out", "out", "--json", "out.json"]
        ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
        if ran.returncode != 0:
            return [f"gradus ended with {ran.returncode}: {ran.stderr.strip()[-600:]}"]
        document = json.loads(pathlib.Path(folder, "out.json").read_text())
        trials = [json.loads(line) for line in pathlib.Path(folder, "out", "trials.jsonl").read_text().splitlines()]
    found = []
    rates = {rate["name"]: rate["value"] for rate in document["experiment"]["rates"]}
    wanted = {"pass": 0.75, "answered": 1.0, "expected_tools": 0.75, "must_not_call": 1.0, "answer_contains": 1.0, "answer_matches": 1.0, "pass^2": 0.75, "pass@2": 0.75}
    found += [f"{measure}: {rates.get(measure)} instead of {value}" for measure, value in wanted.items() if rates.get(measure) != value]
    if document["summary"]["trajectories"] < len(ITEMS) * TRIALS:
        found.append(f"{document['summary']['trajectories']} trajectories were graded")
    for trial in trials:
        where = f"{trial['item_id']} trial {trial['trial']}"
        steps = 1 if trial["item_id"] in ("lamps", "chairs") else 0
        if not trial["has_spans"] or trial["step_count"] != steps:
            found.append(f"{where}: {trial['step_count']} steps instead of {steps}, spans: {trial['has_spans']}")
        if trial["passed"] != (trial["item_id"] != "sofas"):
            found.append(f"{where}: {trial['failure']} {[check['reason'] for check in trial['checks']]}")
    return found


def main():
    gradus = os.path.abspath(sys.argv[1])
    finish(*run_checks({f"experiment {name}": functools.partial(check, gradus, name, peer) for name, peer in AGENTS.items()}))


if __name__ == "__main__":
    main()
