//! Limits that hold for all processes of a shared folder together.

/// Limits over all processes. They should be the same in each.
#[derive(Clone, Copy, Debug)]
pub struct SharedLimits {
    /// Calls in flight.
    pub concurrency: usize,
    pub max_calls: Option<u64>,
    /// Of everything that was ever spent through the folder.
    pub max_cost_usd: Option<f64>,
}
