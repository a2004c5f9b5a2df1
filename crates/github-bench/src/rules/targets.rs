//! R21: where the request is ambiguous or names something that does not exist, nothing is written before a read that
//! could clarify it.

use super::finding::{RuleDecision, ViolationCollector};
use super::flows::request_concerns_target;
use super::requests::{RunRequests, StepRequest};

/// Checks R21. A question as the final message is right if nothing was written before it.
pub(super) fn check_unclear_targets(run: &RunRequests<'_>) -> RuleDecision {
    let unclear: Vec<_> =
        run.evidence.charter.unclear_targets.iter().filter(|target| target.candidates.len() != 1).collect();
    if unclear.is_empty() {
        return RuleDecision::not_applicable("the request is clear about what it means");
    }
    let mut faults = ViolationCollector::default();
    for target in unclear {
        let name = target.name.trim_start_matches('#');
        // For something that does not exist, any write is a guess. For an ambiguous name, only writes to a candidate
        // are.
        let could_mean = |sent: &StepRequest<'_>| match target.candidates.is_empty() {
            true => sent.is_write(),
            false => sent.is_write() && target.candidates.iter().any(|one| request_concerns_target(sent, one)),
        };
        let Some(at) = run.sent.iter().position(could_mean) else { continue };
        // A read that mentions the name, or whose response shows a candidate, could have clarified it.
        let looked = run.sent[..at].iter().filter(|sent| !sent.is_write()).any(|sent| {
            let in_path = sent.segments.iter().any(|part| part.eq_ignore_ascii_case(name));
            let in_query = sent.exchange.query.contains(name);
            let in_answer = sent.was_successful()
                && target.candidates.iter().any(|one| {
                    let full = one.split('/').take(2).collect::<Vec<_>>().join("/");
                    sent.exchange.answer.to_lowercase().contains(&full.to_lowercase())
                });
            let is_list = target.candidates.is_empty() && sent.answer().is_array();
            in_path || in_query || in_answer || is_list
        });
        if !looked {
            let sent = &run.sent[at];
            let why = match target.candidates.len() {
                0 => format!("{} before a look whether {} is there", sent.format_route(), target.name),
                _ => format!("{} before a look which {} is meant", sent.format_route(), target.name),
            };
            faults.add_failure(sent.step, why);
        }
    }
    faults.into_decision(|| RuleDecision::pass("nothing was written before it was clear what is meant"))
}
