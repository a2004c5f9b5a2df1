//! Sums by time. Metrics are computed from sums of trajectories in buckets of time, so that a query reads a bounded
//! number of rows.

/// Length of the shortest bucket: five minutes. Bucket numbers are start times divided by this, rounded down.
pub const BUCKET_NS: i64 = 300 * 1_000_000_000;
/// Length of a UTC day.
pub(crate) const DAY_NS: i64 = 86_400_000_000_000;

/// Returns the number of the bucket that contains a time. Rounds down, also before 1970.
pub(crate) fn bucket_index(ns: i64) -> i64 {
    ns.div_euclid(BUCKET_NS)
}

/// Moments of the scores of trajectories, from which mean and cluster-robust variance are computed. For each
/// trajectory, s is the sum of its scores and n their number: a trajectory is a cluster of n scores. The rows hold Σs,
/// Σn, Σs², Σs·n and Σn². All of them are additive, so buckets can be merged and trajectories taken out again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreMoments {
    pub trajectories: i64,
    /// Trajectories with at least one score.
    pub scored_trajectories: i64,
    /// Σn.
    pub scored: i64,
    /// Σs.
    pub sum: f64,
    /// Σs².
    pub sum_sum: f64,
    /// Σs·n.
    pub sum_n: f64,
    /// Σn².
    pub n_n: f64,
    pub failed: i64,
    pub not_applicable: i64,
    /// The judge could not decide, or gave a label without a score.
    pub abstained: i64,
}

impl std::ops::AddAssign for ScoreMoments {
    fn add_assign(&mut self, other: ScoreMoments) {
        self.trajectories += other.trajectories;
        self.scored_trajectories += other.scored_trajectories;
        self.scored += other.scored;
        self.sum += other.sum;
        self.sum_sum += other.sum_sum;
        self.sum_n += other.sum_n;
        self.n_n += other.n_n;
        self.failed += other.failed;
        self.not_applicable += other.not_applicable;
        self.abstained += other.abstained;
    }
}

/// Usage: time, tokens and cost of trajectories.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrajectoryUsage {
    pub trajectories: i64,
    pub errors: i64,
    pub steps: i64,
    /// Prompt and completion tokens. Saturating, because traces can state any number.
    pub tokens: i64,
    /// Sum of the durations. A float, because sums of nanoseconds can exceed 64 bits.
    pub took_ns: f64,
    /// Trajectories whose cost is known. The mean cost is over these only.
    pub costed: i64,
    pub cost_usd: f64,
}

impl std::ops::AddAssign for TrajectoryUsage {
    fn add_assign(&mut self, other: TrajectoryUsage) {
        self.trajectories += other.trajectories;
        self.errors += other.errors;
        self.steps += other.steps;
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.took_ns += other.took_ns;
        self.costed += other.costed;
        self.cost_usd += other.cost_usd;
    }
}
