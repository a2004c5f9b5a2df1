//! The manifest that is written next to an export: its source, its selection, and how far it can be trusted.

use std::collections::BTreeMap;

use serde::Serialize;

/// The manifest of an export.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExportManifest {
    /// `gradus.export/1`.
    pub schema: &'static str,
    pub format: String,
    pub gradus_version: String,
    pub created: String,
    pub sources: Vec<String>,
    /// The run whose verdicts were used; null for an export of a source.
    pub run_id: Option<String>,
    /// How rows were chosen, as the options say it.
    pub selection: BTreeMap<String, String>,
    /// Trajectories that were read.
    pub trajectories: u64,
    /// Rows that were written.
    pub rows: u64,
    /// Rows left out because an equal one was written.
    pub duplicates: u64,
    /// Trajectories and steps that gave no row, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Rows by how they were made: `sibling`, `correction`; only of preference pairs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub made_by: BTreeMap<String, u64>,
    /// The judges whose verdicts were used.
    pub verdicts: Vec<VerdictSource>,
    /// What was replaced by placeholders; null without scrubbing.
    pub scrubbing: Option<serde_json::Value>,
}

/// A judge on one rubric, and how far its labels can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VerdictSource {
    pub evaluator: String,
    pub judge: String,
    pub rubric_hash: String,
    /// The share of its good labels that are wrong, by calibration; null without one: then nobody knows.
    pub expected_noise_of_good: Option<f64>,
    /// The share of its bad labels that are wrong, by calibration.
    pub expected_noise_of_bad: Option<f64>,
    /// Labelled cases of these shares.
    pub labelled_cases: Option<u64>,
}
