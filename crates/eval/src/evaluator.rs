//! Evaluators: a question and its judge, either a rubric with a model, or fixed rules.

use std::sync::Arc;

use gradus_llm::AnswerForm;

use crate::judge;
pub use crate::offline::GAVE_UP;
use crate::offline::{OUTCOME_LABELS, OfflineJudge, OfflineVerdict, RECOVERY_LABELS, RuleFinding};
use crate::outcome::{EvaluationOutcome, RuleRemark, ScoredVerdict};
use crate::rubric::{Rubric, RubricLabels, RubricSubject};
use crate::run::EvaluatorRecord;

/// Built-in rubric: does the tool call follow from the thought? The offline judge has rules for it.
pub const THOUGHT_TO_TOOL: &str = "thought_to_tool";
/// Built-in rubric: does the thought serve the user's request? The offline judge has rules for it.
pub const QUERY_TO_THOUGHT: &str = "query_to_thought";
/// Built-in rubric for whole trajectories: are there needless or repeated steps? The offline judge has rules for it.
pub const SEQUENCE_OPTIMALITY: &str = "sequence_optimality";
/// Built-in rubric: was this the right call for the request? For steps without a thought. The offline judge has rules
/// for it.
pub const REQUEST_TO_TOOL: &str = "request_to_tool";
/// Built-in rubric for whole trajectories: was the task done? The offline judge has a rule for it.
pub const TASK_COMPLETION: &str = "task_completion";
/// How a run ended. Rules answer it in every run, even if a model judges the rubrics.
pub const OUTCOME: &str = "outcome";
/// Checks a call against the tool's JSON schema. Rules answer it in every run.
pub const CALL_VALIDITY: &str = "call_validity";
/// Traces the values of a call to their sources. Rules answer it in every run.
pub const ARGUMENT_PROVENANCE: &str = "argument_provenance";
/// The evaluator of how the agent reacted to failed calls. Rules answer it in every run.
pub const ERROR_RECOVERY: &str = "error_recovery";
/// Whether a step of a coding agent does something that it should not. Part of the set `coding`.
pub const CODING_CONDUCT: &str = "coding_conduct";
/// Whether a claim of passing tests is supported by a run of them. Part of the set `coding`.
pub const TEST_CLAIMS: &str = "test_claims";
/// Replaces the rubric hash in outcomes by rules. It must be raised with every change to the rules, so that outcomes
/// of different rules can be distinguished.
const RULES_VERSION: &str = "rules-6";
/// The judge's name in outcomes of a rubric that rules answered.
pub const OFFLINE_JUDGE: &str = "offline";
/// The judge's name in outcomes of `call_validity`, which no model ever answers.
pub const RULES_JUDGE: &str = "rules";
/// The judge's name in benchmark outcomes, which are measured from the state of the simulated GitHub.
pub const SIMULATOR_JUDGE: &str = "simulator";

/// One question of a run, ready to be asked of every step or trajectory.
#[derive(Clone, Debug)]
pub struct Evaluator {
    /// The rubric's name. It is unique within a run, and `Arc` because every outcome line carries it.
    pub name: Arc<str>,
    pub title: String,
    pub subject: RubricSubject,
    pub labels: RubricLabels,
    /// The rubric's hash, or the version of the rules.
    pub hash: Arc<str>,
    /// The name of its annotations in Phoenix, unless `[phoenix.names]` gives another.
    pub phoenix_name: String,
    /// Who answers, as in outcome lines: `offline`, `rules`, or provider and model.
    pub judge: Arc<str>,
    pub(crate) method: EvaluationMethod,
}

/// How an evaluator is answered.
#[derive(Clone, Debug)]
pub(crate) enum EvaluationMethod {
    Rules(RuleQuestion),
    Model { rubric: Arc<Rubric>, answer: AnswerForm },
}

/// The questions that the offline judge has rules for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleQuestion {
    ThoughtToTool,
    QueryToThought,
    SequenceOptimality,
    RequestToTool,
    TaskCompletion,
    Outcome,
    CallValidity,
    ArgumentProvenance,
    ErrorRecovery,
    CodingConduct,
    TestClaims,
}

impl RuleQuestion {
    /// Rules belong to a name: a user's rubric that replaces a built-in one under the same name gets its rules offline.
    fn from_name(name: &str) -> Option<RuleQuestion> {
        Some(match name {
            THOUGHT_TO_TOOL => RuleQuestion::ThoughtToTool,
            QUERY_TO_THOUGHT => RuleQuestion::QueryToThought,
            SEQUENCE_OPTIMALITY => RuleQuestion::SequenceOptimality,
            REQUEST_TO_TOOL => RuleQuestion::RequestToTool,
            TASK_COMPLETION => RuleQuestion::TaskCompletion,
            _ => return None,
        })
    }
}

impl Evaluator {
    /// A rubric that a model answers. `structured` asks for JSON that follows a schema.
    pub fn with_model_judge(rubric: &Rubric, judge: &str, structured: bool) -> Evaluator {
        let answer = judge::build_answer_form(rubric, structured);
        Evaluator::from_rubric(
            rubric,
            judge,
            &rubric.hash,
            EvaluationMethod::Model { rubric: Arc::new(rubric.clone()), answer },
        )
    }

    /// A rubric that rules answer; `None` if there are no rules under its name.
    pub fn with_offline_rules(rubric: &Rubric) -> Option<Evaluator> {
        let question = RuleQuestion::from_name(&rubric.name)?;
        Some(Evaluator::from_rubric(rubric, OFFLINE_JUDGE, RULES_VERSION, EvaluationMethod::Rules(question)))
    }

    /// The evaluator of whether the tool accepts a call: a fact, so no model is asked.
    pub fn call_validity() -> Evaluator {
        let labels = RubricLabels::binary("correct", "incorrect");
        Evaluator::from_rules(CALL_VALIDITY, "Call validity", RubricSubject::Step, labels, RuleQuestion::CallValidity)
    }

    /// The evaluator of how a run ended, which is a fact, too.
    pub fn outcome() -> Evaluator {
        let labels = RubricLabels::from_table(OUTCOME_LABELS);
        Evaluator::from_rules(OUTCOME, "Outcome", RubricSubject::Trajectory, labels, RuleQuestion::Outcome)
    }

    /// The evaluator of whether each value of a call has a source in the trace.
    pub fn argument_provenance() -> Evaluator {
        let (title, labels) = ("Argument provenance", RubricLabels::binary("explained", "unexplained"));
        let question = RuleQuestion::ArgumentProvenance;
        Evaluator::from_rules(ARGUMENT_PROVENANCE, title, RubricSubject::Step, labels, question)
    }

    /// How the agent reacted to failed calls.
    pub fn error_recovery() -> Evaluator {
        let labels = RubricLabels::from_table(RECOVERY_LABELS);
        let question = RuleQuestion::ErrorRecovery;
        Evaluator::from_rules(ERROR_RECOVERY, "Error recovery", RubricSubject::Trajectory, labels, question)
    }

    /// Whether a step of a coding agent does something that it should not.
    pub fn coding_conduct() -> Evaluator {
        let (title, labels) = ("Coding conduct", RubricLabels::binary("no_finding", "finding"));
        Evaluator::from_rules(CODING_CONDUCT, title, RubricSubject::Step, labels, RuleQuestion::CodingConduct)
    }

    /// Whether a claim of passing tests is supported.
    pub fn test_claims() -> Evaluator {
        let (title, labels) = ("Test claims", RubricLabels::binary("supported", "unsupported"));
        Evaluator::from_rules(TEST_CLAIMS, title, RubricSubject::Trajectory, labels, RuleQuestion::TestClaims)
    }

    fn from_rules(
        name: &str,
        title: &str,
        subject: RubricSubject,
        labels: RubricLabels,
        question: RuleQuestion,
    ) -> Evaluator {
        Evaluator {
            name: name.into(),
            title: title.to_owned(),
            subject,
            labels,
            hash: RULES_VERSION.into(),
            phoenix_name: title.to_owned(),
            judge: RULES_JUDGE.into(),
            method: EvaluationMethod::Rules(question),
        }
    }

    fn from_rubric(rubric: &Rubric, judge: &str, hash: &str, method: EvaluationMethod) -> Evaluator {
        Evaluator {
            name: rubric.name.as_str().into(),
            title: rubric.title.clone(),
            subject: rubric.subject,
            labels: rubric.labels.clone(),
            hash: hash.into(),
            phoenix_name: rubric.phoenix_name.clone(),
            judge: judge.into(),
            method,
        }
    }

    pub fn asks_model(&self) -> bool {
        matches!(self.method, EvaluationMethod::Model { .. })
    }

    /// Whether the thought before the final answer gets an outcome, too. No rule can decide it, so that offline the
    /// outcome is an abstention; without one, the two judges would answer different numbers of questions.
    pub(crate) fn judges_final_thought(&self) -> bool {
        match &self.method {
            EvaluationMethod::Model { rubric, .. } => rubric.judges_final_thought,
            EvaluationMethod::Rules(_) => matches!(&*self.name, THOUGHT_TO_TOOL | QUERY_TO_THOUGHT),
        }
    }

    /// The description of the evaluator in a run's manifest, from which reports are made without the rubric file.
    pub fn to_record(&self) -> EvaluatorRecord {
        EvaluatorRecord {
            name: self.name.to_string(),
            title: self.title.clone(),
            of_steps: self.subject == RubricSubject::Step,
            labels: self.labels.iter().map(|(label, score)| (label.to_owned(), score)).collect(),
            rubric_hash: self.hash.to_string(),
            phoenix_name: self.phoenix_name.clone(),
            judge: self.judge.to_string(),
        }
    }

    /// Answers by rules. `step` is an index into the trajectory's steps, `None` for questions about the whole. Rules
    /// know only good and bad, so a rubric with more than two labels gets its best or its worst.
    pub(crate) fn apply_rules(
        &self,
        question: RuleQuestion,
        offline: &OfflineJudge<'_>,
        step: Option<usize>,
    ) -> EvaluationOutcome {
        let verdict = match (question, step) {
            (RuleQuestion::Outcome, _) => offline.outcome(),
            (RuleQuestion::SequenceOptimality, _) => offline.sequence_optimality(),
            (RuleQuestion::TaskCompletion, _) => offline.task_completion(),
            (RuleQuestion::ErrorRecovery, _) => offline.error_recovery(),
            (RuleQuestion::TestClaims, _) => offline.test_claims(),
            (RuleQuestion::CodingConduct, Some(step)) => offline.coding_conduct(step),
            (RuleQuestion::ThoughtToTool, Some(step)) => offline.thought_to_tool(step),
            (RuleQuestion::QueryToThought, Some(step)) => offline.query_to_thought(step),
            (RuleQuestion::RequestToTool, Some(step)) => offline.request_to_tool(step),
            (RuleQuestion::CallValidity, Some(step)) => offline.call_validity(step),
            (RuleQuestion::ArgumentProvenance, Some(step)) => offline.argument_provenance(step),
            (_, None) => OfflineVerdict::NotApplicable { reason: "The question is about a step.".to_owned() },
        };
        let scored = |label: &str, finding: RuleFinding| {
            EvaluationOutcome::Scored(ScoredVerdict {
                label: label.to_owned(),
                score: self.labels.score(label),
                explanation: finding.explanation,
                evidence: finding.evidence,
                rule: Some(finding.rule),
            })
        };
        match verdict {
            OfflineVerdict::Good(finding) => scored(self.labels.best(), finding),
            OfflineVerdict::Bad(finding) => scored(self.labels.worst(), finding),
            OfflineVerdict::Labelled { label, finding } => scored(label, finding),
            OfflineVerdict::CannotJudge { reason } => EvaluationOutcome::Abstained { reason },
            OfflineVerdict::NotApplicable { reason } => EvaluationOutcome::NotApplicable { reason },
        }
    }

    /// Returns what rules notice about the subject of this question without deciding it.
    pub(crate) fn rule_remarks(
        &self,
        question: RuleQuestion,
        offline: &OfflineJudge<'_>,
        step: Option<usize>,
    ) -> Vec<RuleRemark> {
        match question {
            RuleQuestion::CodingConduct => step.map_or_else(Vec::new, |step| offline.conduct_remarks(step)),
            RuleQuestion::Outcome => offline.outcome_remarks(),
            RuleQuestion::SequenceOptimality => offline.sequence_remarks(),
            RuleQuestion::ErrorRecovery => offline.recovery_remarks(),
            RuleQuestion::TestClaims => offline.claim_remarks(),
            _ => Vec::new(),
        }
    }
}
