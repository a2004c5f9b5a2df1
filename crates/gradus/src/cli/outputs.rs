//! The output files of a run and its gates: the same for `eval`, `bench`, `demo` and `report`.

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

/// Why outputs cannot be written; found before the run begins.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    #[error("{}: two outputs would be written there", path.display())]
    Twice { path: PathBuf },
    #[error("{}: it is a source, and would be overwritten", path.display())]
    IsSource { path: PathBuf },
    #[error("--csv makes several files: give a folder")]
    CsvToStdout,
    #[error("only one output can go to standard output")]
    SeveralToStdout,
    #[error("{}: cannot be written: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

impl OutputOptions {
    /// The output files, without the CSV folder and without standard output.
    fn files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.json, &self.jsonl, &self.junit, &self.markdown, &self.html];
        files.into_iter().flatten().map(PathBuf::as_path).filter(|path| !is_stdout(path))
    }

    /// Checks that all files can be written, before money is spent on a run whose results could not be saved. It
    /// creates missing files and folders, and does not truncate existing files: the run may still be refused.
    pub(super) fn prepare(&self, sources: &[String]) -> Result<(), OutputError> {
        let files: Vec<PathBuf> =
            self.files().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned())).collect();
        for (at, path) in files.iter().enumerate() {
            if files[..at].contains(path) {
                return Err(OutputError::Twice { path: path.clone() });
            }
            // By canonical paths, as `report.json` and `./report.json` or a link are the same file.
            let is_source = |source: &String| {
                Path::new(source)
                    .canonicalize()
                    .is_ok_and(|source| path.canonicalize().is_ok_and(|path| path == source))
            };
            if sources.iter().any(is_source) {
                return Err(OutputError::IsSource { path: path.clone() });
            }
        }
        let to_stdout = [&self.json, &self.jsonl, &self.junit, &self.markdown, &self.html];
        if self.csv.as_deref().is_some_and(is_stdout) {
            return Err(OutputError::CsvToStdout);
        }
        if to_stdout.into_iter().flatten().filter(|path| is_stdout(path)).count() > 1 {
            return Err(OutputError::SeveralToStdout);
        }
        for path in self.files() {
            let opened = File::options().append(true).create(true).open(path);
            opened.map_err(|source| OutputError::Unwritable { path: path.to_owned(), source })?;
        }
        if let Some(folder) = &self.csv {
            std::fs::create_dir_all(folder)
                .map_err(|source| OutputError::Unwritable { path: folder.clone(), source })?;
        }
        Ok(())
    }

    /// Writes every output that an option names. The summary for people goes to standard output, unless one of the
    /// outputs goes there: a program that reads it must not find two documents.
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

/// What a command adds to the results of a run, in every output: the benchmark adds its trials. The default methods add
/// nothing.
pub(super) trait ReportAddition {
    /// More metrics beside those of the evaluators, on which gates can be set. Called once, before any other output
    /// method, since the values of the other methods may depend on the run that `reader` reads.
    fn metrics(&mut self, reader: &mut RunReader) -> anyhow::Result<Vec<MetricResult>> {
        let _ = reader;
        Ok(Vec::new())
    }

    /// Saves into the folder of the run what a later `gradus report` needs to add the same again.
    fn keep(&self, folder: &Path) -> anyhow::Result<()> {
        let _ = folder;
        Ok(())
    }

    /// A text that replaces the source in the manifest and in reports, for sources in temporary folders.
    fn source(&self) -> Option<String> {
        None
    }

    /// Whether a run without a single trajectory still has something to report.
    fn is_enough(&self) -> bool {
        false
    }

    /// May replace the reason of a failed or inconclusive gate by a better one.
    fn explain(&self, gate: &mut GateResult) {
        let _ = gate;
    }

    /// A key for the JSON document, and its value.
    fn document(&self) -> anyhow::Result<Option<(&'static str, serde_json::Value)>> {
        Ok(None)
    }

    /// Tables for the HTML report.
    fn tables(&self) -> Vec<ReportTable> {
        Vec::new()
    }

    /// Markdown below the summary.
    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let _ = out;
        Ok(())
    }

    /// More CSV files in the same folder.
    fn csv(&self, folder: &Path) -> anyhow::Result<()> {
        let _ = folder;
        Ok(())
    }

    /// JUnit suites before those of the evaluators.
    fn junit(&self) -> Vec<TestSuite> {
        Vec::new()
    }

    /// JSON lines before the outcomes, with the same keys where they mean the same.
    fn lines(&self, run_id: &str, out: &mut dyn Write) -> io::Result<()> {
        let _ = (run_id, out);
        Ok(())
    }

    /// Whether the text of `print` replaces the summary on the terminal.
    fn stands_alone(&self) -> bool {
        false
    }

    /// Text for the terminal, before the summary.
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let _ = out;
        Ok(())
    }
}

/// The addition of `gradus eval`: none.
pub(super) struct NoAddition;

impl ReportAddition for NoAddition {}

/// Checks the gates, in the order in which they were given. With `strict`, an inconclusive gate counts as failed.
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

/// Whether a gate failed, which means exit code 3. Inconclusive gates do not count, unless they were checked strictly.
pub(super) fn has_failed(gates: &[GateResult]) -> bool {
    gates.iter().any(|gate| gate.verdict == GateVerdict::Fail)
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}
