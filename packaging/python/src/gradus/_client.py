"""`gradus.Client`: the HTTP API of a running `gradus serve`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from gradus import _json
from gradus._binary import GradusError
from gradus._comparison import Comparison
from gradus._run import Run, make_runs
from gradus._trajectory import Trajectories, Trajectory
from gradus._verdict import Verdict


@dataclass(frozen=True)
class Project:
    """A project of the server."""

    name: str
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class TraceSummary:
    """A trace in a list, without its content."""

    trace_id: str
    project: str
    #: The name of the root span.
    name: str
    start: str
    end: str
    spans: int
    is_error: bool
    #: When its latest record arrived.
    arrived: str
    #: Ids of the trajectories that begin in it; empty until it is complete.
    trajectory_ids: Tuple[str, ...] = ()
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "TraceSummary":
        return cls(
            trace_id=_json.text(source, "trace_id") or "",
            project=_json.text(source, "project") or "",
            name=_json.text(source, "name") or "",
            start=_json.text(source, "start") or "",
            end=_json.text(source, "end") or "",
            spans=_json.count(source, "spans"),
            is_error=_json.flag(source, "is_error"),
            arrived=_json.text(source, "arrived") or "",
            trajectory_ids=tuple(_json.text(one, "trajectory_id") or "" for one in _json.objects(source, "trajectories")),
            raw=dict(source),
        )


@dataclass(frozen=True)
class Annotation:
    """What somebody said about a span, a trace, a trajectory or a step."""

    #: `span:ID`, `trace:ID`, `trajectory:ID` or `trajectory:ID#STEP`.
    target: str
    name: str
    label: Optional[str] = None
    score: Optional[float] = None
    explanation: Optional[str] = None
    #: `HUMAN`, `LLM` or `CODE`.
    annotator: str = "HUMAN"
    author: Optional[str] = None
    identifier: Optional[str] = None
    metadata: Dict[str, Any] = field(default_factory=dict)
    #: Given by the server.
    id: Optional[str] = None
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "Annotation":
        number = source.get("id")
        return cls(
            target=_json.text(source, "target") or "",
            name=_json.text(source, "name") or "",
            label=_json.text(source, "label"),
            score=_json.number(source, "score"),
            explanation=_json.text(source, "explanation"),
            annotator=_json.text(source, "annotator") or "HUMAN",
            author=_json.text(source, "author"),
            identifier=_json.text(source, "identifier"),
            metadata=_json.object_at(source, "metadata"),
            id=None if number is None else str(number),
            raw=dict(source),
        )

    def to_json(self) -> Dict[str, Any]:
        fields = {name: getattr(self, name) for name in ("target", "name", "label", "score", "explanation", "annotator", "author", "identifier")}
        if self.metadata:
            fields["metadata"] = self.metadata
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class HumanLabel:
    """What a person said about a verdict."""

    trajectory_id: str
    evaluator: str
    label: str
    step_index: Optional[int] = None
    project: str = ""
    #: What the judge says now.
    judge_label: Optional[str] = None
    author: Optional[str] = None
    note: Optional[str] = None
    at: Optional[str] = None
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "HumanLabel":
        return cls(
            trajectory_id=_json.text(source, "trajectory_id") or "",
            evaluator=_json.text(source, "evaluator") or "",
            label=_json.text(source, "label") or "",
            step_index=_json.integer(source, "step_index"),
            project=_json.text(source, "project") or "",
            judge_label=_json.text(source, "judge_label"),
            author=_json.text(source, "author"),
            note=_json.text(source, "note"),
            at=_json.text(source, "at"),
            raw=dict(source),
        )


@dataclass(frozen=True)
class TraceDetail:
    """One trace with its trajectories, their verdicts and the annotations."""

    summary: TraceSummary
    trajectories: Trajectories
    verdicts: Tuple[Verdict, ...]
    annotations: Tuple[Annotation, ...]
    #: True while the trace may still grow; its trajectories are then not graded yet.
    is_open: bool
    #: Why the trace could not be assembled.
    quarantine_reason: Optional[str] = None

    @property
    def runs(self) -> List[Run]:
        return make_runs(self.trajectories, self.verdicts)


class Client:
    """A running `gradus serve`. Requests that it refuses raise `GradusError` with its message and the HTTP status."""

    def __init__(self, url: str = "http://127.0.0.1:4318", key: Optional[str] = None, timeout: float = 30.0) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url={url!r}: write it as http://HOST:PORT")
        if parts.username or parts.password:
            # It would be part of every error message.
            raise ValueError(f"url: http://{parts.hostname}: no user or password in the address; use key=")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._key = key if key is not None else os.environ.get("GRADUS_API_KEY")
        # A proxy cannot reach this machine's own ports.
        self._is_local = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def request(self, method: str, path: str, *, query: Optional[Mapping[str, Any]] = None, body: Optional[bytes] = None, content_type: str = "application/json", timeout: Optional[float] = None) -> bytes:
        """Sends one request and returns the body of the answer."""
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.parse import urlencode
        from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

        class NoRedirects(HTTPRedirectHandler):
            """The key is for this server, and for no other one that it may name."""

            def redirect_request(self, *_: Any, **__: Any) -> None:
                return None

        wanted = {name: _query_text(value) for name, value in (query or {}).items() if value is not None}
        address = f"{self.url}{path}" + (f"?{urlencode(wanted)}" if wanted else "")
        request = Request(address, method=method, data=b"" if body is None and method == "POST" else body)
        request.add_header("accept", "application/json")
        if request.data is not None:
            request.add_header("content-type", content_type)
        if self._key:
            request.add_header("authorization", f"Bearer {self._key}")
        opener = build_opener(NoRedirects(), ProxyHandler({})) if self._is_local else build_opener(NoRedirects())
        try:
            with opener.open(request, timeout=self.timeout if timeout is None else timeout) as response:
                answer: bytes = response.read()
                return answer
        except HTTPError as error:
            raise GradusError(f"{method} {address}: {_refusal(error.read())}", status=error.code) from error
        except (URLError, OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise GradusError(f"{method} {address}: {reason}\nhint: is `gradus serve` running there?") from error

    def _get(self, path: str, query: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        value = json.loads(self.request("GET", path, query=query))
        return value if isinstance(value, dict) else {"items": value}

    def _pages(self, path: str, query: Mapping[str, Any], limit: Optional[int]) -> Iterator[Dict[str, Any]]:
        """The items of all pages, up to `limit`. A page can be empty and still have a next one."""
        found, cursor = 0, None
        while True:
            page = self._get(path, {**query, "cursor": cursor})
            for item in _json.objects(page, "items"):
                if limit is not None and found >= limit:
                    return
                yield item
                found += 1
            cursor = _json.text(page, "next_cursor")
            if cursor is None or (limit is not None and found >= limit):
                return

    def is_ready(self) -> bool:
        """Whether the server accepts spans."""
        try:
            self.request("GET", "/readyz")
        except GradusError:
            return False
        return True

    def projects(self) -> List[Project]:
        return [Project(_json.text(item, "name") or "", item) for item in _json.objects(self._get("/api/v1/projects"), "items")]

    def traces(self, *, project: Optional[str] = None, since: Optional[str] = None, until: Optional[str] = None, agent: Optional[str] = None, model: Optional[str] = None, tool: Optional[str] = None, label: Optional[str] = None, score: Optional[str] = None, error: Optional[bool] = None, q: Optional[str] = None, limit: Optional[int] = 100) -> List[TraceSummary]:
        """Traces, newest first. `limit=None` reads them all."""
        query = {"project": project, "from": since, "to": until, "agent": agent, "model": model, "tool": tool, "label": label, "score": score, "error": error, "q": q, "limit": 500 if limit is None else max(1, min(limit, 500))}
        return [TraceSummary.from_json(item) for item in self._pages("/api/v1/traces", query, limit)]

    def trace(self, trace_id: str) -> TraceDetail:
        """One trace with everything that is known of it."""
        from urllib.parse import quote

        found = self._get(f"/api/v1/traces/{quote(trace_id, safe='')}")
        return TraceDetail(
            summary=TraceSummary.from_json(_json.object_at(found, "trace")),
            trajectories=Trajectories(Trajectory.from_json(one) for one in _json.objects(found, "trajectories")),
            verdicts=tuple(Verdict.from_json(one) for one in _json.objects(found, "outcomes")),
            annotations=tuple(Annotation.from_json(one) for one in _json.objects(found, "annotations")),
            is_open=_json.flag(found, "is_open"),
            quarantine_reason=_json.text(found, "quarantine_reason"),
        )

    def runs(self, *, limit: Optional[int] = 20, **filters: Any) -> List[Run]:
        """The runs in the latest traces, with their verdicts. Takes the filters of `traces`."""
        trajectories: Dict[str, Trajectory] = {}
        verdicts: Dict[Tuple[str, Optional[int], str], Verdict] = {}
        for summary in self.traces(limit=limit, **filters):
            detail = self.trace(summary.trace_id)
            # A trajectory can span several traces.
            trajectories.update((one.trajectory_id, one) for one in detail.trajectories)
            verdicts.update(((one.trajectory_id, one.step_index, one.evaluator), one) for one in detail.verdicts)
        return make_runs(trajectories.values(), verdicts.values())

    def verdicts(self, trace_id: str) -> List[Verdict]:
        """The verdicts on one trace."""
        return list(self.trace(trace_id).verdicts)

    def annotations(self, *, project: Optional[str] = None, target: Optional[str] = None, name: Optional[str] = None, limit: Optional[int] = None) -> List[Annotation]:
        return [Annotation.from_json(item) for item in self._pages("/api/v1/annotations", {"project": project, "target": target, "name": name}, limit)]

    def annotate(self, annotations: Sequence[Union[Annotation, Mapping[str, Any]]]) -> None:
        """Adds annotations, or mappings with the fields of one. One replaces that of the same target, name and identifier."""
        if isinstance(annotations, (Annotation, Mapping, str)):
            raise TypeError("annotate takes a list of annotations, also for a single one")
        items = [_annotation_fields(one, place) for place, one in enumerate(annotations)]
        self.request("POST", "/api/v1/annotations", body=json.dumps({"items": items}).encode())

    def label(self, trajectory_id: str, evaluator: str, label: str, *, step_index: Optional[int] = None, author: Optional[str] = None, note: Optional[str] = None) -> None:
        """Says what the right verdict is, as a person. Labels that a rubric of this name does not have are refused."""
        for name, value in (("trajectory_id", trajectory_id), ("evaluator", evaluator), ("label", label)):
            if not isinstance(value, str):
                raise TypeError(f"{name} is a text, not {type(value).__name__}: {value!r}")
            if not value.strip():
                raise ValueError(f"{name} is empty")
        if step_index is not None and (isinstance(step_index, bool) or not isinstance(step_index, int) or step_index < 0):
            raise ValueError(f"step_index is a number of 0 or more, not {step_index!r}")
        known = self._rubric_labels(evaluator)
        if known and label not in known:
            raise ValueError(f"{evaluator} has no label {label!r}: it has {', '.join(known)}")
        target = f"trajectory:{trajectory_id}" + ("" if step_index is None else f"#{step_index}")
        self.annotate([Annotation(target=target, name=evaluator, label=label, explanation=note, author=author)])

    def _rubric_labels(self, evaluator: str) -> List[str]:
        """The labels of a rubric of the server, best first; none if it has no rubric of this name."""
        rubrics = (one for one in _json.objects(self._get("/api/v1/rubrics"), "items") if one.get("name") == evaluator)
        return [_json.text(one, "label") or "" for rubric in rubrics for one in _json.objects(rubric, "labels")]

    def labels(self, *, project: Optional[str] = None) -> List[HumanLabel]:
        """What people said about verdicts."""
        return [HumanLabel.from_json(line) for line in _json.lines(self.request("GET", "/labels", query={"format": "jsonl", "project": project}))]

    def metrics(self, **query: Any) -> Dict[str, Any]:
        """Metrics of what was graded, as `GET /api/v1/metrics` answers."""
        return self._get("/api/v1/metrics", query)

    def eval_runs(self) -> List[Dict[str, Any]]:
        """Live runs and runs of `gradus eval` in the data folder, latest first."""
        return list(_json.objects(self._get("/api/v1/runs"), "items"))

    def eval_run(self, run_id: str) -> Dict[str, Any]:
        """The summary of a run, as `gradus eval --json` writes it."""
        from urllib.parse import quote

        return self._get(f"/api/v1/runs/{quote(run_id, safe='')}")

    def compare(self, first: str, second: str) -> Comparison:
        """Two runs of the data folder compared."""
        return Comparison.from_json(self._get("/api/v1/compare", {"a": first, "b": second}))

    def settle(self, timeout: float = 10.0) -> bool:
        """Assembles and judges what was received now. Returns whether that was done within the time."""
        answer = json.loads(self.request("POST", "/api/v1/settle", query={"timeout_s": timeout}, timeout=timeout + self.timeout))
        return isinstance(answer, dict) and _json.flag(answer, "is_settled")

    def send_spans(self, export: Mapping[str, Any]) -> None:
        """Sends an OTLP export request as JSON."""
        self.request("POST", "/v1/traces", body=json.dumps(export).encode())


_ANNOTATION_FIELDS = ("target", "name", "label", "score", "explanation", "annotator", "author", "identifier", "metadata")


def _annotation_fields(annotation: Union[Annotation, Mapping[str, Any]], place: int) -> Dict[str, Any]:
    if isinstance(annotation, Annotation):
        return annotation.to_json()
    if not isinstance(annotation, Mapping):
        raise TypeError(f"annotation {place} is neither an Annotation nor a mapping with its fields: {annotation!r}")
    unknown = [str(name) for name in annotation if name not in _ANNOTATION_FIELDS]
    if unknown:
        raise ValueError(f"annotation {place} has the unknown field {unknown[0]!r}: there are {', '.join(_ANNOTATION_FIELDS)}")
    missing = [name for name in ("target", "name") if not annotation.get(name)]
    if missing:
        raise ValueError(f"annotation {place} has no {missing[0]}")
    return {name: value for name, value in annotation.items() if value is not None}


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refusal(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace").strip()[:500]
    return str(found.get("error") or found.get("message") or found) if isinstance(found, dict) else str(found)
