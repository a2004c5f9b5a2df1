"""`gradus.evaluate`: judges trajectories with the program and gives the results as typed objects."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from gradus import _json
from gradus._binary import GATE_FAILED, GATE_INCOMPLETE, NOT_WRITTEN, GradusError, PathLike, run_gradus
from gradus._run import Run, make_runs
from gradus._trajectory import STEP_COLUMNS, Source, Trajectories, Trajectory, make_frame, selection_arguments, source_arguments, step_rows
from gradus._verdict import Verdict

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> Optional["Interval"]:
        low, high = _json.number(source, "low"), _json.number(source, "high")
        return None if low is None or high is None else cls(low, high)


@dataclass(frozen=True)
class Accuracy:
    """The share or mean of one evaluator, with its interval and its coverage."""

    name: str
    title: str
    judge: str
    #: None when nothing was judged.
    value: Optional[float]
    #: A cluster-robust 95 % interval; None with fewer than two runs.
    interval: Optional[Interval]
    #: The sum of scores, and how many were judged.
    numerator: float
    judged: int
    failed: int = 0
    abstained: int = 0
    not_applicable: int = 0
    #: Whether it is about steps and not about whole trajectories.
    of_steps: bool = False
    #: True when scores go from 0 to 1.
    is_share: bool = True
    labels: Dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.title}: not judged ({self.abstained} abstained, {self.not_applicable} not applicable)"
        shown = f"{self.value:.1%}" if self.is_share else f"{self.value:.3g}"
        interval = "" if self.interval is None else f", 95 % interval {self.interval.low:.1%} to {self.interval.high:.1%}" if self.is_share else f", 95 % interval {self.interval.low:.3g} to {self.interval.high:.3g}"
        return f"{self.title}: {shown} of {self.judged}{interval}"

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "Accuracy":
        return cls(
            name=_json.text(source, "name") or "",
            title=_json.text(source, "title") or "",
            judge=_json.text(source, "judge") or "",
            value=_json.number(source, "value"),
            interval=Interval.from_json(_json.object_at(source, "interval")),
            numerator=_json.number(source, "numerator") or 0.0,
            judged=_json.count(source, "denominator"),
            failed=_json.count(source, "failed"),
            abstained=_json.count(source, "abstained"),
            not_applicable=_json.count(source, "not_applicable"),
            of_steps=_json.flag(source, "of_steps"),
            is_share=_json.flag(source, "is_share"),
            labels={name: _json.count(_json.object_at(source, "labels"), name) for name in _json.object_at(source, "labels")},
        )


@dataclass(frozen=True)
class FailureGroup:
    """Wrong verdicts with the same evaluator, tool and reason."""

    key: str
    evaluator: str
    label: str
    #: The reason, with values replaced by their kind (`<number>`, `<text>`).
    reason: str
    #: Wrong verdicts, trajectories with such a verdict, and their share of all trajectories.
    count: int
    trajectories: int
    share: float
    tool: Optional[str] = None
    rule: Optional[str] = None
    #: Ids of the first trajectories, at most 3.
    examples: Tuple[str, ...] = ()

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "FailureGroup":
        return cls(
            key=_json.text(source, "key") or "",
            evaluator=_json.text(source, "evaluator") or "",
            label=_json.text(source, "label") or "",
            reason=_json.text(source, "reason") or "",
            count=_json.count(source, "count"),
            trajectories=_json.count(source, "trajectories"),
            share=_json.number(source, "share") or 0.0,
            tool=_json.text(source, "tool"),
            rule=_json.text(source, "rule"),
            examples=tuple(_json.text(one, "trajectory_id") or "" for one in _json.objects(source, "examples")),
        )


@dataclass(frozen=True)
class GateResult:
    """A condition that was checked."""

    gate: str
    #: `pass`, `fail` or `incomplete` (the run ended early).
    verdict: str
    explanation: str
    metric: str = ""
    bar: Optional[float] = None
    value: Optional[float] = None
    interval: Optional[Interval] = None
    count: int = 0
    #: Whether the interval excludes the bar.
    is_certain: bool = False

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "GateResult":
        return cls(
            gate=_json.text(source, "gate") or "",
            verdict=_json.text(source, "verdict") or "",
            explanation=_json.text(source, "explanation") or "",
            metric=_json.text(source, "metric") or "",
            bar=_json.number(source, "bar"),
            value=_json.number(source, "value"),
            interval=Interval.from_json(_json.object_at(source, "interval")),
            count=_json.count(source, "count"),
            is_certain=_json.flag(source, "is_certain"),
        )


@dataclass(frozen=True)
class ToolUse:
    """How often a tool was called, and how it went."""

    tool: str
    uses: int
    errors: int
    #: Calls whose choice was judged, and how many of those were right.
    judged: int
    right: int


VERDICT_COLUMNS = ["trajectory_id", "step_index", "question_text", "thought", "tool_call", "action_input", "evaluator", "outcome", "label", "score", "explanation", "rule", "reason", "judge", "cost_usd", "trace_id", "span_ids"]


@dataclass(frozen=True)
class Evaluation:
    """The results of one run of `gradus eval`."""

    run_id: str
    judge: str
    #: False for a run that ended early; its numbers are about what was judged by then.
    complete: bool
    stopped_because: Optional[str]
    trajectories: Trajectories
    verdicts: Tuple[Verdict, ...]
    #: By evaluator; also `combined` and `trajectories_right` where there is something to combine.
    accuracies: Dict[str, Accuracy]
    failure_groups: Tuple[FailureGroup, ...]
    gates: Tuple[GateResult, ...]
    tools: Tuple[ToolUse, ...]
    #: What judging cost; None if a price is not known.
    cost_usd: Optional[float]
    #: The summary as `gradus eval --json` writes it.
    summary: Dict[str, Any] = field(repr=False)
    state_dir: Optional[str] = field(default=None, repr=False)
    cwd: Optional[str] = field(default=None, repr=False)

    @property
    def passed(self) -> bool:
        """Whether every gate passed. True without gates."""
        return all(gate.passed for gate in self.gates)

    @property
    def runs(self) -> List[Run]:
        """The trajectories with their verdicts and checks, without those of agents that another agent called."""
        return make_runs(self.trajectories, self.verdicts)

    @property
    def wrong(self) -> List[Verdict]:
        """Verdicts below the best score."""
        return [verdict for verdict in self.verdicts if verdict.is_wrong]

    @property
    def html(self) -> str:
        """The report as one page, without scripts and external resources."""
        return self._report("--html", "-").decode("utf-8")

    @property
    def markdown(self) -> str:
        """The summary for the page of a CI job."""
        return self._report("--markdown", "-").decode("utf-8")

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{_escape(one.title)}</td><td>{_escape(str(one).split(': ', 1)[-1])}</td></tr>" for one in self.accuracies.values())
        gates = "".join(f"<tr><td>{_escape(gate.gate)}</td><td>{_escape(gate.verdict)}</td></tr>" for gate in self.gates)
        return f"<p>{len(self.trajectories)} trajectories, judge {_escape(self.judge)}, run {_escape(self.run_id)}</p><table>{rows}{gates}</table>"

    def to_rows(self) -> List[Dict[str, Any]]:
        """One row for each verdict, with what it is about."""
        by_id = {trajectory.trajectory_id: trajectory for trajectory in self.trajectories}
        rows = []
        for verdict in self.verdicts:
            trajectory = by_id.get(verdict.trajectory_id)
            steps = {row["step_index"]: row for row in step_rows(trajectory)} if trajectory else {}
            step = steps.get(verdict.step_index, {})
            thought = trajectory.final_thought if trajectory and not step and verdict.step_index is not None else step.get("thought")
            rows.append({
                **{name: getattr(verdict, name) for name in ("trajectory_id", "step_index", "evaluator", "outcome", "label", "score", "explanation", "rule", "reason", "judge", "cost_usd", "trace_id")},
                "span_ids": list(verdict.span_ids),
                "question_text": trajectory.query if trajectory else None,
                "thought": thought,
                "tool_call": step.get("tool_call"),
                "action_input": step.get("action_input"),
            })
        return rows

    def to_pandas(self, rows: str = "verdicts") -> "pandas.DataFrame":
        """A table with one row for each verdict, or for each step (`rows="steps"`) with the label and score of each
        evaluator. Needs pandas."""
        if rows == "verdicts":
            return make_frame(self.to_rows(), VERDICT_COLUMNS)
        if rows != "steps":
            raise ValueError(f"rows={rows!r}: give 'verdicts' or 'steps'")
        found = {(verdict.trajectory_id, verdict.step_index, verdict.evaluator): verdict for verdict in self.verdicts}
        names = [one.name for one in self.accuracies.values() if one.of_steps and any(key[2] == one.name for key in found)]
        table = []
        for row in self.trajectories.to_rows():
            for name in names:
                verdict = found.get((row["trajectory_id"], row["step_index"], name))
                row[f"{name}_label"] = verdict.label if verdict else None
                row[f"{name}_score"] = verdict.score if verdict else None
            table.append(row)
        return make_frame(table, [*STEP_COLUMNS, *(f"{name}_{kind}" for name in names for kind in ("label", "score"))])

    def to_csv(self, folder: PathLike) -> List[Path]:
        """Writes the tables of `gradus eval --csv` into a folder, and returns their paths."""
        self._report("--csv", os.path.abspath(folder))
        return sorted(Path(folder).glob("*.csv"))

    def _report(self, option: str, value: str) -> bytes:
        arguments = ["report", self.run_id, option, value]
        if self.state_dir is not None:
            arguments += ["--state-dir", self.state_dir]
        return run_gradus(arguments, cwd=self.cwd, accepted=(0, GATE_FAILED, GATE_INCOMPLETE)).stdout

    def log_to_phoenix(self, url: Optional[str] = None) -> None:
        """Writes every outcome to Phoenix as an annotation: to the Phoenix that was read from, or to this one."""
        arguments = ["report", self.run_id, "--log-to-phoenix"]
        if url is not None:
            arguments += ["--phoenix", url]
        if self.state_dir is not None:
            arguments += ["--state-dir", self.state_dir]
        run_gradus(arguments, cwd=self.cwd, accepted=(0, GATE_FAILED, GATE_INCOMPLETE))


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def evaluate(
    source: Source,
    *,
    judge: Union[str, Sequence[str], None] = "offline",
    evaluators: Union[str, Iterable[str], None] = None,
    gates: Union[str, Iterable[str]] = (),
    rubrics: Union[PathLike, Iterable[PathLike], None] = None,
    tools: Optional[PathLike] = None,
    sample: Optional[int] = None,
    seed: Optional[int] = None,
    name: Optional[str] = None,
    max_cost: Optional[float] = None,
    base_url: Optional[str] = None,
    fresh: bool = False,
    since: Optional[str] = None,
    until: Optional[str] = None,
    where: Optional[str] = None,
    root_name: Union[str, Iterable[str], None] = None,
    state_dir: Optional[PathLike] = None,
    config: Optional[PathLike] = None,
    log_to_phoenix: bool = False,
    options: Sequence[str] = (),
    cwd: Optional[PathLike] = None,
) -> Evaluation:
    """Judges every step of every trajectory, and every trajectory as a whole.

    A gate that fails is a result (`Evaluation.passed`), not an exception. `judge=None` takes the judge of the
    configuration. `options` are further words for `gradus eval`.
    """
    words, stdin = source_arguments(source)
    arguments = ["eval", "-q", *selection_arguments(since, until, where, root_name)]
    for one in [judge] if isinstance(judge, str) else judge or ():
        arguments += ["--judge", one]
    if evaluators is not None:
        arguments += ["--evaluators", evaluators if isinstance(evaluators, str) else ",".join(evaluators)]
    for gate in [gates] if isinstance(gates, str) else gates:
        arguments += ["--gate", gate]
    if rubrics is not None:
        several = [rubrics] if isinstance(rubrics, (str, os.PathLike)) else rubrics
        for path in several:
            arguments += ["--rubrics", os.fspath(path)]
    values: List[Tuple[str, Any]] = [("--tools", tools), ("--sample", sample), ("--seed", seed), ("--name", name), ("--max-cost", max_cost), ("--base-url", base_url), ("--state-dir", state_dir), ("--config", config)]
    for option, value in values:
        if value is not None:
            arguments += [option, str(value)]
    arguments += ["--fresh"] if fresh else []
    arguments += ["--log-to-phoenix"] if log_to_phoenix else []
    with tempfile.TemporaryDirectory(prefix="gradus-") as folder:
        document, outcomes = os.path.join(folder, "summary.json"), os.path.join(folder, "outcomes.jsonl")
        ended = run_gradus([*arguments, *options, "--json", document, "--jsonl", outcomes, *words], stdin=stdin, cwd=cwd, accepted=(0, GATE_FAILED, NOT_WRITTEN, GATE_INCOMPLETE))
        if ended.returncode == NOT_WRITTEN:
            warnings.warn(ended.stderr.decode("utf-8", "replace").strip(), RuntimeWarning, stacklevel=2)
        with open(document, "rb") as file:
            result = json.loads(file.read())
        with open(outcomes, "rb") as file:
            lines = _json.lines(file.read())
    folder = _find_run_folder(_json.text(result, "run_folder"), cwd)
    best = _read_best_scores(folder)
    verdicts = tuple(Verdict.from_json(line, best.get(str(line.get("evaluator")), 1.0)) for line in lines)
    trajectories = _read_run_trajectories(folder)
    return make_evaluation(result, verdicts, trajectories, state_dir=None if state_dir is None else str(state_dir), cwd=None if cwd is None else str(cwd))


def _find_run_folder(folder: Optional[str], cwd: Optional[PathLike]) -> str:
    if folder is None:
        raise GradusError("the gradus program is older than this package: its results name no folder")
    return os.path.join(os.fspath(cwd) if cwd is not None else "", folder)


def _read_best_scores(folder: str) -> Dict[str, float]:
    """The best score of each evaluator of a run: rubrics have scales of their own."""
    with open(os.path.join(folder, "run.json"), "rb") as file:
        run = json.loads(file.read())
    best: Dict[str, float] = {}
    for evaluator in _json.objects(run, "evaluators"):
        scores = [label[1] for label in evaluator.get("labels", []) if isinstance(label, list) and len(label) == 2]
        numbers = [float(score) for score in scores if isinstance(score, (int, float)) and not isinstance(score, bool)]
        if numbers:
            best[_json.text(evaluator, "name") or ""] = max(numbers)
    return best


def _read_run_trajectories(folder: str) -> Trajectories:
    """The trajectories that the run kept. Of very long results it keeps the beginning."""
    path = os.path.join(folder, "trajectories.jsonl")
    with open(path, "rb") as file:
        lines = _json.lines(file.read())
    # A resumed run can have written a trajectory twice; the later line counts.
    by_id = {trajectory.trajectory_id: trajectory for trajectory in (Trajectory.from_json(line) for line in lines)}
    return Trajectories(by_id.values())


def make_evaluation(result: Mapping[str, Any], verdicts: Tuple[Verdict, ...], trajectories: Trajectories, state_dir: Optional[str] = None, cwd: Optional[str] = None) -> Evaluation:
    summary = _json.object_at(result, "summary")
    metrics = [*_json.objects(summary, "metrics"), _json.object_at(summary, "combined"), _json.object_at(summary, "trajectories_right")]
    accuracies = {one.name: one for one in (Accuracy.from_json(metric) for metric in metrics if metric)}
    return Evaluation(
        run_id=_json.text(summary, "run_id") or "",
        judge=_json.text(summary, "judge") or "",
        complete=_json.flag(summary, "complete"),
        stopped_because=_json.text(summary, "stopped_because"),
        trajectories=trajectories,
        verdicts=verdicts,
        accuracies=accuracies,
        failure_groups=tuple(FailureGroup.from_json(group) for group in _json.objects(summary, "failure_groups")),
        gates=tuple(GateResult.from_json(gate) for gate in _json.objects(result, "gates")),
        tools=tuple(ToolUse(_json.text(tool, "tool") or "", *(_json.count(tool, name) for name in ("uses", "errors", "judged", "right"))) for tool in _json.objects(summary, "tools")),
        cost_usd=_json.number(_json.object_at(summary, "cost"), "usd"),
        summary=dict(summary),
        state_dir=state_dir,
        cwd=cwd,
    )
