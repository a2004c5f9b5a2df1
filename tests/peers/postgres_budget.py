"""The daily budget of a rule over three servers on one PostgreSQL, one of which is killed while its calls are under way. Called by
postgres_nodes.py."""
import contextlib
import pathlib
import time

from counting_judge import CountingJudge
from postgres_cluster import free_port, wait_for
from postgres_servers import Node, agent_run, request_of, run, trace_ids

DATABASE = "budget"
# Powers of two, so that sums are exact. A call costs its answer of 7 tokens; up to MAX_TOKENS are reserved for each of the answers that an
# unreadable one may take.
TOKEN_USD = 1 / 1024
CALL_USD = 7 * TOKEN_USD
MAX_TOKENS = 16
BUDGET_USD = 1.0
# Calls that are answered before the judge holds the others, so that calls are under way when a server dies.
HELD_AFTER = 12
CONCURRENCY = 4
DAY_S = 86_400
# How long the check may take: a new day is a new budget.
LONGEST_S = 300
EVALUATOR = "task_completion"


def settings(folder, judge, evaluators=(EVALUATOR,), budget_usd=BUDGET_USD):
    prices = pathlib.Path(folder, "prices.toml")
    prices.write_text(f'["scripted"]\ninput = 0\noutput = {TOKEN_USD * 1e6}\n')
    return (f'[judge]\nconcurrency = {CONCURRENCY}\nmax_tokens = {MAX_TOKENS}\n[eval]\nprices = "{prices}"\n[[rule]]\nname = "r"\njudge = "openai:scripted"\n'
            f'base_url = "{judge.url}"\nevaluators = {list(evaluators)}\ndaily_budget_usd = {budget_usd}\n').replace("'", '"')


class Ledger:
    """What the database says about calls and costs."""

    def __init__(self, cluster, database=DATABASE, budget_usd=BUDGET_USD):
        self.cluster, self.database, self.budget_usd = cluster, database, budget_usd

    def query(self, columns):
        return self.cluster.sql(f"SELECT {columns}", self.database).split("|")

    def spent_and_reserved(self):
        """In one statement, so that each call counts once. Never above the budget."""
        spent, reserved = map(float, self.query(
            "coalesce((SELECT sum(cost_usd) FROM gradus.spend), 0), coalesce((SELECT sum(reserved_usd) FROM gradus.judge_call WHERE answer IS NULL), 0)"))
        assert spent + reserved <= self.budget_usd, f"${spent} spent and ${reserved} reserved of ${self.budget_usd}"
        return spent, reserved

    def open_calls(self):
        """Calls under way, by server."""
        rows = self.cluster.sql("SELECT owner, count(*) FROM gradus.judge_call WHERE answer IS NULL GROUP BY owner", self.database)
        return {owner: int(count) for owner, count in (row.split("|") for row in rows.splitlines())}


def send_until(nodes, is_enough):
    """Sends more runs than the budget pays for, to all servers in turn, until a condition holds. Their number."""
    for number, trace in enumerate(trace_ids(2000, 7), 1):
        assert nodes[number % len(nodes)].send(request_of(agent_run(trace), "money")), "a run was refused"
        if number > BUDGET_USD / CALL_USD and number % 10 == 0 and is_enough():
            return number
    return wait_for(is_enough, "calls of all servers under way") and 2000


def node_names(nodes):
    """The name of each server, as its log tells it."""
    return [next(line for line in node.read_log().splitlines()[::-1] if "joined the servers" in line).split("node=")[1].split()[0].strip('"') for node in nodes]


def check_spending(nodes, ledger, judge):
    """Three servers spend one budget. One dies in the middle; what it had reserved counts as spent."""
    names = node_names(nodes)

    def are_all_held():
        ledger.spent_and_reserved()
        # All calls of the first one are under way, so that none begins while it is killed.
        calls = ledger.open_calls()
        return judge.is_holding.is_set() and set(calls) == set(names) and calls[names[0]] == CONCURRENCY

    sent = send_until(nodes, are_all_held)
    nodes[0].kill()
    lost = ledger.open_calls().get(names[0], 0)
    assert lost == CONCURRENCY, f"{lost} calls of the dead server"
    judge.release()
    # Nothing else fits, and nothing is under way: what the dead server had reserved was charged when its lease ended.
    reserved = lost_cost(ledger)
    wait_for(lambda: is_over(ledger, reserved), "the budget to be spent")
    nodes[0].start()
    # A server reports the budget when it has a run to judge, and any server may take a run: more are sent until each had one.
    more = iter(trace_ids(2000, 8))
    for node in nodes:
        wait_for(lambda: reports_budget(node) or not node.send(request_of(agent_run(next(more)), "money")), f"{node.folder.name} to report the budget")
        assert reports_budget(node), f"{node.folder.name} refused a run"
    spent, _ = ledger.spent_and_reserved()
    answered, units, outcomes = map(int, ledger.query(
        "count(*), count(DISTINCT (trajectory_id, step, rubric_hash, judge)), "
        f"(SELECT count(*) FROM gradus.outcome WHERE evaluator = '{EVALUATOR}' AND score IS NOT NULL) FROM gradus.judge_call WHERE answer IS NOT NULL"))
    assert judge.calls * CALL_USD <= BUDGET_USD, f"{judge.calls} calls of ${CALL_USD} with ${BUDGET_USD}"
    assert spent == answered * CALL_USD + lost * reserved, f"${spent} for {answered} answers and {lost} lost calls"
    assert answered == units == outcomes, f"{answered} answers, {units} questions, {outcomes} verdicts"
    assert answered <= judge.calls <= answered + lost, f"{judge.calls} calls for {answered} answers and {lost} lost calls"
    repeated = [count for count in judge.asked.values() if count > 1]
    assert len(repeated) <= lost and max(repeated, default=2) == 2, f"asked again: {repeated}, with {lost} calls under way"
    assert answered < sent, "the budget was never reached"


def reports_budget(node):
    return "budget exhausted" in node.read_log().rsplit("joined the servers", 1)[-1]


def lost_cost(ledger):
    """What is reserved for one call; the same for all, since only answers cost something."""
    (cost,) = ledger.query("max(reserved_usd) FROM gradus.judge_call WHERE answer IS NULL")
    return float(cost)


def is_over(ledger, reserved):
    spent, under_way = ledger.spent_and_reserved()
    return under_way == 0 and spent + reserved > BUDGET_USD


def check_settings(gradus, folder, nodes, judge, address):
    """A server with other settings says so when it starts, and `doctor` does. It works all the same: upgrades go server by server."""
    nodes[2].stop()
    nodes[2].configure(settings(folder, judge, (EVALUATOR, "planning")))
    nodes[2].start()
    lines = [line for line in nodes[2].read_log().splitlines() if "settings differ" in line]
    assert len(lines) == 1 and "has other evaluators, rubrics" in lines[0] and "same gradus.toml" in lines[0], f"warnings: {lines}"
    for name in node_names(nodes[:2]):
        assert f"node {name} at 127.0.0.1" in lines[0], f"{name} is not in {lines[0]}"
    ports = ["--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{free_port()}"]
    doctor = run(gradus, nodes[2].folder, address, "doctor", "--config", "gradus.toml", *ports)
    shown = [line for line in doctor.stdout.splitlines() if line.startswith("warn servers: ")]
    assert len(shown) == 1 and "has other evaluators" in shown[0], doctor.stdout + doctor.stderr


def wait_for_day():
    """A new day is a new budget, so no check begins shortly before one."""
    wait_for(lambda: time.time() % DAY_S < DAY_S - LONGEST_S, "the end of the day", 2 * LONGEST_S)


def check_budget(gradus, folder, cluster):
    wait_for_day()
    address = cluster.create_database(DATABASE)
    with contextlib.ExitStack() as stack:
        judge = stack.enter_context(CountingJudge(hold_after=HELD_AFTER))
        nodes = []
        for number in range(3):
            nodes.append(Node(gradus, address, folder, f"spender{number}", settings(folder, judge)))
            stack.callback(nodes[-1].stop)
        # Before the servers stop: they would wait for calls under way.
        stack.callback(judge.release)
        try:
            check_spending(nodes, Ledger(cluster), judge)
            check_settings(gradus, folder, nodes, judge, address)
        except AssertionError as error:
            logs = "\n".join(f"{node.folder.name}: {node.read_log()[-1500:]}" for node in nodes)
            raise AssertionError(f"{error}\n{judge.calls} calls\n{logs}") from error
