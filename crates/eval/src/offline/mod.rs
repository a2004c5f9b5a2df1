//! The offline judge: fixed rules, without a model and a network. The same trajectory always gets the same verdicts.
//! It only decides what it can prove: a verdict is based on facts of the trace, words alone lead to remarks at most,
//! and if no rule decides, the judge abstains.
//!
//! All texts are untrusted and may be very long, so every rule bounds the text that it reads and takes time linear in
//! the trajectory.

mod answer_text;
mod call;
mod coding;
mod completion;
mod date_mentions;
mod evidence_index;
mod excerpt;
mod failure;
mod give_up;
mod identifiers;
mod named_objects;
mod number_text;
mod provenance;
mod recovery;
mod repetition;
mod request_choice;
mod rule_catalog;
mod run_outcome;
mod schema;
mod sequence;
mod text_pieces;
mod thought;
mod tools;
mod values;
mod vocabulary;
mod word_form;
mod words;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use gradus_core::trajectory::{DefectKind, Trajectory, TrajectoryStep};

pub use repetition::{ComparedCall, is_repetition};
pub use rule_catalog::{EvidenceClass, OFFLINE_RULES, OfflineRule};
pub use tools::ToolIndex;

pub(crate) use recovery::RECOVERY_LABELS;
pub use run_outcome::GAVE_UP;
pub(crate) use run_outcome::OUTCOME_LABELS;

use crate::rule_remark::RuleRemark;
use evidence_index::EvidenceIndex;
use failure::{ToolFailureKind, classify_tool_failure};
use schema::SchemaViolation;
use tools::IndexedTool;
use values::ScalarArgument;
use words::AnalyzedText;

/// The finding of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleFinding {
    /// The id of the rule, as in [`OFFLINE_RULES`].
    pub rule: &'static str,
    pub explanation: String,
    pub evidence: Vec<String>,
}

/// The answer of the rules to one question.
#[derive(Clone, Debug, PartialEq)]
pub enum OfflineVerdict {
    Good(RuleFinding),
    Bad(RuleFinding),
    /// For questions with labels other than good and bad.
    Labelled {
        label: &'static str,
        finding: RuleFinding,
    },
    /// The question applies, and the rules cannot decide it.
    CannotJudge {
        reason: String,
    },
    /// The question does not apply: there is no thought, no query or no step.
    NotApplicable {
        reason: String,
    },
}

impl OfflineVerdict {
    fn good(rule: &'static str, explanation: impl Into<String>, evidence: Vec<String>) -> OfflineVerdict {
        OfflineVerdict::Good(RuleFinding { rule, explanation: explanation.into(), evidence })
    }

    fn bad(rule: &'static str, explanation: impl Into<String>, evidence: Vec<String>) -> OfflineVerdict {
        OfflineVerdict::Bad(RuleFinding { rule, explanation: explanation.into(), evidence })
    }

    fn cannot_judge(reason: impl Into<String>) -> OfflineVerdict {
        OfflineVerdict::CannotJudge { reason: reason.into() }
    }

    fn not_applicable(reason: impl Into<String>) -> OfflineVerdict {
        OfflineVerdict::NotApplicable { reason: reason.into() }
    }
}

/// The rules, prepared for one trajectory. Intermediate results are computed on first use and cached, because many
/// rules need them.
#[derive(Debug)]
pub struct OfflineJudge<'t> {
    trajectory: &'t Trajectory,
    index: Arc<ToolIndex>,
    query: OnceLock<Option<AnalyzedText<'t>>>,
    evidence: OnceLock<EvidenceIndex<'t>>,
    repeats: OnceLock<Vec<Option<usize>>>,
    result_usage: OnceLock<sequence::ResultUsage>,
    steps: Vec<StepFeatures<'t>>,
    /// The first step whose result is missing.
    lost_result: OnceLock<Option<usize>>,
    /// Whether the trace's list of tools is complete, so that a missing tool did not exist.
    lists_all_tools: OnceLock<bool>,
    /// What each step does, if the agent is a coding agent.
    coding_actions: OnceLock<Vec<coding::CodingAction>>,
}

/// Analysis of one step, computed on first use: many rules need it, and again for each later step.
#[derive(Debug, Default)]
struct StepFeatures<'t> {
    thought: OnceLock<Option<AnalyzedText<'t>>>,
    scalars: OnceLock<Vec<ScalarArgument<'t>>>,
    failure: OnceLock<Option<ToolFailureKind>>,
    violations: OnceLock<Vec<SchemaViolation>>,
}

impl<'t> OfflineJudge<'t> {
    /// Indexes the tools of the trajectory, including called ones that the trace does not list.
    pub fn new(trajectory: &'t Trajectory) -> Self {
        let called = trajectory.steps.iter().map(|step| step.tool.as_str());
        let index = Arc::new(ToolIndex::with_called(&trajectory.tools, called));
        OfflineJudge::from_tool_index(trajectory, index)
    }

    /// Uses an index that trajectories with the same tools share: `ToolIndex::new(&trajectory.tools)`. If a step
    /// calls a tool that is not in it, a separate index is built.
    pub fn with_index(trajectory: &'t Trajectory, index: &Arc<ToolIndex>) -> Self {
        if trajectory.steps.iter().any(|step| index.find(&step.tool).is_none()) {
            return OfflineJudge::new(trajectory);
        }
        OfflineJudge::from_tool_index(trajectory, Arc::clone(index))
    }

    fn from_tool_index(trajectory: &'t Trajectory, index: Arc<ToolIndex>) -> Self {
        OfflineJudge {
            trajectory,
            index,
            query: OnceLock::new(),
            evidence: OnceLock::new(),
            repeats: OnceLock::new(),
            result_usage: OnceLock::new(),
            steps: trajectory.steps.iter().map(|_| StepFeatures::default()).collect(),
            lost_result: OnceLock::new(),
            lists_all_tools: OnceLock::new(),
            coding_actions: OnceLock::new(),
        }
    }

    /// Judges how the run ended.
    pub fn outcome(&self) -> OfflineVerdict {
        run_outcome::judge_outcome(self)
    }

    /// Returns remarks on the end of the run.
    pub fn outcome_remarks(&self) -> Vec<RuleRemark> {
        run_outcome::outcome_remarks(self)
    }

    /// Judges whether the called tool and its arguments are those that the thought names. `step` counts from 0 here
    /// and below.
    pub fn thought_to_tool(&self, step: usize) -> OfflineVerdict {
        thought::judge_thought_to_tool(self, step)
    }

    /// Judges whether the thought is about the objects of the request.
    pub fn query_to_thought(&self, step: usize) -> OfflineVerdict {
        named_objects::judge_query_to_thought(self, step)
    }

    /// Judges whether a call without a thought is about the objects of the request.
    pub fn request_to_tool(&self, step: usize) -> OfflineVerdict {
        request_choice::judge_request_choice(self, step)
    }

    /// Judges whether the steps led to the answer without detours.
    pub fn sequence_optimality(&self) -> OfflineVerdict {
        sequence::judge_sequence(self)
    }

    /// Returns remarks on the flow of results.
    pub fn sequence_remarks(&self) -> Vec<RuleRemark> {
        sequence::sequence_remarks(self)
    }

    /// Judges whether the tool exists and accepts the arguments.
    pub fn call_validity(&self, step: usize) -> OfflineVerdict {
        call::judge_call_validity(self, step)
    }

    /// Judges whether each value of the call has a source.
    pub fn argument_provenance(&self, step: usize) -> OfflineVerdict {
        provenance::judge_provenance(self, step)
    }

    /// Judges whether failed calls were repaired or admitted.
    pub fn error_recovery(&self) -> OfflineVerdict {
        recovery::judge_recovery(self)
    }

    /// Returns counts of errors and reactions.
    pub fn recovery_remarks(&self) -> Vec<RuleRemark> {
        recovery::recovery_remarks(self)
    }

    /// Judges whether a step of a coding agent does something that it should not.
    pub fn coding_conduct(&self, step: usize) -> OfflineVerdict {
        coding::judge_conduct(self, step)
    }

    /// Returns remarks on a step of a coding agent.
    pub fn conduct_remarks(&self, step: usize) -> Vec<RuleRemark> {
        coding::conduct_remarks(self, step)
    }

    /// Judges whether a claim of passing tests is supported by a run of them.
    pub fn test_claims(&self) -> OfflineVerdict {
        coding::judge_test_claims(self)
    }

    /// Returns remarks on corrections by the user, and on work after the last change.
    pub fn claim_remarks(&self) -> Vec<RuleRemark> {
        coding::claim_remarks(self)
    }

    /// Judges whether a requested change was made.
    pub fn task_completion(&self) -> OfflineVerdict {
        completion::judge_completion(self)
    }

    fn step(&self, at: usize) -> Option<&'t TrajectoryStep> {
        self.trajectory.steps.get(at)
    }

    /// `None` if the step has no thought or a blank one.
    fn thought(&self, at: usize) -> Option<&AnalyzedText<'t>> {
        let text = || {
            let thought = self.step(at)?.thought.as_deref()?;
            (!thought.trim().is_empty()).then(|| AnalyzedText::new(thought))
        };
        self.steps.get(at)?.thought.get_or_init(text).as_ref()
    }

    /// The scalar arguments of a step.
    fn scalar_arguments(&self, at: usize) -> &[ScalarArgument<'t>] {
        let scalars = || self.step(at).map(values::collect_scalars).unwrap_or_default();
        self.steps.get(at).map_or(&[], |step| step.scalars.get_or_init(scalars))
    }

    fn failure(&self, at: usize) -> Option<ToolFailureKind> {
        *self.steps.get(at)?.failure.get_or_init(|| {
            let step = self.step(at)?;
            let failure = classify_tool_failure(step)?;
            // A program in a shell may report an error about its own arguments although the shell accepted the call.
            let is_about_call = matches!(failure, ToolFailureKind::BadCall | ToolFailureKind::NoSuchTool);
            let is_printed = coding::is_program_output(step);
            let is_content = || !failure::is_harness_error(step) && coding::shows_other_output(self, step);
            if !is_about_call || !(is_printed || is_content()) {
                return Some(failure);
            }
            // A program reports a failure in words; other content is an error only if the record marks it as one.
            (step.is_error || is_printed || coding::runs_command(step)).then_some(ToolFailureKind::Refused)
        })
    }

    /// Whether the call returned a result that is not an error.
    fn has_succeeded(&self, at: usize) -> bool {
        self.step(at).is_some_and(|step| step.observation.is_some()) && self.failure(at).is_none()
    }

    /// Violations of the called tool's schema.
    fn schema_violations(&self, at: usize) -> &[SchemaViolation] {
        self.steps.get(at).map_or(&[], |step| step.violations.get_or_init(|| call::find_schema_violations(self, at)))
    }

    /// Returns the index of where values occur first.
    fn evidence(&self) -> &EvidenceIndex<'_> {
        self.evidence.get_or_init(|| EvidenceIndex::new(self.trajectory))
    }

    /// Returns which results were used later.
    fn result_usage(&self) -> &sequence::ResultUsage {
        self.result_usage.get_or_init(|| sequence::ResultUsage::new(self))
    }

    /// Returns for each step the earlier one that it needlessly repeats.
    fn repeats(&self) -> &[Option<usize>] {
        self.repeats.get_or_init(|| sequence::find_repeats(self))
    }

    /// Whether the result of a step before this one is missing.
    fn has_lost_result(&self, before: usize) -> bool {
        let find = || self.trajectory.steps.iter().position(|step| step.observation.is_none());
        self.lost_result.get_or_init(find).is_some_and(|lost| lost < before)
    }

    /// Whether the record names an earlier part of the conversation that is nowhere.
    fn lacks_earlier_turn(&self) -> bool {
        self.trajectory.defects.iter().any(|defect| defect.kind == DefectKind::MissingTurn)
    }

    /// Whether the call succeeded and may have changed something.
    fn has_changed_something(&self, at: usize) -> bool {
        let tool = self.step(at).and_then(|step| self.find_tool(step));
        self.failure(at).is_none() && tool.is_none_or(|(_, tool)| tool.may_change())
    }

    fn query(&self) -> Option<&AnalyzedText<'t>> {
        let text = || self.trajectory.query.as_deref().filter(|query| !query.trim().is_empty()).map(AnalyzedText::new);
        self.query.get_or_init(text).as_ref()
    }

    fn find_tool(&self, step: &TrajectoryStep) -> Option<(usize, &IndexedTool)> {
        let at = self.index.find(&step.tool)?;
        Some((at, self.index.tools.get(at)?))
    }

    /// Returns the calls of the same model reply. They share a thought, which may announce any of them.
    fn reply_calls(&self, at: usize) -> impl Iterator<Item = (usize, &'t TrajectoryStep)> {
        let steps = &self.trajectory.steps;
        let mut first = at;
        while first > 0 && at - first < 50 && steps.get(first).is_some_and(|step| step.parallel_with_previous) {
            first -= 1;
        }
        let rest = steps.iter().enumerate().skip(first).take(100);
        rest.take_while(move |(other, step)| *other == first || step.parallel_with_previous)
    }
}
