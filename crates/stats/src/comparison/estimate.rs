//! An effect with its interval at any level, from paired or from independent samples of tasks.

use crate::changed_share::{ChangedCounts, changed_share_interval, max_unseen_share};
use crate::distributions::student_quantile;
use crate::interval::{ConfidenceInterval, ScoreCluster, clustered_interval_at};

use super::comparison_test::ComparisonTest;
use super::variance_parts::TrialVariance;

/// Minimum number of deviating tasks for a t interval, unless half of the tasks deviate. With fewer it is too short,
/// because the tasks that would widen it are rare.
const MIN_DEVIATING_TASKS: u64 = 10;

/// Whether so few of `tasks` differ from the others that a t interval is too short.
pub(super) fn is_rare(deviating: u64, tasks: u64) -> bool {
    deviating < MIN_DEVIATING_TASKS.min(tasks.div_ceil(2))
}

/// An effect, second version minus first, and what its interval depends on.
#[derive(Clone, Debug)]
pub(super) struct EffectEstimate {
    pub(super) value: f64,
    pub(super) p_value: f64,
    pub(super) test: ComparisonTest,
    /// Clusters: shared tasks, or the smaller number of two independent samples.
    pub(super) tasks: f64,
    /// The squared standard error times `tasks`.
    pub(super) variance: f64,
    /// The part of `variance` that comes from trials of the same task; `None` where no task was repeated.
    pub(super) trial_variance: Option<TrialVariance>,
    /// Mean number of runs per task and version.
    pub(super) trials: f64,
    pub(super) freedom: f64,
    /// The largest effect that is possible.
    pub(super) max_effect: f64,
    pub(super) shape: IntervalShape,
}

/// How the interval is computed.
#[derive(Clone, Debug)]
pub(super) enum IntervalShape {
    /// One task says nothing about others.
    Unknown,
    /// Each task was right or wrong, once per version.
    Changed(ChangedCounts),
    /// Student's interval over many tasks that differ.
    Student,
    /// Few tasks differ from the rest; `jump` is the largest deviation from the common value.
    Sparse { jump: f64 },
    /// Newcombe's interval from the intervals of two independent means.
    Newcombe { first: Vec<ScoreCluster>, second: Vec<ScoreCluster> },
}

impl EffectEstimate {
    pub(super) fn standard_error(&self) -> f64 {
        (self.variance / self.tasks).sqrt()
    }

    /// Whether too few tasks differ to estimate how much tasks differ.
    pub(super) fn is_sparse(&self) -> bool {
        match &self.shape {
            IntervalShape::Changed(counts) => is_rare(counts.better + counts.worse, counts.all),
            IntervalShape::Sparse { .. } => true,
            _ => false,
        }
    }

    /// The interval at the two-sided level `alpha`. It contains 0 unless the test is significant at this level.
    pub(super) fn interval(&self, alpha: f64) -> ConfidenceInterval {
        let ConfidenceInterval { low, high } = self.untested_interval(alpha);
        let (low, high) = (low.max(-self.max_effect), high.min(self.max_effect));
        if self.p_value < alpha {
            return ConfidenceInterval { low, high };
        }
        ConfidenceInterval { low: low.min(0.0), high: high.max(0.0) }
    }

    fn untested_interval(&self, alpha: f64) -> ConfidenceInterval {
        let quantile = || student_quantile(alpha, self.freedom);
        let half = match &self.shape {
            IntervalShape::Unknown => 2.0 * self.max_effect,
            IntervalShape::Changed(counts) if counts.better + counts.worse == 0 => max_unseen_share(self.tasks, alpha),
            IntervalShape::Changed(counts) => return changed_share_interval(*counts, alpha, true),
            IntervalShape::Student => quantile() * self.standard_error(),
            IntervalShape::Sparse { jump } => sparse_half_width(self, *jump, quantile(), alpha),
            IntervalShape::Newcombe { first, second } => return newcombe_interval(self, first, second, alpha),
        };
        ConfidenceInterval { low: self.value - half, high: self.value + half }
    }
}

/// The half width where few tasks differ. Rare tasks have a variance in proportion to their mean (as Poisson counts do),
/// so a larger true effect would also have been a more variable one. With `jump` as the size of a rare difference, the
/// score interval solves `y² = q² (S + jump y)` for the distance `y` between the true and the observed sum, where `S` is
/// the sum of squares. It is never below the rule of three: tasks of a kind that was not seen at all may differ by 1.
fn sparse_half_width(estimate: &EffectEstimate, jump: f64, quantile: f64, alpha: f64) -> f64 {
    let slope = 0.5 * quantile * quantile * jump;
    let distance = slope + (slope * slope + quantile * quantile * estimate.variance * estimate.tasks).sqrt();
    (distance / estimate.tasks).max(max_unseen_share(estimate.tasks, alpha))
}

fn newcombe_interval(
    estimate: &EffectEstimate,
    first: &[ScoreCluster],
    second: &[ScoreCluster],
    alpha: f64,
) -> ConfidenceInterval {
    let whole = ConfidenceInterval { low: 0.0, high: 1.0 };
    let side = |clusters: &[ScoreCluster]| {
        let mean = clusters.iter().map(|cluster| cluster.sum).sum::<f64>() / clusters.len() as f64;
        let ConfidenceInterval { low, high } = clustered_interval_at(clusters, 0.0, 1.0, alpha).unwrap_or(whole);
        (mean - low, high - mean)
    };
    let ((first_below, first_above), (second_below, second_above)) = (side(first), side(second));
    ConfidenceInterval {
        low: estimate.value - second_below.hypot(first_above),
        high: estimate.value + second_above.hypot(first_below),
    }
}
