//! One step as it is shown: on the page of its trajectory, and where a verdict on it is reviewed.

use gradus_core::trajectory::Step;
use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_store::Annotation;

use super::address::Address;
use super::fold::{Folded, Shelf};
use super::verdict::Verdict;
use super::words::duration;
use crate::page::recorded_verdict::Given;
use crate::settings::Reloadable;
use gradus_report::html::number;
use gradus_report::html::text::{self, Block};

pub(super) struct StepView {
    pub(super) number: u32,
    pub(super) tool: String,
    pub(super) thought: Option<Folded>,
    pub(super) arguments: Option<Folded>,
    /// What is wrong with the call itself.
    pub(super) violation: Option<Violation>,
    pub(super) observation: Option<Folded>,
    pub(super) is_error: bool,
    pub(super) is_parallel: bool,
    pub(super) facts: Vec<String>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) is_failing: bool,
    /// Evaluators whose verdict on the whole trajectory speaks of this step.
    pub(super) named_by: Vec<String>,
}

/// What is known of a trajectory whose steps are shown.
pub(super) struct Judged<'j> {
    pub(super) shelf: Shelf<'j>,
    pub(super) outcomes: &'j [Given],
    pub(super) said: &'j [Annotation],
}

pub(super) struct Violation {
    pub(super) what: Block,
    pub(super) evidence: Vec<Block>,
}

impl StepView {
    pub(super) fn of(settings: &Reloadable, judged: &Judged<'_>, step: &Step, here: &Address) -> StepView {
        let fold = |given: Option<&str>, part: &str| judged.shelf.folded(given, Some(step.index), part);
        let of_step = || judged.outcomes.iter().filter(|given| given.line.step_index == Some(step.index));
        let verdicts: Vec<Verdict> =
            of_step().map(|given| Verdict::of(settings, given, judged.said, here)).collect();
        let is_invalid = |given: &&Given| given.is_wrong && *given.line.evaluator == *CALL_VALIDITY;
        let violation = of_step().find(is_invalid).map(|Given { line, .. }| Violation {
            what: text::block(line.explanation.as_deref().unwrap_or("The tool cannot take this call.")),
            evidence: line.evidence.iter().take(8).map(|piece| text::block(piece)).collect(),
        });
        let mut facts = Vec::new();
        let time = |text: &Option<String>| -> Option<i64> {
            let time: jiff::Timestamp = text.as_deref()?.parse().ok()?;
            i64::try_from(time.as_nanosecond()).ok()
        };
        if let (Some(start), Some(end)) = (time(&step.start), time(&step.end)) {
            facts.push(duration(end.saturating_sub(start)));
        }
        let tokens = step.tokens.total();
        if tokens > 0 {
            facts.push(format!("{} tokens", number::count(tokens)));
        }
        facts.extend(step.agent.as_deref().map(text::line));
        StepView {
            number: step.index,
            tool: text::line(&step.tool),
            thought: fold(step.thought.as_deref(), "thought"),
            arguments: fold(step.arguments_text().as_deref(), "arguments"),
            violation,
            observation: fold(step.observation.as_deref(), "observation"),
            is_error: step.is_error,
            is_parallel: step.parallel_with_previous,
            facts,
            is_failing: verdicts.iter().any(Verdict::is_wrong),
            named_by: Vec::new(),
            verdicts,
        }
    }
}
