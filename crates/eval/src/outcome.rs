//! What came of one question about a step or a trajectory. This is also the line format of `gradus eval --jsonl`;
//! field names are a promise to the tools built on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One answer of a judge. A judge that could not judge is never a 0 and never a 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    Scored(Verdict),
    /// The question does not arise: there is no thought, no query, no step.
    NotApplicable {
        reason: String,
    },
    /// The question arises and was not answered.
    Failed {
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    pub label: String,
    pub score: f64,
    pub explanation: String,
    /// What the verdict rests on, word for word where it can be.
    pub evidence: Vec<String>,
}
