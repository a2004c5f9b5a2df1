import dataclasses
import json

import pytest

import gradus


def test_trajectories_are_read(captures):
    found = gradus.read(captures)
    assert len(found) == 10
    first = next(one for one in found if one.trajectory_id.startswith("1cd214ac"))
    assert first.query == "Close the issue about the login failure in octo-demo/api."
    assert [step.index for step in first.steps] == [1, 2, 3]
    assert first.tool_names == ["list_issues", "close_issue", first.steps[2].tool]
    assert first.steps[0].arguments and first.steps[0].thought and first.steps[0].span_ids
    failed = [step for step in first.steps if step.is_error]
    assert len(failed) == 1 and failed[0].error == failed[0].observation
    assert first.steps[0].error is None
    assert first.outcome == "answered" and first.model and first.tokens == gradus.TokenUsage()
    assert {one.outcome for one in found} == {"answered", "crashed"}


def test_several_sources_and_a_selection(captures, tmp_path):
    assert len(gradus.read([captures / "s10_parallel", captures / "s24_unknown_tool"])) == 2
    assert gradus.read(captures, until="2000-01-01") == []
    with pytest.raises(ValueError):
        gradus.read([])
    with pytest.raises(TypeError):
        gradus.read(3)


def test_a_source_without_trajectories_gives_an_empty_list(tmp_path):
    (tmp_path / "empty.json").write_text('{"resourceSpans": []}')
    assert gradus.read("empty.json") == []


def test_a_path_that_looks_like_an_option_is_a_path(tmp_path):
    with pytest.raises(gradus.GradusError, match="--help") as raised:
        gradus.read("--help")
    assert raised.value.exit_code == 2


def test_errors_of_the_program_have_its_message_and_code(tmp_path):
    (tmp_path / "empty.json").write_text('{"resourceSpans": []}')
    with pytest.raises(gradus.GradusError, match="missing.bin") as raised:
        gradus.read("missing.bin")
    assert raised.value.exit_code == 2 and raised.value.status is None
    with pytest.raises(gradus.GradusError) as raised:
        gradus.evaluate("empty.json")
    assert raised.value.exit_code == 4


def test_steps_become_a_table(captures):
    found = gradus.read(captures)
    frame = found.to_pandas()
    assert len(frame) == sum(len(one.steps) for one in found) == 19
    assert list(frame.columns)[:8] == ["trajectory_id", "step_index", "session_id", "project", "question_text", "thought", "tool_call", "action_input"]
    assert json.loads(frame.action_input[0]) == found[0].steps[0].arguments
    assert gradus.Trajectories().to_pandas().empty


def test_trajectories_go_out_as_they_came(captures):
    def without_empty(value):
        """The program leaves out fields that are empty."""
        if isinstance(value, dict):
            return {key: without_empty(one) for key, one in value.items() if one not in (None, False, [], 0)}
        return [without_empty(one) for one in value] if isinstance(value, list) else value

    found = gradus.read(captures)
    for one in found:
        assert without_empty(one.to_json()) == without_empty(one.raw)
    assert gradus.read(found) == found
    # Without a line that it was read from, too.
    made = gradus.Trajectory("t1", query="Close issue 7.", answer="Done.", steps=(gradus.Step(1, "close_issue", arguments={"issue": 7}, observation="Error: 403", is_error=True),))
    (run,) = gradus.evaluate([made]).runs
    assert run.query == "Close issue 7." and run.steps[0].arguments == {"issue": 7} and not run.no_ignored_errors()


def test_an_evaluation(captures):
    result = gradus.evaluate(captures)
    assert result.complete and result.judge == "offline" and len(result.trajectories) == 10
    validity = result.accuracies["call_validity"]
    assert (validity.judged, validity.numerator) == (19, 16.0)
    assert validity.interval.low < validity.value < validity.interval.high
    assert "84.2% of 19, 95 % interval" in str(validity)
    assert {group.rule for group in result.failure_groups} >= {"outcome.crashed"}
    assert len(result.wrong) == sum(group.count for group in result.failure_groups)
    assert result.gates == () and result.passed
    assert {tool.tool: tool.uses for tool in result.tools}["list_issues"] > 0
    assert result.cost_usd == 0


def test_evaluating_trajectories_gives_the_verdicts_of_the_source(captures):
    def outcomes(result):
        return sorted((one.trajectory_id, one.step_index or 0, one.evaluator, one.outcome, one.label or "") for one in result.verdicts)

    assert outcomes(gradus.evaluate(gradus.read(captures))) == outcomes(gradus.evaluate(captures))


def test_a_failed_gate_is_a_result(captures):
    result = gradus.evaluate(captures, gates=["call_validity >= 0.8", "call_validity >= 0.99"])
    assert [gate.passed for gate in result.gates] == [True, False]
    assert not result.passed
    assert result.gates[1].bar == 0.99 and result.gates[1].value == result.accuracies["call_validity"].value
    with pytest.raises(gradus.GradusError) as raised:
        gradus.evaluate(captures, gates="call_validity > = 1")
    assert raised.value.exit_code == 2


def test_chosen_evaluators_only(captures):
    result = gradus.evaluate(captures, evaluators=["call_validity"], sample=3)
    assert {verdict.evaluator for verdict in result.verdicts} == {"call_validity"}
    assert len(result.trajectories) == 3


def test_tables_pages_and_files(captures, tmp_path):
    result = gradus.evaluate(captures, state_dir=tmp_path / "state")
    verdicts = result.to_pandas()
    assert len(verdicts) == len(result.verdicts)
    wrong = verdicts[(verdicts.evaluator == "call_validity") & (verdicts.score == 0)]
    assert len(wrong) == 3 and wrong.tool_call.notna().all() and wrong.question_text.notna().all()
    steps = result.to_pandas(rows="steps")
    assert len(steps) == 19 and steps.call_validity_score.sum() == 16
    with pytest.raises(ValueError):
        result.to_pandas(rows="spans")
    files = result.to_csv(tmp_path / "tables")
    assert {"steps.csv", "combined.csv", "call_validity.csv"} <= {path.name for path in files}
    assert result.html.startswith("<!") and "<script" not in result.html
    assert "call" in result.markdown.lower()
    assert "84.2%" in result._repr_html_()


def test_runs_of_an_evaluation_have_checks(captures):
    runs = gradus.evaluate(captures).runs
    run = next(run for run in runs if run.id.startswith("1cd214ac"))
    assert run.called("list_issues").before("close_issue")
    assert not run.called("delete_repository")


def test_versions_are_compared(captures, tmp_path):
    first = gradus.read(captures)
    # The second version ends in errors.
    second = [dataclasses.replace(one, answer=None, is_error=True) for one in first]
    result = gradus.compare(first, second, state_dir=tmp_path)
    assert result.first.runs == result.second.runs == 10
    worse = result["outcome"]
    assert worse.verdict == "worse" and worse.effect < 0 and worse.second_mean == 0
    assert worse in result.regressions
    assert len(result.to_pandas()) == len(result.differences)
    with pytest.raises(KeyError):
        result["charm"]


def test_evaluations_are_compared(captures, tmp_path):
    first, second = (gradus.evaluate(captures, name=name) for name in ("a", "b"))
    result = gradus.compare(first, second)
    assert result.pairing == "run" and not result.regressions
    assert result["call_validity"].effect == 0 and result["call_validity"].verdict in ("same", "inconclusive")
    other = gradus.evaluate(captures, state_dir=tmp_path / "other")
    with pytest.raises(ValueError, match="state"):
        gradus.compare(first, other)
