//! A group of wrong verdicts while it is being counted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of examples of one group.
pub(super) const MAX_EXAMPLES: usize = 3;

/// One wrong verdict of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailureExample {
    pub trajectory_id: String,
    pub trace_id: Option<String>,
    pub step_index: Option<u32>,
    /// The beginning of the request.
    pub request: Option<String>,
}

/// The identity of a group. Groups of the same size are sorted by these fields in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupSubject {
    pub(super) evaluator: String,
    pub(super) tool: Option<String>,
    pub(super) rule: Option<String>,
    pub(super) label: String,
    /// In lower case, because models vary in case.
    pub(super) reason: String,
}

/// A group while it is being counted.
#[derive(Debug)]
pub(super) struct GroupTally {
    pub(super) reason: String,
    pub(super) count: u64,
    /// Numbers of the trajectories with such a verdict, ascending.
    pub(super) trajectories: Vec<u32>,
    pub(super) examples: Vec<FailureExample>,
}

impl GroupTally {
    /// Adds the verdicts of another group. A trajectory may be in both.
    pub(super) fn join(&mut self, other: GroupTally) {
        self.count += other.count;
        self.trajectories.extend(other.trajectories);
        self.trajectories.sort_unstable();
        self.trajectories.dedup();
        self.examples.extend(other.examples);
        self.examples.truncate(MAX_EXAMPLES);
    }
}
