//! Judges `request_to_tool` by rules: whether a call without a thought fits what the request names and what is
//! already known.

use super::call::{ORDERED_TOOL, ToolExistence, check_tool_existence, request_names_tool};
use super::excerpt::quote_excerpt;
use super::rule_catalog::{REQUEST_OTHER_OBJECT, REQUEST_UNKNOWN_TOOL};
use super::{OfflineJudge, OfflineVerdict, coding, named_objects};

/// The verdict of `request_to_tool`.
pub(super) fn judge_request_choice(offline: &OfflineJudge<'_>, at: usize) -> OfflineVerdict {
    let Some(step) = offline.step(at) else {
        return OfflineVerdict::not_applicable("The step does not exist.");
    };
    if offline.thought(at).is_some() {
        return OfflineVerdict::not_applicable("The step has a thought, which the other questions judge.");
    }
    let Some(query) = offline.query() else {
        return OfflineVerdict::not_applicable("The trace does not hold the request.");
    };
    if let ToolExistence::Missing(why) = check_tool_existence(offline, at) {
        if request_names_tool(offline, &step.tool) {
            return OfflineVerdict::cannot_judge(ORDERED_TOOL);
        }
        // A request to a coding agent does not name tools: a missing tool is a fault of the call.
        if coding::is_coding_agent(offline) {
            return OfflineVerdict::cannot_judge("The tool does not exist; the call validity check reports this.");
        }
        return OfflineVerdict::bad(REQUEST_UNKNOWN_TOOL, why, Vec::new());
    }
    if let Some(found) = named_objects::find_unrequested_object(offline, at, query) {
        let explanation = format!(
            "The request names {}, but {} is called with {} = {}, which nothing before it mentions.",
            quote_excerpt(&found.named_instead),
            quote_excerpt(&step.tool),
            quote_excerpt(&found.parameter),
            quote_excerpt(&found.value)
        );
        return OfflineVerdict::bad(
            REQUEST_OTHER_OBJECT,
            explanation,
            vec![format!("request: {}", quote_excerpt(&query.source))],
        );
    }
    OfflineVerdict::cannot_judge("No rule can tell whether the request needed this call.")
}
