"""The pytest plugin: the fixture `gradus` gives a test the runs of its agent, and the marker `gradus` repeats a test."""

from __future__ import annotations

import contextlib
import math
import os
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple

import pytest

if TYPE_CHECKING:
    # Imported where needed otherwise, so that sessions without agents start as fast as ever.
    from gradus._recorder import RecorderSession, RunRecorder
    from gradus._run import Check

TRIALS_PROPERTY = "gradus_trials"
MARKER = "gradus(trials=1, at_least=1.0, judge=None): repeat the test, and pass if this share (a float) or number (an int) of the trials passes"
#: Characters of a check's text that an assertion message still has when pytest shortens it.
MATCHED_TEXT = 60


class MarkerError(ValueError):
    """A marker with arguments that make no sense."""


class TrialPlan:
    """How often a test is run, and how many of the trials have to pass."""

    def __init__(self, trials: Any = 1, at_least: Any = 1.0, judge: Optional[str] = None) -> None:
        if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
            raise MarkerError(f"@pytest.mark.gradus(trials={trials!r}): give a number of 1 or more")
        self.trials: int = trials
        self.judge = judge
        if isinstance(at_least, bool) or not isinstance(at_least, (int, float)):
            raise MarkerError(f"@pytest.mark.gradus(at_least={at_least!r}): give a share (0.8) or a number of trials (4)")
        if isinstance(at_least, int):
            if not 1 <= at_least <= trials:
                raise MarkerError(f"@pytest.mark.gradus(at_least={at_least}): a number of trials is between 1 and trials={trials}; a share is written as a float: 1.0")
            self.needed = at_least
        else:
            if not 0.0 < at_least <= 1.0:
                raise MarkerError(f"@pytest.mark.gradus(at_least={at_least}): a share is above 0 and at most 1")
            # 0.8 of 5 is 4, whatever the rounding of the product.
            self.needed = max(1, math.ceil(at_least * trials - 1e-9))

    def is_certain(self, passed: int, failed: int) -> bool:
        """Whether the trials that are left cannot change the result."""
        return passed >= self.needed or failed > self.trials - self.needed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("gradus_judge", "the judge behind run.judge(...): offline (rules), or a model such as openai:gpt-4o", default="offline")
    parser.addini("gradus_rubrics", "rubric files and folders for run.judge(...)", type="paths", default=[])
    parser.addini("gradus_timeout", "seconds to wait until the spans of a test are assembled and judged", default="10")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.pluginmanager.register(TrialSummary(), "gradus-trial-summary")
    from gradus import _run

    if _checks.append not in _run.observers:
        _run.observers.append(_checks.append)


def _plan_trials(item: pytest.Item) -> TrialPlan:
    """What the marker of a test asks for. A wrong one is an error of its test, in `pytest_runtest_setup`."""
    marker = item.get_closest_marker("gradus")
    if marker is None:
        return TrialPlan()
    try:
        return TrialPlan(*marker.args, **marker.kwargs)
    except TypeError as error:
        raise MarkerError(f"@pytest.mark.gradus takes trials, at_least and judge: {error}") from error


@pytest.fixture(scope="session")
def _gradus_session() -> Iterator["RecorderSession"]:
    """One server for all tests of this process; each worker of xdist is a process."""
    from gradus._recorder import RecorderSession

    session = RecorderSession()
    yield session
    session.close()


@pytest.fixture(scope="session")
def gradus_recorder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _gradus_session: "RecorderSession") -> "Callable[..., ContextManager[RunRecorder]]":
    """Records runs outside of a single test: `with gradus_recorder() as recorder:`, for fixtures of a wider scope."""
    from gradus._recorder import ChangedEnvironment, RunRecorder

    config = request.config
    timeout = _read_timeout(config)
    state_folder = _state_folder(config) or os.fspath(tmp_path_factory.mktemp("gradus"))

    @contextlib.contextmanager
    def record(judge: Optional[str] = None) -> "Iterator[RunRecorder]":
        chosen = judge or str(config.getini("gradus_judge"))
        recorder = RunRecorder(_gradus_session, judge=chosen, rubrics=config.getini("gradus_rubrics"), timeout=timeout, state_dir=state_folder)
        environment = ChangedEnvironment(recorder.environment())
        try:
            yield recorder
        finally:
            environment.restore()
            recorder.close()

    return record


_RECORDER: "pytest.StashKey[RunRecorder]" = pytest.StashKey()


@pytest.fixture
def gradus(request: pytest.FixtureRequest, gradus_recorder: "Callable[..., ContextManager[RunRecorder]]") -> Iterator["RunRecorder"]:
    """The runs that the agent under test makes in this test: `gradus.run`, `gradus.runs`."""
    item: Any = request.node
    with gradus_recorder(judge=_plan_trials(item).judge) as recorder:
        item.stash[_RECORDER] = recorder
        yield recorder


def _read_timeout(config: pytest.Config) -> float:
    text = str(config.getini("gradus_timeout"))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 60:
        raise pytest.UsageError(f"gradus_timeout = {text}: give seconds above 0, at most 60")
    return seconds


def _state_folder(config: pytest.Config) -> Optional[str]:
    """Where verdicts of models are cached: in the cache folder of pytest, so that a second session asks less."""
    cache = getattr(config, "cache", None)
    return None if cache is None else os.fspath(cache.mkdir("gradus"))


#: The checks whose truth was asked for in the present test, the latest last.
_checks: "List[Check]" = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _checks.clear()
    try:
        _plan_trials(item)
    except MarkerError as error:
        # Without a traceback, which would lead into this file.
        pytest.fail(str(error), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Any:
    outcome = yield
    report = outcome.get_result()
    recorder = item.stash.get(_RECORDER, None)
    if call.when != "call" or not report.failed or call.excinfo is None or not (recorder or _checks):
        return
    explanation = _explain_failure(call.excinfo.value, _checks, recorder)
    if explanation and hasattr(report.longrepr, "addsection"):
        report.longrepr.addsection("gradus", explanation)


def _explain_failure(error: BaseException, checks: List["Check"], recorder: "Optional[RunRecorder]") -> Optional[str]:
    """The check that made the test fail, with its transcript; otherwise the transcripts of all runs."""
    from gradus._recorder import NoRunError, describe_runs

    if isinstance(error, NoRunError):
        return None
    if isinstance(error, AssertionError) and checks:
        message = str(error)
        named = [check for check in reversed(checks) if repr(check)[:MATCHED_TEXT] in message]
        # Without pytest's rewriting the message is empty, and the last check to fail is to blame.
        blamed = named or ([checks[-1]] if not message and not checks[-1].holds else [])
        if blamed:
            return blamed[0].explain()
    return None if recorder is None else describe_runs(recorder)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: Optional[pytest.Item]) -> Optional[bool]:
    try:
        plan = _plan_trials(item)
    except MarkerError:
        # Run as usual, so that its setup fails.
        return None
    if plan.trials == 1 or not isinstance(item, pytest.Function):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run_trials(item, nextitem, plan):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_trials(item: Any, nextitem: Optional[pytest.Item], plan: TrialPlan) -> List[pytest.TestReport]:
    """Runs trials until the result is certain. Each has its own function-scoped fixtures. The reports are those of one
    test: the last setup and teardown, and one call that stands for all."""
    from _pytest.runner import call_and_report

    calls: List[pytest.TestReport] = []
    passed = failed = 0
    while True:
        # Fixtures of functions are set up anew by a new request; wider ones stay.
        if calls:
            item._initrequest()
        setup = call_and_report(item, "setup", log=False)
        if not setup.passed:
            return [setup, call_and_report(item, "teardown", log=False, nextitem=nextitem)]
        call = call_and_report(item, "call", log=False)
        calls.append(call)
        passed, failed = passed + call.passed, failed + call.failed
        # A test that skips itself, or is expected to fail, is no trial.
        is_last = plan.is_certain(passed, failed) or call.skipped or hasattr(call, "wasxfail")
        # Before another trial only the test itself is torn down: what its module has set up is needed again.
        teardown = call_and_report(item, "teardown", log=False, nextitem=nextitem if is_last else item.parent)
        if is_last or not teardown.passed:
            combined = _combine_calls(calls, passed, failed, plan)
            # JUnit XML takes properties from the last report.
            teardown.user_properties += [one for one in combined.user_properties if one[0] == TRIALS_PROPERTY]
            return [setup, combined, teardown]


def _combine_calls(calls: List[pytest.TestReport], passed: int, failed: int, plan: TrialPlan) -> pytest.TestReport:
    report = calls[-1]
    # A test that skips itself is skipped, unless a trial before has failed.
    if (report.skipped or hasattr(report, "wasxfail")) and failed == 0:
        return report
    counts = f"{passed} of {passed + failed} trials passed; {plan.needed} of {plan.trials} have to"
    report.duration = sum(call.duration for call in calls)
    report.user_properties.append((TRIALS_PROPERTY, counts))
    if passed >= plan.needed:
        report.outcome, report.longrepr = "passed", None
    else:
        failures = [f"trial {place}:\n{call.longreprtext}" for place, call in enumerate(calls, 1) if call.failed]
        report.outcome = "failed"
        report.longrepr = "\n\n".join([f"gradus: {counts}", *failures])
    return report


class TrialSummary:
    """Lists the counts of repeated tests at the end. With xdist the reports of all workers arrive here."""

    def __init__(self) -> None:
        self._counts: Dict[str, Tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == TRIALS_PROPERTY and report.when == "call":
                self._counts[report.nodeid] = (report.outcome, str(value))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._counts:
            terminalreporter.section("gradus trials")
            for node, (outcome, counts) in self._counts.items():
                terminalreporter.line(f"{outcome.upper()} {node}: {counts}")


