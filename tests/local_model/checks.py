"""What must hold with a real server, whatever the model answers: it is found, and a prompt that does not fit is shortened."""
import copy
import json
import subprocess

import cases
import judging
from model_server import serving

# Small enough that the tools of the benchmark do not fit, large enough for a rubric with the tools that matter.
SMALL_CONTEXT = 4096


class CheckFailed(Exception):
    """Something that must hold does not."""


def run_checks(gradus, runtime, gguf, alias, threads, folder):
    """All checks, once for each model: the result is kept."""
    kept = folder / "checks.json"
    if kept.exists():
        return json.loads(kept.read_text())
    with serving(runtime, gguf, alias, SMALL_CONTEXT, threads, folder / "server.log") as server:
        found = {"judge_list": check_list(gradus, server, alias), "tools_beyond_the_window": check_window(gradus, server, folder)}
    kept.write_text(json.dumps(found))
    return found


def check_list(gradus, server, alias):
    """`gradus judge list` finds the server, its model and its window."""
    ran = subprocess.run([gradus, "judge", "list", "--address", server.url, "--json"], capture_output=True, text=True, timeout=60)
    servers = json.loads(ran.stdout)["servers"] if ran.returncode == 0 else []
    wanted = {"server": "llamacpp", "base_url": f"{server.url}/v1", "state": "running",
              "models": [{"name": alias, "context_tokens": SMALL_CONTEXT, "options": f"--judge llamacpp:{alias} --base-url {server.url}/v1"}]}
    if servers != [wanted]:
        raise CheckFailed(f"judge list: {ran.stdout or ran.stderr}")
    return "found with its model and its window"


def check_window(gradus, server, folder):
    """A run with all 59 tools of the benchmark does not fit. It is judged all the same, on a prompt that is marked as shortened."""
    runs = [run for run in cases.play_bench(gradus, folder.parent) if run.policy == "oracle" and len(run.steps) == 1]
    trajectories = []
    for number, run in enumerate(sorted(runs, key=cases.BenchRun.size)[:2]):
        trajectory = copy.deepcopy(run.trajectory)
        trajectory["trajectory_id"] = f"all-tools-{number}"
        trajectories.append(trajectory)
    lines = judging.run_eval(gradus, server.judge_options, "thought_to_tool", trajectories, folder / "window")
    for line in lines:
        cut = [value["variable"] for value in line.get("shortened", [])]
        if line["outcome"] != "scored" or "tool_definitions" not in cut:
            raise CheckFailed(f"{len(trajectories[0]['tools'])} tools in {SMALL_CONTEXT} tokens: {json.dumps(line)[:600]}")
    refused = sum(line["calls"] - 1 for line in lines)
    return {"tools": len(trajectories[0]["tools"]), "context_tokens": SMALL_CONTEXT, "questions": len(lines), "refused_requests": refused,
            "shown_bytes_of_tools": [value["shown_bytes"] for line in lines for value in line["shortened"] if value["variable"] == "tool_definitions"],
            "prompt_tokens": [line["tokens"]["prompt"] for line in lines]}
