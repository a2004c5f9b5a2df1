//! One sentence about a run: how it ended, and why, or what went wrong first.

use gradus_core::trajectory::{DefectKind, RUN_FAILED, Trajectory};
use gradus_eval::evaluator::{OFFLINE_JUDGE, OUTCOME, RULES_JUDGE};
use gradus_eval::outcome::OutcomeKind;
use gradus_report::html::{number, text};

use super::address::PageUrl;
use super::run_outcome::RunOutcome;
use super::span_scan::ErrorSpanLink;
use crate::evaluators::find_evaluator_title;
use crate::page::address::format_step_anchor;
use crate::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;

/// The sentence at the top of a run.
pub(super) struct RunHeadline {
    /// `bad` (no good end), `flagged` or `plain`: the CSS class.
    pub(super) class: &'static str,
    /// How it ended, in the words of the evaluator. None if that is not known.
    pub(super) outcome: Option<String>,
    /// What the sentence is about: a step, a span or a verdict, with its URL.
    pub(super) subject: Option<(String, String)>,
    pub(super) sentence: String,
}

impl RunHeadline {
    /// Builds the headline from the known cause: the error that ended the run if it failed, else the earliest flagged
    /// step, else a verdict on the whole. `at` gives the URL of the page that contains a step.
    pub(super) fn from_run(
        settings: &ReloadableSettings,
        trajectory: &Trajectory,
        outcomes: &[RecordedVerdict],
        errors: &[ErrorSpanLink],
        at: impl Fn(Option<u32>) -> PageUrl,
    ) -> RunHeadline {
        let outcome = RunOutcome::from_outcomes(outcomes);
        let is_bad = is_failed_run(trajectory, outcome.as_ref());
        let wrong = || outcomes.iter().filter(|given| given.is_wrong);
        let is_outcome = |given: &RecordedVerdict| *given.line.evaluator == *OUTCOME;
        let first_step = wrong().filter(|given| given.line.step_index.is_some());
        let first_step = first_step.min_by_key(|given| given.line.step_index);
        let whole = wrong().find(|given| given.line.step_index.is_none() && !is_outcome(given));
        let words = |given: &RecordedVerdict| {
            let words = given.line.explanation.as_deref().filter(|words| !words.trim().is_empty());
            words.or(given.line.label.as_deref()).map(format_sentence).unwrap_or_default()
        };
        let (subject, sentence) = if let Some(cause) = find_cause(trajectory, errors).filter(|_| is_bad) {
            cause
        } else if let Some(given) = first_step {
            let step = given.line.step_index;
            let href = at(step).with_fragment(format_step_anchor(step)).to_string();
            (Some((format_step_subject(trajectory, step), href)), words(given))
        } else if let Some(given) = whole {
            let title = find_evaluator_title(settings, &given.line.evaluator);
            (Some((title, "#whole".to_owned())), words(given))
        } else if let Some(given) = wrong().find(|given| is_outcome(given)) {
            (None, words(given))
        } else {
            (None, describe_unflagged(outcomes))
        };
        let class = match (is_bad, wrong().next().is_some()) {
            (true, _) => "bad",
            (_, true) => "flagged",
            _ => "plain",
        };
        let failed = || is_bad.then(|| "ended in an error".to_owned());
        RunHeadline {
            class,
            outcome: outcome.map(|outcome| outcome.label).or_else(failed).map(|label| capitalize(&label)),
            subject,
            sentence,
        }
    }

    /// Returns the headline with the fault of another agent of the trace, if nothing is wrong with this one. `href`
    /// is the URL of that agent.
    pub(super) fn with_agent_fault(self, other: &Trajectory, fault: RunHeadline, href: String) -> RunHeadline {
        if self.class != "plain" || fault.class == "plain" {
            return self;
        }
        let agent = text::format_display_line(other.agent.as_deref().unwrap_or("another agent"));
        let (agent, href) = match fault.subject {
            Some((subject, to)) if to.starts_with('#') => (format!("{agent}, {subject}"), href),
            Some((subject, to)) => (format!("{agent}, {subject}"), to),
            None => (agent, href),
        };
        let ending = fault.outcome.filter(|_| fault.class == "bad").map(|ending| format!("{ending}. "));
        let sentence = format!("{}{}", ending.unwrap_or_default(), fault.sentence);
        RunHeadline { class: "flagged", outcome: self.outcome, subject: Some((agent, href)), sentence }
    }

    /// Whether the sentence is the explanation of the verdict of this evaluator on the whole run.
    pub(super) fn is_from(&self, title: &str) -> bool {
        self.subject.as_ref().is_some_and(|(subject, href)| href == "#whole" && subject == title)
    }

    /// Whether the sentence is about what this URL shows.
    pub(super) fn is_about(&self, href: &str) -> bool {
        self.subject.as_ref().is_some_and(|(_, known)| known == href)
    }
}

/// Finds the error that ended the run: the one that its span recorded, with the span where it began, else the latest.
/// The agent continued after earlier errors.
fn find_cause(trajectory: &Trajectory, errors: &[ErrorSpanLink]) -> Option<(Option<(String, String)>, String)> {
    let link = |error: &ErrorSpanLink| Some((error.name.clone(), error.href.clone()));
    let failed = trajectory.defects.iter().find(|defect| defect.kind == DefectKind::RunFailed);
    // Traces have the error behind a fixed text; imported records and experiments have it alone.
    let recorded = failed.map(|defect| defect.detail.strip_prefix(RUN_FAILED).unwrap_or(&defect.detail));
    let recorded = recorded.map(|text| text.trim_start_matches(": ")).filter(|text| !text.is_empty());
    let Some(recorded) = recorded else {
        return errors.last().map(|error| (link(error), error.message.clone()));
    };
    let message = text::format_display_line(recorded);
    // One of the two texts may be truncated, or begin with the kind of the error.
    let shown = message.trim_end_matches('…');
    let is_it = |error: &&ErrorSpanLink| shown.contains(&error.message) || error.message.contains(shown);
    Some((errors.iter().rev().find(is_it).and_then(link), message))
}

/// Whether the run ended badly, by its verdict or by its recorded status.
pub(super) fn is_failed_run(trajectory: &Trajectory, outcome: Option<&RunOutcome>) -> bool {
    trajectory.is_error || outcome.is_some_and(|outcome| outcome.is_dead)
}

/// `Step 2, refund_order`
fn format_step_subject(trajectory: &Trajectory, step: Option<u32>) -> String {
    let number = step.unwrap_or_default();
    let tool = trajectory.steps.iter().find(|known| Some(known.index) == step).map(|known| known.tool.as_str());
    match tool {
        Some(tool) => format!("Step {number}, {}", text::format_display_line(tool)),
        None => format!("Step {number}"),
    }
}

/// The first line of an explanation, as a sentence.
fn format_sentence(words: &str) -> String {
    let first = words.trim().lines().next().unwrap_or_default();
    let shown = text::format_display_line(first);
    if shown.ends_with(['.', '!', '?', '…', ')', ':']) { shown } else { format!("{shown}.") }
}

/// Describes a run without a flag. Rules that did not fire prove nothing, so the sentence does not call the run
/// right.
fn describe_unflagged(outcomes: &[RecordedVerdict]) -> String {
    let count = |kind: OutcomeKind| outcomes.iter().filter(|given| given.line.outcome == kind).count() as u64;
    let is_rules = |given: &RecordedVerdict| matches!(&*given.line.judge, OFFLINE_JUDGE | RULES_JUDGE);
    let asked = || outcomes.iter().filter(|given| given.line.outcome != OutcomeKind::NotApplicable);
    let undecided = count(OutcomeKind::Abstained);
    let first = match asked().next() {
        None => return "Not judged.".to_owned(),
        Some(_) if asked().all(is_rules) => "No rule fired.",
        Some(_) => "No verdict is flagged.",
    };
    match undecided {
        0 => first.to_owned(),
        1 => format!("{first} 1 question remains undecided."),
        _ => format!("{first} {} questions remain undecided.", number::format_count(undecided)),
    }
}

/// The first letter in upper case.
fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use askama::Template;
    use gradus_core::trajectory::{ExtractionDefect, TrajectoryStep};
    use gradus_eval::evaluator::{CALL_VALIDITY, SEQUENCE_OPTIMALITY};

    use super::super::flag_groups::{FlagGroup, build_flag_groups};
    use super::super::label_authors::LabelAuthor;
    use super::super::loaded_trace::build_trace_url;
    use super::super::run_fact::RunFact;
    use super::super::step::tests::verdict;
    use super::super::step_state::summarize_other_verdicts;
    use super::super::verdict::VerdictDetailView;
    use super::*;

    /// The head of a run and the verdicts on it.
    #[derive(Template)]
    #[template(
        source = r#"{% import "page_parts.html" as parts %}{% include "run_head.html" %}{% include "whole.html" %}"#,
        ext = "html"
    )]
    struct HeadPart {
        headline: RunHeadline,
        errors: Vec<ErrorSpanLink>,
        facts: Vec<RunFact>,
        flags: Vec<FlagGroup>,
        whole: Vec<VerdictDetailView>,
        other_verdicts: Option<String>,
        author: LabelAuthor,
    }

    fn at(step: Option<u32>) -> PageUrl {
        build_trace_url("t", None, step)
    }

    fn on(step: Option<u32>, evaluator: &str, label: &str, is_wrong: bool, words: &str) -> RecordedVerdict {
        let mut given = verdict(evaluator, label, is_wrong);
        given.line.step_index = step;
        given.line.explanation = Some(words.to_owned());
        given
    }

    fn trajectory() -> Trajectory {
        let step = |index| TrajectoryStep { index, tool: "refund".to_owned(), ..TrajectoryStep::default() };
        Trajectory { steps: vec![step(1), step(2)], ..Trajectory::default() }
    }

    fn error() -> ErrorSpanLink {
        ErrorSpanLink {
            href: "/traces/t/spans/1".to_owned(),
            name: "chat".to_owned(),
            message: "429 Too Many Requests".to_owned(),
        }
    }

    fn read(trajectory: &Trajectory, outcomes: &[RecordedVerdict]) -> (&'static str, String) {
        let settings = ReloadableSettings::without_rules();
        let line = RunHeadline::from_run(&settings, trajectory, outcomes, &[error()], at);
        let outcome = line.outcome.map(|outcome| format!("{outcome}. ")).unwrap_or_default();
        let subject = line.subject.map(|(subject, href)| format!("{subject} [{href}]: ")).unwrap_or_default();
        (line.class, format!("{outcome}{subject}{}", line.sentence))
    }

    #[test]
    fn the_first_cause_that_is_known_is_told() {
        let ended = || on(None, OUTCOME, "limit_reached", true, "Stopped at a limit");
        let answered = || on(None, OUTCOME, "answered", false, "");
        let late = || on(Some(2), CALL_VALIDITY, "invalid", true, "No such field.\nMore.");
        let early = || on(Some(1), CALL_VALIDITY, "invalid", true, "It is <wrong>");
        let whole = || on(None, SEQUENCE_OPTIMALITY, "suboptimal", true, "Step 2 repeats step 1.");
        let failed = Trajectory { is_error: true, ..trajectory() };
        for (run, outcomes, class, words) in [
            (
                &trajectory(),
                vec![late(), early(), ended()],
                "bad",
                "Limit reached. chat [/traces/t/spans/1]: 429 Too Many Requests",
            ),
            (&failed, vec![], "bad", "Ended in an error. chat [/traces/t/spans/1]: 429 Too Many Requests"),
            (
                &trajectory(),
                vec![late(), early(), answered()],
                "flagged",
                "Answered. Step 1, refund [/traces/t#step-1]: It is <wrong>.",
            ),
            (
                &trajectory(),
                vec![late(), answered()],
                "flagged",
                "Answered. Step 2, refund [/traces/t#step-2]: No such field.",
            ),
            (
                &trajectory(),
                vec![whole(), answered()],
                "flagged",
                "Answered. Sequence optimality [#whole]: Step 2 repeats step 1.",
            ),
        ] {
            assert_eq!(read(run, &outcomes), (class, words.to_owned()));
        }
    }

    #[test]
    fn the_error_that_ended_the_run_is_shown() {
        let error = |name: &str, message: &str| ErrorSpanLink {
            href: format!("/{name}"),
            name: name.to_owned(),
            message: message.to_owned(),
        };
        let settings = ReloadableSettings::without_rules();
        let read = |detail: &str, errors: &[ErrorSpanLink]| {
            let defects = vec![ExtractionDefect::new(DefectKind::RunFailed, detail, None)];
            let failed = Trajectory { is_error: true, defects, ..trajectory() };
            let line = RunHeadline::from_run(&settings, &failed, &[], errors, at);
            (line.subject.map(|(subject, _)| subject), line.sentence)
        };
        let tool = || error("refund", "no such tool");
        let model = || error("chat", "model did not answer");
        let timeout = format!("{RUN_FAILED}: TimeoutError: model did not answer");
        assert_eq!(read(&timeout, &[tool()]), (None, "TimeoutError: model did not answer".to_owned()));
        let told = "TimeoutError: model did not answer".to_owned();
        assert_eq!(read(&timeout, &[model(), tool()]), (Some("chat".to_owned()), told));
        assert_eq!(read("exit status 3", &[]), (None, "exit status 3".to_owned()), "of an imported record");
        assert_eq!(read(RUN_FAILED, &[tool(), model()]), (Some("chat".to_owned()), "model did not answer".to_owned()));
    }

    #[test]
    fn a_run_that_no_rule_flags_is_not_called_right() {
        let mut by_rules = on(Some(1), CALL_VALIDITY, "correct", false, "");
        by_rules.line.judge = "rules".into();
        let mut open = on(Some(1), "thought_to_tool", "", false, "");
        open.line.outcome = OutcomeKind::Abstained;
        open.line.judge = "offline".into();
        let words = |outcomes: &[RecordedVerdict]| read(&trajectory(), outcomes);
        assert_eq!(words(&[by_rules, open]), ("plain", "No rule fired. 1 question remains undecided.".to_owned()));
        let by_model = on(Some(1), CALL_VALIDITY, "correct", false, "");
        assert_eq!(words(&[by_model]), ("plain", "No verdict is flagged.".to_owned()));
        assert_eq!(words(&[]), ("plain", "Not judged.".to_owned()));
    }

    #[test]
    fn the_fault_of_another_agent_is_named_where_nothing_else_is_wrong() {
        let settings = ReloadableSettings::without_rules();
        let head = |outcomes: &[RecordedVerdict]| RunHeadline::from_run(&settings, &trajectory(), outcomes, &[], at);
        let other = Trajectory { agent: Some("researcher".to_owned()), ..trajectory() };
        let wrong = || on(Some(1), CALL_VALIDITY, "invalid", true, "No such field.");
        let named = head(&[]).with_agent_fault(&other, head(&[wrong()]), "/other".to_owned());
        let subject = named.subject.map(|(subject, _)| subject).unwrap();
        assert!(subject.starts_with("researcher, Step 1"), "{subject}");
        assert_eq!((named.class, named.sentence.as_str()), ("flagged", "No such field."));
        let died = head(&[on(None, OUTCOME, "limit_reached", true, "Stopped at a limit.")]);
        let named = head(&[]).with_agent_fault(&other, died, "/other".to_owned());
        assert_eq!(named.subject, Some(("researcher".to_owned(), "/other".to_owned())));
        assert_eq!(named.sentence, "Limit reached. Stopped at a limit.");
        let own = head(&[wrong()]).with_agent_fault(&other, head(&[wrong()]), "/other".to_owned());
        assert_ne!(own.subject.map(|(_, href)| href), Some("/other".to_owned()));
    }

    #[test]
    fn each_fact_stands_in_the_head_once() {
        let settings = ReloadableSettings::without_rules();
        let outcomes = [
            on(None, OUTCOME, "limit_reached", true, "Stopped at a limit."),
            on(None, SEQUENCE_OPTIMALITY, "suboptimal", true, "Step 2 repeats <step> 1."),
            on(Some(1), CALL_VALIDITY, "invalid", true, "No such field."),
            on(Some(2), CALL_VALIDITY, "invalid", true, "No such field."),
        ];
        let here = PageUrl::from_path("/traces/t");
        let whole = outcomes.iter().filter(|given| given.line.step_index.is_none());
        let whole: Vec<VerdictDetailView> =
            whole.map(|given| VerdictDetailView::from_recorded(&settings, given, &[], &here)).collect();
        let part = HeadPart {
            headline: RunHeadline::from_run(&settings, &trajectory(), &outcomes, &[], at),
            errors: vec![error()],
            facts: vec![
                RunFact::with_link("Session", "<chat> 42", "/sessions/42".to_owned()),
                RunFact::new("Steps", "2".to_owned()),
            ],
            flags: build_flag_groups(&settings, &outcomes, at),
            other_verdicts: summarize_other_verdicts(&whole),
            whole,
            author: LabelAuthor::read_only(),
        };
        let shown = part.render().unwrap().replace("><", ">\n<");
        assert!(!shown.contains("<chat>") && !shown.contains("<step>"), "{shown}");
        assert_eq!((shown.matches("Limit reached").count(), shown.matches("Call validity").count()), (1, 1), "{shown}");
        insta::assert_snapshot!(shown);
    }
}
