//! What a benchmark adds to the results of a run: metrics, tables and lines of its trials, which are measured and not
//! judged.

use std::io::{self, Write};
use std::path::Path;

use gradus_eval::report::{GateResult, MetricResult, RunReader, TrialMetricNames};
use gradus_report::junit::JunitSettings;
use gradus_report::{ReportTable, RunSupplement, TrialMeasurement};
use quick_junit::TestSuite;

use super::super::report_addition::ReportAddition;
use gradus_github_bench::results::BenchReport;

/// A `BenchReport` in every output. `metrics` also compares the verdicts of the judge with the known truth of scripted
/// agents, so it must run before the other methods.
pub(in crate::cli) struct BenchAddition {
    pub(in crate::cli) report: BenchReport,
}

impl BenchAddition {
    pub(in crate::cli) fn new(report: BenchReport) -> BenchAddition {
        BenchAddition { report }
    }
}

impl ReportAddition for BenchAddition {
    fn metrics(&mut self, reader: &mut RunReader) -> anyhow::Result<Vec<MetricResult>> {
        self.report.score(reader)?;
        Ok(self.report.own_metrics())
    }

    fn metric_names(&self) -> Option<TrialMetricNames> {
        Some(RunSupplement::metric_names(&self.report))
    }

    fn tag_metrics(&self, tag: &str) -> Vec<MetricResult> {
        self.report.tag_metrics(tag)
    }

    fn measurements(&self) -> Vec<TrialMeasurement> {
        self.report.measurements()
    }

    fn save_for_report(&self, folder: &Path) -> anyhow::Result<()> {
        self.report.save_results(folder)
    }

    fn has_own_results(&self) -> bool {
        true
    }

    fn refine_gate_reason(&self, gate: &mut GateResult) {
        self.report.explain_gate(gate);
    }

    fn document(&self) -> anyhow::Result<Option<(&'static str, serde_json::Value)>> {
        Ok(Some(("bench", serde_json::to_value(&self.report)?)))
    }

    fn tables(&self) -> Vec<ReportTable> {
        self.report.own_tables()
    }

    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        self.report.write_markdown(out)
    }

    fn csv(&self, folder: &Path) -> anyhow::Result<()> {
        self.report.write_csv(folder)
    }

    fn junit(&self, settings: &JunitSettings<'_>) -> Vec<TestSuite> {
        self.report.to_junit_suites(settings)
    }

    fn lines(&self, run_id: &str, out: &mut dyn Write) -> io::Result<()> {
        self.report.write_lines(run_id, out)
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.report.print(out)
    }
}
