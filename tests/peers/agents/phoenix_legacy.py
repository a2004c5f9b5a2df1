"""The client that came with Phoenix before it had one of its own: `query_spans` and `log_evaluations`, as older notebooks have
them. Runs in an environment with that version.

  phoenix_legacy.py URL PROJECT     prints what is wrong, and in the end how much was looked at
"""
import json
import sys
import warnings

import httpx
import pandas
import pyarrow
from phoenix.session.client import Client
from phoenix.trace import DocumentEvaluations, SpanEvaluations, TraceEvaluations
from phoenix.trace.dsl import SpanQuery

warnings.simplefilter("ignore")
URL, PROJECT = sys.argv[1:3]
client = Client(endpoint=URL, warn_if_server_not_running=False)
wrong, looked_at = [], 0


def check(name, is_right, what=""):
    global looked_at
    looked_at += 1
    if not is_right:
        wrong.append(f"{name}: {what}")


def from_arrow(*queries):
    """The same question without asking for JSON: a stream of Arrow for each query, one behind the other."""
    body = {"queries": [query.to_dict() for query in queries], "limit": 10_000, "orphan_span_as_root_span": True}
    answer = httpx.post(f"{URL}/v1/spans", params={"project_name": PROJECT, "project-name": PROJECT}, json=body, timeout=120)
    answer.raise_for_status()
    stream, frames = pyarrow.BufferReader(answer.content), []
    for _ in queries:
        frames.append(pyarrow.ipc.open_stream(stream).read_pandas())
    return frames


def plain(value):
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if hasattr(value, "tolist") or isinstance(value, (list, tuple)):
        return [plain(item) for item in value] if not hasattr(value, "item") or getattr(value, "ndim", 0) else plain(value.item())
    if isinstance(value, pandas.Timestamp):
        return value.isoformat()
    return None if value is None or isinstance(value, float) and value != value or value is pandas.NaT else (round(float(value), 9) if isinstance(value, (int, float)) and not isinstance(value, bool) else value)


def rows(frame):
    frame = frame.set_axis([f"column {name}" for name in frame.columns], axis=1)
    found = [{key: item for key, value in row.items() if (item := plain(value)) is not None} for row in frame.reset_index(names=[f"index {name}" for name in frame.index.names]).to_dict("records")]
    return sorted(found, key=lambda row: sorted((key, str(value)) for key, value in row.items() if key.startswith('index')))


def same(asked, arrow):
    """A column whose values have no type in common is one of texts in Arrow, with JSON in them."""
    if isinstance(asked, dict) and isinstance(arrow, dict):
        return asked.keys() == arrow.keys() and all(same(asked[key], arrow[key]) for key in asked)
    if isinstance(asked, list) and isinstance(arrow, list):
        return len(asked) == len(arrow) and all(map(same, asked, arrow))
    return asked == arrow or isinstance(arrow, str) and not isinstance(asked, str) and same(asked, plain(json.loads(arrow)))


queries = {
    "everything": SpanQuery(),
    "a kind": SpanQuery().where("span_kind == 'LLM'").select("input.value", "llm.token_count.prompt"),
    "exploded": SpanQuery().explode("llm.output_messages", role="message.role", text="message.content"),
    "joined": SpanQuery().concat("llm.input_messages", said="message.content"),
    "nothing": SpanQuery().where("name == 'nobody'").select("input.value"),
}
for name, query in queries.items():
    asked = client.query_spans(query, project_name=PROJECT, limit=10_000, timeout=120)
    asked = pandas.DataFrame() if asked is None else asked
    (arrow,) = from_arrow(query)
    check(f"query_spans, {name}", len(asked) > 0 or name == "nothing", "no rows")
    check(f"Arrow, {name}", same(rows(asked), rows(arrow)), f"{next((pair for pair in zip(rows(asked), rows(arrow)) if not same(*pair)), (len(asked), len(arrow)))}")
    check(f"Arrow, {name}, index", list(asked.index.names) == list(arrow.index.names) or not len(asked), f"{asked.index.names} and {arrow.index.names}")
both = from_arrow(queries["a kind"], queries["exploded"])
check("two queries at once", [len(frame) > 0 for frame in both] == [True, True], f"{[len(frame) for frame in both]}")

spans = client.get_spans_dataframe(project_name=PROJECT, limit=10_000, timeout=120)
calls = spans[spans.span_kind == "LLM"].head(20)
evaluated = pandas.DataFrame({"label": ["good", None] * (len(calls) // 2), "score": [1, 0] * (len(calls) // 2), "explanation": "because"}, index=pandas.Index(calls.index[: len(calls) // 2 * 2], name="context.span_id"))
client.log_evaluations(SpanEvaluations(eval_name="legacy", dataframe=evaluated))
traces = pandas.DataFrame({"score": [0.5]}, index=pandas.Index(calls["context.trace_id"][:1], name="context.trace_id"))
client.log_evaluations(TraceEvaluations(eval_name="legacy trace", dataframe=traces))
documents = pandas.DataFrame({"label": ["relevant"]}, index=pandas.MultiIndex.from_tuples([(calls.index[0], 0)], names=["context.span_id", "document_position"]))
client.log_evaluations(DocumentEvaluations(eval_name="legacy document", dataframe=documents))
found = httpx.get(f"{URL}/v1/projects/{PROJECT}/span_annotations", params={"span_ids": list(calls.index), "limit": 1000}).json()["data"]
got = {one["span_id"]: (one["result"]["label"], one["result"]["score"], one["result"]["explanation"]) for one in found if one["name"] == "legacy"}
wanted = {span: (row["label"], float(row["score"]), row["explanation"]) for span, row in evaluated.astype(object).where(evaluated.notna(), None).iterrows()}
check("log_evaluations", got == wanted and len(wanted) > 2, f"{len(got)} of {len(wanted)}: {list(got.items())[:2]} and {list(wanted.items())[:2]}")
found = httpx.get(f"{URL}/v1/projects/{PROJECT}/trace_annotations", params={"trace_ids": list(traces.index)}).json()["data"]
check("log_evaluations, of a trace", [one["result"]["score"] for one in found if one["name"] == "legacy trace"] == [0.5], f"{found}")
left = client.query_spans(SpanQuery().where("evals['legacy'].label == 'good'").select("name"), project_name=PROJECT, timeout=120)
check("query_spans, by evaluation", len(left) == len(wanted) // 2, f"{len(left)} instead of {len(wanted) // 2}")
print("\n".join(wrong + [f"{looked_at} looked at, {len(wrong)} wrong"]))
