"""Trials of a rubric on many cases, on two servers with one PostgreSQL: they reserve what they may cost from the daily budget of the rule, which
both together must not exceed. Called by postgres_nodes.py."""
import contextlib
import html
import re
import urllib.parse
import urllib.request

from counting_judge import CountingJudge
from postgres_budget import CALL_USD, CONCURRENCY, EVALUATOR, TOKEN_USD, Ledger, settings, wait_for_day
from postgres_cluster import wait_for
from postgres_servers import Node, agent_run, request_of, trace_ids

DATABASE = "trials"
RUNS = 20
# Live grading and one trial fit into it; live grading and both trials do not.
BUDGET_USD = 384 * TOKEN_USD


def post_form(node, path, fields):
    """Where the answer leads to."""
    base = f"http://127.0.0.1:{node.port}"
    request = urllib.request.Request(base + path, urllib.parse.urlencode(fields).encode(), {"origin": base})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return urllib.parse.urlparse(answer.url).path


def read_page(node, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}{path}", timeout=60) as answer:
        return answer.read().decode()


def start_trial(node, number):
    """Tries a rubric that differs from that of the other server, so that no answer is shared. Returns the page of the trial."""
    source = re.search(r"<textarea[^>]*>(.*?)</textarea", read_page(node, f"/rubrics/{EVALUATOR}"), re.DOTALL)
    text = f"{html.unescape(source.group(1)).rstrip()}\n\nThis is trial {number}.\n"
    fields = {"text": text, "bulk_project": "money", "cases": "latest", "traces": 50, "max_calls": 100, "max_usd": "10"}
    trial = post_form(node, f"/rubrics/{EVALUATOR}/trials", fields)
    post_form(node, trial, {"what": "run"})
    return trial


def check_trials(gradus, folder, cluster):
    wait_for_day()
    address = cluster.create_database(DATABASE)
    with contextlib.ExitStack() as stack:
        judge = stack.enter_context(CountingJudge(hold_after=RUNS))
        nodes = []
        for number in range(2):
            nodes.append(Node(gradus, address, folder, f"trial{number}", settings(folder, judge, budget_usd=BUDGET_USD)))
            stack.callback(nodes[-1].stop)
        # Before the servers stop: they would wait for calls under way.
        stack.callback(judge.release)
        ledger = Ledger(cluster, DATABASE, BUDGET_USD)
        for number, trace in enumerate(trace_ids(RUNS, 9)):
            assert nodes[number % 2].send(request_of(agent_run(trace), "money")), "a run was refused"
        wait_for(lambda: judge.calls == RUNS and ledger.spent_and_reserved() == (RUNS * CALL_USD, 0), "live grading")
        trials = [(node, start_trial(node, number)) for number, node in enumerate(nodes)]
        # Both spend at the same time: all calls of one, and what the rest of the budget allows the other.
        wait_for(lambda: judge.calls > RUNS + CONCURRENCY, "calls of both servers")
        judge.release()

        def have_ended():
            ledger.spent_and_reserved()
            return all("Cancel</button>" not in read_page(node, trial) for node, trial in trials)

        wait_for(have_ended, "both trials to end")
        spent, reserved = ledger.spent_and_reserved()
        assert reserved == 0 and spent == judge.calls * CALL_USD, f"${spent} spent, ${reserved} reserved, for {judge.calls} calls of ${CALL_USD}"
        assert RUNS < judge.calls < 3 * RUNS, f"{judge.calls} calls: the budget was never reached, or nothing was tried"
        pages = [html.unescape(read_page(node, trial)) for node, trial in trials]
        assert any("go over today's budget" in page for page in pages), "no trial says that the budget is spent"
