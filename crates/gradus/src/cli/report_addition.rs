//! What a command adds to the results of a run: a benchmark its trials, an experiment its checks.

use std::io::{self, Write};
use std::path::Path;

use gradus_eval::report::{GateResult, MetricResult, RunReader, TrialMetricNames};
use gradus_report::junit::JunitSettings;
use gradus_report::{ReportTable, TrialMeasurement};
use quick_junit::TestSuite;

/// What a command adds to the results of a run, in every output: the benchmark adds its trials. The default methods add
/// nothing.
pub(super) trait ReportAddition {
    /// Returns more metrics in addition to those of the evaluators, on which gates can be set. Called once, before
    /// any other output method, since the values of the other methods may depend on the run that `reader` reads.
    fn metrics(&mut self, reader: &mut RunReader) -> anyhow::Result<Vec<MetricResult>> {
        let _ = reader;
        Ok(Vec::new())
    }

    /// Returns the names of these metrics and the tags of trials; `None` for a run without trials.
    fn metric_names(&self) -> Option<TrialMetricNames> {
        None
    }

    /// Returns the metrics over trials with this tag.
    fn tag_metrics(&self, tag: &str) -> Vec<MetricResult> {
        let _ = tag;
        Vec::new()
    }

    /// Returns results of the trials that the run is about, by trajectory.
    fn measurements(&self) -> Vec<TrialMeasurement> {
        Vec::new()
    }

    /// Returns the name of a trial by its position in `measurements`, for test cases; the same in every run.
    fn trial_name(&self, position: usize) -> Option<String> {
        let _ = position;
        None
    }

    /// Saves into the folder of the run what a later `gradus report` needs to add the same again.
    fn save_for_report(&self, folder: &Path) -> anyhow::Result<()> {
        let _ = folder;
        Ok(())
    }

    /// Returns a text that replaces the source in the manifest and in reports, for sources in temporary folders.
    fn source(&self) -> Option<String> {
        None
    }

    /// Whether a run without a single trajectory still has something to report.
    fn has_own_results(&self) -> bool {
        false
    }

    /// Replaces the reason of a failed or inconclusive gate if it has a better one.
    fn refine_gate_reason(&self, gate: &mut GateResult) {
        let _ = gate;
    }

    /// Returns a key for the JSON document, and its value.
    fn document(&self) -> anyhow::Result<Option<(&'static str, serde_json::Value)>> {
        Ok(None)
    }

    /// Returns tables for the HTML report.
    fn tables(&self) -> Vec<ReportTable> {
        Vec::new()
    }

    /// Writes Markdown below the summary.
    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let _ = out;
        Ok(())
    }

    /// Writes more CSV files into the same folder.
    fn csv(&self, folder: &Path) -> anyhow::Result<()> {
        let _ = folder;
        Ok(())
    }

    /// Returns JUnit suites before those of the evaluators.
    fn junit(&self, settings: &JunitSettings<'_>) -> Vec<TestSuite> {
        let _ = settings;
        Vec::new()
    }

    /// Writes JSON lines before the outcomes, with the same keys where they mean the same.
    fn lines(&self, run_id: &str, out: &mut dyn Write) -> io::Result<()> {
        let _ = (run_id, out);
        Ok(())
    }

    /// Whether the text of `print` replaces the summary on the terminal.
    fn replaces_summary(&self) -> bool {
        false
    }

    /// Prints text on the terminal, before the summary.
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let _ = out;
        Ok(())
    }
}

/// The addition of `gradus eval`: none.
pub(super) struct NoAddition;

impl ReportAddition for NoAddition {}
