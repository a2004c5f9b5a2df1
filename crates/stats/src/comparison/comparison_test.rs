//! The tests that a p-value can come from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ComparisonTest {
    /// Each task ran once per version and was right or wrong: McNemar's test, mid-p.
    McnemarMidP,
    /// Permutation of signs over tasks, all of them.
    SignFlipExact,
    /// Permutation of signs over tasks, drawn with a fixed seed.
    SignFlipSampled,
    /// Permutation of signs over very many tasks, by its normal limit.
    SignFlipNormal,
    /// The versions share no task: two independent samples of tasks.
    UnpairedStudent,
}
