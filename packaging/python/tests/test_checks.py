import pytest

from gradus import Run, Step, Trajectory, Verdict


def make_run(*steps, answer="It is done.", verdicts=(), is_error=False):
    """Steps are (tool, arguments), (tool, arguments, fields)."""
    made = []
    for index, (tool, arguments, *more) in enumerate(steps, 1):
        made.append(Step(index=index, tool=tool, arguments=arguments, **(more[0] if more else {})))
    trajectory = Trajectory("t1", steps=tuple(made), query="Do it.", answer=answer, is_error=is_error)
    return Run(trajectory, [Verdict("t1", evaluator, outcome, **fields) for evaluator, outcome, fields in verdicts])


def test_calls_and_their_order():
    run = make_run(("search", {"q": "a"}), ("close", {"id": 1}), ("search", {"q": "b"}))
    assert run.called("search") and not run.called("delete")
    assert run.called("search").before("close") and not run.called("close").before("search")
    assert run.called("close").after("search") and not run.called("search").after("close")
    assert run.called("search").times(2) and not run.called("search").once()
    assert run.called("search").at_least(2) and not run.called("search").at_least(3)
    assert run.called("search").at_most(2) and not run.called("search").at_most(1)
    assert run.called("search", q="b").after("close", id=1)
    assert not run.called("search", q="c") and not run.called("search", r="a")
    assert run.never_called("delete") and not run.never_called("close") and run.never_called("close", id=2)
    assert run.called("search").count == 2


def test_an_order_needs_both_calls():
    run = make_run(("search", {}))
    assert not run.called("search").before("close")
    assert "close was never called" in run.called("search").before("close").reason
    assert not run.called("close").before("search")


def test_calls_of_one_reply_have_no_order():
    run = make_run(("search", {}), ("close", {}, {"parallel_with_previous": True}))
    check = run.called("search").before("close")
    assert not check and "same reply" in check.reason
    assert not run.called("close").before("search")


def test_a_failed_check_marks_the_step():
    run = make_run(("close", {"id": 1}, {"thought": "I close it.", "observation": "closed"}), ("search", {"q": "x"}))
    text = run.called("search").before("close").explain()
    assert text.startswith("called('search').before('close') does not hold: close (step 1) came before search (step 2)")
    marked = [line for line in text.splitlines() if line.startswith(">>")]
    assert marked[0].split() == [">>", "1.", "close", '{"id":', "1}"] and "before search" in marked[1]
    assert "thought: I close it." in text and "result: closed" in text and "answer: It is done." in text


def test_verify_raises_with_the_transcript():
    run = make_run(("close", {}))
    run.called("close").verify()
    with pytest.raises(AssertionError, match="search was never called; called were: close"):
        run.called("search").verify()


def test_answers():
    run = make_run(answer="There are 12 Lamps.")
    assert run.answer_contains("12", "lamps") and not run.answer_contains("12", "chairs")
    assert not run.answer_contains("lamps", ignore_case=False)
    assert run.answer_matches(r"\d+ Lamps") and not run.answer_matches("^Lamps")
    assert run.answered()
    silent = make_run(answer=None)
    assert not silent.answered() and not silent.answer_contains("") and "no answer" in silent.answer_contains("x").reason
    assert make_run(answer=None, is_error=True).outcome == "crashed"


def test_errors():
    run = make_run(("a", {}), ("b", {}, {"is_error": True, "observation": "boom"}))
    check = run.no_errors()
    assert not check and "1 of 2 calls failed" in check.reason and list(check.blamed) == [2]
    assert "failed: boom" in check.explain()
    assert run.called("a").succeeded() and not run.called("b").succeeded() and not run.called("c").succeeded()
    assert not make_run(is_error=True).no_errors()
    assert make_run(("a", {})).no_errors()


def test_ignored_errors_are_those_that_a_rule_has_proven():
    failed = ("b", {}, {"is_error": True, "observation": "boom"})
    wrong = ("error_recovery", "scored", {"label": "claimed", "score": 0.0, "explanation": "The answer claims success, but step 2 failed."})
    check = make_run(("a", {}, {"is_error": True}), failed, verdicts=[wrong]).no_ignored_errors()
    assert not check and set(check.blamed) == {0, 2}
    assert make_run(failed, verdicts=[("error_recovery", "abstained", {"reason": "unclear"})]).no_ignored_errors()


def test_grounded_arguments_and_valid_calls():
    wrong = ("argument_provenance", "scored", {"step_index": 2, "label": "invented", "score": 0.0, "explanation": "7 has no source."})
    run = make_run(("a", {}), ("b", {"id": 7}), verdicts=[wrong])
    assert not run.arguments_grounded() and "step 2: 7 has no source." in run.arguments_grounded().reason
    # Nobody has looked, so it is not known.
    assert not run.valid_calls() and "call_validity was not evaluated" in run.valid_calls().reason
    assert make_run().valid_calls()
    bad = ("call_validity", "scored", {"step_index": 1, "label": "invalid", "score": 0.0, "explanation": "id is required"})
    assert not make_run(("a", {}), verdicts=[bad]).valid_calls()


def test_verdicts_of_a_judge():
    def verdicts(*outcomes):
        return [("thought_to_tool", outcome, {"step_index": index, "score": score, "label": "x" if score is not None else None, "reason": "cannot tell", "judge": "offline"}) for index, (outcome, score) in enumerate(outcomes, 1)]

    steps = [("a", {}), ("b", {})]
    right = make_run(*steps, verdicts=verdicts(("scored", 1.0), ("not_applicable", None))).judge("thought_to_tool")
    assert right.all_correct() and right.none_wrong() and right.at_least(1.0) and right.mean == 1.0
    wrong = make_run(*steps, verdicts=verdicts(("scored", 1.0), ("scored", 0.0))).judge("thought_to_tool")
    assert not wrong.all_correct() and not wrong.none_wrong() and wrong.mean == 0.5
    assert wrong.at_least(0.5) and not wrong.at_least(0.6)
    assert list(wrong.all_correct().blamed) == [2]
    # An undecided question is neither right nor wrong.
    undecided = make_run(*steps, verdicts=verdicts(("scored", 1.0), ("abstained", None))).judge("thought_to_tool")
    assert undecided.none_wrong() and not undecided.all_correct()
    assert "none_wrong()" in undecided.all_correct().reason
    nothing = make_run(*steps).judge("thoughts_to_tool")
    assert not nothing.all_correct() and not nothing.none_wrong() and not nothing.at_least(0.0)
    assert "name of an evaluator" in nothing.all_correct().reason


def test_recorded_text_is_never_an_escape_sequence():
    run = make_run(("a\x1b[31m", {"x": "\u202ey"}, {"observation": "one\ntwo\x1b]0;evil\x07" + "z" * 1000}))
    text = run.transcript()
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert all(len(line) < 400 for line in text.splitlines())


def test_steps_are_counted():
    run = make_run(("a", {}), ("b", {}))
    assert run.at_most_steps(2) and not run.at_most_steps(1) and list(run.at_most_steps(1).blamed) == [2]
    assert run.tools == ["a", "b"] and "a, b" in repr(run)
