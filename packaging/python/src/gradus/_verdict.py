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
    #: The best score that the evaluator gives.
    best_score: float = 1.0
    #: The line that it was read from, with all fields.
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_scored(self) -> bool:
        return self.outcome == "scored" and self.score is not None

    @property
    def is_wrong(self) -> bool:
        """Whether the score is below the best one of the evaluator, on whatever scale."""
        return self.is_scored and self.score is not None and self.score < self.best_score

    @property
    def is_right(self) -> bool:
        return self.is_scored and not self.is_wrong

    @classmethod
    def from_json(cls, source: Mapping[str, Any], best_score: float = 1.0) -> "Verdict":
        score, is_wrong = _json.number(source, "score"), source.get("is_wrong")
        if isinstance(is_wrong, bool) and score is not None:
            # A server knows the scale, and says which side of its best the score is on.
            best_score = score + 1.0 if is_wrong else score
        return cls(
            trajectory_id=_json.text(source, "trajectory_id") or "",
            evaluator=_json.text(source, "evaluator") or "",
            outcome=_json.text(source, "outcome") or "",
            step_index=_json.integer(source, "step_index"),
            label=_json.text(source, "label"),
            score=score,
            explanation=_json.text(source, "explanation"),
            evidence=tuple(_json.texts(source, "evidence")),
            rule=_json.text(source, "rule"),
            reason=_json.text(source, "reason"),
            judge=_json.text(source, "judge") or "",
            trace_id=_json.text(source, "trace_id"),
            span_ids=tuple(_json.texts(source, "span_ids")),
            cost_usd=_json.number(source, "cost_usd"),
            cached=_json.flag(source, "cached"),
            best_score=best_score,
            raw=dict(source),
        )
