//! `--traces` and `--emit-labels`: the traces of a benchmark's runs and the gold labels of scripted agents, as files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gradus_github_bench::trial::{BenchFolder, TrialLine};

use super::BenchArguments;
use crate::received_traces::read_trajectories;
use gradus_github_bench::results::gold_labels;

/// Why traces or labels cannot be written; found before the first trial.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum BenchOutputError {
    #[error("{}: cannot be written: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("{option}: give a name; this does not go to standard output")]
    ToStdout { option: &'static str },
    /// Which steps are wrong is known only of agents whose mistakes are scripted.
    #[error("--emit-labels: what is true is known of scripted agents only; give --policy")]
    LabelsWithoutPolicy,
    #[error(
        "--emit-labels: {} is not empty, and labels of other runs would be among these; name a new folder, or give --overwrite",
        path.display()
    )]
    LabelsInFolder { path: PathBuf },
}

/// Returns the error for a file or folder that cannot be written.
fn unwritable_path_error(path: &Path, source: io::Error) -> BenchOutputError {
    BenchOutputError::Unwritable { path: path.to_owned(), source }
}

/// Checks that all files can be written, before any trial. It deletes nothing: the call may still be refused.
pub(super) fn prepare_outputs(arguments: &BenchArguments) -> Result<(), BenchOutputError> {
    if let Some(path) = &arguments.traces {
        refuse_stdout("--traces", path)?;
        File::options().append(true).create(true).open(path).map_err(|error| unwritable_path_error(path, error))?;
    }
    let Some(path) = &arguments.emit_labels else { return Ok(()) };
    refuse_stdout("--emit-labels", path)?;
    if arguments.policy.is_empty() {
        return Err(BenchOutputError::LabelsWithoutPolicy);
    }
    if is_json_lines_path(path) {
        let opened = File::options().append(true).create(true).open(path);
        return opened.map(drop).map_err(|error| unwritable_path_error(path, error));
    }
    fs::create_dir_all(path).map_err(|error| unwritable_path_error(path, error))?;
    let is_empty = fs::read_dir(path).map_err(|error| unwritable_path_error(path, error))?.next().is_none();
    if !is_empty && !arguments.resume && !arguments.overwrite {
        return Err(BenchOutputError::LabelsInFolder { path: path.clone() });
    }
    Ok(())
}

/// With `--overwrite`, removes the labels of an earlier call. Other files in the folder stay.
pub(super) fn clear_old_labels(arguments: &BenchArguments) -> Result<(), BenchOutputError> {
    match &arguments.emit_labels {
        Some(path) if arguments.overwrite && !is_json_lines_path(path) => {
            gold_labels::clear_gold_folder(path).map_err(|error| unwritable_path_error(path, error))
        }
        _ => Ok(()),
    }
}

fn refuse_stdout(option: &'static str, path: &Path) -> Result<(), BenchOutputError> {
    match path.as_os_str() == "-" {
        true => Err(BenchOutputError::ToStdout { option }),
        false => Ok(()),
    }
}

/// Whether labels go into one JSON Lines file instead of a folder per run.
fn is_json_lines_path(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "jsonl")
}

/// Returns the OTLP trace of a trial in the folder of the benchmark.
pub(super) fn trial_trace_path(folder: &BenchFolder, line: &TrialLine) -> PathBuf {
    folder.traces_path().join(format!("{}.bin", line.name()))
}

/// Writes the traces and labels that options name, of all trials, also those of an earlier call that was resumed.
pub(super) fn write_outputs(
    arguments: &BenchArguments,
    folder: &BenchFolder,
    lines: &[TrialLine],
) -> anyhow::Result<()> {
    if let Some(path) = &arguments.traces {
        write_traces(path, folder, lines).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &arguments.emit_labels {
        write_labels(path, folder, lines).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Writes one OTLP request with the spans of all trials. Trials without a trace (programs that sent none) are left
/// out.
fn write_traces(path: &Path, folder: &BenchFolder, lines: &[TrialLine]) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for line in lines {
        // Protobuf messages of one type concatenate: their repeated fields are joined.
        if let Ok(mut trace) = File::open(trial_trace_path(folder, line)) {
            io::copy(&mut trace, &mut out)?;
        }
    }
    out.flush()
}

/// Writes the gold labels of all trials of scripted agents: one file, or a folder per trial with trace and
/// `gold.json`.
fn write_labels(path: &Path, folder: &BenchFolder, lines: &[TrialLine]) -> io::Result<()> {
    let mut out = match is_json_lines_path(path) {
        true => Some(BufWriter::new(File::create(path)?)),
        false => None,
    };
    for line in lines.iter().filter(|line| line.truth.is_some()) {
        let otlp = fs::read(trial_trace_path(folder, line)).unwrap_or_default();
        match &mut out {
            Some(out) => {
                for trajectory in read_trajectories(&otlp)? {
                    gold_labels::write_lines(out, line, &trajectory)?;
                }
            }
            None => {
                let record = folder.read_record(&line.task, line.trial)?;
                gold_labels::write_gold_folder(path, line, &record, &otlp)?;
            }
        }
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    Ok(())
}
