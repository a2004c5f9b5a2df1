//! The result of a comparison.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::ConfidenceInterval;

use super::comparison_test::ComparisonTest;
use super::dimension::{DimensionPreference, EffectScale};
use super::power::DecisionPlan;

/// All pairs of versions on all dimensions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparisonReport {
    /// Probability that any verdict is wrong, at most.
    pub alpha: f64,
    /// Tests that are corrected together: pairs times dimensions.
    pub test_count: usize,
    /// Level of each `adjusted_interval`: `alpha / test_count`.
    pub adjusted_alpha: f64,
    pub pairs: Vec<VersionPairComparison>,
}

/// Two versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VersionPairComparison {
    pub first: String,
    pub second: String,
    pub dimensions: Vec<DimensionComparison>,
    /// Dimensions on which one of the versions has no value.
    pub missing: Vec<String>,
}

/// Two versions on one dimension. Effects are those of the second version against the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DimensionComparison {
    pub dimension: String,
    pub scale: EffectScale,
    pub preference: DimensionPreference,
    pub verdict: ComparisonVerdict,
    /// The difference on the scale of the dimension; see [`EffectScale`].
    pub effect: f64,
    /// The interval of this effect alone.
    pub interval: ConfidenceInterval,
    /// The interval that the verdict follows from: all of a report hold together with probability `1 - alpha`.
    pub adjusted_interval: ConfidenceInterval,
    pub p_value: f64,
    /// Corrected by Holm's method over all tests of the report.
    pub adjusted_p_value: f64,
    pub test: ComparisonTest,
    /// Whether tasks that both versions ran were compared. If not, the versions share no task, and a difference can
    /// be one of the tasks.
    pub is_paired: bool,
    /// Means over the compared tasks; each task counts once.
    pub first_mean: f64,
    pub second_mean: f64,
    pub min_effect: f64,
    /// `min_effect` on the scale of `effect`.
    pub equivalence_bound: f64,
    pub tasks: TaskCounts,
    /// What would decide; present if the verdict is inconclusive.
    pub plan: Option<DecisionPlan>,
}

/// Sizes of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCounts {
    /// Tasks that both versions ran. If there are any, only they are compared.
    pub shared: u64,
    pub only_first: u64,
    pub only_second: u64,
    /// Shared tasks whose mean is higher in the second version.
    pub rose: u64,
    /// Shared tasks whose mean is lower in the second version.
    pub fell: u64,
    pub first_runs: u64,
    pub second_runs: u64,
}

/// Whether the second version is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ComparisonVerdict {
    /// The adjusted interval lies within the effects that do not matter.
    Same,
    /// The adjusted interval excludes 0, and larger effects than those that do not matter are possible.
    Better,
    Worse,
    /// Both no effect and one that matters are possible.
    Inconclusive,
}

impl ComparisonVerdict {
    pub(super) fn from_interval(
        interval: ConfidenceInterval,
        bound: f64,
        preference: DimensionPreference,
    ) -> ComparisonVerdict {
        let ConfidenceInterval { low, high } = interval;
        if low >= -bound && high <= bound {
            return ComparisonVerdict::Same;
        }
        match (low > 0.0, high < 0.0, preference) {
            (false, false, _) => ComparisonVerdict::Inconclusive,
            (true, _, DimensionPreference::HigherIsBetter) | (_, true, DimensionPreference::LowerIsBetter) => {
                ComparisonVerdict::Better
            }
            _ => ComparisonVerdict::Worse,
        }
    }

    /// The verdict on the same pair with the versions swapped.
    #[must_use]
    pub fn mirror(self) -> ComparisonVerdict {
        match self {
            ComparisonVerdict::Better => ComparisonVerdict::Worse,
            ComparisonVerdict::Worse => ComparisonVerdict::Better,
            same => same,
        }
    }
}
