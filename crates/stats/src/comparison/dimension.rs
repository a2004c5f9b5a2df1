//! What is compared: dimensions, their scale and their direction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One compared quantity, such as a score, a cost or a number of steps.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedDimension {
    pub name: String,
    pub scale: EffectScale,
    pub preference: DimensionPreference,
    /// Differences up to this size do not matter. `None` takes the default of the settings.
    pub min_effect: Option<f64>,
}

/// How a difference is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EffectScale {
    /// Values from 0 to 1; the effect is the difference of the means. Scores on other scales are mapped to 0 to 1 first.
    Share,
    /// Non-negative amounts: cost, latency, tokens, steps. The effect is the difference of the means divided by the
    /// mean of both versions, from -2 to 2. Unlike a change relative to one version it is mirrored exactly when the
    /// versions are swapped, and it exists where one version needs nothing at all. [`relative_change`] turns it into a
    /// change relative to the first version.
    Relative,
}

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DimensionPreference {
    HigherIsBetter,
    LowerIsBetter,
}

impl ComparedDimension {
    /// A score from 0 to 1, where 1 is best.
    pub fn score(name: impl Into<String>) -> ComparedDimension {
        ComparedDimension {
            name: name.into(),
            scale: EffectScale::Share,
            preference: DimensionPreference::HigherIsBetter,
            min_effect: None,
        }
    }

    /// An amount that should be small: cost, latency, tokens, steps.
    pub fn amount(name: impl Into<String>) -> ComparedDimension {
        ComparedDimension {
            name: name.into(),
            scale: EffectScale::Relative,
            preference: DimensionPreference::LowerIsBetter,
            min_effect: None,
        }
    }

    /// Differences up to `min_effect` are the same: 0.05 is five percentage points of a share, and 5 % of an amount.
    #[must_use]
    pub fn with_min_effect(self, min_effect: f64) -> ComparedDimension {
        ComparedDimension { min_effect: Some(min_effect), ..self }
    }
}

impl EffectScale {
    /// Whether a value can be on this scale.
    pub(super) fn contains(self, value: f64) -> bool {
        match self {
            EffectScale::Share => (0.0..=1.0).contains(&value),
            EffectScale::Relative => value >= 0.0 && value.is_finite(),
        }
    }

    /// The largest possible effect.
    pub(super) fn max_effect(self) -> f64 {
        match self {
            EffectScale::Share => 1.0,
            EffectScale::Relative => 2.0,
        }
    }

    /// The bound of effects that do not matter, on the scale of effects. 5 % of an amount means from 1/1.05 to 1.05
    /// times the amount, so the bound is the same in both directions.
    pub(super) fn equivalence_bound(self, min_effect: f64) -> f64 {
        match self {
            EffectScale::Share => min_effect,
            EffectScale::Relative => 2.0 * min_effect / (2.0 + min_effect),
        }
    }
}

/// The change relative to the first version that an effect on the relative scale means: 0.5 for half as much again.
/// Infinite if the first version needed nothing.
pub fn relative_change(effect: f64) -> f64 {
    2.0 * effect / (2.0 - effect)
}
