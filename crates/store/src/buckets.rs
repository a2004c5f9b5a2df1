//! Sums by time.

/// How long a bucket of the sums is.
pub const BUCKET_NS: i64 = 300 * 1_000_000_000;

/// Sums over trajectories: of the scores in each (`sum`), of how many there are (`scored`), and of their products.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreMoments {
    pub trajectories: i64,
    /// Those with at least one score.
    pub scored_trajectories: i64,
    pub scored: i64,
    pub sum: f64,
    pub sum_sum: f64,
    pub sum_n: f64,
    pub n_n: f64,
    pub failed: i64,
    pub not_applicable: i64,
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
    }
}

/// What trajectories took and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrajectoryUsage {
    pub trajectories: i64,
    pub errors: i64,
    pub steps: i64,
    pub tokens: i64,
    pub took_ns: f64,
    /// Those whose cost is known.
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
