"""A trajectory as text for people, with the steps marked that a check blames."""

from __future__ import annotations

import json
import unicodedata
from typing import Mapping, Optional

from gradus._trajectory import Step, Trajectory

#: Characters of one text. Long results would hide the step that matters.
MAX_TEXT = 300
MARK = ">>"


def clean(text: Optional[str], limit: int = MAX_TEXT) -> str:
    """One line without control characters: recorded text must not reach a terminal as an escape sequence."""
    shown = " ".join((text or "").split())
    shown = "".join(f"\\u{{{ord(char):x}}}" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co") else char for char in shown)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def write_arguments(step: Step) -> str:
    if step.arguments is None:
        return clean(step.arguments_raw)
    return clean(json.dumps(step.arguments, ensure_ascii=False))


def write_transcript(trajectory: Trajectory, blamed: Optional[Mapping[int, str]] = None) -> str:
    """The steps with their numbers. `blamed` has a remark for each step that is marked; 0 stands for the answer."""
    blamed = blamed or {}
    lines = [f"run {clean(trajectory.trajectory_id)[:8]}  {clean(trajectory.query) or '(no request recorded)'}"]
    for step in trajectory.steps:
        remark = blamed.get(step.index)
        mark = MARK if remark is not None else "  "
        together = " (same reply as the step before)" if step.parallel_with_previous else ""
        if step.thought and not step.parallel_with_previous:
            lines.append(f"        thought: {clean(step.thought)}")
        lines.append(f"{mark} {step.index:>3}. {clean(step.tool)} {write_arguments(step)}{together}".rstrip())
        result = "failed" if step.is_error else "denied" if step.is_denied else "result"
        lines.append(f"        {result}: {clean(step.observation) if step.observation is not None else '(none recorded)'}")
        if remark:
            lines.append(f"{MARK}      {clean(remark, 1000)}")
    mark = MARK if 0 in blamed else "  "
    if trajectory.final_thought:
        lines.append(f"        thought: {clean(trajectory.final_thought)}")
    ending = "ended in an error without an answer" if trajectory.is_error and not trajectory.answer else "no answer recorded"
    lines.append(f"{mark}   answer: {clean(trajectory.answer, 1000)}" if trajectory.answer else f"{mark}   {ending}")
    if blamed.get(0):
        lines.append(f"{MARK}      {clean(blamed[0], 1000)}")
    return "\n".join(lines)
