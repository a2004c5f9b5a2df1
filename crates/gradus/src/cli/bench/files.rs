//! The traces and the truth of a bench's runs, as files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gradus_github_bench::trial::{BenchFolder, TrialLine};

use super::BenchArguments;
use crate::program_agent::read_trajectories;
use gradus_github_bench::results::gold_labels;

fn write_failure_message(path: &Path, error: &io::Error) -> String {
    format!("{}: cannot be written: {error}", path.display())
}

/// Finds out whether all can be written before anything is played. Nothing is taken out yet: the call may still be refused.
pub(super) fn prepare_outputs(arguments: &BenchArguments) -> Result<(), String> {
    if let Some(path) = &arguments.traces {
        refuse_stdout("--traces", path)?;
        File::options().append(true).create(true).open(path).map_err(|error| write_failure_message(path, &error))?;
    }
    let Some(path) = &arguments.emit_labels else { return Ok(()) };
    refuse_stdout("--emit-labels", path)?;
    if arguments.policy.is_empty() {
        return Err("--emit-labels: what is true is known of scripted agents only; give --policy".to_owned());
    }
    if is_lines(path) {
        let opened = File::options().append(true).create(true).open(path);
        return opened.map(drop).map_err(|error| write_failure_message(path, &error));
    }
    fs::create_dir_all(path).map_err(|error| write_failure_message(path, &error))?;
    let is_empty = fs::read_dir(path).map_err(|error| write_failure_message(path, &error))?.next().is_none();
    if !is_empty && !arguments.resume && !arguments.overwrite {
        return Err(format!(
            "--emit-labels: {} is not empty, and labels of other runs would be among these; name a new folder, or give --overwrite",
            path.display()
        ));
    }
    Ok(())
}

/// Takes out labels of an earlier call, if that is wanted.
pub(super) fn clear_old_labels(arguments: &BenchArguments) -> Result<(), String> {
    match &arguments.emit_labels {
        Some(path) if arguments.overwrite && !is_lines(path) => {
            gold_labels::clear_folder(path).map_err(|error| write_failure_message(path, &error))
        }
        _ => Ok(()),
    }
}

fn refuse_stdout(option: &str, path: &Path) -> Result<(), String> {
    match path.as_os_str() == "-" {
        true => Err(format!("{option}: give a name; this does not go to standard output")),
        false => Ok(()),
    }
}

fn is_lines(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "jsonl")
}

pub(super) fn trace_of(folder: &BenchFolder, line: &TrialLine) -> PathBuf {
    folder.traces_path().join(format!("{}.bin", line.name()))
}

/// Writes what was asked for.
pub(super) fn write_outputs(
    arguments: &BenchArguments,
    folder: &BenchFolder,
    lines: &[TrialLine],
) -> anyhow::Result<()> {
    if let Some(path) = &arguments.traces {
        write_traces(path, folder, lines).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &arguments.emit_labels {
        emit_labels(path, folder, lines).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn write_traces(path: &Path, folder: &BenchFolder, lines: &[TrialLine]) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for line in lines {
        // One behind the other they are one request again.
        if let Ok(mut trace) = File::open(trace_of(folder, line)) {
            io::copy(&mut trace, &mut out)?;
        }
    }
    out.flush()
}

fn emit_labels(path: &Path, folder: &BenchFolder, lines: &[TrialLine]) -> io::Result<()> {
    let mut out = match is_lines(path) {
        true => Some(BufWriter::new(File::create(path)?)),
        false => None,
    };
    for line in lines.iter().filter(|line| line.truth.is_some()) {
        let otlp = fs::read(trace_of(folder, line)).unwrap_or_default();
        match &mut out {
            Some(out) => {
                for trajectory in read_trajectories(&otlp)? {
                    gold_labels::write_lines(out, line, &trajectory)?;
                }
            }
            None => {
                let record = folder.read_record(&line.task, line.trial)?;
                gold_labels::write_folder(path, line, &record, &otlp)?;
            }
        }
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    Ok(())
}
