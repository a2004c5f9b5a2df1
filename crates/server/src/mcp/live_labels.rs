//! Labels of `label_step` as annotations, by the rules of the review page.

use gradus_eval::outcome::OutcomeLine;
use gradus_mcp::{ArchiveError, LabelSource, NewRunLabel};
use gradus_store::{NewAnnotation, WriteLane};
use serde_json::json;

use super::store_failure::to_archive_error;
use crate::annotation_limits::check_annotation_size;
use crate::caller::RequestCaller;
use crate::clock::now_ns;
use crate::evaluators::find_answer_labels;
use crate::state::ServerState;

/// The name of labellers on a server without keys.
const NO_KEY: &str = "mcp";

/// Checks a label against the verdict and the labels of the rubric, and stores it.
pub(super) fn store_live_label(
    server: &ServerState,
    caller: &RequestCaller,
    lane: WriteLane,
    new: &NewRunLabel,
) -> Result<String, ArchiveError> {
    let store = &server.store;
    let unknown = || ArchiveError::UnknownRun {
        id: new.run_id.chars().take(80).collect(),
        place: "the store of this server, where labels belong to live traffic".to_owned(),
    };
    let trace = store.trace_of_trajectory(&new.run_id).map_err(to_archive_error)?.ok_or_else(unknown)?;
    let verdict = find_verdict(server, new)?;
    let score = find_score(server, new, verdict.as_ref())?;
    let person = if caller.name.is_empty() { NO_KEY } else { &caller.name };
    // Nothing that comes this way replaces a label that the person gave on a page: text of a trace may have talked the
    // assistant into it. Labels of assistants calibrate no judge.
    let (annotator, identifier, author) = match new.source {
        LabelSource::Person => ("HUMAN", format!("{person} via mcp"), person.to_owned()),
        LabelSource::Assistant => ("LLM", format!("assistant of {person}"), format!("assistant of {person}")),
    };
    let metadata = json!({
        "via": "mcp",
        "judge": verdict.as_ref().map(|line| line.judge.to_string()),
        "judge_label": verdict.as_ref().and_then(|line| line.label.clone()),
        "rubric_hash": verdict.as_ref().map(|line| line.rubric_hash.to_string()),
    });
    let target = match new.step_index {
        Some(step) => format!("trajectory:{}#{step}", new.run_id),
        None => format!("trajectory:{}", new.run_id),
    };
    let annotation = NewAnnotation {
        target,
        trace_id: Some(trace.0),
        name: new.evaluator.clone(),
        identifier,
        annotator: annotator.to_owned(),
        label: Some(new.label.clone()),
        score,
        explanation: new.explanation.clone(),
        metadata: metadata.to_string(),
        author,
    };
    let not_stored = |reason: String| ArchiveError::LabelNotStored { reason };
    check_annotation_size(&annotation).map_err(|error| not_stored(error.to_string()))?;
    let annotations = vec![annotation];
    if let Some(reason) = server.explain_borrowed_name(caller, &annotations).map_err(to_archive_error)? {
        return Err(not_stored(reason));
    }
    let signed = server.redact_and_sign(annotations, caller);
    let written = store.annotate_in_lane(lane, signed, now_ns()).map_err(to_archive_error)?;
    written.wait().map_err(to_archive_error)?;
    Ok("the annotations of this server".to_owned())
}

/// Finds the verdict that the label is about. Without one, the step must at least exist.
fn find_verdict(server: &ServerState, new: &NewRunLabel) -> Result<Option<OutcomeLine>, ArchiveError> {
    let line = server.store.find_verdict_line(&new.run_id, &new.evaluator, new.step_index).map_err(to_archive_error)?;
    let verdict = line.and_then(|line| serde_json::from_str(&line).ok());
    if verdict.is_none()
        && let Some(step) = new.step_index
    {
        let count = server.store.trajectory_step_count(&new.run_id).map_err(to_archive_error)?.unwrap_or(0);
        if !(1..=count).contains(&step) {
            return Err(bad_argument("step", format!("the run has {count} steps")));
        }
    }
    Ok(verdict)
}

/// Finds the score of the label on the scale of the rubric. The label of the verdict is accepted even if the rubric
/// does not have it any more.
fn find_score(
    server: &ServerState,
    new: &NewRunLabel,
    verdict: Option<&OutcomeLine>,
) -> Result<Option<f64>, ArchiveError> {
    let known = find_answer_labels(&server.reloadable(), &new.evaluator);
    if let Some((_, score)) = known.iter().find(|(label, _)| *label == new.label) {
        return Ok(*score);
    }
    match verdict {
        Some(verdict) if verdict.label.as_deref() == Some(&new.label) => Ok(verdict.score),
        None if known.is_empty() => {
            Err(bad_argument("evaluator", "this server has no such evaluator; get_run names those of a run".to_owned()))
        }
        _ => {
            let labels: Vec<&str> = known.iter().map(|(label, _)| label.as_str()).collect();
            Err(bad_argument("label", format!("the evaluator has {}", labels.join(", "))))
        }
    }
}

fn bad_argument(argument: &'static str, reason: String) -> ArchiveError {
    ArchiveError::BadArgument { argument, reason }
}
