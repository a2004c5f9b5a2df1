"""What the fixture `gradus` gives to a test: the runs of that test."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from gradus._binary import GradusError, PathLike
from gradus._capture import SpanCapture, export_requests
from gradus._client import Client, TraceDetail, TraceSummary
from gradus._ephemeral import EphemeralServer
from gradus._evaluation import evaluate
from gradus._run import Run, make_runs
from gradus._trajectory import Trajectory
from gradus._verdict import Verdict

#: How long `run` waits for spans of other processes.
ARRIVAL_TIMEOUT = 2.0

#: Variables that would send spans elsewhere, or send none.
REMOVED_VARIABLES = (
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG",
    "PHOENIX_API_KEY", "PHOENIX_CLIENT_HEADERS",
)


class NoRunError(GradusError):
    """No run was received, or several where one was expected."""


class RecorderSession:
    """What all tests of one process share: the server, and what earlier tests have done."""

    def __init__(self) -> None:
        self.server = EphemeralServer()
        self.capture = SpanCapture()
        self.seen_trajectories: Set[str] = set()
        #: Traces by id with the size that was read, so that unchanged ones are not read again.
        self.details: Dict[str, Tuple[Tuple[int, str], TraceDetail]] = {}

    def ensure_server(self) -> None:
        """Starts the server anew if somebody has ended it."""
        if not self.server.is_running:
            self.server = EphemeralServer()
            self.details.clear()

    def close(self) -> None:
        self.capture.stop()
        self.server.stop()


class RunRecorder:
    """The runs of one test. Spans of this process are taken from its tracer providers; other processes find the server
    by the environment."""

    def __init__(self, session: RecorderSession, *, judge: Optional[str] = None, rubrics: Sequence[PathLike] = (), timeout: float = 10.0, state_dir: Optional[PathLike] = None) -> None:
        self._session = session
        self._judge = judge
        self._rubrics = list(rubrics)
        self._timeout = timeout
        self._state_dir = state_dir
        self._was_sdk_disabled = _is_sdk_disabled()
        session.ensure_server()
        self._started_ns = time.time_ns()
        self._spans_received = 0
        self._traces_received = 0
        session.capture.start()

    @property
    def endpoint(self) -> str:
        """Where OTLP over HTTP is received: the base address, without `/v1/traces`."""
        return self._session.server.http

    @property
    def grpc_endpoint(self) -> str:
        return self._session.server.grpc

    @property
    def client(self) -> Client:
        """The API of the server."""
        return self._session.server.client

    def environment(self) -> Dict[str, str]:
        """The variables by which agents find the server, for starting one with an environment of its own."""
        proxies = {name: _add_local(os.environ.get(name)) for name in ("NO_PROXY", "no_proxy")}
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            # Batches leave soon, also those of an agent that is not shut down.
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "PHOENIX_COLLECTOR_ENDPOINT": self.endpoint,
            # `phoenix.otel.register()` takes the host from the endpoint and sends to this port of it.
            "PHOENIX_GRPC_PORT": self.grpc_endpoint.rsplit(":", 1)[-1],
            "TRACELOOP_BASE_URL": self.endpoint,
            **proxies,
        }

    def flush(self) -> None:
        """Sends the spans of this process to the server, and has everything that it received assembled and judged."""
        for request in export_requests(self._session.capture.take_spans()):
            self.client.send_spans(request)
        if not self.client.settle(self._timeout):
            raise GradusError(f"{self.endpoint}: the spans were not assembled within {self._timeout:g} s\nhint: raise gradus_timeout in the pytest configuration\n{self._session.server.log_tail()}")

    @property
    def runs(self) -> List[Run]:
        """The runs of this test so far, in the order in which they began. Runs of called agents are in `subruns`."""
        self.flush()
        details = self._read_traces()
        trajectories: Dict[str, Trajectory] = {}
        verdicts: Dict[Tuple[str, Optional[int], str], Verdict] = {}
        for detail in details:
            trajectories.update((one.trajectory_id, one) for one in detail.trajectories if self._is_own(one))
            verdicts.update(((one.trajectory_id, one.step_index, one.evaluator), one) for one in detail.verdicts)
        ordered = sorted(trajectories.values(), key=lambda one: (parse_time_ns(one.start) or 0, one.turn_index or 0))
        return make_runs(ordered, verdicts.values(), self._judge_again)

    @property
    def run(self) -> Run:
        """The one run of this test. Waits a moment for spans of other processes if there are none of this one."""
        runs = self.runs
        deadline = time.monotonic() + (0.0 if self._session.capture.span_count else ARRIVAL_TIMEOUT)
        while not runs and time.monotonic() < deadline:
            time.sleep(0.02)
            runs = self.runs
        if len(runs) == 1:
            return runs[0]
        if not runs:
            raise NoRunError(self._explain_nothing())
        listed = "\n".join(f"  {place}. {run!r}" for place, run in enumerate(runs))
        raise NoRunError(f"{len(runs)} runs were received in this test, and `run` is for one:\n{listed}\nhint: use `gradus.runs[0]`, or one request a test")

    def wait_for_runs(self, count: int = 1, timeout: float = 10.0) -> List[Run]:
        """Waits until so many runs were received: for agents in other processes, which send their spans when they like."""
        deadline = time.monotonic() + timeout
        while True:
            runs = self.runs
            if len(runs) >= count:
                return runs
            if time.monotonic() >= deadline:
                raise NoRunError(f"{len(runs)} of {count} runs were received within {timeout:g} s\n{self._explain_nothing()}")
            time.sleep(0.02)

    def close(self) -> None:
        """Ends the recording: what arrives later belongs to no test."""
        session = self._session
        try:
            session.capture.flush_exporters(self.endpoint)
            for trace in self._own_traces():
                session.seen_trajectories.update(trace.trajectory_ids)
            session.details.clear()
        finally:
            session.capture.stop()

    def _read_traces(self) -> List[TraceDetail]:
        """Traces that may have runs of this test. A trace is read again when it has grown."""
        found = []
        self._spans_received = self._traces_received = 0
        for trace in self._own_traces():
            if trace.trajectory_ids and all(one in self._session.seen_trajectories for one in trace.trajectory_ids):
                continue
            self._spans_received += trace.spans
            self._traces_received += 1
            state = (trace.spans, trace.arrived)
            known = self._session.details.get(trace.trace_id)
            if known is None or known[0] != state:
                known = (state, self.client.trace(trace.trace_id))
                self._session.details[trace.trace_id] = known
            found.append(known[1])
        return found

    def _own_traces(self) -> List[TraceSummary]:
        """Traces that did not begin in an earlier test. Only these are asked for: the traces of all tests would take longer
        with every test."""
        client, server = self.client, self._session.server
        traces = client.traces(since=format_time_ns(self._started_ns), limit=None)
        # Recordings that a test sends.
        traces += client.traces(until=format_time_ns(server.started_ns), limit=None)
        return [trace for trace in traces if not self._is_earlier(trace.start)]

    def _is_own(self, trajectory: Trajectory) -> bool:
        return trajectory.trajectory_id not in self._session.seen_trajectories and not self._is_earlier(trajectory.start)

    def _is_earlier(self, start: Optional[str]) -> bool:
        """Whether it began in an earlier test of this process. A recording that a test sends is older than the server."""
        started_ns = parse_time_ns(start)
        return started_ns is not None and self._session.server.started_ns <= started_ns < self._started_ns

    def _judge_again(self, trajectories: Sequence[Trajectory], evaluator: str, judge: Optional[str]) -> Sequence[Verdict]:
        """The verdicts of the rules are on the server. A model is asked by `gradus eval`, and its verdicts are cached."""
        chosen = judge or self._judge or "offline"
        if chosen == "offline" and not self._rubrics:
            known = {verdict.evaluator: verdict for _, detail in self._session.details.values() for verdict in detail.verdicts}
            if evaluator in known:
                wanted = {trajectory.trajectory_id for trajectory in trajectories}
                return [verdict for _, detail in self._session.details.values() for verdict in detail.verdicts if verdict.trajectory_id in wanted]
        return evaluate(trajectories, judge=chosen, evaluators=evaluator, rubrics=self._rubrics or None, state_dir=self._state_dir).verdicts

    def _explain_nothing(self) -> str:
        capture = self._session.capture
        # A provider that was made while the variable was set stays disabled.
        if self._was_sdk_disabled and not capture.span_count:
            return (
                f"no run was received at {self.endpoint} in this test: OTEL_SDK_DISABLED=true was set when the test began\n"
                "hint: a TracerProvider that is made under this variable, such as one of a module that was imported before the test, records nothing; unset it for the whole session"
            )
        if self._spans_received:
            return (
                f"no run was received: {self._spans_received} spans in {self._traces_received} traces arrived, but none of them is a model call of an agent\n"
                "hint: is the instrumentation of the agent's framework active, and does it record the content of messages?"
            )
        lines = [f"no run was received at {self.endpoint} in this test"]
        if not capture.has_sdk:
            lines.append("hint: opentelemetry-sdk is not installed here; if the agent runs in this process, install it with an instrumentation of its framework")
        elif not capture.provider_count:
            lines.append("hint: nothing in this process has made an opentelemetry TracerProvider; set up the tracing of the agent before it runs")
        else:
            lines.append(f"hint: {_plural(capture.provider_count, 'TracerProvider')} of this process ended no span in this test; is the instrumentation active, and did the agent run after the fixture was set up?")
        lines.append("hint: an agent in another process must export to OTEL_EXPORTER_OTLP_ENDPOINT with OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, as both are set now, and flush its provider (force_flush() or shutdown()) before it ends; wait for it with gradus.wait_for_runs()")
        return "\n".join(lines)


def _is_sdk_disabled() -> bool:
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


class ChangedEnvironment:
    """Sets and removes variables, and puts back what was there."""

    def __init__(self, changed: Mapping[str, str], removed: Sequence[str] = REMOVED_VARIABLES) -> None:
        self._before: Dict[str, Optional[str]] = {name: os.environ.get(name) for name in (*removed, *changed)}
        for name in removed:
            os.environ.pop(name, None)
        os.environ.update(changed)

    def restore(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:?\d\d)?$")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parse_time_ns(text: Optional[str]) -> Optional[int]:
    """Nanoseconds since 1970 of an RFC 3339 time; UTC without a zone."""
    found = _TIME.match(text or "")
    if found is None:
        return None
    day, clock, fraction, zone = found.groups()
    offset = timedelta() if zone in (None, "Z") else timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) * (-1 if zone[0] == "-" else 1)
    whole = datetime.fromisoformat(f"{day} {clock}").replace(tzinfo=timezone.utc) - offset - _EPOCH
    return (whole.days * 86_400 + whole.seconds) * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def format_time_ns(time_ns: int) -> str:
    """An RFC 3339 time in UTC, with all digits."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{(_EPOCH + timedelta(seconds=seconds)).strftime('%Y-%m-%dT%H:%M:%S')}.{rest:09}Z"


def _add_local(hosts: Optional[str]) -> str:
    """A proxy cannot reach the ports of this machine."""
    known = [host for host in (hosts or "").split(",") if host]
    return ",".join([*known, *(host for host in ("127.0.0.1", "localhost") if host not in known)])


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def describe_runs(recorder: Any) -> Optional[str]:
    """The transcripts of what a failed test has received; None if that cannot be told."""
    try:
        runs: List[Run] = recorder.runs
    except Exception:
        # The test has failed for a reason of its own, which must not be hidden by this one.
        return None
    return "\n\n".join(run.transcript() for run in runs[:5]) if runs else None
