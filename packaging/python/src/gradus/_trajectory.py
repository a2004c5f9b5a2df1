"""Trajectories: one request to an agent with its steps and its answer, as `gradus traces --format jsonl` prints them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from gradus import _json
from gradus._binary import NOTHING_FOUND, PathLike, run_gradus

if TYPE_CHECKING:
    import pandas

#: A file, a folder, `-`, `store:PROJECT`, `gradus://HOST:PORT/PROJECT`, `phoenix://HOST:PORT/PROJECT`, several of them,
#: or trajectories that were read before.
Source = Union[PathLike, Sequence[PathLike], Sequence["Trajectory"]]


@dataclass(frozen=True)
class TokenUsage:
    """Tokens of one or several model calls."""

    prompt: int = 0
    #: Tokens of reasoning included.
    completion: int = 0
    #: Of the prompt's tokens, those that the provider had cached.
    cached_prompt: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def to_json(self) -> Dict[str, Any]:
        return {"prompt": self.prompt, "completion": self.completion, "cached_prompt": self.cached_prompt}

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "TokenUsage":
        return cls(_json.count(source, "prompt"), _json.count(source, "completion"), _json.count(source, "cached_prompt"))


@dataclass(frozen=True)
class Step:
    """One tool call: what the agent thought, what it called, and what came back."""

    #: Counts from 1.
    index: int
    tool: str
    thought: Optional[str] = None
    #: The arguments as JSON; None when they are missing or malformed.
    arguments: Any = None
    #: The arguments as the model wrote them.
    arguments_raw: Optional[str] = None
    observation: Optional[str] = None
    is_error: bool = False
    #: True when the user or a policy refused to let the call run.
    is_denied: bool = False
    #: True when the model asked for this call in the same reply as the step before.
    parallel_with_previous: bool = False
    tool_call_id: Optional[str] = None
    #: The agent that took this step, where the spans tell.
    agent: Optional[str] = None
    span_ids: Tuple[str, ...] = ()
    trace_id: Optional[str] = None
    start: Optional[str] = None
    end: Optional[str] = None
    tokens: TokenUsage = field(default_factory=TokenUsage)
    #: True when the context was compacted before this step: the agent may no longer know earlier results.
    after_compaction: bool = False

    @property
    def error(self) -> Optional[str]:
        """What the tool said when it failed; None when it did not."""
        return (self.observation or "") if self.is_error else None

    def to_json(self) -> Dict[str, Any]:
        """The step as a line of `gradus traces` has it."""
        return {**_plain_fields(self, STEP_FIELDS), "span_ids": list(self.span_ids), "tokens": self.tokens.to_json()}

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "Step":
        return cls(
            index=_json.count(source, "index"),
            tool=_json.text(source, "tool") or "",
            thought=_json.text(source, "thought"),
            arguments=source.get("arguments"),
            arguments_raw=_json.text(source, "arguments_raw"),
            observation=_json.text(source, "observation"),
            is_error=_json.flag(source, "is_error"),
            is_denied=_json.flag(source, "is_denied"),
            parallel_with_previous=_json.flag(source, "parallel_with_previous"),
            tool_call_id=_json.text(source, "tool_call_id"),
            agent=_json.text(source, "agent"),
            span_ids=tuple(_json.texts(source, "span_ids")),
            trace_id=_json.text(source, "trace_id"),
            start=_json.text(source, "start"),
            end=_json.text(source, "end"),
            tokens=TokenUsage.from_json(_json.object_at(source, "tokens")),
            after_compaction=_json.flag(source, "after_compaction"),
        )


@dataclass(frozen=True)
class ToolDefinition:
    """A tool on offer, as the agent saw it."""

    name: str
    description: Optional[str] = None
    #: JSON Schema of the arguments.
    schema: Any = None


@dataclass(frozen=True)
class Defect:
    """What could not be read, or is missing, in the trace."""

    kind: str
    detail: str
    span_id: Optional[str] = None


@dataclass(frozen=True)
class Trajectory:
    """One request to an agent: query, ordered steps, answer."""

    trajectory_id: str
    steps: Tuple[Step, ...] = ()
    query: Optional[str] = None
    #: What the agent thought before it gave its final answer.
    final_thought: Optional[str] = None
    answer: Optional[str] = None
    #: True when the run ended in an error instead of an answer.
    is_error: bool = False
    trace_ids: Tuple[str, ...] = ()
    root_span_id: Optional[str] = None
    #: The conversation that this request is a turn of, and its position in it, from 1.
    session_id: Optional[str] = None
    turn_index: Optional[int] = None
    #: The trajectory whose agent called this one, and the step of it.
    parent_trajectory_id: Optional[str] = None
    parent_step_index: Optional[int] = None
    project: Optional[str] = None
    agent: Optional[str] = None
    agent_version: Optional[str] = None
    model: Optional[str] = None
    system_prompt: Optional[str] = None
    tools: Tuple[ToolDefinition, ...] = ()
    tokens: TokenUsage = field(default_factory=TokenUsage)
    cost_usd: Optional[float] = None
    start: Optional[str] = None
    end: Optional[str] = None
    defects: Tuple[Defect, ...] = ()
    #: The line that it was read from, with fields that this version of the package does not know.
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def outcome(self) -> str:
        """How the run ended: `answered`, `crashed` or `no_answer`."""
        return "crashed" if self.is_error else "answered" if self.answer else "no_answer"

    @property
    def tool_names(self) -> List[str]:
        """The tools that were called, in order."""
        return [step.tool for step in self.steps]

    def to_json(self) -> Dict[str, Any]:
        """The trajectory as a line of `gradus traces` has it, with what was changed since it was read
        (`dataclasses.replace`)."""
        return {
            "answer_span_ids": [],
            **self.raw,
            **_plain_fields(self, TRAJECTORY_FIELDS),
            "final_answer": self.answer,
            "trace_ids": list(self.trace_ids),
            "steps": [step.to_json() for step in self.steps],
            "tools": [_plain_fields(tool, ("name", "description", "schema")) for tool in self.tools],
            "defects": [_plain_fields(defect, ("kind", "detail", "span_id")) for defect in self.defects],
            "tokens": self.tokens.to_json(),
        }

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "Trajectory":
        return cls(
            trajectory_id=_json.text(source, "trajectory_id") or "",
            steps=tuple(Step.from_json(step) for step in _json.objects(source, "steps")),
            query=_json.text(source, "query"),
            final_thought=_json.text(source, "final_thought"),
            answer=_json.text(source, "final_answer"),
            is_error=_json.flag(source, "is_error"),
            trace_ids=tuple(_json.texts(source, "trace_ids")),
            root_span_id=_json.text(source, "root_span_id"),
            session_id=_json.text(source, "session_id"),
            turn_index=_json.integer(source, "turn_index"),
            parent_trajectory_id=_json.text(source, "parent_trajectory_id"),
            parent_step_index=_json.integer(source, "parent_step_index"),
            project=_json.text(source, "project"),
            agent=_json.text(source, "agent"),
            agent_version=_json.text(source, "agent_version"),
            model=_json.text(source, "model"),
            system_prompt=_json.text(source, "system_prompt"),
            tools=tuple(ToolDefinition(_json.text(tool, "name") or "", _json.text(tool, "description"), tool.get("schema")) for tool in _json.objects(source, "tools")),
            tokens=TokenUsage.from_json(_json.object_at(source, "tokens")),
            cost_usd=_json.number(source, "cost_usd"),
            start=_json.text(source, "start"),
            end=_json.text(source, "end"),
            defects=tuple(Defect(_json.text(one, "kind") or "", _json.text(one, "detail") or "", _json.text(one, "span_id")) for one in _json.objects(source, "defects")),
            raw=dict(source),
        )


class Trajectories(List[Trajectory]):
    """A list of trajectories that can become a table."""

    def to_rows(self) -> List[Dict[str, Any]]:
        """One row for each step, with the columns of `steps.csv`."""
        return [row for trajectory in self for row in step_rows(trajectory)]

    def to_pandas(self) -> "pandas.DataFrame":
        """One row for each step, with the columns of `steps.csv`. Needs pandas."""
        return make_frame(self.to_rows(), STEP_COLUMNS)


STEP_FIELDS = ("index", "tool", "thought", "arguments", "arguments_raw", "observation", "is_error", "is_denied", "parallel_with_previous", "after_compaction", "tool_call_id", "agent", "trace_id", "start", "end")
TRAJECTORY_FIELDS = ("trajectory_id", "query", "final_thought", "is_error", "root_span_id", "session_id", "turn_index", "parent_trajectory_id", "parent_step_index", "project", "agent", "agent_version", "model", "system_prompt", "cost_usd", "start", "end")


def _plain_fields(source: Any, names: Sequence[str]) -> Dict[str, Any]:
    return {name: getattr(source, name) for name in names}


STEP_COLUMNS = ["trajectory_id", "step_index", "session_id", "project", "question_text", "thought", "tool_call", "action_input", "observation", "is_error", "start", "trace_id", "span_ids"]


def step_rows(trajectory: Trajectory) -> List[Dict[str, Any]]:
    rows = []
    for step in trajectory.steps:
        rows.append({
            "trajectory_id": trajectory.trajectory_id,
            "step_index": step.index,
            "session_id": trajectory.session_id,
            "project": trajectory.project,
            "question_text": trajectory.query,
            "thought": step.thought,
            "tool_call": step.tool,
            "action_input": step.arguments_raw if step.arguments is None else json.dumps(step.arguments, ensure_ascii=False),
            "observation": step.observation,
            "is_error": step.is_error,
            "start": step.start or trajectory.start,
            "trace_id": step.trace_id or (trajectory.trace_ids[0] if trajectory.trace_ids else None),
            "span_ids": list(step.span_ids),
        })
    return rows


def make_frame(rows: List[Dict[str, Any]], columns: Sequence[str]) -> "pandas.DataFrame":
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas: install it with `pip install 'gradus[pandas]'`") from error
    # Rows may lack columns, and there may be no row.
    names: Any = list(columns)
    return pandas.DataFrame(rows, columns=names)


def source_arguments(source: Source) -> Tuple[List[str], Optional[bytes]]:
    """The words that name a source on the command line, and standard input where trajectories are given themselves."""
    if isinstance(source, (str, os.PathLike)):
        return [_source_word(source)], None
    parts: List[Any] = list(source)
    if any(isinstance(part, Trajectory) for part in parts):
        lines = [json.dumps(part.to_json()) for part in parts if isinstance(part, Trajectory)]
        if len(lines) < len(parts):
            raise TypeError("a source is a list of trajectories or a list of paths, not both")
        return ["-"], ("\n".join(lines) + "\n").encode()
    if not parts:
        raise ValueError("there is no source")
    return [_source_word(part) for part in parts], None


def _source_word(source: Any) -> str:
    word = os.fspath(source)
    if not isinstance(word, str):
        raise TypeError(f"a source is a path or the address of a server, not {type(source).__name__}")
    # A path that begins with a dash would be read as an option.
    return f"./{word}" if word.startswith("-") and word != "-" else word


def selection_arguments(since: Optional[str], until: Optional[str], where: Optional[str], root_name: Union[str, Iterable[str], None]) -> List[str]:
    words: List[str] = []
    for option, value in (("--from", since), ("--to", until), ("--where", where)):
        if value is not None:
            words += [option, value]
    names = [root_name] if isinstance(root_name, str) else list(root_name or ())
    for name in names:
        words += ["--root-name", name]
    return words


def read(source: Source, *, since: Optional[str] = None, until: Optional[str] = None, where: Optional[str] = None, root_name: Union[str, Iterable[str], None] = None, state_dir: Optional[PathLike] = None, cwd: Optional[PathLike] = None) -> Trajectories:
    """Reads the trajectories of a source. A source without any gives an empty list.

    `since` and `until` take a time or a duration counted back from now (`24h`); `where` takes a condition on spans in
    Phoenix's filter language.
    """
    words, stdin = source_arguments(source)
    arguments = ["traces", "--format", "jsonl", *selection_arguments(since, until, where, root_name)]
    if state_dir is not None:
        arguments += ["--state-dir", str(state_dir)]
    ended = run_gradus([*arguments, *words], stdin=stdin, cwd=cwd, accepted=(0, NOTHING_FOUND))
    return Trajectories(Trajectory.from_json(line) for line in _json.lines(ended.stdout))
