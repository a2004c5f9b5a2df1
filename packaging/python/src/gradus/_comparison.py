"""`gradus.compare`: is the second version of an agent better than the first?"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from gradus import _json
from gradus._binary import GradusError, PathLike, run_gradus
from gradus._evaluation import Evaluation, Interval
from gradus._trajectory import Trajectory, make_frame, source_arguments

if TYPE_CHECKING:
    import pandas

#: A source, a baseline file, the id or name of a run, an `Evaluation`, or trajectories.
Version = Union[PathLike, Evaluation, Sequence[Trajectory]]


@dataclass(frozen=True)
class Difference:
    """Two versions on one dimension. The effect is that of the second version against the first."""

    dimension: str
    #: `better`, `worse`, `same` or `inconclusive`.
    verdict: str
    effect: float
    interval: Interval
    #: The interval that the verdict follows from, corrected for all dimensions together.
    adjusted_interval: Interval
    p_value: float
    adjusted_p_value: float
    first_mean: float
    second_mean: float
    #: Whether the same tasks were compared.
    is_paired: bool
    shared_tasks: int
    #: How many more tasks would decide an inconclusive one, where that can be told.
    more_tasks: Optional[int] = None
    title: str = ""

    @classmethod
    def from_json(cls, source: Mapping[str, Any], title: str) -> "Difference":
        nothing = Interval(float("nan"), float("nan"))
        return cls(
            dimension=_json.text(source, "dimension") or "",
            verdict=_json.text(source, "verdict") or "",
            effect=_json.number(source, "effect") or 0.0,
            interval=Interval.from_json(_json.object_at(source, "interval")) or nothing,
            adjusted_interval=Interval.from_json(_json.object_at(source, "adjusted_interval")) or nothing,
            p_value=_json.number(source, "p_value") if _json.number(source, "p_value") is not None else float("nan"),  # type: ignore[arg-type]
            adjusted_p_value=_json.number(source, "adjusted_p_value") if _json.number(source, "adjusted_p_value") is not None else float("nan"),  # type: ignore[arg-type]
            first_mean=_json.number(source, "first_mean") or 0.0,
            second_mean=_json.number(source, "second_mean") or 0.0,
            is_paired=_json.flag(source, "is_paired"),
            shared_tasks=_json.count(_json.object_at(source, "tasks"), "shared"),
            more_tasks=_json.integer(_json.object_at(source, "plan"), "more_tasks"),
            title=title,
        )


@dataclass(frozen=True)
class ComparedVersion:
    """One of the versions."""

    letter: str
    name: str
    run_id: str
    judge: str
    tasks: int
    runs: int


@dataclass(frozen=True)
class ChangedTask:
    """A task whose score on a dimension changed."""

    dimension: str
    task: str
    request: Optional[str]
    before: float
    after: float


#: Dimensions that measure an amount and not a score: worse ones are no regression.
AMOUNTS = frozenset({"steps", "tokens", "latency", "agent_cost"})


@dataclass(frozen=True)
class Comparison:
    """Two versions over the same tasks."""

    first: ComparedVersion
    second: ComparedVersion
    differences: Tuple[Difference, ...]
    #: Tasks that got worse and better; at most those that the program lists.
    worse_tasks: Tuple[ChangedTask, ...]
    better_tasks: Tuple[ChangedTask, ...]
    #: What runs were paired by: `run`, `task` or `none`.
    pairing: str
    #: Changes of the task mix, and dimensions that another judge or rubric scored.
    notes: Tuple[str, ...]
    #: The document as `gradus compare --json` writes it.
    raw: Dict[str, Any] = field(repr=False)

    @property
    def regressions(self) -> List[Difference]:
        """Scores that are worse. Steps, tokens, latency and cost do not count."""
        return [one for one in self.differences if one.verdict == "worse" and one.dimension not in AMOUNTS]

    def __getitem__(self, dimension: str) -> Difference:
        for one in self.differences:
            if one.dimension == dimension:
                return one
        raise KeyError(dimension)

    def to_pandas(self) -> "pandas.DataFrame":
        """One row for each dimension. Needs pandas."""
        columns = ["dimension", "verdict", "first_mean", "second_mean", "effect", "low", "high", "p_value", "adjusted_p_value", "shared_tasks"]
        rows = [{**{name: getattr(one, name) for name in columns if hasattr(one, name)}, "low": one.interval.low, "high": one.interval.high} for one in self.differences]
        return make_frame(rows, columns)

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "Comparison":
        versions = [ComparedVersion(_json.text(one, "letter") or "", _json.text(one, "name") or "", _json.text(one, "run_id") or "", _json.text(one, "judge") or "", _json.count(one, "tasks"), _json.count(one, "runs")) for one in _json.objects(source, "versions")]
        pairs = _json.objects(_json.object_at(source, "report"), "pairs")
        if len(versions) < 2 or not pairs:
            raise GradusError("the comparison has no pair of versions")
        titles = {_json.text(one, "name"): _json.text(one, "title") or "" for one in _json.objects(source, "dimensions")}
        flips = (_json.objects(source, "flips") or [{}])[0]
        return cls(
            first=versions[0],
            second=versions[1],
            differences=tuple(Difference.from_json(one, titles.get(_json.text(one, "dimension"), "")) for one in _json.objects(pairs[0], "dimensions")),
            worse_tasks=_changed_tasks(flips, "worse"),
            better_tasks=_changed_tasks(flips, "better"),
            pairing=_json.text(source, "pairing") or "",
            notes=tuple([*_json.texts(source, "task_mix"), *_json.texts(source, "mismatches")]),
            raw=dict(source),
        )


def _changed_tasks(flips: Mapping[str, Any], key: str) -> Tuple[ChangedTask, ...]:
    return tuple(
        ChangedTask(_json.text(one, "dimension") or "", _json.text(one, "task") or "", _json.text(one, "request"), _json.number(one, "before") or 0.0, _json.number(one, "after") or 0.0)
        for one in _json.objects(flips, key)
    )


def compare(first: Version, second: Version, *, min_effect: Optional[float] = None, allow_mismatch: bool = False, state_dir: Optional[PathLike] = None, cwd: Optional[PathLike] = None) -> Comparison:
    """Compares two versions of an agent over the same tasks: the second against the first.

    Sources are judged by the offline judge first. Two evaluations must have been made with the same `state_dir`.
    """
    folders = {one.state_dir for one in (first, second) if isinstance(one, Evaluation)}
    if len(folders) > 1:
        raise ValueError("the evaluations have different state folders: give evaluate() the same state_dir")
    if state_dir is None and folders:
        state_dir = folders.pop()
    if cwd is None:
        cwd = next((one.cwd for one in (first, second) if isinstance(one, Evaluation)), None)
    arguments = ["compare", "--json", "-"]
    if min_effect is not None:
        arguments += ["--min-effect", str(min_effect)]
    if allow_mismatch:
        arguments.append("--allow-mismatch")
    if state_dir is not None:
        arguments += ["--state-dir", str(state_dir)]
    with tempfile.TemporaryDirectory(prefix="gradus-") as folder:
        words = [_version_word(version, os.path.join(folder, name)) for version, name in ((first, "first.jsonl"), (second, "second.jsonl"))]
        ended = run_gradus([*arguments, *words], cwd=cwd)
    return Comparison.from_json(json.loads(ended.stdout))


def _version_word(version: Version, path: str) -> str:
    if isinstance(version, Evaluation):
        return version.run_id
    words, stdin = source_arguments(version)
    if stdin is not None:
        # Both versions cannot be on standard input.
        with open(path, "wb") as file:
            file.write(stdin)
        return path
    if len(words) != 1:
        raise ValueError("a version is one source; put the files of a version into one folder")
    return words[0]
