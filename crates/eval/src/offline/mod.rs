//! The `offline` judge: rules, no model, no network, the same answer every time.

use gradus_core::trajectory::Trajectory;

/// What the rules say.
#[derive(Clone, Debug, PartialEq)]
pub enum Opinion {
    Good { explanation: String, evidence: Vec<String> },
    Bad { explanation: String, evidence: Vec<String> },
    CannotJudge { reason: String },
    NotApplicable { reason: String },
}

#[derive(Debug)]
pub struct Offline<'t> {
    _trajectory: &'t Trajectory,
}

impl<'t> Offline<'t> {
    pub fn new(trajectory: &'t Trajectory) -> Self {
        Offline { _trajectory: trajectory }
    }
    pub fn thought_to_tool(&self, _step: usize) -> Opinion {
        Opinion::CannotJudge { reason: "no rules yet".to_owned() }
    }
    pub fn query_to_thought(&self, _step: usize) -> Opinion {
        Opinion::CannotJudge { reason: "no rules yet".to_owned() }
    }
    pub fn sequence_optimality(&self) -> Opinion {
        Opinion::CannotJudge { reason: "no rules yet".to_owned() }
    }
    pub fn call_validity(&self, _step: usize) -> Opinion {
        Opinion::CannotJudge { reason: "no rules yet".to_owned() }
    }
}
