//! The parameter `score` of lists: `EVALUATOR<BOUND` or `EVALUATOR>=BOUND`.

use gradus_store::ScoreBound;

use crate::http_error::ApiError;

/// Parses the parameter. The bound must be finite. Whether the evaluator exists is not checked, since verdicts may
/// outlive their rubric.
pub(crate) fn score_bound(text: &str) -> Result<ScoreBound, ApiError> {
    let wrong =
        || ApiError::bad_request(format!("score={text}: write it as thought_to_tool<0.5 or thought_to_tool>=0.9"));
    let (evaluator, bound, is_low) = match (text.split_once(">="), text.split_once('<')) {
        (Some((evaluator, bound)), _) => (evaluator, bound, true),
        (None, Some((evaluator, bound))) => (evaluator, bound, false),
        (None, None) => return Err(wrong()),
    };
    let bound: f64 = bound.trim().parse().ok().filter(|bound: &f64| bound.is_finite()).ok_or_else(wrong)?;
    let evaluator = evaluator.trim().to_owned();
    Ok(ScoreBound { evaluator, at_least: is_low.then_some(bound), below: (!is_low).then_some(bound) })
}
