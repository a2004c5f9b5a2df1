"""`gradus.grade_batches` with the real program, and a scripted judge where one is asked."""

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys

import pytest

import gradus
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "peers"))

from archive_traces import make_exports, make_spans  # noqa: E402
from counting_judge import CountingJudge  # noqa: E402

COMPARED = ("trace_id", "trajectory_id", "step_index", "evaluator", "outcome", "label", "score", "explanation", "reason", "rule", "judge", "span_ids")
QUESTIONS = "query_to_thought,thought_to_tool,call_validity"


def comparable(rows):
    return sorted(json.dumps([row.get(name) for name in COMPARED]) for row in rows)


@pytest.fixture
def exports(tmp_path):
    return list(make_exports(9))


@pytest.fixture
def alone(exports, tmp_path):
    """The verdicts of `gradus eval` on one machine."""
    path = tmp_path / "exports.jsonl"
    path.write_text("\n".join(exports) + "\n")
    return comparable(verdict.raw for verdict in gradus.evaluate(path).verdicts)


def by_trace(exports):
    parts = sorted(part for export in exports for part in gradus.split_otlp(export))
    return [{"trace_id": trace, "record": record} for trace, record in parts]


class ArrowBatch:
    """What a record batch offers, without PyArrow."""

    def __init__(self, rows):
        self.rows = rows

    def to_pylist(self, **_):
        return self.rows


def test_records_give_the_verdicts_of_one_machine(exports, alone):
    assert comparable(gradus.grade_batches(exports)) == alone
    assert comparable(gradus.grade_batches(iter([[export.encode()] for export in exports]))) == alone
    assert comparable(gradus.grade_batches(gzip.compress(export.encode()) for export in exports)) == alone


def test_tables_that_are_grouped_by_trace_give_the_same(exports, alone):
    rows = by_trace(exports)
    assert comparable(gradus.grade_batches(rows, key="trace_id")) == alone
    assert comparable(gradus.grade_batches([ArrowBatch(rows[:5]), ArrowBatch(rows[5:])], key="trace_id")) == alone
    renamed = [{"id": row["trace_id"], "otlp": row["record"]} for row in rows]
    assert comparable(gradus.grade_batches(renamed, key=lambda row: row["id"], record="otlp")) == alone


def test_captures_of_real_agents_give_the_same(captures):
    files = sorted(captures.rglob("*.bin"))
    expected = comparable(verdict.raw for verdict in gradus.evaluate(files).verdicts)
    records = [file.read_bytes() for file in files]
    assert expected and comparable(gradus.grade_batches(records)) == expected
    # A turn is graded with those before it, which are other traces of its session.
    read = subprocess.run([gradus.find_gradus_bin(), "traces", *files, "--format", "jsonl"], capture_output=True, check=True).stdout
    sessions = {trace: run.get("session_id") or trace for run in map(json.loads, read.splitlines()) for trace in run["trace_ids"]}
    rows = sorted(by_trace(records), key=lambda row: sessions[row["trace_id"]])
    assert len(set(sessions.values())) < len(sessions)
    assert comparable(gradus.grade_batches(rows, key=lambda row: sessions[row["trace_id"]])) == expected


def test_rows_of_a_span_table_are_read():
    pandas = pytest.importorskip("pandas")
    base = {"context.trace_id": "0af7651916cd43dd8448eb211c80319c", "start_time": pandas.Timestamp("2026-11-01T00:00:00Z"), "end_time": pandas.Timestamp("2026-11-01T00:00:02Z"), "status_code": "OK"}
    agent = {**base, "context.span_id": "b7ad6b7169203331", "parent_id": None, "name": "agent", "span_kind": "AGENT", "attributes.input.value": "How many lamps?", "attributes.output.value": "12"}
    tool = {**base, "context.span_id": "b7ad6b7169203332", "parent_id": "b7ad6b7169203331", "name": "get_stock", "span_kind": "TOOL", "attributes.tool.name": "get_stock", "attributes.input.value": '{"article": "lamp"}', "attributes.output.value": "12"}
    rows = list(gradus.grade_batches([pandas.DataFrame([agent, tool])], key="context.trace_id"))
    assert {row["trace_id"] for row in rows} == {base["context.trace_id"]}
    assert ["b7ad6b7169203332"] in [row["span_ids"] for row in rows if row["step_index"] == 1]


def test_rows_come_while_the_iterator_still_gives_records():
    """With a key, verdicts of the first traces are there before the last records are read: nothing is collected."""
    taken = itertools.count()
    records = ({"trace_id": str(number), "record": json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": make_spans(number)}]}]})} for number in iter(lambda: next(taken), 3000))
    rows = gradus.grade_batches(records, key="trace_id")
    next(rows)
    assert next(taken) < 2900
    rows.close()


def test_a_group_that_cannot_be_read_is_a_row(exports, alone):
    rows = by_trace(exports)
    rows.insert(0, {"trace_id": "broken", "record": '{"resourceSpans": [{"scop'})
    graded = list(gradus.grade_batches(rows, key="trace_id"))
    unreadable = [row for row in graded if row["outcome"] == "unreadable"]
    assert [row["trace_id"] for row in unreadable] == ["broken"]
    assert unreadable[0]["reason"] and comparable(row for row in graded if row["outcome"] != "unreadable") == alone


def test_mistakes_are_named():
    with pytest.raises(gradus.GradusError, match="nonsense") as caught:
        list(gradus.grade_batches(make_exports(1), evaluators="nonsense"))
    assert caught.value.exit_code == 2
    with pytest.raises(KeyError, match="trace"):
        list(gradus.grade_batches([{"record": "{}"}], key="trace"))
    with pytest.raises(TypeError, match="a batch is"):
        list(gradus.grade_batches([7]))
    with pytest.raises(ValueError, match="not an OTLP export"):
        list(gradus.split_otlp(b"\x0f\x01\x02"))


def test_an_error_of_the_iterator_ends_the_program():
    def failing():
        yield from make_exports(1)
        raise RuntimeError("the engine failed")

    with pytest.raises(RuntimeError, match="the engine failed"):
        list(gradus.grade_batches(failing()))


def test_two_processes_with_a_shared_folder_pay_once(exports, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    rows = by_trace(exports)
    with CountingJudge() as judge:
        how = {"key": "trace_id", "judge": "openai:gpt-4o", "base_url": judge.url, "evaluators": QUESTIONS, "shared": tmp_path / "shared", "concurrency": 2}
        # The same records twice at the same time, as in speculative execution.
        first, second = gradus.grade_batches(iter(rows), **how), gradus.grade_batches(iter(rows), **how)
        both = [[], []]
        for one, other in itertools.zip_longest(first, second):
            both[0] += [one] if one else []
            both[1] += [other] if other else []
        assert comparable(both[0]) == comparable(both[1])
        assert set(judge.asked.values()) == {1} and judge.most_at_once <= 2
        asked = judge.calls
        # A task that is repeated asks nothing, and every verdict of a model is marked.
        again = list(gradus.grade_batches(iter(rows), **how))
        assert judge.calls == asked and comparable(again) == comparable(both[0])
        assert sum(row["cached"] for row in again) == asked


def test_a_killed_process_keeps_what_was_paid(exports, tmp_path):
    """A program that dies with questions in flight: only those are asked again."""
    script = "import gradus, json, sys\nlist(gradus.grade_batches(json.load(sys.stdin), judge='openai:gpt-4o', base_url=sys.argv[1], evaluators=sys.argv[2], shared=sys.argv[3], concurrency=2))"
    shared = str(tmp_path / "shared")
    environment = {**os.environ, "OPENAI_API_KEY": "test"}
    with CountingJudge(hold_after=6) as judge:
        process = subprocess.Popen([sys.executable, "-c", script, judge.url, QUESTIONS, shared], stdin=subprocess.PIPE, env=environment, start_new_session=True)
        process.stdin.write(json.dumps(exports).encode())
        process.stdin.close()
        assert judge.is_holding.wait(120)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        judge.release()
        subprocess.run([sys.executable, "-c", script, judge.url, QUESTIONS, shared], input=json.dumps(exports).encode(), env=environment, check=True)
        twice = {question for question, count in judge.asked.items() if count > 1}
        # An answer that was sent and not yet stored is in flight, too: at most as many as the concurrency.
        assert len(twice) <= 2 and max(judge.asked.values()) <= 2


def test_a_limit_holds_over_processes(exports, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    with CountingJudge() as judge:
        how = {"judge": "openai:gpt-4o", "base_url": judge.url, "evaluators": QUESTIONS, "shared": tmp_path / "shared", "max_calls": 3}
        for part in (exports[:2], exports[2:]):
            rows = list(gradus.grade_batches(part, **how))
        assert judge.calls == 3
        refused = [row for row in rows if row["outcome"] == "failed"]
        assert refused and all("limit of 3 calls" in row["reason"] for row in refused)
        # Rules need no budget.
        assert any(row["evaluator"] == "call_validity" and row["outcome"] == "scored" for row in rows)


def test_spark_needs_a_shared_folder_for_a_model():
    import gradus.spark

    class Table:
        columns = ["trace_id", "record"]

    with pytest.raises(ValueError, match="shared="):
        gradus.spark.grade(Table(), judge="openai:gpt-4o")
    Table.columns = ["text"]
    with pytest.raises(ValueError, match="split_records"):
        gradus.spark.grade(Table())
