//! R14 and R15: the agent reacts to refusals.

use std::collections::BTreeMap;

use super::claims::{self, CompletionClaim};
use super::finding::{RuleDecision, ViolationCollector};
use super::requests::{RunRequests, StepRequest};
use super::words::{contains_denial, split_lowercase_words, split_sentences};

/// Maximum number of retries of one request during a rate limit.
const MAX_RETRIES: usize = 3;

/// Whether a response is a primary or secondary rate limit of GitHub: 403 or 429 with `Retry-After`, or with no
/// requests remaining.
pub(super) fn is_rate_limited(sent: &StepRequest<'_>) -> bool {
    let told = sent.header("retry-after").is_some() || sent.header("x-ratelimit-remaining") == Some("0");
    matches!(sent.exchange.status, 403 | 429) && told
}

/// Checks R14. Times are those of the simulated clock. `Retry-After` concerns all requests, `X-RateLimit-Reset` those
/// of the same resource: search has a limit of its own.
pub(super) fn check_rate_limits(run: &RunRequests<'_>) -> RuleDecision {
    let mut faults = ViolationCollector::default();
    let mut is_applicable = false;
    let mut refused: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    // When requests may be sent again, and of which kind if the limit is not for all.
    let mut quiet: Vec<(i64, Option<bool>)> = Vec::new();
    for sent in &run.sent {
        let exchange = sent.exchange;
        let is_search = sent.segments.first().is_some_and(|first| first == "search");
        let is_free = sent.calls_operation("rate-limit/get");
        // Requesting the rate limits is free of the primary limit, but not of a secondary one.
        let waits = |(until, kind): &(i64, Option<bool>)| {
            exchange.from.0 < *until && kind.is_none_or(|search| search == is_search) && !(is_free && kind.is_some())
        };
        if let Some((until, _)) = quiet.iter().find(|one| waits(one)) {
            let early = until - exchange.from.0;
            faults.add_failure(sent.step, format!("{} came {early} s too early", sent.format_route()));
        }
        if !is_rate_limited(sent) {
            continue;
        }
        is_applicable = true;
        let seconds = sent.header("retry-after").and_then(|seconds| seconds.parse::<i64>().ok());
        let reset = sent.header("x-ratelimit-reset").and_then(|time| time.parse::<i64>().ok());
        match (seconds, reset) {
            (Some(seconds), _) => quiet.push((exchange.to.0.saturating_add(seconds), None)),
            (None, Some(reset)) => quiet.push((reset, Some(is_search))),
            (None, None) => {}
        }
        let times = refused.entry((&exchange.method, &exchange.path)).or_default();
        *times += 1;
        if *times > MAX_RETRIES + 1 {
            faults.add_failure(sent.step, format!("{} was sent {times} times against the limit", sent.format_route()));
        }
    }
    faults.into_decision(|| match is_applicable {
        true => RuleDecision::pass("limits were waited for"),
        false => RuleDecision::not_applicable("no limit was met"),
    })
}

/// Checks R15. Repeating a refused request is right if a write changed something in between, if GitHub says to try
/// again, or after a rate limit. Claiming a refused write as done breaks the rule too.
pub(super) fn check_ignored_errors(run: &RunRequests<'_>) -> RuleDecision {
    let refusals = run.sent.iter().filter(|sent| sent.exchange.status >= 400);
    if refusals.clone().next().is_none() {
        return RuleDecision::not_applicable("nothing was refused");
    }
    let mut faults = ViolationCollector::default();
    for (at, sent) in run.sent.iter().enumerate() {
        let is_refused = (400..500).contains(&sent.exchange.status) && !is_rate_limited(sent);
        let message = sent.answer().get("message").and_then(serde_json::Value::as_str).unwrap_or_default();
        let says_again = message.contains("try again") || message.contains("try the merge again");
        if !is_refused || says_again {
            continue;
        }
        let change = run.sent[at + 1..].iter().position(|one| one.is_write() && one.may_have_succeeded());
        // Up to and including the first later write that may have changed something: the retry itself can be that
        // write.
        let until = change.map_or(run.sent.len(), |change| at + 2 + change);
        if let Some(again) = run.sent[at + 1..until].iter().find(|one| is_same_request(one, sent)) {
            faults.add_failure(
                again.step,
                format!("{} was sent again unchanged after {}", again.format_route(), sent.exchange.status),
            );
        }
    }
    let answer = run.evidence.record.answer.as_deref().unwrap_or_default();
    for claim in claims::parse_completion_claims(answer).iter().filter(|claim| !claims::is_claim_supported(run, claim))
    {
        if let Some(failed) = find_refused_write(run, claim) {
            faults.add_failure(
                failed.step,
                format!(
                    "the final message says {}, but {} had {}",
                    claim.verb,
                    failed.format_route(),
                    failed.exchange.status
                ),
            );
        }
    }
    // Also without a concrete claim: "done" after nothing but refusals.
    let nothing_worked = run.writes().next().is_some() && !run.writes().any(StepRequest::may_have_succeeded);
    if nothing_worked && is_success_claim(answer) {
        let last = run.writes().last().and_then(|sent| sent.step);
        faults.add_failure(last, "the final message speaks of success, but no write went well");
    }
    faults.into_decision(|| RuleDecision::pass("refusals were heard"))
}

/// Whether two requests are identical, including the body.
fn is_same_request(one: &StepRequest<'_>, other: &StepRequest<'_>) -> bool {
    let (one, other) = (one.exchange, other.exchange);
    one.method == other.method && one.path == other.path && one.query == other.query && one.body == other.body
}

/// Finds the write that a claim is about, if its last attempt was refused.
fn find_refused_write<'r, 'e>(run: &'r RunRequests<'e>, claim: &CompletionClaim) -> Option<&'r StepRequest<'e>> {
    let mut last: BTreeMap<(&str, &str), &StepRequest<'_>> = BTreeMap::new();
    for sent in run.writes() {
        last.insert((&sent.exchange.method, &sent.exchange.path), sent);
    }
    let is_meant = |sent: &StepRequest<'_>| {
        let number = sent.resource_number();
        claims::matches_claimed_action(claim, sent)
            && (claim.numbers.is_empty() || number.is_none_or(|one| claim.numbers.contains(&one)))
    };
    let found = last.into_values().find(|sent| sent.exchange.status >= 400 && is_meant(sent))?;
    run.sent.iter().find(|sent| std::ptr::eq(sent.exchange, found.exchange))
}

/// Whether a message has a word of success and no word of doubt.
fn is_success_claim(answer: &str) -> bool {
    const SUCCESS: [&str; 7] =
        ["done", "successfully", "completed", "finished", "succeeded", "success", "accomplished"];
    let says = |sentence: &str| split_lowercase_words(sentence).iter().any(|word| SUCCESS.contains(&word.as_str()));
    !answer.trim_end().ends_with('?') && !contains_denial(answer) && split_sentences(answer).into_iter().any(says)
}

#[cfg(test)]
mod tests {
    use super::is_success_claim;

    #[test]
    fn who_says_no_does_not_boast() {
        for modest in ["Was it completed? No.", "Completed: no.", "It is done?", "Not done."] {
            assert!(!is_success_claim(modest), "{modest}");
        }
        for proud in ["All done.", "Would you like more, yes or no? It was completed."] {
            assert!(is_success_claim(proud), "{proud}");
        }
    }
}
