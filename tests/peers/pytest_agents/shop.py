"""What the agents of all frameworks share: two tools, and tests of the runs that the scripted model makes certain."""
import os

import pytest

ANSWERED = "How many lamps are there?"
HASTY = "Order 3 lamps."
BROKEN = "How many unicorns are there?"
UNSTEADY = "Count the chairs, sometimes."


def stock_of(article):
    if article == "unicorn":
        raise ValueError("no such article: unicorn")
    return f"{article}: 12 in stock"


def order_of(article, count):
    return f"ordered {count} {article}"


def make_tests(ask):
    """The tests of an agent; `ask` runs it on one request. Every framework has to give the same results."""

    def test_answer(gradus):
        ask(ANSWERED)
        run = gradus.run
        assert run.query == ANSWERED
        assert run.called("get_stock", article="lamp").once()
        assert run.never_called("place_order")
        assert run.steps[0].tool == "get_stock" and "12 in stock" in run.steps[0].observation
        assert run.answer_contains("12 lamps")
        assert run.no_errors() and run.no_ignored_errors() and run.arguments_grounded() and run.valid_calls()
        assert run.judge("call_validity").none_wrong()

    def test_order(gradus):
        ask(HASTY)
        run = gradus.run
        check = run.called("get_stock").before("place_order")
        assert not check and "place_order (step 1) came before get_stock (step 2)" in check.reason
        assert ">>   1. place_order" in check.explain()
        assert run.called("place_order", count=3)

    def test_failed_tool(gradus):
        ask(BROKEN)
        run = gradus.run
        assert run.steps[0].is_error and "no such article" in run.steps[0].error
        assert not run.no_errors() and not run.called("get_stock").succeeded()

    def test_model_as_judge(gradus):
        ask(ANSWERED)
        verdicts = gradus.run.judge("thought_to_tool", judge="openai:gpt-4o")
        assert verdicts.verdicts and {verdict.judge for verdict in verdicts.right} == {"openai:gpt-4o"}
        assert verdicts.all_correct()

    def test_two_requests(gradus):
        ask(ANSWERED)
        ask(HASTY)
        assert [run.query for run in gradus.runs] == [ANSWERED, HASTY]

    @pytest.mark.gradus(trials=3, at_least=2)
    def test_trials(gradus):
        ask(UNSTEADY)
        assert gradus.run.answer_contains("12 chairs")

    return [test_answer, test_order, test_failed_tool, test_model_as_judge, test_two_requests, test_trials]


MODEL_URL = os.environ["MODEL_URL"]
