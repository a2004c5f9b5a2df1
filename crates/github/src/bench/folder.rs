//! A bench's files, so that it can be taken up where it was cut off:
//!
//! ```text
//! FOLDER/bench.json                      what is being run
//! FOLDER/trials.jsonl                    one line for each finished trial
//! FOLDER/records/<task>-<trial>.json     what the agent did in it
//! FOLDER/traces/<task>-<trial>.bin       its spans, an OTLP export request
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::line::trial_name;
use super::{BenchError, Finished, TrialLine};
use crate::record::RunRecord;

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: io::Error },
    #[error(
        "{}: another bench is in there ({found}); name another folder with --out, or leave out --resume to begin anew",
        path.display()
    )]
    Another { path: PathBuf, found: String },
    #[error("{}: a bench is at work in it", path.display())]
    Held { path: PathBuf },
    #[error(transparent)]
    Bench(#[from] BenchError),
}

/// What a bench is about: the same for two that can go on where the other stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub suite: String,
    /// A digest of the tasks.
    pub tasks: String,
    pub agents: Vec<String>,
    pub gradus_version: String,
}

#[derive(Debug)]
pub struct BenchFolder {
    path: PathBuf,
    log: File,
    _lock: File,
}

impl BenchFolder {
    /// Begins in this folder, or goes on in it: then the lines that are there are given back.
    pub fn open(
        path: &Path,
        plan: &Plan,
        goes_on: bool,
    ) -> Result<(BenchFolder, Vec<TrialLine>), FolderError> {
        let io = |reason| FolderError::File { path: path.to_owned(), reason };
        for part in ["records", "traces"] {
            fs::create_dir_all(path.join(part)).map_err(io)?;
        }
        let lock = File::create(path.join("lock")).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::Held { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let about = path.join("bench.json");
        let mut lines = Vec::new();
        if goes_on && about.exists() {
            let text = fs::read(&about).map_err(io)?;
            let found: Plan = serde_json::from_slice(&text).map_err(|error| io(error.into()))?;
            if found != *plan {
                let found = format!("suite {}, {}", found.suite, found.agents.join(", "));
                return Err(FolderError::Another { path: path.to_owned(), found });
            }
            lines = read_lines(&path.join("trials.jsonl")).map_err(io)?;
        } else {
            for part in ["records", "traces"] {
                clear(&path.join(part)).map_err(io)?;
            }
            fs::write(path.join("trials.jsonl"), "").map_err(io)?;
            fs::write(&about, serde_json::to_vec_pretty(plan).map_err(|error| io(error.into()))?)
                .map_err(io)?;
        }
        let log = path.join("trials.jsonl");
        let mut log = OpenOptions::new().append(true).create(true).open(log).map_err(io)?;
        if goes_on {
            // A line that was cut off must not swallow the next one; an empty one is passed over.
            log.write_all(b"\n").map_err(io)?;
        }
        Ok((BenchFolder { path: path.to_owned(), log, _lock: lock }, lines))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn traces(&self) -> PathBuf {
        self.path.join("traces")
    }

    /// Keeps a trial: its files first, so that a line is never without them.
    pub fn keep(&mut self, finished: &Finished) -> Result<(), FolderError> {
        let name = finished.line.name();
        let mut keep = || -> io::Result<()> {
            let record = self.path.join("records").join(format!("{name}.json"));
            fs::write(record, serde_json::to_vec(&finished.record)?)?;
            if !finished.otlp.is_empty() {
                fs::write(self.path.join("traces").join(format!("{name}.bin")), &finished.otlp)?;
            }
            let mut line = serde_json::to_vec(&finished.line)?;
            line.push(b'\n');
            self.log.write_all(&line)
        };
        keep().map_err(|reason| FolderError::File { path: self.path.clone(), reason })
    }

    /// What an agent did in a trial.
    pub fn record(&self, task: &str, trial: u32) -> io::Result<RunRecord> {
        let path = self.path.join("records").join(format!("{}.json", trial_name(task, trial)));
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}

/// The lines of a log, without one that was cut off; of two for the same trial, the first.
fn read_lines(path: &Path) -> io::Result<Vec<TrialLine>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut seen = BTreeSet::new();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<TrialLine>(line).ok());
    Ok(lines.filter(|line| seen.insert((line.task.clone(), line.trial))).collect())
}

/// Takes out what an earlier bench has left; nothing else is in there.
fn clear(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_ours = path.extension().is_some_and(|ending| ending == "json" || ending == "bin");
        if is_ours && path.is_file() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
