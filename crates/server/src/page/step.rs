//! One step: on the page of its trajectory, and where a verdict on it is reviewed.

use gradus_core::trajectory::TrajectoryStep;
use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_store::AnnotationRecord;

use super::address::PageUrl;
use super::display_text::format_duration;
use super::text_preview::{TextPreview, TrajectoryLocation};
use super::verdict::VerdictDetailView;
use crate::page::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;
use gradus_report::html::number;
use gradus_report::html::text::{self, DisplayText};

/// A step, ready to be displayed.
pub(super) struct StepView {
    /// Index of the step, from 1. Part of element ids and links.
    pub(super) number: u32,
    pub(super) tool: String,
    pub(super) thought: Option<TextPreview>,
    pub(super) arguments: Option<TextPreview>,
    /// Why the tool cannot accept the call: the wrong verdict of the call validity evaluator.
    pub(super) violation: Option<ToolCallViolation>,
    pub(super) observation: Option<TextPreview>,
    pub(super) is_error: bool,
    /// Called in the same model reply as the step before.
    pub(super) is_parallel: bool,
    /// Duration, tokens and agent, as far as they are recorded.
    pub(super) facts: Vec<String>,
    pub(super) verdicts: Vec<VerdictDetailView>,
    pub(super) is_failing: bool,
    /// Titles of evaluators whose verdict on the whole trajectory mentions this step. Filled in by `StepMentions`.
    pub(super) named_by: Vec<String>,
}

/// The context of the steps of one trajectory.
pub(super) struct TrajectoryVerdicts<'j> {
    pub(super) shelf: TrajectoryLocation<'j>,
    pub(super) outcomes: &'j [RecordedVerdict],
    /// Annotations of people on the trace, or nothing for runs.
    pub(super) said: &'j [AnnotationRecord],
}

/// Explanation and evidence of an invalid call, shown next to its arguments.
pub(super) struct ToolCallViolation {
    pub(super) what: DisplayText,
    pub(super) evidence: Vec<DisplayText>,
}

impl StepView {
    /// `here` is the URL of the page that shows the step; labels return to it.
    pub(super) fn from_step(
        settings: &ReloadableSettings,
        judged: &TrajectoryVerdicts<'_>,
        step: &TrajectoryStep,
        here: &PageUrl,
    ) -> StepView {
        let fold = |given: Option<&str>, part: &str| judged.shelf.preview_text(given, Some(step.index), part);
        let of_step = || judged.outcomes.iter().filter(|given| given.line.step_index == Some(step.index));
        let verdicts: Vec<VerdictDetailView> =
            of_step().map(|given| VerdictDetailView::from_recorded(settings, given, judged.said, here)).collect();
        let is_invalid = |given: &&RecordedVerdict| given.is_wrong && *given.line.evaluator == *CALL_VALIDITY;
        let violation = of_step().find(is_invalid).map(|RecordedVerdict { line, .. }| ToolCallViolation {
            what: text::format_display_block(line.explanation.as_deref().unwrap_or("The tool cannot take this call.")),
            evidence: line.evidence.iter().take(8).map(|piece| text::format_display_block(piece)).collect(),
        });
        let mut facts = Vec::new();
        // Trajectories have times as RFC 3339 text. Those that cannot be parsed give no duration.
        let time = |text: &Option<String>| -> Option<i64> {
            let time: jiff::Timestamp = text.as_deref()?.parse().ok()?;
            i64::try_from(time.as_nanosecond()).ok()
        };
        if let (Some(start), Some(end)) = (time(&step.start), time(&step.end)) {
            facts.push(format_duration(end.saturating_sub(start)));
        }
        let tokens = step.tokens.total();
        if tokens > 0 {
            facts.push(format!("{} tokens", number::format_count(tokens)));
        }
        facts.extend(step.agent.as_deref().map(text::format_display_line));
        StepView {
            number: step.index,
            tool: text::format_display_line(&step.tool),
            thought: fold(step.thought.as_deref(), "thought"),
            arguments: fold(step.arguments_text().as_deref(), "arguments"),
            violation,
            observation: fold(step.observation.as_deref(), "observation"),
            is_error: step.is_error,
            is_parallel: step.parallel_with_previous,
            facts,
            is_failing: verdicts.iter().any(VerdictDetailView::is_wrong),
            named_by: Vec::new(),
            verdicts,
        }
    }
}
