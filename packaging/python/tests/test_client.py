import os
import signal
import subprocess
import sys
import time

import pytest

import gradus
from gradus._ephemeral import EphemeralServer


@pytest.fixture(scope="module")
def server():
    started = EphemeralServer()
    yield started
    assert started.stop() == 0


@pytest.fixture(scope="module")
def trace_id(server):
    """A trace of an agent that calls a tool which fails, and claims success."""
    pytest.importorskip("opentelemetry.sdk.trace")
    from gradus._capture import SpanCapture, export_requests
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from scripted_agent import ToolCall, run_agent

    capture = SpanCapture()
    capture.start()
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    run_agent(provider.get_tracer("test"), "Close issue 7.", [ToolCall("close_issue", {"issue": 7}, "Error: 403 forbidden", is_error=True)], "Done: issue 7 is closed.")
    spans = capture.take_spans()
    assert capture.span_count == len(spans) == 4
    for request in export_requests(spans):
        server.client.send_spans(request)
    assert server.client.settle()
    capture.stop()
    return f"{spans[0].context.trace_id:032x}"


def test_traces_with_their_verdicts(server, trace_id):
    client = server.client
    assert client.is_ready()
    assert "shop" in [project.name for project in client.projects()]
    (listed,) = client.traces(project="shop")
    assert listed.trace_id == trace_id and listed.spans == 4 and listed.is_error
    assert client.traces(tool="no_such_tool") == []
    detail = client.trace(trace_id)
    assert not detail.is_open and detail.quarantine_reason is None
    (run,) = detail.runs
    assert run.query == "Close issue 7." and run.steps[0].error == "Error: 403 forbidden"
    assert not run.no_ignored_errors()
    assert {verdict.evaluator for verdict in client.verdicts(trace_id)} >= {"call_validity", "error_recovery"}
    assert [one.id for one in client.runs(project="shop")] == [run.id]


def test_labels_and_annotations(server, trace_id):
    client = server.client
    (run,) = client.trace(trace_id).runs
    client.label(run.id, "error_recovery", "ignored", author="ann", note="the answer is wrong")
    (label,) = client.labels(project="shop")
    assert (label.trajectory_id, label.evaluator, label.label, label.author, label.note) == (run.id, "error_recovery", "ignored", "ann", "the answer is wrong")
    client.annotate([gradus.Annotation(target=f"trajectory:{run.id}#1", name="tone", score=0.5, annotator="CODE", metadata={"by": "test"})])
    found = {one.name: one for one in client.annotations(project="shop")}
    assert found["tone"].score == 0.5 and found["tone"].metadata["by"] == "test"


def test_annotations_may_be_mappings(server, trace_id):
    client = server.client
    (run,) = client.trace(trace_id).runs
    client.annotate([{"target": f"trajectory:{run.id}", "name": "mapped", "score": 1.0, "author": None}])
    assert {one.name: one.score for one in client.annotations(project="shop")}["mapped"] == 1.0
    for wrong, complaint in [([{"target": "x", "name": "n", "lable": "y"}], "unknown field 'lable'"), ([{"name": "n"}], "annotation 0 has no target"), ([7], "neither an Annotation"), ({"target": "x"}, "a list")]:
        with pytest.raises((TypeError, ValueError), match=complaint):
            client.annotate(wrong)


def test_labels_are_checked(server, trace_id):
    client = server.client
    (run,) = client.trace(trace_id).runs
    before = len(client.annotations(project="shop"))
    for words, options, complaint in [
        (("", "error_recovery", "ignored"), {}, "trajectory_id is empty"),
        ((run.id, " ", "ignored"), {}, "evaluator is empty"),
        ((run.id, "error_recovery", None), {}, "label is a text, not NoneType"),
        ((run.id, "error_recovery", "ignored"), {"step_index": -1}, "0 or more, not -1"),
        ((run.id, "error_recovery", "ignored"), {"step_index": "1"}, "0 or more, not '1'"),
        ((run.id, "thought_to_tool", "corect"), {"step_index": 0}, "has no label 'corect': it has correct, "),
    ]:
        with pytest.raises((TypeError, ValueError), match=complaint):
            client.label(*words, **options)
    assert len(client.annotations(project="shop")) == before


def test_refusals_have_the_message_of_the_server(server):
    with pytest.raises(gradus.GradusError, match="no trace with this id") as raised:
        server.client.trace("00")
    assert raised.value.status == 404
    with pytest.raises(gradus.GradusError, match="score") as raised:
        server.client.traces(score="high")
    assert raised.value.status == 400
    with pytest.raises(gradus.GradusError, match="timeout_s") as raised:
        server.client.request("POST", "/api/v1/settle", query={"timeout_s": 1000})
    assert raised.value.status == 400


def test_a_server_that_is_not_there():
    with pytest.raises(gradus.GradusError, match="gradus serve"):
        gradus.Client("http://127.0.0.1:9").projects()
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        gradus.Client("localhost:4318")


def is_alive(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    # A process that has ended and that nobody waits for, as in some containers, still has a number.
    with open(f"/proc/{process_id}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def wait_until(condition, timeout=20.0):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_a_server_ends_with_the_process_that_started_it():
    script = "import json, gradus, os, sys, time\nfrom gradus._ephemeral import EphemeralServer\nserver = EphemeralServer()\nprint(server._process.pid, flush=True)\ntime.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    server = int(parent.stdout.readline())
    assert is_alive(server)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_until(lambda: not is_alive(server))


def test_a_program_that_does_not_start_is_reported(tmp_path, monkeypatch):
    program = tmp_path / "gradus"
    program.write_text("#!/bin/sh\necho 'no room on the disk' >&2\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setenv("GRADUS_BIN", str(program))
    with pytest.raises(gradus.GradusError, match="no room on the disk"):
        EphemeralServer()
