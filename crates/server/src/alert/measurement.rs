//! What was measured for an alert, with examples.

/// What was found in a condition's window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertMeasurement {
    /// A share or a score, dollars an hour, seconds, or the number of unseen tools.
    pub value: f64,
    /// How many steps, trajectories or questions it is taken from.
    pub count: u64,
    /// The tools that were not called in the window before.
    pub unseen: Vec<String>,
}

/// A step or a trajectory to look at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertExample {
    pub trace_id: String,
    pub trajectory_id: String,
    pub step_index: Option<u32>,
    /// In a few words; recorded text is welcome, it is escaped where it is shown.
    pub summary: String,
    pub score: Option<f64>,
}
