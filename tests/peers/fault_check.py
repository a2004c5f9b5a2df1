"""What must hold after the faults."""
import collections
import json
import urllib.request

from fault_world import BUDGET_CALLS, CAPPED, CONCURRENCY, COST_PER_CALL, PROJECT
from postgres_cluster import wait_for

SETTLES_WITHIN_S = 180
# Spending is recorded by five minutes.
BUCKETS_PER_DAY = 288


def stored_spans(node, project):
    """How often each span is listed by a server, by trace and span id."""
    found = collections.Counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/api/v1/projects/{project}/spans", timeout=300) as answer:
        for line in answer:
            if line.strip():
                span = json.loads(line)
                found[span["trace_id"], span["span_id"]] += 1
    return found


def check_spans(world, node):
    """Every acknowledged span once, and nothing that was not sent."""
    stored = stored_spans(node, PROJECT) + stored_spans(node, CAPPED)
    acknowledged, sent = ({(trace, span) for trace, ids in spans.items() for span in ids} for spans in (world.senders.acknowledged, world.senders.sent))
    lost, doubled = acknowledged - set(stored), [span for span, count in stored.items() if count > 1]
    found = [f"{len(lost)} acknowledged spans are lost: {sorted(lost)[:3]}"] if lost else []
    found += [f"{len(doubled)} spans are stored twice: {doubled[:3]}"] if doubled else []
    found += [f"{node.name} lists {len(set(stored) - sent)} spans that nobody sent"] if set(stored) - sent else []
    return {"spans_acknowledged": len(acknowledged), "spans_lost": len(lost), "spans_doubled": len(doubled)}, [f"{node.name}: {line}" for line in found]


def check_verdicts(world):
    """One verdict for each question, and sums that agree with the rows."""
    database = world.pair.primary
    counts = database.look(
        "SELECT (SELECT count(*) FROM gradus.outcome), (SELECT count(DISTINCT (trajectory, evaluator, step)) FROM gradus.outcome), "
        "(SELECT count(*) FROM gradus.trajectory), (SELECT count(DISTINCT trace) FROM gradus.trajectory), "
        "(SELECT sum(spans) FROM gradus.project_count), (SELECT count(*) FROM gradus.span), "
        "(SELECT sum(trajectories) FROM gradus.usage_long WHERE size = 24 AND project = 0 AND kind = 0), "
        "(SELECT sum(scored) FROM gradus.rollup), (SELECT count(*) FROM gradus.outcome WHERE score IS NOT NULL), "
        "(SELECT count(*) FROM gradus.due WHERE quarantined_ns IS NOT NULL)")
    outcomes, questions, trajectories, traces, summed_spans, spans, summed_trajectories, scored, scores, quarantined = map(int, counts[0])
    found = [] if summed_spans == spans else [f"project_count has {summed_spans} spans, there are {spans}"]
    found += [] if trajectories == traces == summed_trajectories else [f"{trajectories} trajectories of {traces} traces, summed up as {summed_trajectories}"]
    found += [] if scored == scores else [f"rollups have {scored} verdicts, there are {scores}"]
    found += [f"{quarantined} traces are quarantined"] if quarantined else []
    return {"traces": traces, "verdicts": outcomes, "verdicts_doubled": outcomes - questions + abs(scored - scores)}, found


def check_budget(world):
    """The rule with a budget spends no more on any UTC day. Calls that were under way when a server died are charged, too."""
    days = world.pair.primary.look(f"SELECT bucket / {BUCKETS_PER_DAY}, sum(cost_usd) FROM gradus.spend WHERE rule = '{CAPPED}' GROUP BY 1")
    budget, called = BUDGET_CALLS * COST_PER_CALL, world.log.count(CAPPED)
    spent = max((float(cost) for _, cost in days), default=0.0)
    allowed = len(days) * BUDGET_CALLS
    found = [f"the budget of a day is ${budget:.4f}, spent are ${spent:.4f}"] if spent > budget * 1.0001 else []
    found += [f"the judge got {called} calls of the rule with a budget for {BUDGET_CALLS} a day"] if called > allowed else []
    found += [] if called else ["the rule with a budget asked nothing"]
    return {"budget_days": len(days), "budget_calls": BUDGET_CALLS, "budget_calls_made": called, "budget_usd": round(budget, 4), "most_spent_a_day_usd": round(spent, 4)}, found


def check_answers(world):
    """Servers answered with nothing but success and requests to try again."""
    statuses = sum((node.statuses for node in world.nodes), collections.Counter())
    bad = {status: count for status, count in statuses.items() if status not in (200, 429, 503, "no answer")}
    return {"answers": {str(status): count for status, count in statuses.items()}}, [f"unexpected answers to senders: {bad}"] if bad else []


def check_calls(world, faults):
    """Only what was under way at a fault is asked again."""
    repeated, most = sum(count - 1 for count in world.judge.asked.values()), faults * len(world.nodes) * CONCURRENCY
    found = [f"{repeated} calls were made again after {faults} faults; at most {most} were under way"] if repeated > most else []
    return {"judge_calls": world.judge.calls, "judge_calls_repeated": repeated}, found


def check_end(world, faults):
    """What there is in the end, and what is wrong."""
    world.senders.stop()
    results, found = {}, []
    try:
        for node in world.nodes:
            wait_for(node.is_up, f"{node.name} to be up")
        world.wait_until_graded(world.wanted(), SETTLES_WITHIN_S)
    except AssertionError as error:
        found.append(str(error))
    checks = [check_verdicts(world), check_budget(world), check_answers(world), check_calls(world, faults)]
    checks += [check_spans(world, node) for node in world.nodes if node.process.poll() is None]
    for result, wrong in checks:
        results |= result
        found += wrong
    checked = world.command("store", "check")
    if checked.returncode != 0:
        found.append(f"store check: {checked.stdout[-600:]}{checked.stderr[-600:]}")
    return results, found
