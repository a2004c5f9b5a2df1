//! One step: on the page of its trajectory, and where a verdict on it is reviewed.

use std::borrow::Cow;

use gradus_core::trajectory::{TokenUsage, Trajectory, TrajectoryStep};
use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_llm::CompletionUsage;
use gradus_report::html::number;
use gradus_report::html::svg::Svg;
use gradus_report::html::text::{self, DisplayText};
use gradus_store::AnnotationRecord;

use super::address::{PageUrl, encode_path_segment};
use super::agent_tree::StartedAgent;
use super::display_text::{format_duration, parse_time_ns};
use super::step_state::{StepState, summarize_other_verdicts};
use super::text_preview::{TextPreview, TrajectoryLocation};
use super::time_bar::TimeScale;
use super::verdict::VerdictDetailView;
use crate::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;

/// Maximum number of bytes of a text that are read for its line in a folded step.
const MAX_LINE_SCAN_BYTES: usize = 400;

/// A step, ready to be displayed.
pub(super) struct StepView {
    /// Index of the step, from 1. Part of element ids and links.
    pub(super) number: u32,
    pub(super) tool: String,
    /// Whether it is the thought before the answer, after which no tool was called.
    pub(super) is_final_thought: bool,
    pub(super) thought: Option<TextPreview>,
    pub(super) arguments: Option<TextPreview>,
    /// Why the tool cannot accept the call: the wrong verdict of the call validity evaluator.
    pub(super) violation: Option<ToolCallViolation>,
    /// The parameters of the tool, shown with a call that it cannot accept. Filled in by the page.
    pub(super) schema: Option<DisplayText>,
    pub(super) observation: Option<TextPreview>,
    pub(super) is_error: bool,
    /// Called in the same model reply as the step before, or as the one after.
    pub(super) is_parallel: bool,
    /// Called in the same model reply as the step before: its bracket continues that of the step before.
    pub(super) continues_group: bool,
    /// Arguments and result on one line each, for a folded step.
    pub(super) call_line: Option<String>,
    pub(super) result_line: Option<String>,
    /// Duration, tokens, estimated cost and agent, as far as they are recorded.
    pub(super) facts: Vec<String>,
    /// When it happened, within the run. None without times.
    pub(super) bar: Option<Svg>,
    pub(super) state: StepState,
    pub(super) verdicts: Vec<VerdictDetailView>,
    /// Summary of the verdicts that flag nothing.
    pub(super) other_verdicts: Option<String>,
    /// URL that these are loaded from when they are unfolded. None if the page has them. Filled in by the page.
    pub(super) verdicts_src: Option<String>,
    pub(super) is_failing: bool,
    /// Whether it is shown unfolded.
    pub(super) is_open: bool,
    /// Titles of evaluators whose verdict on the whole trajectory mentions this step. Filled in by `StepMentions`.
    pub(super) named_by: Vec<String>,
    /// The recorded spans. Empty where they need not be on this server.
    pub(super) spans: Vec<StepSpanLink>,
    /// Agents that this step started. Filled in by the page.
    pub(super) started: Vec<StartedAgent>,
}

/// A span of a step, whose attributes are loaded when they are unfolded.
pub(super) struct StepSpanLink {
    /// The kind of work that it recorded.
    pub(super) title: &'static str,
    pub(super) id: String,
    pub(super) href: String,
}

/// Maximum number of linked spans of one step.
const MAX_STEP_SPANS: usize = 8;

/// The context of the steps of one trajectory.
pub(super) struct TrajectoryVerdicts<'j> {
    pub(super) text_location: TrajectoryLocation<'j>,
    pub(super) trajectory: &'j Trajectory,
    /// In the order of their steps.
    pub(super) outcomes: &'j [RecordedVerdict],
    /// Annotations of people on the trace, or nothing for runs.
    pub(super) said: &'j [AnnotationRecord],
}

impl TrajectoryVerdicts<'_> {
    /// Returns the verdicts on a step by binary search: a long run has thousands of verdicts, and a page has hundreds
    /// of steps.
    fn outcomes_of_step(&self, step: u32) -> &[RecordedVerdict] {
        let from = self.outcomes.partition_point(|given| given.line.step_index < Some(step));
        let to = self.outcomes.partition_point(|given| given.line.step_index <= Some(step));
        &self.outcomes[from..to]
    }
}

/// Explanation and evidence of an invalid call, shown next to its arguments.
pub(super) struct ToolCallViolation {
    pub(super) what: DisplayText,
    pub(super) evidence: Vec<DisplayText>,
}

impl StepView {
    /// Builds the view of a step. `here` is the URL of the page that shows it; labels return to it.
    pub(super) fn from_step(
        settings: &ReloadableSettings,
        judged: &TrajectoryVerdicts<'_>,
        step: &TrajectoryStep,
        here: &PageUrl,
    ) -> StepView {
        let fold = |given: Option<&str>, part: &str| judged.text_location.preview_text(given, Some(step.index), part);
        let of_step = || judged.outcomes_of_step(step.index).iter();
        let verdicts: Vec<VerdictDetailView> =
            of_step().map(|given| VerdictDetailView::from_recorded(settings, given, judged.said, here)).collect();
        let is_invalid = |given: &&RecordedVerdict| given.is_wrong && *given.line.evaluator == *CALL_VALIDITY;
        let violation = of_step().find(is_invalid).map(|RecordedVerdict { line, .. }| ToolCallViolation {
            what: text::format_display_block(line.explanation.as_deref().unwrap_or("The tool cannot take this call.")),
            evidence: line.evidence.iter().take(8).map(|piece| text::format_display_block(piece)).collect(),
        });
        let arguments = step.arguments_text();
        let is_failing = verdicts.iter().any(VerdictDetailView::is_wrong);
        StepView {
            number: step.index,
            tool: text::format_display_line(&step.tool),
            is_final_thought: false,
            thought: fold(step.thought.as_deref(), "thought"),
            call_line: arguments.as_deref().and_then(format_first_line),
            arguments: fold(arguments.as_deref(), "arguments"),
            violation,
            schema: None,
            result_line: step.observation.as_deref().and_then(format_first_line),
            observation: fold(step.observation.as_deref(), "observation"),
            is_error: step.is_error,
            is_parallel: is_parallel_step(judged.trajectory, step),
            continues_group: step.parallel_with_previous,
            facts: list_step_facts(settings, judged.trajectory, step),
            bar: draw_step_bar(judged.trajectory, step),
            state: StepState::from_verdicts(&verdicts, step.is_error),
            other_verdicts: summarize_other_verdicts(&verdicts),
            verdicts_src: None,
            is_failing,
            is_open: is_failing || step.is_error,
            named_by: Vec::new(),
            spans: list_step_spans(judged, step),
            started: Vec::new(),
            verdicts,
        }
    }

    /// Builds the row of the thought before the answer, with its verdicts. None if no such thought is recorded.
    pub(super) fn from_final_thought(
        settings: &ReloadableSettings,
        judged: &TrajectoryVerdicts<'_>,
        trajectory: &Trajectory,
        here: &PageUrl,
    ) -> Option<StepView> {
        let row = StepView::from_step(settings, judged, &make_final_thought_step(trajectory)?, here);
        let line = trajectory.final_thought.as_deref().and_then(format_first_line);
        Some(StepView { is_final_thought: true, call_line: line, ..row })
    }
}

/// Returns the beginning of a text on one line; None for a blank text.
fn format_first_line(given: &str) -> Option<String> {
    let beginning = &given[..given.floor_char_boundary(MAX_LINE_SCAN_BYTES)];
    let line = text::format_display_line(beginning);
    (!line.trim().is_empty()).then_some(line)
}

/// Whether the model asked for this call together with another one.
fn is_parallel_step(trajectory: &Trajectory, step: &TrajectoryStep) -> bool {
    // Steps are numbered from 1, so the next one is at the position that the number gives.
    let next = trajectory.steps.get(step.index as usize).filter(|next| next.index == step.index + 1);
    step.parallel_with_previous || next.is_some_and(|next| next.parallel_with_previous)
}

/// Returns start and end in nanoseconds, if both are recorded.
fn step_times(step: &TrajectoryStep) -> Option<(i64, i64)> {
    Some((parse_time_ns(step.start.as_deref())?, parse_time_ns(step.end.as_deref())?))
}

/// Lists duration, tokens, estimated cost and agent.
fn list_step_facts(settings: &ReloadableSettings, trajectory: &Trajectory, step: &TrajectoryStep) -> Vec<String> {
    let mut facts = Vec::new();
    facts.extend(step_times(step).map(|(start, end)| format_duration(end.saturating_sub(start))));
    let tokens = step.tokens.total();
    if tokens > 0 {
        facts.push(format!("{} tokens", number::format_count(tokens)));
    }
    facts.extend(estimate_step_cost(settings, trajectory, step.tokens).map(number::format_usd));
    // The agent of the whole run is shown at the top of the page.
    let agent = step.agent.as_deref().filter(|agent| Some(*agent) != trajectory.agent.as_deref());
    facts.extend(agent.map(text::format_display_line));
    facts
}

/// Estimates the cost of a step's tokens. None without tokens or a known price, and if the calls name several models,
/// since it is not recorded which one made the step.
pub(super) fn estimate_step_cost(
    settings: &ReloadableSettings,
    trajectory: &Trajectory,
    tokens: TokenUsage,
) -> Option<f64> {
    if tokens.total() == 0 || trajectory.model_usage.len() > 1 {
        return None;
    }
    let price = settings.prices.find_price(trajectory.model.as_deref()?)?;
    let TokenUsage { prompt, completion, cached_prompt } = tokens;
    Some(price.cost_of_usage(CompletionUsage { prompt, completion, cached_prompt }))
}

/// Draws the time of the step within the run, so that concurrent calls are visible.
fn draw_step_bar(trajectory: &Trajectory, step: &TrajectoryStep) -> Option<Svg> {
    let scale =
        TimeScale::from_times(parse_time_ns(trajectory.start.as_deref())?, parse_time_ns(trajectory.end.as_deref())?);
    let (start, end) = step_times(step)?;
    Some(scale.draw_bar(if step.is_error { "w-error" } else { "w-tool" }, start, end))
}

/// Lists the spans of a step: the model call first, then the runs of the tool. Trajectories from files have no spans
/// here.
fn list_step_spans(judged: &TrajectoryVerdicts<'_>, step: &TrajectoryStep) -> Vec<StepSpanLink> {
    let TrajectoryLocation::Trace { trace, .. } = judged.text_location else { return Vec::new() };
    let trace = step.trace_id.as_deref().map_or(Cow::Borrowed(trace), |id| Cow::Owned(encode_path_segment(id)));
    let link = |(at, id): (usize, &String)| StepSpanLink {
        title: match (at, step.span_ids.len()) {
            (_, 1) => "Raw attributes",
            (0, _) => "Model call: messages and raw attributes",
            _ => "Tool run: raw attributes",
        },
        href: format!("/traces/{trace}/spans/{}", encode_path_segment(id)),
        id: text::format_display_line(id),
    };
    step.span_ids.iter().enumerate().take(MAX_STEP_SPANS).map(link).collect()
}

/// Makes a step without a call from the thought before the answer, numbered as its verdicts are.
pub(super) fn make_final_thought_step(trajectory: &Trajectory) -> Option<TrajectoryStep> {
    Some(TrajectoryStep {
        index: trajectory.final_thought_index()?,
        thought: trajectory.final_thought.clone(),
        tool: "(no tool called)".to_owned(),
        ..TrajectoryStep::default()
    })
}

#[cfg(test)]
pub(super) mod tests {
    use askama::Template;
    use gradus_core::trajectory::TokenUsage;
    use gradus_eval::evaluator::THOUGHT_TO_TOOL;
    use gradus_eval::outcome::{OutcomeKind, OutcomeLine, RuleRemark};

    use super::*;
    use crate::page::label_authors::LabelAuthor;

    /// The part of the page of a trajectory that shows one step.
    #[derive(Template)]
    #[template(source = r#"{% import "page_parts.html" as parts %}{% include "step.html" %}"#, ext = "html")]
    struct StepPart {
        step: StepView,
        author: LabelAuthor,
    }

    pub(in super::super) fn verdict(evaluator: &str, label: &str, is_wrong: bool) -> RecordedVerdict {
        let line = OutcomeLine {
            run_id: "r".into(),
            trajectory_id: "t1".into(),
            step_index: Some(2),
            evaluator: evaluator.into(),
            outcome: OutcomeKind::Scored,
            label: Some(label.to_owned()),
            score: Some(if is_wrong { 0.0 } else { 1.0 }),
            label_probability: None,
            explanation: Some("The date is <no> date.".to_owned()),
            evidence: vec!["\"date\": friday".to_owned()],
            rule: None,
            remarks: Vec::new(),
            reason: None,
            judge: "openai/gpt-4.1-mini".into(),
            rubric_hash: "5f1c".into(),
            tokens: None,
            cost_usd: Some(0.0005),
            cached: false,
            calls: 1,
            shortened: Vec::new(),
            votes: Vec::new(),
            vote_count: None,
            disagreement: None,
            escalated: None,
            first_label: None,
            answered_by: None,
        };
        RecordedVerdict { at_ns: 1_772_444_467_000_000_000, is_wrong, line }
    }

    /// With a tag on each line.
    fn render_step(step: &TrajectoryStep, outcomes: &[RecordedVerdict], said: &[AnnotationRecord]) -> String {
        let text_location = TrajectoryLocation::Trace { trace: "0af7651916cd43dd8448eb211c80319c", trajectory: "t1" };
        let trajectory = Trajectory {
            model: Some("gpt-4o".to_owned()),
            start: Some("2026-03-02T09:41:06Z".to_owned()),
            end: Some("2026-03-02T09:41:11Z".to_owned()),
            ..Trajectory::default()
        };
        let judged = TrajectoryVerdicts { text_location, trajectory: &trajectory, outcomes, said };
        let here = PageUrl::from_path("/traces/0af7651916cd43dd8448eb211c80319c");
        let step = StepView::from_step(&ReloadableSettings::without_rules(), &judged, step, &here);
        let author = LabelAuthor { identifier: "ann".to_owned(), name: "ann".to_owned(), may_label: true };
        StepPart { step, author }.render().unwrap().replace("><", ">\n<")
    }

    #[test]
    fn a_failed_step_with_verdicts_and_a_label() {
        let step = TrajectoryStep {
            index: 2,
            thought: Some("I look for flights on <Friday>.".to_owned()),
            tool: "search_flights".to_owned(),
            arguments_raw: Some("{\"date\": friday}".to_owned()),
            observation: Some("bad request\u{1b}[31m".to_owned()),
            is_error: true,
            parallel_with_previous: true,
            agent: Some("concierge".to_owned()),
            start: Some("2026-03-02T09:41:07Z".to_owned()),
            end: Some("2026-03-02T09:41:08.5Z".to_owned()),
            tokens: TokenUsage { prompt: 2_140, completion: 312, cached_prompt: 0 },
            span_ids: vec!["00f067aa0ba902b7".to_owned(), "00f067aa0ba902b8".to_owned()],
            ..TrajectoryStep::default()
        };
        let label = AnnotationRecord {
            no: 1,
            target: "trajectory:t1#2".to_owned(),
            name: THOUGHT_TO_TOOL.to_owned(),
            identifier: "bea".to_owned(),
            annotator: "HUMAN".to_owned(),
            label: Some("incorrect".to_owned()),
            score: None,
            explanation: Some("It needs a date.".to_owned()),
            metadata: "{}".to_owned(),
            author: "bea".to_owned(),
            created_ns: 1_772_444_467_000_000_000,
            updated_ns: 1_772_444_467_000_000_000,
        };
        let verdicts = [verdict(THOUGHT_TO_TOOL, "correct", false), verdict(CALL_VALIDITY, "invalid", true)];
        let shown = render_step(&step, &verdicts, &[label]);
        assert!(!shown.contains("<Friday>") && !shown.contains("<no>") && !shown.contains('\u{1b}'), "{shown}");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn a_step_that_rules_decide_only_in_part() {
        let step = TrajectoryStep { index: 2, tool: "search_flights".to_owned(), ..TrajectoryStep::default() };
        let mut by_rule = verdict(CALL_VALIDITY, "correct", false);
        by_rule.line.judge = "rules".into();
        by_rule.line.rule = Some("call.schema".into());
        let mut undecided = verdict(THOUGHT_TO_TOOL, "", false);
        undecided.line = OutcomeLine {
            outcome: OutcomeKind::Abstained,
            label: None,
            score: None,
            explanation: None,
            evidence: Vec::new(),
            reason: Some("No rule <decides> it.".to_owned()),
            remarks: vec![RuleRemark { rule: "words.topic".into(), text: "No word of <it> is shared.".to_owned() }],
            judge: "offline".into(),
            ..undecided.line
        };
        let shown = render_step(&step, &[by_rule, undecided], &[]);
        assert!(!shown.contains("<it>") && !shown.contains("<decides>"), "{shown}");
        assert!(!shown.contains("badge unsure") && shown.contains("Remarks (no verdict)"), "{shown}");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn the_thought_before_the_answer_has_verdicts_and_no_call() {
        let trajectory = Trajectory { final_thought: Some("I know <enough>.".to_owned()), ..Trajectory::default() };
        let mut final_verdict = verdict(THOUGHT_TO_TOOL, "incorrect", true);
        final_verdict.line.step_index = Some(1);
        let text_location = TrajectoryLocation::Trace { trace: "0af7651916cd43dd8448eb211c80319c", trajectory: "t1" };
        let judged =
            TrajectoryVerdicts { text_location, trajectory: &trajectory, outcomes: &[final_verdict], said: &[] };
        let here = PageUrl::from_path("/traces/0af7651916cd43dd8448eb211c80319c");
        let settings = ReloadableSettings::without_rules();
        let step = StepView::from_final_thought(&settings, &judged, &trajectory, &here).unwrap();
        assert!(step.is_failing && step.number == 1);
        let author = LabelAuthor { identifier: "ann".to_owned(), name: "ann".to_owned(), may_label: true };
        let shown = StepPart { step, author }.render().unwrap();
        assert!(shown.contains("Thought before the answer") && shown.contains("I know &#60;enough&#62;."), "{shown}");
        assert!(!shown.contains("<dt>Call</dt>") && !shown.contains("<dt>Observation</dt>"), "{shown}");
        assert!(StepView::from_final_thought(&settings, &judged, &Trajectory::default(), &here).is_none());
    }

    #[test]
    fn a_step_of_which_only_the_tool_is_recorded() {
        let step = TrajectoryStep { index: 1, tool: "search_flights".to_owned(), ..TrajectoryStep::default() };
        insta::assert_snapshot!(render_step(&step, &[], &[]));
    }
}
