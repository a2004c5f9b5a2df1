"""Runs: trajectories with their verdicts, and checks of them that explain themselves."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from gradus._trajectory import Step, TokenUsage, Trajectories, Trajectory
from gradus._transcript import clean, write_arguments, write_transcript
from gradus._verdict import Verdict

#: Judges runs again by another judge: trajectories, evaluator and judge in, verdicts out.
Judging = Callable[[Sequence[Trajectory], str, Optional[str]], Sequence[Verdict]]

#: Called with every check whose truth was asked for. The pytest plugin explains the one that made a test fail.
observers: List[Callable[["Check"], None]] = []


class Check:
    """A statement about a run. It is true or false in a condition, and its text says why."""

    def __init__(self, run: "Run", statement: str, holds: bool, reason: str, blamed: Optional[Mapping[int, str]] = None) -> None:
        self.run = run
        #: What was asked, as it is written in a test.
        self.statement = statement
        self.holds = holds
        #: Why it holds or does not.
        self.reason = reason
        #: A remark for each step that is to blame; 0 stands for the answer.
        self.blamed: Dict[int, str] = dict(blamed or {})

    def __bool__(self) -> bool:
        for observe in observers:
            observe(self)
        return self.holds

    def __repr__(self) -> str:
        return f"<{self.statement}: {self.reason}>"

    def explain(self) -> str:
        """The reason, and the transcript of the run with the steps marked that are to blame."""
        state = "holds" if self.holds else "does not hold"
        return f"{self.statement} {state}: {self.reason}\n\n{write_transcript(self.run.trajectory, self.blamed)}"

    def verify(self) -> None:
        """Raises an AssertionError with the explanation if it does not hold; for use outside of pytest."""
        if not self:
            raise AssertionError(self.explain())


class CallCheck(Check):
    """`run.called(...)`: the calls of one tool."""

    def __init__(self, run: "Run", tool: str, arguments: Mapping[str, Any]) -> None:
        self.tool = tool
        self.arguments = dict(arguments)
        #: The steps that called the tool, with these arguments if some were given.
        self.steps = [step for step in run.steps if step.tool == tool and _has_arguments(step, self.arguments)]
        words = [repr(tool), *(f"{name}={value!r}" for name, value in self.arguments.items())]
        super().__init__(run, f"called({', '.join(words)})", bool(self.steps), self._describe_calls(run), {step.index: "" for step in self.steps})

    def _describe_calls(self, run: "Run") -> str:
        if self.steps:
            return f"{self.tool} was called in {_name_steps(self.steps)}"
        others = [step for step in run.steps if step.tool == self.tool]
        if others:
            return f"{self.tool} was called with other arguments: {'; '.join(f'step {step.index} {write_arguments(step)}' for step in others[:3])}"
        called = sorted(set(run.trajectory.tool_names))
        return f"{self.tool} was never called; called were: {', '.join(map(clean, called))}" if called else f"{self.tool} was never called, nor any other tool"

    def _refine(self, statement: str, holds: bool, reason: str, blamed: Mapping[int, str]) -> Check:
        return Check(self.run, f"{self.statement}.{statement}", holds, reason, blamed)

    @property
    def count(self) -> int:
        return len(self.steps)

    def times(self, number: int) -> Check:
        """Called exactly so many times."""
        reason = f"{self.tool} was called {_times(self.count)}" + (f" ({_name_steps(self.steps)})" if self.steps else "")
        return self._refine(f"times({number})", self.count == number, reason, {step.index: "" for step in self.steps})

    def once(self) -> Check:
        """Called exactly once."""
        return self.times(1)

    def at_least(self, number: int) -> Check:
        """Called so many times or more."""
        return self._refine(f"at_least({number})", self.count >= number, f"{self.tool} was called {_times(self.count)}", {step.index: "" for step in self.steps})

    def at_most(self, number: int) -> Check:
        """Called so many times or fewer."""
        extra = {step.index: f"call {place} of {self.tool}" for place, step in enumerate(self.steps, 1) if place > number}
        return self._refine(f"at_most({number})", self.count <= number, f"{self.tool} was called {_times(self.count)}", extra)

    def before(self, tool: str, **arguments: Any) -> Check:
        """Both tools were called, and the first call of this one came first, in an earlier reply of the model: calls of
        one reply do not know of each other's results."""
        return self._compare("before", CallCheck(self.run, tool, arguments), is_before=True)

    def after(self, tool: str, **arguments: Any) -> Check:
        """Both tools were called, and the first call of the other one came first."""
        return self._compare("after", CallCheck(self.run, tool, arguments), is_before=False)

    def _compare(self, word: str, other: "CallCheck", is_before: bool) -> Check:
        statement = f"{word}{other.statement[len('called'):]}"
        for one in (self, other):
            if not one.steps:
                return self._refine(statement, False, one.reason, {})
        early, late = (self, other) if is_before else (other, self)
        first, second = early.steps[0], late.steps[0]
        replies = self.run.reply_numbers
        if replies[first.index] < replies[second.index]:
            return self._refine(statement, True, f"{first.tool} is step {first.index}, {second.tool} is step {second.index}", {})
        if replies[first.index] == replies[second.index]:
            reason = f"{first.tool} (step {first.index}) and {second.tool} (step {second.index}) were asked for in the same reply"
        else:
            reason = f"{second.tool} (step {second.index}) came before {first.tool} (step {first.index})"
        return self._refine(statement, False, reason, {second.index: f"called before {first.tool} had given a result"})

    def succeeded(self) -> Check:
        """Called, and no call failed."""
        failed = {step.index: "failed" for step in self.steps if step.is_error}
        reason = self.reason if not self.steps else f"{len(failed)} of {_calls(self.count)} failed"
        return self._refine("succeeded()", bool(self.steps) and not failed, reason, failed)


class JudgeCheck:
    """`run.judge(...)`: the verdicts of one evaluator on a run."""

    def __init__(self, run: "Run", evaluator: str, verdicts: Iterable[Verdict]) -> None:
        self.run = run
        self.evaluator = evaluator
        self.verdicts = [verdict for verdict in verdicts if verdict.evaluator == evaluator]
        self._statement = f"judge({evaluator!r})"

    @property
    def wrong(self) -> List[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.is_wrong]

    @property
    def right(self) -> List[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.is_right]

    @property
    def undecided(self) -> List[Verdict]:
        """Questions that apply and have no score."""
        return [verdict for verdict in self.verdicts if not verdict.is_scored and verdict.outcome != "not_applicable"]

    @property
    def mean(self) -> Optional[float]:
        scores = [verdict.score for verdict in self.verdicts if verdict.is_scored and verdict.score is not None]
        return sum(scores) / len(scores) if scores else None

    def all_correct(self) -> Check:
        """Every question that applies was judged, and judged right. An undecided one does not count as right."""
        if self.wrong:
            return self._blame("all_correct()")
        if self.undecided:
            judges = sorted({verdict.judge for verdict in self.undecided})
            reason = f"{len(self.undecided)} of {len(self.undecided) + len(self.right)} questions were not decided by {', '.join(judges)}: {clean(self.undecided[0].reason)}; rules decide few questions of this kind: name a model as judge, or ask for none_wrong()"
            return Check(self.run, f"{self._statement}.all_correct()", False, reason, self._remarks(self.undecided))
        return Check(self.run, f"{self._statement}.all_correct()", bool(self.right), f"{len(self.right)} verdicts are right" if self.right else self._nothing())

    def none_wrong(self) -> Check:
        """No verdict is wrong. Undecided questions are accepted, so this suits rules, which mostly notice mistakes."""
        if self.wrong:
            return self._blame("none_wrong()")
        return Check(self.run, f"{self._statement}.none_wrong()", bool(self.verdicts), f"{len(self.right)} right, {len(self.undecided)} undecided" if self.verdicts else self._nothing())

    def at_least(self, bar: float) -> Check:
        """The mean score of the judged questions is this or more."""
        mean = self.mean
        reason = self._nothing() if mean is None else f"the mean score is {mean:.3g} of {len(self.right) + len(self.wrong)} verdicts"
        return Check(self.run, f"{self._statement}.at_least({bar})", mean is not None and mean >= bar, reason, self._remarks(self.wrong))

    def _blame(self, name: str) -> Check:
        reason = "; ".join(f"{_name_place(verdict, self.run)} is {verdict.label}: {clean(verdict.explanation)}" for verdict in self.wrong[:3])
        return Check(self.run, f"{self._statement}.{name}", False, reason, self._remarks(self.wrong))

    def _remarks(self, verdicts: Iterable[Verdict]) -> Dict[int, str]:
        return {_place(verdict, self.run): f"{self.evaluator}: {verdict.label or verdict.outcome}: {verdict.explanation or verdict.reason or ''}" for verdict in verdicts}

    def _nothing(self) -> str:
        if not self.verdicts:
            return f"there is no verdict of {self.evaluator}: is it the name of an evaluator?"
        return f"nothing was judged: {clean(self.verdicts[0].reason)}"


class Run:
    """One request to an agent, with the verdicts on it."""

    def __init__(self, trajectory: Trajectory, verdicts: Iterable[Verdict] = (), subruns: Sequence["Run"] = (), judging: Optional[Judging] = None) -> None:
        self.trajectory = trajectory
        self.verdicts = [verdict for verdict in verdicts if verdict.trajectory_id == trajectory.trajectory_id]
        #: The runs of agents that this one called.
        self.subruns = list(subruns)
        self._judging = judging

    def __repr__(self) -> str:
        return f"<Run {self.id[:8]} {clean(self.query, 60)!r}: {', '.join(self.trajectory.tool_names) or 'no tool calls'}>"

    @property
    def id(self) -> str:
        return self.trajectory.trajectory_id

    @property
    def query(self) -> Optional[str]:
        return self.trajectory.query

    @property
    def steps(self) -> Tuple[Step, ...]:
        return self.trajectory.steps

    @property
    def answer(self) -> Optional[str]:
        return self.trajectory.answer

    @property
    def outcome(self) -> str:
        """How the run ended: `answered`, `crashed` or `no_answer`."""
        return self.trajectory.outcome

    @property
    def tools(self) -> List[str]:
        """The tools that were called, in order."""
        return self.trajectory.tool_names

    @property
    def tokens(self) -> TokenUsage:
        return self.trajectory.tokens

    @property
    def reply_numbers(self) -> Dict[int, int]:
        """The number of the model's reply that asked for each step."""
        numbers, number = {}, 0
        for step in self.steps:
            number += 0 if step.parallel_with_previous and number else 1
            numbers[step.index] = number
        return numbers

    def transcript(self) -> str:
        """The run as text."""
        return write_transcript(self.trajectory)

    def called(self, tool: str, **arguments: Any) -> CallCheck:
        """The tool was called, with at least these arguments."""
        return CallCheck(self, tool, arguments)

    def never_called(self, tool: str, **arguments: Any) -> Check:
        """The tool was not called, or not with these arguments."""
        found = CallCheck(self, tool, arguments)
        return Check(self, f"never_{found.statement}", not found.steps, found.reason, {step.index: "" for step in found.steps})

    def no_errors(self) -> Check:
        """No tool call failed, and the run did not end in an error."""
        failed = {step.index: "failed" for step in self.steps if step.is_error}
        if self.trajectory.is_error:
            failed[0] = "the run ended in an error"
        failed_calls = len(failed) - (0 in failed)
        reason = f"{failed_calls} of {_calls(len(self.steps))} failed" + ("; the run ended in an error" if 0 in failed else "")
        return Check(self, "no_errors()", not failed, reason, failed)

    def no_ignored_errors(self) -> Check:
        """The answer does not claim success for, or leave out, a call that failed. Rules decide it, so only a proven
        mistake fails it."""
        failed = [step for step in self.steps if step.is_error]
        check, wrong = self._ask_rules("no_ignored_errors()", "error_recovery", f"{len(failed)} of {_calls(len(self.steps))} failed, and none is known to be ignored")
        if wrong:
            check.blamed = {step.index: "this failure is ignored" for step in _blame_failures(wrong, failed)}
            check.blamed[0] = check.reason = "; ".join(clean(verdict.explanation) for verdict in wrong)
        return check

    def arguments_grounded(self) -> Check:
        """Every value of a changing call comes from the request or from an earlier result. Rules decide it, so only a
        proven invention fails it."""
        return self._ask_rules("arguments_grounded()", "argument_provenance", "no invented value was found")[0]

    def valid_calls(self) -> Check:
        """Every call fits the schema of its tool, as far as the schema is known."""
        return self._ask_rules("valid_calls()", "call_validity", "no call is known to be invalid")[0]

    def _ask_rules(self, statement: str, evaluator: str, praise: str) -> Tuple[Check, List[Verdict]]:
        """Holds if no verdict is wrong. Without any verdict it does not: then nobody has looked."""
        found = [verdict for verdict in self.verdicts if verdict.evaluator == evaluator]
        wrong = [verdict for verdict in found if verdict.is_wrong]
        if wrong:
            reason = "; ".join(f"{_name_place(verdict, self)}: {clean(verdict.explanation)}" for verdict in wrong[:3])
            return Check(self, statement, False, reason, {_place(verdict, self): clean(verdict.explanation) for verdict in wrong}), wrong
        if found or not self.steps:
            return Check(self, statement, True, praise), []
        return Check(self, statement, False, f"{evaluator} was not evaluated; name it among the evaluators"), []

    def answered(self) -> Check:
        """The run ended with an answer."""
        return Check(self, "answered()", self.outcome == "answered", f"the run ended as {self.outcome}", {0: ""})

    def answer_contains(self, *texts: str, ignore_case: bool = True) -> Check:
        """The answer contains every one of these texts."""
        fold: Callable[[str], str] = str.casefold if ignore_case else str
        answer = fold(self.answer or "")
        missing = [text for text in texts if fold(text) not in answer]
        reason = "there is no answer" if not self.answer else f"the answer lacks {', '.join(map(repr, missing))}" if missing else "the answer contains it"
        return Check(self, f"answer_contains({', '.join(map(repr, texts))})", bool(self.answer) and not missing, reason, {0: reason})

    def answer_matches(self, pattern: str) -> Check:
        """The regular expression matches somewhere in the answer."""
        found = re.search(pattern, self.answer or "") is not None
        return Check(self, f"answer_matches({pattern!r})", found, "the answer matches" if found else "the answer does not match", {0: ""})

    def at_most_steps(self, number: int) -> Check:
        """The run took so many tool calls or fewer."""
        return Check(self, f"at_most_steps({number})", len(self.steps) <= number, f"the run took {len(self.steps)} steps", {step.index: "" for step in self.steps[number:]})

    def judge(self, evaluator: str, judge: Optional[str] = None) -> JudgeCheck:
        """The verdicts of an evaluator: those of the rules, or of a model (`judge="openai:gpt-4o"`)."""
        if self._judging is not None:
            return JudgeCheck(self, evaluator, self._judging([self.trajectory], evaluator, judge))
        if judge is None:
            return JudgeCheck(self, evaluator, self.verdicts)
        return JudgeCheck(self, evaluator, judge_trajectories([self.trajectory], evaluator, judge))


def judge_trajectories(trajectories: Sequence[Trajectory], evaluator: str, judge: str) -> Sequence[Verdict]:
    """Asks a judge about trajectories. The verdict cache of the state folder is used."""
    from gradus._evaluation import evaluate

    return evaluate(trajectories, judge=judge, evaluators=evaluator).verdicts


def make_runs(trajectories: Iterable[Trajectory], verdicts: Iterable[Verdict], judging: Optional[Judging] = None) -> List[Run]:
    """Runs in the order of their trajectories. Those of called agents are below the run that called them."""
    known = list(trajectories)
    ids = {trajectory.trajectory_id for trajectory in known}
    by_id: Dict[str, List[Verdict]] = {}
    for verdict in verdicts:
        by_id.setdefault(verdict.trajectory_id, []).append(verdict)
    below: Dict[str, List[Trajectory]] = {}
    top = []
    for trajectory in known:
        parent = trajectory.parent_trajectory_id
        if parent is not None and parent in ids and parent != trajectory.trajectory_id:
            below.setdefault(parent, []).append(trajectory)
        else:
            top.append(trajectory)

    def build(trajectory: Trajectory) -> Run:
        subruns = [build(child) for child in below.pop(trajectory.trajectory_id, [])]
        return Run(trajectory, by_id.get(trajectory.trajectory_id, []), subruns, judging)

    return [build(trajectory) for trajectory in top]


def _has_arguments(step: Step, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return True
    given = step.arguments
    return isinstance(given, dict) and all(name in given and given[name] == value for name, value in wanted.items())


def _blame_failures(wrong: Sequence[Verdict], failed: Sequence[Step]) -> List[Step]:
    """The failed steps that the verdicts name, or all of them."""
    named = {verdict.step_index for verdict in wrong if verdict.step_index is not None}
    mentioned = {int(number) for verdict in wrong for text in (verdict.explanation or "", *verdict.evidence) for number in re.findall(r"\bstep (\d+)", text)}
    chosen = [step for step in failed if step.index in named | mentioned]
    return chosen or list(failed)


def _place(verdict: Verdict, run: Run) -> int:
    """The step that a verdict is about; 0, the answer, for whole runs and the thought before the answer."""
    index = verdict.step_index
    return index if index is not None and any(step.index == index for step in run.steps) else 0


def _name_place(verdict: Verdict, run: Run) -> str:
    place = _place(verdict, run)
    return f"step {place}" if place else "the run" if verdict.step_index is None else "the thought before the answer"


def _name_steps(steps: Sequence[Step]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(str(step.index) for step in steps)}"


def _times(number: int) -> str:
    return "never" if number == 0 else "once" if number == 1 else f"{number} times"


def _calls(number: int) -> str:
    return f"{number} call{'' if number == 1 else 's'}"


__all__ = ["CallCheck", "Check", "JudgeCheck", "Run", "Trajectories", "make_runs"]
