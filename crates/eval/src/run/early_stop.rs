//! How `--stop-early` decided the gates of a run. Stored with the run, because it cannot be derived from the judged
//! part.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A gate that was decided before all trajectories were judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EarlyGateRecord {
    /// The gate as it is printed, `thought_to_tool >= 0.85`.
    pub gate: String,
    pub passes: bool,
    /// The number of the part that was judged.
    pub value: Option<f64>,
    /// How many steps or runs the value is about.
    pub count: u64,
    /// After how many runs it was decided, and what that saved.
    pub explanation: String,
}
