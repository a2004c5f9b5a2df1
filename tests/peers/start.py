#!/usr/bin/env python3
"""First start, as a newcomer goes through it: an empty `gradus serve`, a snippet copied from its page, and the first graded
trace. Each Python snippet runs exactly as the page shows it, with the real packages and a scripted model.

  tests/peers/start.py GRADUS [NAME...]

The time from the first request to the first graded trace is printed, with the server's own settings; installing packages is
not part of it. Names in HEAVY install hundreds of packages: they run when they are named, or with GRADUS_HEAVY=1. run.py runs
this too, and says there what is skipped and why.
"""
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

from collector import GRADED_WITHIN_S, RUNS_WITHIN_S, Server, checked, clean_environment, free_ports
from experiment import AGENTS
from github_clients import npm_folder
from loopback import Service, tool_call
from run import OTEL, PEERS, NotInstalled, finish, python_for, run_checks

REQUEST, ANSWER = "How many lamps are there?", "There are 12 lamps."
# The seconds without a span after which a trace is graded, as the server has them by default.
QUIET_S = 5
PYTHON = {
    "llamaindex": (PEERS["llamaindex"]["packages"], "peer-llamaindex"),
    "langchain": (AGENTS["langgraph"]["packages"], AGENTS["langgraph"]["folder"]),
    "openai": (PEERS["openai"]["packages"], "peer-openai"),
    "openai-agents": (AGENTS["openai-agents"]["packages"], AGENTS["openai-agents"]["folder"]),
    "crewai": (["crewai==1.15.30", "openinference-instrumentation-crewai==1.1.21", *OTEL], None),
    "smolagents": (["smolagents[openai]==1.26.0", "openinference-instrumentation-smolagents==0.1.43", *OTEL], None),
    "otel-genai": (["openai==3.49.0", "opentelemetry-instrumentation-genai-openai==1.3b0", *OTEL], None),
    "pydantic-ai": (PEERS["pydantic-ai"]["packages"], "peer-pydantic-ai"),
}
HEAVY = {"crewai"}
NODE = {"ai": "7.0.170", "@ai-sdk/otel": "1.0.170", "@ai-sdk/openai": "4.0.115", "@opentelemetry/sdk-node": "0.301.0",
        "@opentelemetry/exporter-trace-otlp-proto": "0.301.0", "zod": "4.6.7"}


def text_of(message):
    content = message.get("content") or message.get("output") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def choose_reply(request):
    """What the model says: it looks the lamps up, then answers. As a message of chat completions."""
    messages = request.get("messages") or request["input"]
    messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    tools = {tool.get("name") or tool["function"]["name"] for tool in request.get("tools") or []}
    has_looked = any("12 in stock" in text_of(message) for message in messages)
    if not has_looked and tools:
        return {"role": "assistant", "content": "I look up the lamps.", "tool_calls": [tool_call("call_1", "get_stock", article="lamp")]}
    if not has_looked:
        return {"role": "assistant", "content": 'Thought: I look up the lamps.\nAction: get_stock\nAction Input: {"article": "lamp"}'}
    if "final_answer" in tools:
        return {"role": "assistant", "content": None, "tool_calls": [tool_call("call_2", "final_answer", answer=ANSWER)]}
    # LlamaIndex and CrewAI begin the answer in different words.
    prompt = " ".join(map(text_of, messages))
    start = "Final Answer:" if "Final Answer:" in prompt else "Answer:"
    return {"role": "assistant", "content": ANSWER if tools else f"Thought: I can answer now.\n{start} {ANSWER}"}


def answer_model(path, _, body):
    request = json.loads(body)
    message = choose_reply(request)
    calls = message.get("tool_calls") or []
    if path.endswith("/responses"):
        output = [{"type": "function_call", "id": f"fc_{call['id']}", "call_id": call["id"], "status": "completed", **call["function"]} for call in calls]
        if not calls:
            part = {"type": "output_text", "text": message["content"], "annotations": []}
            output = [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}]
        usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        reply = {"id": "resp_1", "object": "response", "created_at": 1, "model": request["model"], "status": "completed", "output": output, "usage": usage,
                 "parallel_tool_calls": True, "tool_choice": "auto", "tools": request.get("tools") or [], "error": None, "incomplete_details": None, "instructions": None, "metadata": {}}
    else:
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop", "logprobs": None}
        reply = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request["model"], "choices": [choice],
                 "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}
    return "application/json", json.dumps(reply).encode()


def copy_snippet(server, name):
    """The text that the button of the page copies."""
    page = server.get("/")[1].decode()
    if 'data-stage="waiting"' not in page:
        raise RuntimeError("the page of an empty server does not wait for spans")
    found = re.search(rf'<pre id="code-{name}"[^>]*>(.*?)</pre>', page, re.S)
    if found is None:
        raise RuntimeError(f"the page has no snippet {name}")
    return html.unescape(found.group(1))


def named_packages(snippet):
    """What the first line of a snippet installs, without extras."""
    words = re.match(r"(?:# pip|// npm) install (.*)", snippet).group(1).split()
    return {re.sub(r"\[.*", "", word) for word in words}


def prepare(name):
    """The words before the file of a snippet, where it has to be, and the packages that are there."""
    if name == "vercel-ai":
        if not shutil.which("node"):
            raise NotInstalled("there is no node")
        return [shutil.which("node")], npm_folder("start-vercel", NODE), set(NODE)
    packages, folder = PYTHON[name]
    return [python_for(f"start-{name}", packages, folder)], None, {re.split(r"\[|==", package)[0] for package in packages}


@checked
def run_snippet(gradus, name):
    words, place, installed = prepare(name)
    with tempfile.TemporaryDirectory() as folder, Service(answer_model) as model:
        server = Server(gradus, folder, *free_ports(2), quiet_s=QUIET_S)
        try:
            began = time.monotonic()
            snippet = copy_snippet(server, name)
            found = [f"the snippet installs {sorted(named_packages(snippet) - installed)}, which are not tried here"] if named_packages(snippet) - installed else []
            # A module of Node finds its packages from where it is.
            with tempfile.TemporaryDirectory(dir=place) as here:
                file = pathlib.Path(here, "agent.mjs" if place else "agent.py")
                file.write_text(snippet)
                url = f"{model.url}/v1"
                kept = {key: value for key, value in clean_environment().items() if not re.match("OPENAI_|CREWAI_", key)}
                variables = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "CREWAI_TRACING_ENABLED": "false", "CREWAI_DISABLE_TELEMETRY": "true", "HOME": folder}
                ran = subprocess.run([*words, file], cwd=here, env=kept | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUNS_WITHIN_S)
            if ran.returncode != 0 or ANSWER not in ran.stdout:
                return [*found, f"it ended with {ran.returncode}", *(ran.stdout + ran.stderr).strip().splitlines()[-25:]]
            stages, status = wait_until_graded(server)
            print(f"  {name}: {time.monotonic() - began:.1f} s from the empty server to the first graded trace; stages seen: {', '.join(stages)}", flush=True)
            return found + check_graded(server, status)
        finally:
            server.stop()


def wait_until_graded(server):
    stages, end = [], time.monotonic() + GRADED_WITHIN_S
    while True:
        status = server.json("/api/v1/start")
        stages += [status["stage"]] if status["stage"] not in stages else []
        if status["stage"] == "graded":
            return stages, status
        if time.monotonic() > end:
            raise RuntimeError(f"not graded after {GRADED_WITHIN_S} s: {status}")
        time.sleep(0.1)


def check_graded(server, status):
    """The run is there as one trajectory with its step, and the page says what rules alone could not judge."""
    found = [] if status["projects"] == ["my-agent"] else [f"projects {status['projects']}"]
    first = status["first_graded"]
    trace = server.json(f"/api/v1/traces/{first['trace_id']}")
    runs = [one for one in trace["trajectories"] if any(step["tool"] == "get_stock" for step in one["steps"])]
    if len(runs) != 1 or status["trajectories"] != 1:
        found.append(f"{status['trajectories']} trajectories, {len(runs)} with the step: {json.dumps(trace['trajectories'])[:600]}")
    for one in runs:
        found += [] if REQUEST in (one["query"] or "") else [f"the request is {one['query']!r}"]
        found += [] if ANSWER in (one["final_answer"] or "") else [f"the answer is {one['final_answer']!r}"]
    part = server.get("/start/status")[1].decode()
    found += [] if 'data-stage="graded"' in part and "Still missing: a model as judge" in part else [f"the page says {part[:600]}"]
    page = server.get("/")[1].decode()
    return found + ([] if "<h1>Overview</h1>" in page else ["the overview is not shown once something is graded"])


def main():
    gradus = os.path.abspath(sys.argv[1])
    chosen = sys.argv[2:]
    left_out = set() if chosen or os.environ.get("GRADUS_HEAVY") else HEAVY
    for name in sorted(left_out):
        print(f"peer start {name}: left out, it installs hundreds of packages; name it, or set GRADUS_HEAVY=1", flush=True)
    names = [name for name in [*PYTHON, "vercel-ai"] if name not in left_out and (not chosen or name in chosen)]
    finish(*run_checks({f"start {name}": functools.partial(run_snippet, gradus, name) for name in names}))


if __name__ == "__main__":
    main()
