//! What is asked in a run, and who answers: a rubric with a model, or rules.

use std::sync::Arc;

use gradus_llm::AnswerForm;

use crate::judge;
use crate::offline::{OfflineJudge, OfflineVerdict};
use crate::outcome::{EvaluationOutcome, ScoredVerdict};
use crate::rubric::{Rubric, RubricLabels, RubricSubject};
use crate::run::EvaluatorRecord;

pub const THOUGHT_TO_TOOL: &str = "thought_to_tool";
pub const QUERY_TO_THOUGHT: &str = "query_to_thought";
pub const SEQUENCE_OPTIMALITY: &str = "sequence_optimality";
/// The name of the check that every run makes.
pub const CALL_VALIDITY: &str = "call_validity";
/// Changes when the rules do, so that outcomes of different rules can be told apart.
const RULES_VERSION: &str = "rules-2";
/// The judge's name where no model was asked.
pub const OFFLINE: &str = "offline";
pub const RULES: &str = "rules";
/// Who measured, where nobody judged: the simulated world itself.
pub const SIMULATOR: &str = "simulator";

#[derive(Clone, Debug)]
pub struct Evaluator {
    pub name: Arc<str>,
    pub title: String,
    pub subject: RubricSubject,
    pub labels: RubricLabels,
    pub hash: Arc<str>,
    pub phoenix_name: String,
    /// Who answers, for every output.
    pub judge: Arc<str>,
    pub(crate) method: EvaluationMethod,
}

#[derive(Clone, Debug)]
pub(crate) enum EvaluationMethod {
    Rules(RuleQuestion),
    Model { rubric: Arc<Rubric>, answer: AnswerForm },
}

/// What the rules can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleQuestion {
    ThoughtToTool,
    QueryToThought,
    SequenceOptimality,
    CallValidity,
}

impl RuleQuestion {
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
    /// A rubric that a model answers.
    pub fn with_model_judge(rubric: &Rubric, judge: &str, structured: bool) -> Evaluator {
        let answer = judge::answer_form(rubric, structured);
        Evaluator::from_rubric(
            rubric,
            judge,
            &rubric.hash,
            EvaluationMethod::Model { rubric: Arc::new(rubric.clone()), answer },
        )
    }

    /// A rubric that rules answer; `None` when there are none for it.
    pub fn with_offline_rules(rubric: &Rubric) -> Option<Evaluator> {
        let question = RuleQuestion::from_name(&rubric.name)?;
        Some(Evaluator::from_rubric(rubric, OFFLINE, RULES_VERSION, EvaluationMethod::Rules(question)))
    }

    /// Can the tool take this call? That is no matter of opinion, so no model is asked.
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

    /// What the rules say.
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
