#!/usr/bin/env python3
"""A real Phoenix, both ways: captured traces are sent to it over OTLP, read back by `gradus`, graded, written back as
annotations, and these are read by Phoenix's own client.

  tests/peers/phoenix.py GRADUS

  - what is read from Phoenix is what is read from the captured requests themselves;
  - offline and with a model (a scripted endpoint): counts, targets, kinds, labels, scores and explanations are those that
    --jsonl tells; a second run makes no annotation more;
  - spans that Phoenix does not have are told, and the others written;
  - a key: none, a wrong one, the right one;
  - outcomes over OTLP become spans there, and are not graded as an agent's work;
  - Phoenix killed while it is read from: the same command goes on.

run.py runs this too, and says there what is skipped and why.
"""
import functools
import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from collector import checked
from loopback import Service
from phoenix_server import Phoenix, environment, python
from run import HERE, NotInstalled, finish, run_checks

CAPTURES = HERE.parents[1] / "fixtures" / "captures"
# Read from every framework; graded of one of each way of recording: OpenInference, and GenAI attributes that Phoenix maps.
GRADED = ["llamaindex-react", "openai-agents-chat", "smolagents-code", "plain-openai-oi", "plain-openai-traceloop", "pydantic-ai"]
SCENARIOS = ["s03_missing_param", "s07_error_recovery", "s10_parallel", "s23_multi_turn", "s24_unknown_tool"]
NAMES = {"thought_to_tool": "Thought to tool",
         "query_to_thought": "Query to thought",
         "sequence_optimality": "Sequence optimality", "call_validity": "Call validity", "outcome": "Outcome",
         "request_to_tool": "Request to tool", "task_completion": "Task completion",
         "argument_provenance": "Argument provenance", "error_recovery": "Error recovery"}
# The same with rules and with a model, so that nothing of the one is left when the other has written.
GRADED_BY = [name for name in NAMES if name not in ("task_completion", "error_recovery")]
RULES_ONLY = {"call_validity", "outcome", "argument_provenance", "error_recovery"}
KEY = "a-key-that-only-this-test-knows-0123456789"
# Through Phoenix's own client, in Phoenix's own environment.
READ_BACK = """
import json, sys
from phoenix.client import Client
client, found = Client(base_url=sys.argv[1]), {}
for project in sys.argv[2:]:
    spans = client.spans.get_spans(project_identifier=project, limit=10_000)
    found[project] = [dict(one) for one in client.spans.get_span_annotations(spans=spans, project_identifier=project, limit=10_000)]
json.dump(found, sys.stdout, default=str)
"""


# A dataset, uploaded with Phoenix's own client.
UPLOAD_DATASET = """
import sys
from phoenix.client import Client
Client(base_url=sys.argv[1]).datasets.create_dataset(
    name="shop questions",
    inputs=[{"question": "Where is order 7?"}, {"messages": [{"role": "user", "content": "Hi"}]}],
    outputs=[{"answer": "It was shipped."}, {}],
    metadata=[{"tags": ["status"]}, {}],
)
"""


def requests_of(framework, scenario):
    """The captured requests that Phoenix takes: spans, and as protobuf."""
    folder = CAPTURES / framework / scenario
    bodies = [path for path in sorted(folder.glob("*.bin")) if not path.name.startswith("logs-")]
    return [path for path in bodies if not unpacked(path).startswith(b"{")]


def unpacked(path):
    body = path.read_bytes()
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


def captured():
    """Every framework and scenario that Phoenix takes."""
    folders = sorted(folder for folder in CAPTURES.glob("*/*") if folder.is_dir())
    return [(folder.parent.name, folder.name) for folder in folders if requests_of(folder.parent.name, folder.name)]


def graded():
    return [(framework, scenario) for framework in GRADED for scenario in SCENARIOS]


def gradus_run(gradus, folder, *arguments, code=(0,), **variables):
    ran = subprocess.run([gradus, *map(str, arguments)], env=environment(**variables), capture_output=True, text=True, cwd=folder, timeout=900)
    if ran.returncode not in code:
        raise RuntimeError(f"gradus {' '.join(map(str, arguments))} ended with {ran.returncode}: {ran.stderr.strip()[-600:]}")
    return ran


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def fill(phoenix):
    """Each capture into a project of its own."""
    for framework, scenario in captured():
        for path in requests_of(framework, scenario):
            phoenix.send(path.read_bytes(), project=f"{framework} {scenario}")
    phoenix.settled()


def source(phoenix, framework, scenario):
    return f"phoenix://127.0.0.1:{phoenix.port}/{framework} {scenario}"


def without_clock(trajectories):
    """Phoenix keeps microseconds, and knows its own names of projects."""
    for one in trajectories:
        for part in (one, *one["steps"]):
            part["start"] = part["end"] = None
        one["project"] = None
    return trajectories


@checked
def reads_the_same(gradus, phoenix):
    found, read = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for framework, scenario in captured():
            # 4: nothing is in the spans themselves, as where messages travel as log records.
            wanted = gradus_run(gradus, folder, "traces", "--format", "jsonl", *requests_of(framework, scenario), code=(0, 4))
            got = gradus_run(gradus, folder, "traces", "--format", "jsonl", source(phoenix, framework, scenario), code=(0, 4))
            wanted, got = without_clock(lines(wanted.stdout)), without_clock(lines(got.stdout))
            read += len(wanted)
            if wanted != got:
                found.append(f"{framework} {scenario}: {json.dumps(got)[:400]} instead of {json.dumps(wanted)[:400]}")
    return found if read else ["nothing was read"]


def judge_service():
    """A model that judges by the length of what it is asked: the same question gets the same answer, and not all are alike."""
    lock, asked = threading.Lock(), []

    def answer(_, __, body):
        request = json.loads(body)
        text = json.dumps(request["messages"])
        with lock:
            asked.append(text)
        labels = request["response_format"]["json_schema"]["schema"]["properties"]["label"]["enum"]
        verdict = {"explanation": f"It is {len(text)} characters — «naïve» 网站 \"quoted\".", "label": labels[len(text) % len(labels)]}
        message = {"role": "assistant", "content": json.dumps(verdict)}
        reply = {"id": "c", "object": "chat.completion", "created": 1, "model": request["model"],
                 "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                 "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
        return "application/json", json.dumps(reply).encode()

    return Service(answer)


def annotations(phoenix, projects):
    """Of each project, as Phoenix's own client reads them."""
    ran = subprocess.run([python(), "-c", READ_BACK, phoenix.url, *projects], env=environment(), capture_output=True, text=True, timeout=300)
    if ran.returncode != 0:
        raise RuntimeError(f"Phoenix's client failed: {ran.stderr.strip()[-600:]}")
    return {project: sorted(map(told, found), key=str) for project, found in json.loads(ran.stdout).items()}


def told(one):
    result = one.get("result") or {}
    return (one["name"], one["span_id"], one["identifier"], one["annotator_kind"], result.get("label"), result.get("score"), result.get("explanation"))


def wanted_annotations(outcomes, trajectories, kind):
    """What should be in Phoenix, by what --jsonl tells: name, span, identifier, kind, label, score, explanation."""
    by_id = {one["trajectory_id"]: one for one in trajectories}
    wanted = []
    for outcome in outcomes:
        # Without [phoenix] abstentions they are left out.
        if outcome["outcome"] == "abstained":
            continue
        trajectory, step = by_id[outcome["trajectory_id"]], outcome["step_index"]
        if step is None:
            span, number = trajectory["root_span_id"], 1
        else:
            spans = [one["span_ids"][0] for one in trajectory["steps"] if one["index"] <= step]
            if step not in [one["index"] for one in trajectory["steps"]]:
                # The thought before the answer.
                spans.append((trajectory["answer_span_ids"] or [trajectory["root_span_id"]])[0])
            span = spans[-1]
            number = spans.count(span)
        is_model = kind == "LLM" and outcome["evaluator"] not in RULES_ONLY
        wanted.append((NAMES[outcome["evaluator"]], span, "gradus" if number == 1 else f"gradus:{number}",
                       "LLM" if is_model else "CODE", outcome["label"], outcome["score"],
                       outcome["explanation"] if outcome["label"] is not None else outcome["reason"]))
    return sorted(wanted, key=str)


@checked
def writes_back(gradus, phoenix, kind):
    """Grades every capture twice and compares what Phoenix's client reads with what --jsonl tells."""
    found, count = [], 0
    with tempfile.TemporaryDirectory() as folder, judge_service() as model:
        judge = ["--judge", "offline"] if kind == "CODE" else ["--judge", "openai:judge"]
        variables = {} if kind == "CODE" else {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.url + "/v1"}
        for turn in ("first", "second"):
            wanted = {}
            for framework, scenario in graded():
                where = source(phoenix, framework, scenario)
                trajectories = lines(gradus_run(gradus, folder, "traces", "--format", "jsonl", where).stdout)
                ran = gradus_run(gradus, folder, "eval", where, *judge, "--evaluators", ",".join(GRADED_BY), "--jsonl", "-", "--quiet", "--fresh", "--log-to-phoenix", **variables)
                wanted[f"{framework} {scenario}"] = wanted_annotations(lines(ran.stdout), trajectories, kind)
            for project, got in annotations(phoenix, wanted).items():
                count += len(got)
                if got != wanted[project]:
                    missing, more = [one for one in wanted[project] if one not in got], [one for one in got if one not in wanted[project]]
                    found.append(f"{project}, {turn} time: {len(got)} instead of {len(wanted[project])}; missing {missing[:2]}, not told {more[:2]}")
    return found if count else ["nothing was graded"]


@checked
def on_traces(gradus, phoenix):
    """Verdicts on whole trajectories on the trace, under a name of the user's."""
    project = "llamaindex-react s03_missing_param"
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "gradus.toml").write_text('[phoenix]\ntrajectory_target = "trace"\nabstentions = true\n[phoenix.names]\nsequence_optimality = "Path"\n')
        where = source(phoenix, *project.split(" "))
        ran = gradus_run(gradus, folder, "eval", where, "--judge", "offline", "-e", "sequence_optimality", "--jsonl", "-", "--quiet", "--log-to-phoenix")
        traces = [one["trace_ids"][0] for one in lines(gradus_run(gradus, folder, "traces", "--format", "jsonl", where).stdout)]
    asked = "&".join(f"trace_ids={trace}" for trace in traces)
    found = phoenix.pages(f"/v1/projects/{project.replace(' ', '%20')}/trace_annotations?limit=1000&{asked}")
    got = sorted((one["trace_id"], one["name"], one["identifier"], str(one["result"]["label"])) for one in found)
    wanted = sorted((one["trajectory_id"], "Path", "gradus", str(one["label"])) for one in lines(ran.stdout))
    return [] if got == wanted and wanted else [f"{got} instead of {wanted}"]


@checked
def missing_spans(gradus, phoenix):
    """Files of traces that Phoenix knows in part only: it takes no OTLP in JSON."""
    sent, unknown = requests_of("llamaindex-react", "s10_parallel"), sorted((CAPTURES / "vercel-ai" / "s10_parallel").glob("*.bin"))
    with tempfile.TemporaryDirectory() as folder:
        ran = gradus_run(gradus, folder, "eval", *sent, *unknown, "--judge", "offline", "--jsonl", "-", "--quiet",
                         "--log-to-phoenix", "--phoenix", phoenix.url, code=(5,))
        outcomes = [one for one in lines(ran.stdout) if one["outcome"] != "abstained"]
        traces = {one["trajectory_id"] for one in lines(gradus_run(gradus, folder, "traces", "--format", "jsonl", *unknown).stdout)}
        wanted = sum(one["trajectory_id"] in traces for one in outcomes)
        run = next(pathlib.Path(folder, ".gradus", "runs").iterdir())
        listed = lines((run / "unwritten_phoenix.jsonl").read_text())
    found = [] if 0 < wanted == len(listed) < len(outcomes) else [f"{len(listed)} are listed as not written, {wanted} of {len(outcomes)} are not there"]
    found += [] if all(one["trajectory_id"] in traces for one in listed) else ["one that could be written is listed"]
    written = f"{len(outcomes) - wanted} annotations are in Phoenix"
    return found + ([] if written in ran.stderr else [f"{written!r} was not said: {ran.stderr[-500:]}"])


@checked
def reads_a_dataset(gradus, phoenix):
    """A dataset of Phoenix's own client, as items of ours."""
    ran = subprocess.run([python(), "-c", UPLOAD_DATASET, phoenix.url], env=environment(), capture_output=True, text=True, timeout=300)
    if ran.returncode != 0:
        raise RuntimeError(f"Phoenix's client could not upload a dataset: {ran.stderr.strip()[-600:]}")
    with tempfile.TemporaryDirectory() as folder:
        gradus_run(gradus, folder, "dataset", "create", "items.jsonl", "--phoenix", phoenix.url, "--phoenix-dataset", "shop questions")
        gradus_run(gradus, folder, "dataset", "check", "items.jsonl")
        items = lines(pathlib.Path(folder, "items.jsonl").read_text())
    got = [(one.get("request"), one.get("messages"), one.get("reference"), one.get("tags")) for one in items]
    wanted = [("Where is order 7?", None, "It was shipped.", ["status"]),
              (None, [{"role": "user", "content": "Hi"}], None, None)]
    return [] if sorted(map(str, got)) == sorted(map(str, wanted)) else [f"{got} instead of {wanted}"]


@checked
def over_otlp(gradus, phoenix):
    """Carrier spans arrive once, with their verdicts, and are not taken for an agent's work."""
    project, where = "llamaindex-react s07_error_recovery", source(phoenix, "llamaindex-react", "s07_error_recovery")
    with tempfile.TemporaryDirectory() as folder:
        before = lines(gradus_run(gradus, folder, "traces", "--format", "jsonl", where).stdout)
        count = phoenix.stored()
        ran = gradus_run(gradus, folder, "eval", where, "--judge", "offline", "--jsonl", "-", "--quiet", "--log-to-otlp", phoenix.url)
        outcomes = lines(ran.stdout)
        phoenix.settled(count + len(outcomes))
        gradus_run(gradus, folder, "report", "--log-to-otlp", phoenix.url)
        after = phoenix.settled()
        carriers = phoenix.pages(f"/v1/projects/{project.replace(' ', '%20')}/spans?span_kind=EVALUATOR&limit=1000")
        again = lines(gradus_run(gradus, folder, "traces", "--format", "jsonl", where).stdout)
    found = [] if after == count + len(outcomes) else [f"{after - count} spans for {len(outcomes)} outcomes sent twice"]
    labels = sorted(str(one["attributes"].get("evaluations.0.evaluation.label")) for one in carriers)
    wanted = sorted(str(one["label"]) for one in outcomes)
    found += [] if labels == wanted else [f"labels {labels} instead of {wanted}"]
    return found + ([] if before == again else [f"{len(before)} trajectories became {len(again)}"])


@checked
def with_a_key(gradus):
    with Phoenix(key=KEY) as phoenix, tempfile.TemporaryDirectory() as folder:
        for path in requests_of("llamaindex-react", "s10_parallel"):
            phoenix.send(path.read_bytes(), project="shop")
        phoenix.settled()
        where, found = f"phoenix://127.0.0.1:{phoenix.port}/shop", []
        grade = ["eval", where, "--judge", "offline", "--quiet", "--log-to-phoenix"]
        for key, says in ((None, "set PHOENIX_API_KEY"), ("wrong", "refused the key in PHOENIX_API_KEY")):
            ran = gradus_run(gradus, folder, *grade, code=(2,), **({"PHOENIX_API_KEY": key} if key else {}))
            found += [] if says in ran.stderr and "wrong" not in ran.stderr else [f"key {key!r}: {ran.stderr.strip()}"]
        ran = gradus_run(gradus, folder, *grade, PHOENIX_API_KEY=KEY)
        found += [] if "annotations are in Phoenix" in ran.stderr else [f"with the key: {ran.stderr.strip()}"]
        return found + ([f"the key is shown: {ran.stderr}"] if KEY in ran.stdout + ran.stderr else [])


@checked
def killed_while_read(gradus):
    """Phoenix dies while it is read from, comes back on the same ports, and the same command goes on."""
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "phoenix"
        pathlib.Path(folder, "gradus.toml").write_text("[phoenix]\nretry_s = 0.3\n")
        with Phoenix(folder=data) as phoenix:
            ports = (phoenix.port, phoenix.grpc_port)
            for framework, scenario in graded():
                for path in requests_of(framework, scenario):
                    phoenix.send(path.read_bytes(), project=f"{framework} {scenario}")
            phoenix.settled()
            # All projects: so many requests that there is time to kill it.
            command = ["traces", "--format", "jsonl", f"phoenix://127.0.0.1:{phoenix.port}"]
            wanted = gradus_run(gradus, folder, *command).stdout
            with subprocess.Popen([gradus, *command], env=environment(), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as reading:
                while not list(pathlib.Path(folder, ".gradus", "reads").glob("*/read.json")) and reading.poll() is None:
                    time.sleep(0.001)
                # It stands still meanwhile: on a busy machine killing takes longer than reading.
                reading.send_signal(signal.SIGSTOP)
                phoenix.kill()
                reading.send_signal(signal.SIGCONT)
                _, said = reading.communicate(timeout=600)
        if reading.returncode == 0:
            return ["it was read before it could be killed"]
        found = [] if reading.returncode == 2 and "are kept, and the same command goes on from there" in said else [f"status {reading.returncode}: {said}"]
        with Phoenix(folder=data, ports=ports):
            ran = gradus_run(gradus, folder, *command)
        found += [] if "taking up the read" in ran.stderr else [f"it did not go on: {ran.stderr}"]
        found += [] if ran.stdout == wanted else ["what was read in two parts is not what was read at once"]
        return found + ([] if wanted else ["nothing was read"])


def main():
    gradus = os.path.abspath(sys.argv[1])
    try:
        phoenix = Phoenix()
    except NotInstalled as reason:
        print(f"peer phoenix: SKIPPED, it could not be installed: {reason}")
        finish(0, 0, 1)
    except RuntimeError as error:
        print(f"peer phoenix: FAILED\n  {error}")
        finish(0, 1, 0)
    with phoenix:
        fill(phoenix)
        counts = run_checks({
            "phoenix, reads the same": functools.partial(reads_the_same, gradus, phoenix),
            "phoenix, writes back, offline": functools.partial(writes_back, gradus, phoenix, "CODE"),
            "phoenix, writes back, with a model": functools.partial(writes_back, gradus, phoenix, "LLM"),
            "phoenix, verdicts on traces": functools.partial(on_traces, gradus, phoenix),
            "phoenix, spans it does not have": functools.partial(missing_spans, gradus, phoenix),
            "phoenix, reads a dataset": functools.partial(reads_a_dataset, gradus, phoenix),
            "phoenix, over OTLP": functools.partial(over_otlp, gradus, phoenix),
        })
    others = run_checks({
        "phoenix, with a key": functools.partial(with_a_key, gradus),
        "phoenix, killed while it is read": functools.partial(killed_while_read, gradus),
    })
    finish(*map(sum, zip(counts, others)))


if __name__ == "__main__":
    main()
