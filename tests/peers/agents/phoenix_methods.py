"""Phoenix's own client against two servers, method by method: what the one answers, the other has to answer.

  phoenix_methods.py PHOENIX_URL OTHER_URL PROJECT

Both hold the same spans in PROJECT. Prints a line for each difference, and in the end how many comparisons there were. Runs
in Phoenix's environment.
"""
import datetime
import json
import math
import sys
import warnings

import numpy
import pandas
from phoenix.client import Client
from phoenix.client.types.spans import SpanQuery
from phoenix.trace.dsl import SpanQuery as Dsl

from phoenix_conditions import ANNOTATED, FILTERS, REFUSED

warnings.simplefilter("ignore")
ALL = 100_000
WITHIN_S = 120
PHOENIX, OTHER, PROJECT = Client(base_url=sys.argv[1]), Client(base_url=sys.argv[2]), sys.argv[3]
compared, differences = 0, []


def plain(value):
    """Without what is only a matter of types: NaN and None, int and float, arrays and lists, times and their texts."""
    if isinstance(value, (list, tuple, numpy.ndarray)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (datetime.datetime, pandas.Timestamp)):
        return None if value is pandas.NaT else value.isoformat()
    if value is None or value is pandas.NA or isinstance(value, (float, numpy.floating)) and math.isnan(value):
        return None
    if isinstance(value, (bool, numpy.bool_)):
        return bool(value)
    # Phoenix writes ten digits of a number in a data frame.
    return round(float(value), 9) if isinstance(value, (int, float, numpy.number)) else value


def rows(frame):
    """A data frame as its rows, in no order, without columns that hold nothing."""
    index = list(frame.index.names)
    flat = frame.set_axis([f"column {name}" for name in frame.columns], axis=1)
    flat.index.names = [f"index {name}" for name in index]
    found = [{key: value for key, value in plain(row).items() if value is not None} for row in flat.reset_index().to_dict("records")]
    return {"index": index, "columns": sorted(map(str, frame.columns)), "rows": sorted(found, key=lambda row: json.dumps(row, sort_keys=True))}


def spans(found):
    """Listed spans in no order; the number of a row is the server's own business."""
    return sorted(({key: plain(value) for key, value in span.items() if key != "id"} for span in found), key=lambda span: span["context"]["span_id"])


def annotations(found):
    mine = ("id", "created_at", "updated_at", "source", "user_id")
    shown = [{key: plain(value) for key, value in one.items() if key not in mine} for one in found]
    # Notes get an identifier of the server's making.
    for one in shown:
        one["identifier"] = "made" if str(one.get("identifier", "")).startswith("px-") else one.get("identifier", "")
    return sorted(shown, key=lambda one: json.dumps(one, sort_keys=True))


def answer(client, ask):
    try:
        return ask(client)
    except Exception as error:  # noqa: BLE001 what goes wrong is an answer, too
        response = getattr(error, "response", None)
        return f"error {response.status_code}" if response is not None else f"error {type(error).__name__}"


def first_difference(a, b, path=""):
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            if key not in a or key not in b:
                return f"{path}.{key} only {'here' if key in b else 'there'}: {str((b if key in b else a)[key])[:200]}"
            if a[key] != b[key]:
                return first_difference(a[key], b[key], f"{path}.{key}")
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return f"{path}: {len(b)} instead of {len(a)}"
        for index, (one, other) in enumerate(zip(a, b)):
            if one != other:
                return first_difference(one, other, f"{path}[{index}]")
    return f"{path}: {str(b)[:300]!r} instead of {str(a)[:300]!r}"


def compare(name, ask, needs_content=True):
    global compared
    compared += 1
    wanted, got = answer(PHOENIX, ask), answer(OTHER, ask)
    if wanted != got:
        differences.append(f"{name}: {first_difference(wanted, got)}")
    elif needs_content and (not wanted or str(wanted).startswith("error")):
        differences.append(f"{name}: nothing to compare, both say {wanted!r}")
    return wanted


def query_of(client, query, **more):
    return rows(client.spans.get_spans_dataframe(query=query, project_identifier=PROJECT, **{"limit": ALL, "timeout": WITHIN_S, **more}))


def listed(client, **filters):
    return spans(client.spans.get_spans(project_identifier=PROJECT, **{"limit": ALL, "timeout": WITHIN_S, **filters}))


def projects():
    named = lambda found: {project["name"]: project["description"] for project in found}
    compare("projects.list", lambda client: sorted(named(client.projects.list())))
    compare("projects.get, by name", lambda client: client.projects.get(project_name=PROJECT)["name"])
    compare("projects.get, by id", lambda client: client.projects.get(project_id=client.projects.get(project_name=PROJECT)["id"])["name"])
    compare("projects.get, unknown", lambda client: client.projects.get(project_name="nobody"), needs_content=False)
    compare("projects.create", lambda client: named([client.projects.create(name="made", description="for a while")]))
    compare("projects.update", lambda client: named([client.projects.update(project_name="made", description="changed")]))
    compare("projects.delete", lambda client: [client.projects.delete(project_name="made"), "made" in named(client.projects.list())])
    compare("projects.delete, the default one", lambda client: client.projects.delete(project_name="default"), needs_content=False)


def listings():
    everything = compare("get_spans", listed)
    some = everything[:: max(1, len(everything) // 7)]
    kinds = sorted({span["span_kind"].upper() for span in everything})
    for kind in kinds:
        compare(f"get_spans, span_kind {kind}", lambda client, kind=kind: listed(client, span_kind=kind))
    compare("get_spans, kinds", lambda client: listed(client, span_kind=kinds[:2]))
    compare("get_spans, root spans", lambda client: listed(client, parent_id="null"))
    compare("get_spans, children", lambda client: listed(client, parent_id=next(span["parent_id"] for span in everything if span.get("parent_id"))))
    compare("get_spans, span_ids", lambda client: listed(client, span_ids=[span["context"]["span_id"] for span in some]))
    compare("get_spans, trace_ids", lambda client: listed(client, trace_ids=[span["context"]["trace_id"] for span in some]))
    compare("get_spans, names", lambda client: listed(client, name=[span["name"] for span in some]))
    compare("get_spans, errors", lambda client: listed(client, status_code="ERROR"))
    compare("get_spans, states", lambda client: listed(client, status_code=["OK", "UNSET"]))
    model = next(span["attributes"]["llm.model_name"] for span in everything if "llm.model_name" in span["attributes"])
    compare("get_spans, attribute", lambda client: listed(client, attributes={"llm.model_name": model}))
    tokens = next(int(span["attributes"]["llm.token_count.prompt"]) for span in everything if span["attributes"].get("llm.token_count.prompt"))
    compare("get_spans, attribute with a number", lambda client: listed(client, attributes={"llm.token_count.prompt": tokens}))
    times = sorted(datetime.datetime.fromisoformat(span["start_time"]) for span in everything)
    start, end = times[len(times) // 4], times[3 * len(times) // 4]
    compare("get_spans, a time", lambda client: listed(client, start_time=start, end_time=end))
    compare("get_spans, a time and a kind", lambda client: listed(client, start_time=start, span_kind="LLM"))
    compare("get_spans, of no kind", lambda client: listed(client, span_kind="FISH"), needs_content=False)
    compare("get_spans, of no project", lambda client: client.spans.get_spans(project_identifier="nobody"), needs_content=False)
    compare("get_spans, a few", lambda client: len(client.spans.get_spans(project_identifier=PROJECT, limit=137)))
    compare("get_spans, of a new default project", lambda client: client.spans.get_spans(project_identifier="default"), needs_content=False)
    compare("get_traces", lambda client: sorted((plain({**trace, "id": 0, "project_id": 0}) for trace in client.traces.get_traces(project_identifier=PROJECT, limit=1000)), key=lambda trace: trace["trace_id"]))
    compare("get_traces, with spans", lambda client: sorted(len(trace["spans"]) for trace in client.traces.get_traces(project_identifier=PROJECT, limit=1000, include_spans=True)))
    compare("get_traces, errors", lambda client: sorted(trace["trace_id"] for trace in client.traces.get_traces(project_identifier=PROJECT, limit=1000, error=True)))
    compare("get_traces, slow ones", lambda client: sorted(trace["trace_id"] for trace in client.traces.get_traces(project_identifier=PROJECT, limit=1000, min_latency_ms=100)))
    return everything, times


def frames(times):
    start, end = times[len(times) // 4], times[3 * len(times) // 4]
    queries = {
        "everything": SpanQuery(),
        "a kind": SpanQuery().where("span_kind == 'LLM'"),
        "select": SpanQuery().where("span_kind == 'LLM'").select("input.value", "output.value", "llm.model_name"),
        "select, all columns": Dsl().select("name", "span_id", "trace_id", "parent_id", "span_kind", "start_time", "end_time", "status_code", "status_message", "latency_ms"),
        "select, tokens": Dsl().select("cumulative_token_count.total", "cumulative_token_count.prompt", "llm.token_count.prompt"),
        "select, other names": Dsl().select(question="input.value", answer="output.value", missing="there.was.none"),
        "select, nested": Dsl().where("span_kind == 'LLM'").select("llm.output_messages", "llm.invocation_parameters", "metadata"),
        "select, by key": Dsl().select(first="attributes['llm']['model_name']", kind="attributes['openinference']['span']['kind']"),
        "rename": SpanQuery().select("input.value", "name").rename(**{"input.value": "question"}),
        "index": SpanQuery().select("input.value").with_index("trace_id"),
        "index, a name": Dsl().where("span_kind == 'TOOL'").select("input.value").with_index("name"),
        "explode": SpanQuery().explode("llm.input_messages", role="message.role", content="message.content"),
        "explode, all": Dsl().explode("llm.output_messages"),
        "explode and select": Dsl().select("name", "llm.model_name").explode("llm.output_messages", role="message.role"),
        "explode, by trace": Dsl().explode("llm.output_messages", role="message.role").with_index("trace_id"),
        "documents": Dsl().explode("retrieval.documents", text="document.content", score="document.score"),
        "concat": SpanQuery().concat("llm.input_messages", said="message.content"),
        "concat, by lines": Dsl().concat("llm.input_messages", said="message.content", who="message.role").with_concat_separator(" / "),
        "concat and select": Dsl().select("name").concat("llm.output_messages", said="message.content"),
        "concat and explode": Dsl().where("llm.input_messages is not None and llm.output_messages is not None").concat("llm.input_messages", said="message.content").explode("llm.output_messages", role="message.role"),
        "nothing fits": SpanQuery().where("name == 'nobody'").select("input.value"),
    }
    for name, query in queries.items():
        compare(f"get_spans_dataframe, {name}", lambda client, query=query: query_of(client, query))
    compare("get_spans_dataframe, a time", lambda client: query_of(client, SpanQuery(), start_time=start, end_time=end))
    compare("get_spans_dataframe, roots", lambda client: query_of(client, SpanQuery(), root_spans_only=True))
    compare("get_spans_dataframe, a few", lambda client: len(query_of(client, SpanQuery().select("name"), limit=37)["rows"]))
    compare("get_spans_dataframe, of no project", lambda client: len(client.spans.get_spans_dataframe(project_identifier="nobody")), needs_content=False)
    for wrong in REFUSED:
        compare(f"refused: {wrong}", lambda client, wrong=wrong: query_of(client, SpanQuery().where(wrong)), needs_content=False)


def said(everything):
    ids = [span["context"]["span_id"] for span in everything if span["span_kind"] == "LLM"][:30]
    traces = sorted({span["context"]["trace_id"] for span in everything})[:5]
    project = {"project_identifier": PROJECT}
    table = pandas.DataFrame({"span_id": ids, "label": ["correct" if n % 3 else "incorrect" for n in range(len(ids))],
                              "score": [float(bool(n % 3)) for n in range(len(ids))], "explanation": [f"because of {n}" for n in range(len(ids))]})
    compare("log_span_annotations_dataframe", lambda client: len(client.spans.log_span_annotations_dataframe(dataframe=table, annotation_name="correctness", annotator_kind="LLM", sync=True)))
    compare("log_span_annotations, at once", lambda client: client.spans.log_span_annotations(span_annotations=[{"name": "quick", "span_id": ids[0], "annotator_kind": "CODE", "result": {"score": 0.5}}], sync=False), needs_content=False)
    compare("add_span_annotation", lambda client: bool(client.spans.add_span_annotation(annotation_name="mine", annotator_kind="HUMAN", span_id=ids[1], label="good", score=1, metadata={"who": "me"}, identifier="first", sync=True)))
    compare("add_span_annotation, again", lambda client: bool(client.spans.add_span_annotation(annotation_name="mine", annotator_kind="CODE", span_id=ids[1], label="bad", identifier="first", sync=True)))
    compare("add_span_annotation, another", lambda client: bool(client.spans.add_span_annotation(annotation_name="mine", annotator_kind="CODE", span_id=ids[1], label="bad", identifier="second", sync=True)))
    compare("add_span_annotation, no span", lambda client: client.spans.add_span_annotation(annotation_name="mine", annotator_kind="CODE", span_id="f" * 16, label="bad", sync=True), needs_content=False)
    compare("add_span_annotation, a note", lambda client: client.spans.add_span_annotation(annotation_name="note", annotator_kind="CODE", span_id=ids[1], label="bad", sync=True), needs_content=False)
    compare("add_span_note", lambda client: bool(client.spans.add_span_note(span_id=ids[2], note=" look at this ")))
    compare("add_span_note, another", lambda client: bool(client.spans.add_span_note(span_id=ids[2], note="and this")))
    compare("add_span_note, no span", lambda client: client.spans.add_span_note(span_id="f" * 16, note="and this"), needs_content=False)
    compare("add_trace_annotation", lambda client: bool(client.traces.add_trace_annotation(annotation_name="whole", annotator_kind="LLM", trace_id=traces[0], label="fine", score=0.75, sync=True)))
    compare("log_trace_annotations", lambda client: len(client.traces.log_trace_annotations(trace_annotations=[{"name": "length", "trace_id": trace, "annotator_kind": "CODE", "result": {"score": n}} for n, trace in enumerate(traces)], sync=True)))
    settled = lambda client: any(one["name"] == "quick" for one in client.spans.get_span_annotations(span_ids=ids[:1], **project))
    wait_until(settled)
    compare("get_span_annotations", lambda client: annotations(client.spans.get_span_annotations(span_ids=ids, **project)))
    compare("get_span_annotations, one name", lambda client: annotations(client.spans.get_span_annotations(span_ids=ids, include_annotation_names=["mine"], **project)))
    compare("get_span_annotations, not that", lambda client: annotations(client.spans.get_span_annotations(span_ids=ids, exclude_annotation_names=["correctness"], **project)))
    compare("get_span_annotations, with notes", lambda client: annotations(client.spans.get_span_annotations(span_ids=ids, exclude_annotation_names=[], **project)))
    compare("get_span_annotations, no span", lambda client: client.spans.get_span_annotations(span_ids=["f" * 16], **project), needs_content=False)
    times = ["id", "created_at", "updated_at", "source", "user_id"]
    compare("get_span_annotations_dataframe", lambda client: rows(client.spans.get_span_annotations_dataframe(span_ids=ids, **project).drop(columns=times)))
    return ids


def sessions():
    shown = lambda session: plain({**session, "id": 0, "project_id": 0, "traces": [{**trace, "id": 0} for trace in session["traces"]]})
    # Other conventions have other names for a session, which Phoenix does not know.
    names = client_sessions(PHOENIX)
    compare("sessions.list", lambda client: sorted((shown(session) for session in client.sessions.list(project_name=PROJECT) if session["session_id"] in names), key=lambda session: session["session_id"]))
    name = names[0]
    compare("sessions.get", lambda client: shown(client.sessions.get(session_id=name)))
    compare("sessions.get, by id", lambda client: shown(client.sessions.get(session_id=client.sessions.get(session_id=name)["id"])))
    compare("sessions.get, none", lambda client: client.sessions.get(session_id="nobody"), needs_content=False)
    compare("get_session_turns", lambda client: [plain({key: value for key, value in turn.items() if key != "root_span"}) for turn in client.sessions.get_session_turns(session_id=name)])
    compare("add_session_annotation", lambda client: bool(client.sessions.add_session_annotation(session_id=name, annotation_name="goal", annotator_kind="LLM", label="met", sync=True)))
    compare("add_session_annotation, none", lambda client: client.sessions.add_session_annotation(session_id="nobody", annotation_name="goal", annotator_kind="LLM", label="met", sync=True), needs_content=False)


def client_sessions(client):
    return sorted(session["session_id"] for session in client.sessions.list(project_name=PROJECT))


def own_spans():
    """Spans that the client writes itself, read back."""
    at = lambda second: f"2026-01-01T12:00:{second:02}+00:00"
    context = lambda number: {"trace_id": f"{0xabc:032x}", "span_id": f"{number:016x}"}
    made = [{"name": "agent", "context": context(0xa1), "span_kind": "AGENT", "start_time": at(0), "end_time": at(3), "status_code": "OK", "attributes": {"input.value": "hi", "session.id": "s-1"}},
            {"name": "call", "context": context(0xa2), "parent_id": f"{0xa1:016x}", "span_kind": "LLM", "start_time": at(1), "end_time": at(2), "status_code": "ERROR", "status_message": "no", "attributes": {
                "llm.token_count.prompt": 12, "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "hello", "tag.tags": ["a", "b"], "deep.er.value": 1.5},
             "events": [{"name": "exception", "timestamp": at(2), "attributes": {"exception.message": "x"}}]}]
    compare("log_spans", lambda client: client.spans.log_spans(project_identifier="written", spans=made))
    wait_until(lambda client: len(client.spans.get_spans(project_identifier="written")) == 2)
    compare("log_spans, again", lambda client: client.spans.log_spans(project_identifier="written", spans=made), needs_content=False)
    compare("log_spans, wrong", lambda client: client.spans.log_spans(project_identifier="written", spans=[{**made[0], "context": context(0xa3), "start_time": "2026-01-01T12:00:00"}]), needs_content=False)
    compare("log_spans, read back", lambda client: spans(client.spans.get_spans(project_identifier="written")))
    compare("log_spans, as a data frame", lambda client: rows(client.spans.get_spans_dataframe(project_identifier="written")))


def wait_until(settled, within_s=300):
    import time
    end = time.monotonic() + within_s
    while time.monotonic() < end and not all(answer(client, settled) is True for client in (PHOENIX, OTHER)):
        time.sleep(0.3)


def filters(count):
    telling = 0
    for condition in FILTERS + ANNOTATED:
        found = compare(f"filter {condition}", lambda client, condition=condition: [row["index context.span_id"] for row in query_of(client, SpanQuery().where(condition).select("span_id"))["rows"]], needs_content=False)
        if isinstance(found, str):
            differences.append(f"filter {condition}: Phoenix refuses it: {found}")
        telling += 0 < len(found) < count
    print(f"{len(FILTERS + ANNOTATED)} conditions, {telling} of them for some spans and not for all")
    if telling < 60:
        differences.append(f"only {telling} conditions tell spans apart")


everything, times = listings()
frames(times)
said(everything)
filters(len(everything))
own_spans()
projects()
sessions()
for difference in differences:
    print(difference)
print(f"{compared} compared, {len(differences)} differ")
