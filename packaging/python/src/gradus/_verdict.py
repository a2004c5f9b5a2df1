"""Verdicts: what a judge said about a step or a whole trajectory, as `gradus eval --jsonl` prints them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

from gradus import _json


@dataclass(frozen=True)
class Verdict:
    """The outcome of one question."""

    trajectory_id: str
    evaluator: str
    #: `scored`, `not_applicable`, `abstained` or `failed`.
    outcome: str
    #: None for a whole trajectory; one after the last step for the thought before the answer.
    step_index: Optional[int] = None
    label: Optional[str] = None
    score: Optional[float] = None
    explanation: Optional[str] = None
    evidence: Tuple[str, ...] = ()
    #: The rule that decided; None when a model did.
    rule: Optional[str] = None
    #: Why there is no verdict.
    reason: Optional[str] = None
    judge: str = ""
    trace_id: Optional[str] = None
    span_ids: Tuple[str, ...] = ()
    cost_usd: Optional[float] = None
    cached: bool = False
    #: The line that it was read from, with all fields.
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_scored(self) -> bool:
        return self.outcome == "scored" and self.score is not None

    @property
    def is_wrong(self) -> bool:
        """Whether the score is below 1, the best score of every built-in evaluator."""
        return self.is_scored and self.score is not None and self.score < 1.0

    @property
    def is_right(self) -> bool:
        return self.is_scored and not self.is_wrong

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "Verdict":
        return cls(
            trajectory_id=_json.text(source, "trajectory_id") or "",
            evaluator=_json.text(source, "evaluator") or "",
            outcome=_json.text(source, "outcome") or "",
            step_index=_json.integer(source, "step_index"),
            label=_json.text(source, "label"),
            score=_json.number(source, "score"),
            explanation=_json.text(source, "explanation"),
            evidence=tuple(_json.texts(source, "evidence")),
            rule=_json.text(source, "rule"),
            reason=_json.text(source, "reason"),
            judge=_json.text(source, "judge") or "",
            trace_id=_json.text(source, "trace_id"),
            span_ids=tuple(_json.texts(source, "span_ids")),
            cost_usd=_json.number(source, "cost_usd"),
            cached=_json.flag(source, "cached"),
            raw=dict(source),
        )
