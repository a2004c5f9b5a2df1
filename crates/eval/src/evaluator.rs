//! What is asked in a run, and who answers: a rubric with a model, or rules.

use std::sync::Arc;

use gradus_llm::AnswerForm;

use crate::judge;
use crate::offline::{Offline, Opinion};
use crate::outcome::{Outcome, Verdict};
use crate::rubric::{Labels, Rubric, Subject};
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
    pub subject: Subject,
    pub labels: Labels,
    pub hash: Arc<str>,
    pub phoenix_name: String,
    /// Who answers, for every output.
    pub judge: Arc<str>,
    pub(crate) method: Method,
}

#[derive(Clone, Debug)]
pub(crate) enum Method {
    Rules(Question),
    Model { rubric: Arc<Rubric>, answer: AnswerForm },
}

/// What the rules can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    ThoughtToTool,
    QueryToThought,
    SequenceOptimality,
    CallValidity,
}

impl Question {
    fn named(name: &str) -> Option<Question> {
        Some(match name {
            THOUGHT_TO_TOOL => Question::ThoughtToTool,
            QUERY_TO_THOUGHT => Question::QueryToThought,
            SEQUENCE_OPTIMALITY => Question::SequenceOptimality,
            _ => return None,
        })
    }
}

impl Evaluator {
    /// A rubric that a model answers.
    pub fn model(rubric: &Rubric, judge: &str, structured: bool) -> Evaluator {
        let answer = judge::answer_form(rubric, structured);
        Evaluator::of(rubric, judge, &rubric.hash, Method::Model { rubric: Arc::new(rubric.clone()), answer })
    }

    /// A rubric that rules answer; `None` when there are none for it.
    pub fn offline(rubric: &Rubric) -> Option<Evaluator> {
        let question = Question::named(&rubric.name)?;
        Some(Evaluator::of(rubric, OFFLINE, RULES_VERSION, Method::Rules(question)))
    }

    /// Can the tool take this call? That is no matter of opinion, so no model is asked.
    pub fn call_validity() -> Evaluator {
        Evaluator {
            name: CALL_VALIDITY.into(),
            title: "Call Validity".to_owned(),
            subject: Subject::Step,
            labels: Labels::binary("correct", "incorrect"),
            hash: RULES_VERSION.into(),
            phoenix_name: "Call Validity".to_owned(),
            judge: RULES.into(),
            method: Method::Rules(Question::CallValidity),
        }
    }

    fn of(rubric: &Rubric, judge: &str, hash: &str, method: Method) -> Evaluator {
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
        matches!(self.method, Method::Model { .. })
    }

    pub fn record(&self) -> EvaluatorRecord {
        EvaluatorRecord {
            name: self.name.to_string(),
            title: self.title.clone(),
            of_steps: self.subject == Subject::Step,
            labels: self.labels.iter().map(|(label, score)| (label.to_owned(), score)).collect(),
            rubric_hash: self.hash.to_string(),
            phoenix_name: self.phoenix_name.clone(),
            judge: self.judge.to_string(),
        }
    }

    /// What the rules say.
    pub(crate) fn apply(&self, question: Question, offline: &Offline<'_>, step: Option<usize>) -> Outcome {
        let opinion = match (question, step) {
            (Question::SequenceOptimality, _) => offline.sequence_optimality(),
            (Question::ThoughtToTool, Some(step)) => offline.thought_to_tool(step),
            (Question::QueryToThought, Some(step)) => offline.query_to_thought(step),
            (Question::CallValidity, Some(step)) => offline.call_validity(step),
            (_, None) => Opinion::NotApplicable { reason: "the question is about a step".to_owned() },
        };
        let scored = |label: &str, explanation, evidence| {
            Outcome::Scored(Verdict {
                label: label.to_owned(),
                score: self.labels.score(label).unwrap_or_default(),
                explanation,
                evidence,
            })
        };
        match opinion {
            Opinion::Good { explanation, evidence } => scored(self.labels.best(), explanation, evidence),
            Opinion::Bad { explanation, evidence } => scored(self.labels.worst(), explanation, evidence),
            Opinion::CannotJudge { reason } => Outcome::Failed { reason: format!("cannot judge: {reason}") },
            Opinion::NotApplicable { reason } => Outcome::NotApplicable { reason },
        }
    }
}
