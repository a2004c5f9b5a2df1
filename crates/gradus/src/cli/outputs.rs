//! The output files of a run and its gates: the same for `eval`, `bench`, `demo` and `report`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::ExportedOutcome;
use gradus_eval::report::{EvaluationSummary, GateResult, RunReader};

use super::CommandExit;
use super::baseline::BaselineOptions;
use super::calibration_options::CalibrationOptions;
use super::gates::{GateOptions, exit_for_gates};
use super::report_addition::ReportAddition;
use gradus_report::BOLD;
use gradus_report::compare::{self, VersionComparison};
use gradus_report::junit::{JunitFailures, JunitSettings};
use gradus_report::{csv, html, index_trials, json, junit, markdown, summary};

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
    /// JUnit XML: every gate and every question is a test.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    junit: Option<PathBuf>,
    /// Which wrong verdicts are failures in JUnit XML: those on which a gate failed, or all.
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value_t = JunitFailureOption::Gates,
        help_heading = "Outputs (- is standard output)"
    )]
    junit_failures: JunitFailureOption,
    /// For the summary page of a CI job.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    markdown: Option<PathBuf>,
    /// A page with charts, in one file.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    html: Option<PathBuf>,

    #[command(flatten)]
    pub(super) gates: GateOptions,
    #[command(flatten)]
    pub(super) calibration: CalibrationOptions,
    #[command(flatten)]
    pub(super) baseline: BaselineOptions,
}

/// The values of `--junit-failures`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum JunitFailureOption {
    // Documentation comments here would give every option of the command three lines of help.
    Gates,
    Verdicts,
}

impl From<JunitFailureOption> for JunitFailures {
    fn from(option: JunitFailureOption) -> JunitFailures {
        match option {
            JunitFailureOption::Gates => JunitFailures::FailedGates,
            JunitFailureOption::Verdicts => JunitFailures::WrongVerdicts,
        }
    }
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
    /// Returns the output files, without the CSV folder and without standard output.
    fn files(&self) -> impl Iterator<Item = &Path> {
        let baseline = &self.baseline.save_baseline;
        let files = [&self.json, &self.jsonl, &self.junit, &self.markdown, &self.html, baseline];
        files.into_iter().flatten().map(PathBuf::as_path).filter(|path| !is_stdout(path))
    }

    /// Whether one of the outputs goes to standard output.
    pub(super) fn uses_stdout(&self) -> bool {
        let files = [&self.json, &self.jsonl, &self.junit, &self.markdown, &self.html];
        files.into_iter().flatten().any(|path| is_stdout(path))
    }

    /// Checks that all files can be written, before money is spent on a run whose results could not be saved. Files
    /// stay as they are: the run may still be refused.
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
            let is_new = path.symlink_metadata().is_err();
            let opened = File::options().append(true).create(true).open(path);
            opened.map_err(|source| OutputError::Unwritable { path: path.to_owned(), source })?;
            if is_new {
                let _ = std::fs::remove_file(path);
            }
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
        report: &RunReport,
        addition: &dyn ReportAddition,
    ) -> anyhow::Result<()> {
        let RunReport { summary: found, gates, comparison, decides } = report;
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
            let mut document = serde_json::json!({"summary": found, "gates": gates, "run_folder": reader.run_folder()});
            if let (Some((name, more)), Some(fields)) = (addition.document()?, document.as_object_mut()) {
                fields.insert(name.to_owned(), more);
            }
            if let (Some(comparison), Some(fields)) = (comparison, document.as_object_mut()) {
                fields.insert("comparison".to_owned(), serde_json::to_value(comparison)?);
            }
            json::write_pretty(&document, out)?;
            Ok(writeln!(out)?)
        })?;
        to(&self.jsonl, &mut |out| {
            addition.lines(&found.run_id, out)?;
            reader.visit_trajectories(|trajectory, outcomes| {
                let mut lines = outcomes.iter().map(|line| ExportedOutcome::new(trajectory, line));
                lines.try_for_each(|line| json::write_line(&line, out)).map_err(anyhow::Error::from)
            })
        })?;
        to(&self.junit, &mut |out| {
            let index = index_trials(&addition.measurements());
            let item_id = |trajectory: &Trajectory| {
                let position = index.find_trial(&trajectory.trajectory_id, trajectory.session_id.as_deref())?;
                addition.trial_name(position)
            };
            // A failure in JUnit without one in the exit code would be another verdict on the same run.
            let decided: &[GateResult] = if *decides { gates } else { &[] };
            let settings =
                JunitSettings { item_id: &item_id, ..JunitSettings::new(decided, self.junit_failures.into()) };
            let mut suites = addition.junit(&settings);
            suites.extend(comparison.as_ref().and_then(|found| self.baseline.decision.build_suite(found)));
            junit::write_junit_report(reader, &settings, suites, out)
        })?;
        to(&self.markdown, &mut |out| {
            if let Some(comparison) = comparison {
                writeln!(out, "## Compared with the baseline\n")?;
                compare::write_comparison_markdown(comparison, out)?;
            }
            markdown::write_markdown_report(found, gates, out)?;
            Ok(addition.markdown(out)?)
        })?;
        to(&self.html, &mut |out| {
            let mut tables = comparison.as_ref().map(compare::build_comparison_tables).unwrap_or_default();
            tables.extend(addition.tables());
            Ok(html::write_html_report(found, gates, &tables, out)?)
        })?;
        if !stdout_is_taken {
            let mut out = BufWriter::new(anstream::stdout().lock());
            addition.print(&mut out)?;
            if !addition.replaces_summary() {
                summary::print_summary(found, gates, &mut out)?;
            }
            if let Some(comparison) = comparison {
                writeln!(out, "\n{BOLD}Compared with the baseline{BOLD:#}")?;
                compare::print_comparison(comparison, &mut out)?;
            }
            out.flush()?;
        }
        Ok(())
    }
}

/// The results of a run as the outputs show them.
pub(super) struct RunReport {
    pub(super) summary: EvaluationSummary,
    pub(super) gates: Vec<GateResult>,
    /// Whether the gates decide the exit code. Those that were recorded with the run are only shown.
    pub(super) decides: bool,
    /// With the baseline, if there is one.
    pub(super) comparison: Option<VersionComparison>,
}

impl RunReport {
    /// Returns the exit code by gates and comparison.
    pub(super) fn exit(&self, options: &OutputOptions) -> CommandExit {
        let decision = &options.baseline.decision;
        // A part of a run may lack a regression.
        if decision.fail_on.is_some() && !self.summary.complete && !options.gates.allow_partial {
            return CommandExit::GateIncomplete;
        }
        let compared = self.comparison.as_ref().map(|found| decision.decide_exit(found, options.gates.allow_partial));
        match (exit_for_gates(if self.decides { &self.gates } else { &[] }), compared) {
            (CommandExit::Pass, Some(exit)) => exit,
            (exit, _) => exit,
        }
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}
