//! The outcome of one question about a step or a trajectory. [`OutcomeLine`] is also the line format of `gradus eval
//! --jsonl`; its field names are a stable interface, and its doc comments become descriptions in
//! `docs/schemas/outcome.schema.json`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::prompt::TruncatedValue;

/// The result of one question. A judge that could not decide is never scored as 0 or 1.
#[derive(Clone, Debug, PartialEq)]
pub enum EvaluationOutcome {
    Scored(ScoredVerdict),
    /// The question does not apply: there is no thought, no query or no step.
    NotApplicable {
        reason: String,
    },
    /// The question applies and was not answered.
    Failed {
        reason: String,
    },
}

/// A verdict with the score that the rubric gives to its label.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredVerdict {
    pub label: String,
    pub score: f64,
    pub explanation: String,
    /// The texts that the verdict rests on, quoted where possible. Only rules give evidence.
    pub evidence: Vec<String>,
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// The judge gave a label.
    Scored,
    /// The question does not arise.
    NotApplicable,
    /// The question arises and was not answered.
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenCount {
    pub prompt: u64,
    pub completion: u64,
    /// Of the prompt's tokens, those that the provider had cached.
    pub cached_prompt: u64,
}

/// One outcome, as it is stored and printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeLine {
    pub run_id: Arc<str>,
    pub trajectory_id: Arc<str>,
    /// Counts from 1; null for a whole trajectory.
    pub step_index: Option<u32>,
    /// The rubric's name.
    pub evaluator: Arc<str>,
    pub outcome: OutcomeKind,
    /// Null unless scored.
    pub label: Option<String>,
    /// Null unless scored.
    pub score: Option<f64>,
    pub explanation: Option<String>,
    /// What the verdict rests on.
    pub evidence: Vec<String>,
    /// Why there is no verdict; null when there is one.
    pub reason: Option<String>,
    /// `offline`, `rules`, or the provider and the model.
    pub judge: Arc<str>,
    pub rubric_hash: Arc<str>,
    /// Spent on this outcome in this run; null when no model was asked.
    pub tokens: Option<TokenCount>,
    /// Spent on this outcome in this run; null when the model's price is not known.
    pub cost_usd: Option<f64>,
    /// Whether the verdict was there already: from an earlier run, or from an identical question of this one.
    pub cached: bool,
    /// Requests that were sent for it, retries included.
    pub calls: u32,
    /// What the judge saw only in part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<TruncatedValue>,
}

impl OutcomeLine {
    pub fn is_scored(&self) -> bool {
        self.outcome == OutcomeKind::Scored
    }
}
