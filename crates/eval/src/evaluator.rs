//! Evaluators: a question and who answers it, which is a rubric with a model, or fixed rules.

use std::sync::Arc;

use gradus_llm::AnswerForm;

use crate::judge;
use crate::offline::{OfflineJudge, OfflineVerdict};
use crate::outcome::{EvaluationOutcome, ScoredVerdict};
use crate::rubric::{Rubric, RubricLabels, RubricSubject};
use crate::run::EvaluatorRecord;

/// Built-in rubric: does the tool call follow from the thought? The offline judge has rules for it.
pub const THOUGHT_TO_TOOL: &str = "thought_to_tool";
/// Built-in rubric: does the thought serve the user's request? The offline judge has rules for it.
pub const QUERY_TO_THOUGHT: &str = "query_to_thought";
/// Built-in rubric for whole trajectories: are there needless or repeated steps? The offline judge has rules for it.
pub const SEQUENCE_OPTIMALITY: &str = "sequence_optimality";
/// Checks a call against the tool's JSON schema. Rules answer it in every run, even if a model judges the rubrics.
pub const CALL_VALIDITY: &str = "call_validity";
/// Stands in for the rubric hash of outcomes by rules. Raise it with every change to the rules, so that outcomes of
/// different rules can be distinguished.
const RULES_VERSION: &str = "rules-2";
/// The judge's name in outcomes of a rubric that rules answered.
pub const OFFLINE: &str = "offline";
/// The judge's name in outcomes of `call_validity`, which no model ever answers.
pub const RULES: &str = "rules";
/// The judge's name in benchmark outcomes, which are measured from the state of the simulated GitHub.
pub const SIMULATOR: &str = "simulator";

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
    CallValidity,
}

impl RuleQuestion {
    /// Rules belong to a name: a user's rubric that replaces a built-in one under the same name gets its rules offline.
    fn from_name(name: &str) -> Option<RuleQuestion> {
        Some(match name {
            THOUGHT_TO_TOOL => RuleQuestion::ThoughtToTool,
            QUERY_TO_THOUGHT => RuleQuestion::QueryToThought,
            SEQUENCE_OPTIMALITY => RuleQuestion::SequenceOptimality,
            _ => return None,
        })
    }
}

impl Evaluator {
    /// A rubric that a model answers. `structured` asks for JSON that follows a schema.
    pub fn with_model_judge(rubric: &Rubric, judge: &str, structured: bool) -> Evaluator {
        let answer = judge::answer_form(rubric, structured);
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
        Some(Evaluator::from_rubric(rubric, OFFLINE, RULES_VERSION, EvaluationMethod::Rules(question)))
    }

    /// Whether the tool accepts the call is a fact and not an opinion, so no model is asked.
    pub fn call_validity() -> Evaluator {
        Evaluator {
            name: CALL_VALIDITY.into(),
            title: "Call Validity".to_owned(),
            subject: RubricSubject::Step,
            labels: RubricLabels::binary("correct", "incorrect"),
            hash: RULES_VERSION.into(),
            phoenix_name: "Call Validity".to_owned(),
            judge: RULES.into(),
            method: EvaluationMethod::Rules(RuleQuestion::CallValidity),
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

    pub fn asks_a_model(&self) -> bool {
        matches!(self.method, EvaluationMethod::Model { .. })
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
        let opinion = match (question, step) {
            (RuleQuestion::SequenceOptimality, _) => offline.sequence_optimality(),
            (RuleQuestion::ThoughtToTool, Some(step)) => offline.thought_to_tool(step),
            (RuleQuestion::QueryToThought, Some(step)) => offline.query_to_thought(step),
            (RuleQuestion::CallValidity, Some(step)) => offline.call_validity(step),
            (_, None) => OfflineVerdict::NotApplicable { reason: "the question is about a step".to_owned() },
        };
        let scored = |label: &str, explanation, evidence| {
            EvaluationOutcome::Scored(ScoredVerdict {
                label: label.to_owned(),
                score: self.labels.score(label).unwrap_or_default(),
                explanation,
                evidence,
            })
        };
        match opinion {
            OfflineVerdict::Good { explanation, evidence } => scored(self.labels.best(), explanation, evidence),
            OfflineVerdict::Bad { explanation, evidence } => scored(self.labels.worst(), explanation, evidence),
            OfflineVerdict::CannotJudge { reason } => {
                EvaluationOutcome::Failed { reason: format!("cannot judge: {reason}") }
            }
            OfflineVerdict::NotApplicable { reason } => EvaluationOutcome::NotApplicable { reason },
        }
    }
}
