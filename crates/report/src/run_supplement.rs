//! What a run's folder holds beside verdicts, such as the trials of a bench.

use std::fmt;
use std::path::Path;

use gradus_eval::report::{GateResult, MetricResult, RunReader};
use gradus_eval::run::RunFileError;

use crate::report_table::ReportTable;

/// Something that a run is about, and that is measured rather than judged.
pub trait RunSupplement: fmt::Debug + Send {
    /// Holds what was judged against what is known.
    fn score(&mut self, reader: &mut RunReader) -> Result<(), RunFileError>;
    /// Names of [`RunSupplement::metrics`], for gates.
    fn metric_names(&self) -> Vec<String>;
    fn metrics(&self) -> Vec<MetricResult>;
    /// May say better why a gate cannot pass.
    fn explain_gate(&self, gate: &mut GateResult);
    fn tables(&self) -> Vec<ReportTable>;
    /// For a comparison of two runs.
    fn measurements(&self) -> Vec<TrialMeasurement>;
}

/// What was measured of one trajectory.
#[derive(Clone, Debug)]
pub struct TrialMeasurement {
    /// Where it is not known, the session tells which trajectory it is.
    pub trajectory_id: Option<String>,
    pub session_id: String,
    pub results: Vec<TrialResult>,
}

/// One thing that was measured.
#[derive(Clone, Copy, Debug)]
pub struct TrialResult {
    /// No evaluator has such a name.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    pub is_good: bool,
}

/// Finds the supplement of a run by its folder; None for a run without one.
pub type SupplementLoader = fn(&Path) -> Result<Option<Box<dyn RunSupplement>>, String>;
