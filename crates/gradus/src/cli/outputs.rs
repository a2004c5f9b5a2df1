//! Where a run's results go, and which gates they must pass: the same for `eval` and `report`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use gradus_eval::report::{EvaluationSummary, GateResult, GateVerdict, MetricResult, QualityGate, RunReader};
use quick_junit::TestSuite;

use gradus_report::ReportTable;
use gradus_report::{csv, html, json, junit, markdown, summary};

#[derive(Args, Clone)]
pub(super) struct OutputOptions {
    /// Tables: the steps, one file for each evaluation, and all combined; into a folder.
    #[arg(long, value_name = "DIR", help_heading = "Outputs (- is standard output)")]
    csv: Option<PathBuf>,
    /// The summary as one JSON document.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    json: Option<PathBuf>,
    /// One outcome a line.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    jsonl: Option<PathBuf>,
    /// JUnit XML: every question is a test.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    junit: Option<PathBuf>,
    /// For the summary page of a CI job.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    markdown: Option<PathBuf>,
    /// A page with charts, in one file.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    html: Option<PathBuf>,

    /// What must hold, as 'thought_to_tool >= 0.85', 'failed <= 0.02' or 'cost <= 5'; may be given several times.
    /// INCONCLUSIVE when the interval holds the bar.
    #[arg(long, value_name = "RULE", help_heading = "Gates")]
    pub(super) gate: Vec<String>,
    /// A gate that cannot tell fails.
    #[arg(long, help_heading = "Gates")]
    pub(super) strict: bool,
}

impl OutputOptions {
    fn files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.json, &self.jsonl, &self.junit, &self.markdown, &self.html];
        files.into_iter().flatten().map(PathBuf::as_path).filter(|path| !is_stdout(path))
    }

    /// Finds out whether all files can be written before anything is spent on what goes into them.
    pub(super) fn prepare(&self, sources: &[String]) -> Result<(), String> {
        let files: Vec<PathBuf> =
            self.files().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned())).collect();
        for (at, path) in files.iter().enumerate() {
            if files[..at].contains(path) {
                return Err(format!("{}: two outputs would be written there", path.display()));
            }
            let is_source = |source: &String| {
                Path::new(source)
                    .canonicalize()
                    .is_ok_and(|source| path.canonicalize().is_ok_and(|path| path == source))
            };
            if sources.iter().any(is_source) {
                return Err(format!("{}: it is a source, and would be overwritten", path.display()));
            }
        }
        let to_stdout = [&self.json, &self.jsonl, &self.junit, &self.markdown, &self.html];
        if self.csv.as_deref().is_some_and(is_stdout) {
            return Err("--csv makes several files: give a folder".to_owned());
        }
        if to_stdout.into_iter().flatten().filter(|path| is_stdout(path)).count() > 1 {
            return Err("only one output can go to standard output".to_owned());
        }
        for path in self.files() {
            let opened = File::options().append(true).create(true).open(path);
            opened.map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
        }
        if let Some(folder) = &self.csv {
            std::fs::create_dir_all(folder)
                .map_err(|error| format!("{}: cannot be written: {error}", folder.display()))?;
        }
        Ok(())
    }

    /// Writes everything that was asked for. People get the summary unless a program gets something instead.
    pub(super) fn write(
        &self,
        reader: &mut RunReader,
        found: &EvaluationSummary,
        gates: &[GateResult],
        addition: &dyn ReportAddition,
    ) -> anyhow::Result<()> {
        if let Some(folder) = &self.csv {
            csv::write_csv_tables(reader, folder)
                .and_then(|()| addition.csv(folder))
                .with_context(|| folder.display().to_string())?;
        }
        let mut stdout_is_taken = false;
        let mut to = |path: &Option<PathBuf>, write: &mut dyn FnMut(&mut dyn Write) -> anyhow::Result<()>| {
            let Some(path) = path else { return Ok(()) };
            if is_stdout(path) {
                stdout_is_taken = true;
                let mut out = BufWriter::new(io::stdout().lock());
                write(&mut out)?;
                return Ok(out.flush()?);
            }
            let mut written = || {
                let mut out = BufWriter::new(File::create(path)?);
                write(&mut out)?;
                anyhow::Ok(out.flush()?)
            };
            written().with_context(|| path.display().to_string())
        };
        to(&self.json, &mut |out| {
            let mut document = serde_json::json!({"summary": found, "gates": gates});
            if let (Some((name, more)), Some(fields)) = (addition.document()?, document.as_object_mut()) {
                fields.insert(name.to_owned(), more);
            }
            json::write_pretty(&document, out)?;
            Ok(writeln!(out)?)
        })?;
        to(&self.jsonl, &mut |out| {
            addition.lines(&found.run_id, out)?;
            reader.visit_trajectories(|_, outcomes| {
                outcomes.iter().try_for_each(|line| json::write_line(line, out)).map_err(anyhow::Error::from)
            })
        })?;
        to(&self.junit, &mut |out| junit::write_junit_report(reader, addition.junit(), out))?;
        to(&self.markdown, &mut |out| {
            markdown::write_markdown_report(found, gates, out)?;
            Ok(addition.markdown(out)?)
        })?;
        to(&self.html, &mut |out| Ok(html::write_html_report(found, gates, &addition.tables(), out)?))?;
        if !stdout_is_taken {
            let mut out = BufWriter::new(anstream::stdout().lock());
            addition.print(&mut out)?;
            if !addition.stands_alone() {
                summary::print_summary(found, gates, &mut out)?;
            }
            out.flush()?;
        }
        Ok(())
    }
}

/// What another command adds to a run's results.
pub(super) trait ReportAddition {
    /// More numbers, beside those of the evaluations; gates can be about them. Asked for once, before anything is written.
    fn metrics(&mut self, reader: &mut RunReader) -> anyhow::Result<Vec<MetricResult>> {
        let _ = reader;
        Ok(Vec::new())
    }

    /// What is needed to add all this again when the run is reported later; into the run's folder.
    fn keep(&self, folder: &Path) -> anyhow::Result<()> {
        let _ = folder;
        Ok(())
    }

    /// What a report calls the source, where its path says nothing.
    fn source(&self) -> Option<String> {
        None
    }

    /// Whether there is something to report of a run without a single trajectory.
    fn is_enough(&self) -> bool {
        false
    }

    /// May say better why a gate cannot pass.
    fn explain(&self, gate: &mut GateResult) {
        let _ = gate;
    }

    /// For the JSON document: a name, and what it holds.
    fn document(&self) -> anyhow::Result<Option<(&'static str, serde_json::Value)>> {
        Ok(None)
    }

    /// For the page.
    fn tables(&self) -> Vec<ReportTable> {
        Vec::new()
    }

    /// Below the summary.
    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let _ = out;
        Ok(())
    }

    /// More files, beside those of the steps.
    fn csv(&self, folder: &Path) -> anyhow::Result<()> {
        let _ = folder;
        Ok(())
    }

    /// More suites, before those of the evaluations.
    fn junit(&self) -> Vec<TestSuite> {
        Vec::new()
    }

    /// More lines, before the outcomes and with their keys.
    fn lines(&self, run_id: &str, out: &mut dyn Write) -> io::Result<()> {
        let _ = (run_id, out);
        Ok(())
    }

    /// Whether what it prints takes the place of the summary.
    fn stands_alone(&self) -> bool {
        false
    }

    /// For people, before the summary.
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let _ = out;
        Ok(())
    }
}

/// Nothing is added.
pub(super) struct NoAddition;

impl ReportAddition for NoAddition {}

/// The gates, checked.
pub(super) fn evaluate_gates(
    gates: &[QualityGate],
    summary: &EvaluationSummary,
    strict: bool,
    addition: &dyn ReportAddition,
) -> Vec<GateResult> {
    let mut results: Vec<GateResult> = gates.iter().map(|gate| gate.check(summary, strict)).collect();
    results.iter_mut().for_each(|result| addition.explain(result));
    results
}

pub(super) fn has_failed(gates: &[GateResult]) -> bool {
    gates.iter().any(|gate| gate.verdict == GateVerdict::Fail)
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}
