//! What an experiment adds to the outputs of the run that grades it.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;
use gradus_core::visible::printable_line;
use gradus_eval::evaluator::SIMULATOR_JUDGE;
use gradus_eval::outcome::OutcomeKind;
use gradus_eval::report::{GateResult, MetricResult, RunReader, TrialMetricNames};
use gradus_report::junit::{JunitSettings, build_measured_status};
use gradus_report::markdown::escape_markdown_cell;
use gradus_report::{BOLD, DIM, RED, ReportTable, RunSupplement, TrialMeasurement, csv, format_counted_noun, json};
use quick_junit::{TestCase, TestCaseStatus, TestSuite};

use super::super::report_addition::ReportAddition;
use crate::experiment_report::ExperimentReport;

/// Maximum number of failed trials that are printed one by one.
const MAX_SHOWN_FAILURES: usize = 10;
/// Maximum width of a column; longer cells are cut.
const MAX_COLUMN_WIDTH: usize = 40;

/// An `ExperimentReport` in every output.
pub(in crate::cli) struct ExperimentAddition {
    pub(in crate::cli) report: ExperimentReport,
}

impl ReportAddition for ExperimentAddition {
    fn metrics(&mut self, _reader: &mut RunReader) -> anyhow::Result<Vec<MetricResult>> {
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

    fn trial_name(&self, position: usize) -> Option<String> {
        self.report.trials.get(position).map(|trial| format!("{} trial {}", trial.item_id, trial.trial))
    }

    fn save_for_report(&self, folder: &Path) -> anyhow::Result<()> {
        self.report.save(folder).with_context(|| folder.display().to_string())
    }

    fn has_own_results(&self) -> bool {
        true
    }

    fn refine_gate_reason(&self, gate: &mut GateResult) {
        self.report.explain_gate(gate);
    }

    fn document(&self) -> anyhow::Result<Option<(&'static str, serde_json::Value)>> {
        let mut document = serde_json::to_value(&self.report)?;
        if let Some(fields) = document.as_object_mut() {
            fields.insert("rates".to_owned(), serde_json::to_value(self.report.rates())?);
            fields.insert("by_tag".to_owned(), serde_json::to_value(self.report.tag_rates())?);
        }
        Ok(Some(("experiment", document)))
    }

    fn tables(&self) -> Vec<ReportTable> {
        self.report.own_tables()
    }

    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        for table in self.report.own_tables() {
            writeln!(out, "\n## {}\n", table.title)?;
            let names: Vec<String> = table.columns.iter().map(|column| escape_markdown_cell(&column.name)).collect();
            writeln!(out, "| {} |", names.join(" | "))?;
            let lines: Vec<&str> =
                table.columns.iter().map(|column| if column.is_number { "---:" } else { "---" }).collect();
            writeln!(out, "| {} |", lines.join(" | "))?;
            for row in &table.rows {
                let cells: Vec<String> = row.iter().map(|cell| escape_markdown_cell(cell)).collect();
                writeln!(out, "| {} |", cells.join(" | "))?;
            }
        }
        let failed: Vec<_> = self.report.trials.iter().filter(|trial| trial.verdict() == Some(false)).collect();
        if !failed.is_empty() {
            writeln!(out, "\n## Failed trials\n")?;
        }
        for trial in failed.iter().take(MAX_SHOWN_FAILURES) {
            let reasons = ExperimentReport::list_failures(trial).join("; ");
            writeln!(
                out,
                "- {} (trial {}): {}",
                escape_markdown_cell(&trial.item_id),
                trial.trial,
                escape_markdown_cell(&reasons)
            )?;
        }
        if failed.len() > MAX_SHOWN_FAILURES {
            writeln!(out, "- {} more", failed.len() - MAX_SHOWN_FAILURES)?;
        }
        Ok(())
    }

    fn csv(&self, folder: &Path) -> anyhow::Result<()> {
        let mut out = ::csv::Writer::from_path(folder.join("trials.csv"))?;
        out.write_record([
            "item_id",
            "trial",
            "passed",
            "end",
            "failures",
            "step_count",
            "prompt_tokens",
            "completion_tokens",
            "cost_usd",
            "seconds",
            "tags",
            "trajectory_id",
            "trace_id",
            "span_ids",
        ])?;
        for trial in &self.report.trials {
            let end = serde_json::to_value(trial.end)?;
            let row = [
                trial.item_id.clone(),
                trial.trial.to_string(),
                trial.verdict().map(|passed| passed.to_string()).unwrap_or_default(),
                end.as_str().unwrap_or_default().to_owned(),
                ExperimentReport::list_failures(trial).join("; "),
                trial.step_count.to_string(),
                trial.prompt_tokens.to_string(),
                trial.completion_tokens.to_string(),
                trial.cost_usd.map(|cost| cost.to_string()).unwrap_or_default(),
                format!("{:.3}", trial.seconds),
                trial.tags.join(";"),
                trial.trajectory_id.clone(),
                trial.trace_id.clone().unwrap_or_default(),
                trial.span_ids.join(" "),
            ];
            out.write_record(row.iter().map(|cell| csv::sanitize_csv_cell(cell)))?;
        }
        Ok(out.flush()?)
    }

    /// Returns one test case for each trial, named by item and trial, so that names stay the same from run to run.
    fn junit(&self, settings: &JunitSettings<'_>) -> Vec<TestSuite> {
        let mut suite = TestSuite::new("experiment");
        for (at, trial) in self.report.trials.iter().enumerate() {
            let reasons = ExperimentReport::list_failures(trial).join("; ");
            let status = match trial.verdict() {
                Some(passed) => build_measured_status(passed, "pass", "failed", &reasons, settings),
                None => TestCaseStatus::skipped(),
            };
            let mut case = TestCase::new(printable_line(&self.trial_name(at).unwrap_or_default()), status);
            case.set_classname("gradus.experiment");
            suite.add_test_case(case);
        }
        vec![suite]
    }

    fn lines(&self, run_id: &str, out: &mut dyn Write) -> io::Result<()> {
        for trial in &self.report.trials {
            let verdict = trial.verdict();
            let outcome = serde_json::json!({
                "run_id": run_id,
                "trajectory_id": trial.trajectory_id,
                "step_index": null,
                "evaluator": "pass",
                "outcome": if verdict.is_some() { OutcomeKind::Scored } else { OutcomeKind::Abstained },
                "label": verdict.map(|passed| if passed { "passed" } else { "failed" }),
                "score": verdict.map(|passed| f64::from(u8::from(passed))),
                "explanation": ExperimentReport::list_failures(trial).join("; "),
                "evidence": [],
                "reason": verdict.is_none().then_some("a check could not be made: the agent sent no spans"),
                "judge": SIMULATOR_JUDGE,
                "rubric_hash": "",
                "tokens": null,
                "cost_usd": null,
                "cached": false,
                "calls": 0,
                "trace_id": trial.trace_id,
                "span_ids": trial.span_ids,
                "item_id": trial.item_id,
                "trial": trial.trial,
            });
            json::write_line(&outcome, out)?;
        }
        Ok(())
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let tables = self.report.own_tables();
        for (at, table) in tables.iter().enumerate() {
            if at > 0 {
                writeln!(out, "\n{BOLD}{}{BOLD:#}", table.title)?;
            }
            print_table(table, out)?;
        }
        let failed: Vec<_> = self.report.trials.iter().filter(|trial| trial.verdict() == Some(false)).collect();
        if !failed.is_empty() {
            writeln!(out, "\n{BOLD}Failed trials{BOLD:#}")?;
        }
        for trial in failed.iter().take(MAX_SHOWN_FAILURES) {
            writeln!(out, "  {RED}{}{RED:#} {DIM}trial {}{DIM:#}", printable_line(&trial.item_id), trial.trial)?;
            for reason in ExperimentReport::list_failures(trial) {
                writeln!(out, "    {}", printable_line(&reason))?;
            }
        }
        if failed.len() > MAX_SHOWN_FAILURES {
            let more = failed.len() - MAX_SHOWN_FAILURES;
            writeln!(out, "  {DIM}{more} more in {}/trials.jsonl{DIM:#}", printable_line(&self.report.folder))?;
        }
        for note in list_caveats(&self.report) {
            writeln!(out, "{RED}note:{RED:#} {note}")?;
        }
        writeln!(out)
    }
}

/// Lists caveats that a reader of the numbers must know.
fn list_caveats(report: &ExperimentReport) -> Vec<String> {
    let mut notes = Vec::new();
    let unchecked = report.unchecked_trial_count() as u64;
    if unchecked > 0 {
        notes.push(format!(
            "{} sent no spans, so tool calls could not be checked, and the trial did not pass; hint: let the agent export to OTEL_EXPORTER_OTLP_ENDPOINT",
            format_counted_noun(unchecked, "trial", "trials")
        ));
    }
    if report.unattributed_spans > 0 {
        notes.push(format!(
            "{} in {} belong to no trial; hint: let the agent continue the trace of the traceparent header",
            format_counted_noun(report.unattributed_spans, "span", "spans"),
            format_counted_noun(report.unattributed_traces, "trace", "traces")
        ));
    }
    if report.refused_exports > 0 {
        notes.push(format!(
            "the collector refused {}, so spans are missing",
            format_counted_noun(report.refused_exports, "export", "exports")
        ));
    }
    notes
}

/// Numbers are right-aligned. Widths are counted in characters.
fn print_table(table: &ReportTable, out: &mut dyn Write) -> io::Result<()> {
    let shown = |cell: &str| -> String { printable_line(cell).chars().take(MAX_COLUMN_WIDTH).collect() };
    let rows: Vec<Vec<String>> = table.rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect()).collect();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([table.columns[at].name.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let line = |cells: Vec<&str>| -> String {
        let padded =
            cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match table.columns[at].is_number {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    writeln!(out, "{BOLD}{}{BOLD:#}", line(names))?;
    for row in &rows {
        writeln!(out, "{}", line(row.iter().map(String::as_str).collect()))?;
    }
    Ok(())
}
