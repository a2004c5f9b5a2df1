//! A verdict under review with what a person needs to decide: the request, the earlier steps, and the step itself.

use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use gradus_eval::outcome::OutcomeLine;
use gradus_report::html::number::format_count;
use gradus_report::html::text;
use gradus_store::{ReviewFilter, ReviewItem, ReviewPosition};

use super::address::PageUrl;
use super::loaded_trace::{self, LoadedTrace};
use super::review_query::ReviewQuery;
use super::step::{StepView, TrajectoryVerdicts};
use super::text_preview::{TextPreview, TrajectoryLocation};
use super::verdict::VerdictDetailView;
use crate::http_error::ApiError;
use crate::state::ServerState;

/// Maximum number of summarized steps, for a verdict on the whole trajectory and before a step.
const MAX_REVIEW_STEPS: usize = 40;
/// Maximum size of a text on the line of a step.
const MAX_SUMMARY_LINE_BYTES: usize = 300;

/// The verdict under review with its context.
pub(super) struct ReviewItemView {
    pub(super) verdict: VerdictDetailView,
    /// Whether the verdict is hidden from the page.
    pub(super) is_blind: bool,
    /// Number of labels by others. Their content is hidden until this person has decided, so that people judge
    /// independently.
    pub(super) other_label_count: usize,
    pub(super) query: Option<TextPreview>,
    pub(super) answer: Option<TextPreview>,
    /// None for a verdict on the whole trajectory.
    pub(super) step: Option<StepView>,
    /// The steps before the one under review; for a verdict on the whole trajectory, all of them.
    pub(super) steps: Vec<StepSummaryLine>,
    /// Number of these steps, if not all are listed.
    pub(super) of_steps: Option<String>,
    pub(super) trace: String,
    pub(super) what: String,
    /// URL of the next verdict without labelling this one.
    pub(super) skip: String,
}

/// A step on one line, and its texts.
pub(super) struct StepSummaryLine {
    pub(super) number: u32,
    pub(super) tool: String,
    pub(super) arguments: String,
    pub(super) result: String,
    pub(super) is_error: bool,
    pub(super) thought: Option<TextPreview>,
    pub(super) call: Option<TextPreview>,
    pub(super) observation: Option<TextPreview>,
}

/// The position of the verdict in its queue.
pub(super) struct QueuePosition {
    /// `12 of 80`
    pub(super) position: String,
    /// `69 left`
    pub(super) left: String,
    /// For the bar: how many are labelled, and of how many.
    pub(super) labelled: u64,
    pub(super) verdicts: u64,
}

impl QueuePosition {
    /// `None` for an empty queue.
    pub(super) fn load(
        server: &ServerState,
        filter: &ReviewFilter,
        place: Option<&ReviewPosition>,
    ) -> Result<Option<QueuePosition>, ApiError> {
        let progress = server.store.review_progress(filter, place)?;
        let of = match progress.is_more {
            true => format!("of more than {}", format_count(progress.verdicts)),
            false => format!("of {}", format_count(progress.verdicts)),
        };
        let position = match progress.position {
            Some(position) => format!("{} {of}", format_count(position)),
            None => of,
        };
        Ok((progress.verdicts > 0)
            .then(|| QueuePosition::new(position, progress.labelled, progress.verdicts, progress.is_more)))
    }

    pub(super) fn new(position: String, labelled: u64, verdicts: u64, is_more: bool) -> QueuePosition {
        let more = if is_more { "more than " } else { "" };
        let left = format!("{more}{} left", format_count(verdicts.saturating_sub(labelled)));
        QueuePosition { position, left, labelled, verdicts }
    }
}

impl ReviewItemView {
    /// Loads the verdict with its context; None if the verdict was replaced since it was found.
    pub(super) fn load_for_review(
        server: &ServerState,
        choice: &ReviewQuery,
        found: &ReviewItem,
    ) -> Result<Option<ReviewItemView>, ApiError> {
        let trace = format!("{:032x}", found.trace_id);
        let opened = loaded_trace::load_trace(server, &trace, Some(&found.trajectory_id))?;
        let settings = server.reloadable();
        // The store writes 0 for the whole trajectory.
        let step = Some(found.place.step).filter(|step| *step > 0);
        let Some(trajectory) = &opened.trajectory else { return Ok(None) };
        let is_asked = |line: &OutcomeLine| line.step_index == step && *line.evaluator == *found.place.evaluator;
        let Some(given) = opened.outcomes.iter().find(|given| is_asked(&given.line)) else {
            return Ok(None);
        };
        // A labelled verdict is not found again, so the same URL shows the next one.
        let here = choice.to_url().with("after", choice.after.as_deref());
        let mut verdict = VerdictDetailView::from_recorded(&settings, given, &opened.said, &here);
        if let Some(form) = &mut verdict.labelling {
            form.back = here.to_string();
            form.note = choice.note.clone().unwrap_or_default();
        }
        let text_location = TrajectoryLocation::Trace { trace: &trace, trajectory: &found.trajectory_id };
        let fold = |given: &Option<String>, part: &str| text_location.preview_text(given.as_deref(), None, part);
        let (steps, all) = summarize_steps(trajectory, step, text_location);
        Ok(Some(ReviewItemView {
            what: step.map_or_else(|| "Whole trajectory".to_owned(), |step| format!("Step {step}")),
            query: fold(&trajectory.query, "query"),
            answer: fold(&trajectory.final_answer, "answer"),
            step: step.and_then(|number| build_reviewed_step(&opened, trajectory, number, &here, server)),
            of_steps: (all > steps.len()).then(|| format_count(all as u64)),
            steps,
            trace: loaded_trace::format_step_url(&trace, Some(&found.trajectory_id), step),
            skip: choice.to_url().with("after", Some(&found.place.to_string())).to_string(),
            other_label_count: verdict.said.len(),
            is_blind: false,
            verdict,
        }))
    }

    /// Removes everything that reveals the verdict. `labels` are those to choose from.
    pub(super) fn hide_verdict(&mut self, labels: Vec<String>) {
        self.is_blind = true;
        self.other_label_count = 0;
        // A violation of the tool's schema would reveal the verdict.
        if let Some(step) = &mut self.step {
            step.violation = None;
        }
        let verdict = &mut self.verdict;
        verdict.class = "na";
        verdict.label = String::new();
        (verdict.explanation, verdict.evidence, verdict.remarks) = (None, Vec::new(), Vec::new());
        verdict.said.clear();
        if let Some(form) = &mut verdict.labelling {
            form.right = None;
            form.others = labels;
            form.seen = String::new();
        }
    }
}

/// Builds the view of the step; None if the trajectory has changed and lacks this step.
fn build_reviewed_step(
    opened: &LoadedTrace,
    trajectory: &Trajectory,
    number: u32,
    here: &PageUrl,
    server: &ServerState,
) -> Option<StepView> {
    let trace = opened.row.trace_id.to_string();
    let text_location = TrajectoryLocation::Trace { trace: &trace, trajectory: &trajectory.trajectory_id };
    let judged = TrajectoryVerdicts { text_location, trajectory, outcomes: &opened.outcomes, said: &opened.said };
    match trajectory.steps.iter().find(|step| step.index == number) {
        Some(step) => Some(StepView::from_step(&server.reloadable(), &judged, step, here)),
        None => StepView::from_final_thought(&server.reloadable(), &judged, trajectory, here)
            .filter(|step| step.number == number),
    }
}

/// Summarizes the last steps before the one under review, or the first ones of the whole trajectory; also returns
/// their number.
fn summarize_steps(
    trajectory: &Trajectory,
    under_review: Option<u32>,
    text_location: TrajectoryLocation<'_>,
) -> (Vec<StepSummaryLine>, usize) {
    let line = |step: &TrajectoryStep| {
        let arguments = step.arguments_text();
        let fold = |given: Option<&str>, part: &str| text_location.preview_text(given, Some(step.index), part);
        StepSummaryLine {
            number: step.index,
            tool: text::format_display_line(&step.tool),
            arguments: first_bytes(arguments.as_deref()),
            result: first_bytes(step.observation.as_deref()),
            is_error: step.is_error,
            thought: fold(step.thought.as_deref(), "thought"),
            call: fold(arguments.as_deref(), "arguments"),
            observation: fold(step.observation.as_deref(), "observation"),
        }
    };
    let listed: Vec<&TrajectoryStep> =
        trajectory.steps.iter().filter(|step| under_review.is_none_or(|number| step.index < number)).collect();
    // The nearest steps say most about the one under review.
    let from = if under_review.is_some() { listed.len().saturating_sub(MAX_REVIEW_STEPS) } else { 0 };
    (listed[from..].iter().take(MAX_REVIEW_STEPS).map(|step| line(step)).collect(), listed.len())
}

fn first_bytes(given: Option<&str>) -> String {
    let given = given.unwrap_or_default();
    text::format_display_line(&given[..given.floor_char_boundary(MAX_SUMMARY_LINE_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trajectory(steps: u32) -> Trajectory {
        let step = |index| TrajectoryStep { index, tool: format!("tool_{index}"), ..TrajectoryStep::default() };
        Trajectory { steps: (1..=steps).map(step).collect(), ..Trajectory::default() }
    }

    #[test]
    fn the_nearest_earlier_steps_are_listed() {
        let text_location = TrajectoryLocation::Trace { trace: "t", trajectory: "a" };
        let numbers = |steps, under_review| {
            let (lines, all) = summarize_steps(&trajectory(steps), under_review, text_location);
            (lines.first().map(|line| line.number), lines.last().map(|line| line.number), all)
        };
        assert_eq!(numbers(3, Some(1)), (None, None, 0));
        assert_eq!(numbers(3, Some(3)), (Some(1), Some(2), 2));
        assert_eq!(numbers(100, Some(90)), (Some(50), Some(89), 89));
        assert_eq!(numbers(100, None), (Some(1), Some(40), 100));
    }

    #[test]
    fn the_rest_of_a_queue_is_counted() {
        let shown = |labelled, verdicts, is_more| QueuePosition::new(String::new(), labelled, verdicts, is_more).left;
        assert_eq!(shown(11, 80, false), "69 left");
        assert_eq!(shown(80, 80, false), "0 left");
        assert_eq!(shown(1, 1_000, true), "more than 999 left");
    }
}
