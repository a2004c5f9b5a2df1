//! R19: a run keeps its budget and does not repeat reads.

use std::collections::BTreeMap;

use super::errors::is_rate_limited;
use super::finding::{RuleDecision, ViolationCollector};
use super::requests::RunRequests;
use gradus_github_agent::plural::format_count;

/// Maximum number of equal reads without a write in between.
const MAX_EQUAL_READS: usize = 2;

/// Checks R19. Unknown usage breaks no limit. Repeated reads after a rate limit or a server error do not count.
pub(super) fn check_budget(run: &RunRequests<'_>) -> RuleDecision {
    let (budget, spent) = (&run.evidence.charter.budget, run.evidence.spent);
    let record = run.evidence.record;
    let calls = record.call_count();
    let mut faults = ViolationCollector::default();
    if let Some(most) = budget.max_calls.filter(|most| calls > *most) {
        // The first step over the limit, if the run has that many steps.
        let step = Some(most + 1).filter(|step| *step <= record.steps.len());
        let calls = format_count(calls, "call", "calls");
        faults.add_failure(step, format!("{calls} where {} allowed", format_count(most, "is", "are")));
    }
    let mut exceeds = |what: &str, most: Option<f64>, spent: Option<f64>| {
        if let (Some(most), Some(spent)) = (most, spent)
            && spent > most
        {
            faults.add_failure(None, format!("{spent} {what} where {most} are allowed"));
        }
    };
    exceeds("tokens", budget.max_tokens.map(|most| most as f64), spent.tokens.map(|tokens| tokens as f64));
    exceeds("seconds", budget.max_seconds, spent.seconds);
    exceeds("dollars", budget.max_cost_usd, spent.cost_usd);
    let mut reads: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for sent in &run.sent {
        // After a write the same read can have a new result.
        if sent.is_write() {
            reads.clear();
            continue;
        }
        // A retry after a rate limit or server error is right.
        if is_rate_limited(sent) || sent.exchange.status >= 500 {
            continue;
        }
        let exchange = sent.exchange;
        let times = reads.entry((&exchange.method, &exchange.path, &exchange.query)).or_default();
        *times += 1;
        if *times > MAX_EQUAL_READS {
            faults.add_failure(
                sent.step,
                format!("{} was read {times} times with no write between", sent.format_route()),
            );
        }
    }
    faults.into_decision(|| RuleDecision::pass("within what is allowed"))
}
