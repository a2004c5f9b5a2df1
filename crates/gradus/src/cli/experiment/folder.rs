//! The files of an experiment, so that it can be continued where it was cut off:
//!
//! ```text
//! FOLDER/experiment.json      the plan
//! FOLDER/trials.jsonl         one result a line, written when all trials are done or the experiment stops
//! FOLDER/trajectories.jsonl   what the agent did, which `gradus eval FOLDER` reads
//! FOLDER/.journal.jsonl       one finished attempt a line, written before another one starts
//! FOLDER/.collector/          spans of an agent behind HTTP
//! ```
//!
//! `gradus eval FOLDER` ignores names that begin with a dot.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use gradus_core::trajectory::Trajectory;
use gradus_dataset::TrialEnd;
use serde::{Deserialize, Serialize};

use super::experiment_plan::ExperimentPlan;

pub(super) const TRIALS_FILE: &str = "trials.jsonl";
pub(super) const TRAJECTORIES_FILE: &str = "trajectories.jsonl";
const PLAN_FILE: &str = "experiment.json";
const JOURNAL_FILE: &str = ".journal.jsonl";
const LOCK_FILE: &str = ".lock";

/// Why a folder cannot be used, or a file in it cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExperimentFolderError {
    #[error("experiment folder not usable: {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "experiment folder not usable: {}: another experiment is in it: {difference}; hint: name another folder with --out",
        path.display()
    )]
    Another { path: PathBuf, difference: String },
    #[error(
        "experiment folder not usable: {}: it has files and no experiment; hint: name an empty or new folder with --out",
        path.display()
    )]
    NoExperiment { path: PathBuf },
    #[error("experiment folder not usable: {}: another process works in it; hint: wait until it ends", path.display())]
    Held { path: PathBuf },
}

/// One finished attempt, as the journal has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FinishedAttempt {
    pub(super) item_id: String,
    pub(super) trial: u32,
    pub(super) end: TrialEnd,
    /// Why the agent did not end well.
    pub(super) failure: Option<String>,
    /// Standard output, or the answer in the response.
    pub(super) answer: Option<String>,
    pub(super) seconds: f64,
    /// Of a program: what it did by its spans. Those of an agent behind HTTP arrive later.
    pub(super) trajectories: Vec<Trajectory>,
    /// Of an agent behind HTTP: the trace id that it was sent, 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace_id: Option<String>,
    /// Exports that the collector refused, so that spans are missing.
    #[serde(default)]
    pub(super) refused_exports: u64,
}

/// The finished attempts by item and trial.
pub(super) type AttemptMap = BTreeMap<(String, u32), FinishedAttempt>;

/// Which folder is used.
#[derive(Debug)]
pub(super) struct FolderChoice {
    pub(super) path: PathBuf,
    /// Whether what is in it is thrown away.
    is_fresh: bool,
}

impl FolderChoice {
    /// Returns `--out`, else the latest unfinished experiment with the same plan, else a new folder. Names of folders
    /// begin with their time, so that they sort by it.
    pub(super) fn find(state_dir: &Path, out: Option<&Path>, plan: &ExperimentPlan, is_fresh: bool) -> FolderChoice {
        if let Some(path) = out {
            return FolderChoice { path: path.to_owned(), is_fresh };
        }
        let experiments = state_dir.join("experiments");
        let entries = fs::read_dir(&experiments).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.sort();
        let is_unfinished = |path: &PathBuf| {
            let earlier = read_plan(path).ok().flatten();
            earlier.is_some_and(|earlier| !earlier.is_finished && plan.describe_mismatch(&earlier).is_none())
        };
        if let Some(path) = found.into_iter().rev().find(is_unfinished).filter(|_| !is_fresh) {
            return FolderChoice { path, is_fresh: false };
        }
        let now = jiff::Timestamp::now().to_string();
        let digits: String = now.chars().take(19).filter(char::is_ascii_digit).collect();
        FolderChoice { path: experiments.join(format!("{digits}-{}", plan.id)), is_fresh: false }
    }
}

/// An open folder. It holds a lock for its lifetime, so that two processes never write to it.
#[derive(Debug)]
pub(super) struct ExperimentFolder {
    path: PathBuf,
    pub(super) plan: ExperimentPlan,
    journal: File,
    _lock: File,
}

impl ExperimentFolder {
    /// Starts or continues an experiment. Returns the attempts that are already there.
    pub(super) fn open(
        choice: &FolderChoice,
        plan: &ExperimentPlan,
    ) -> Result<(ExperimentFolder, AttemptMap), ExperimentFolderError> {
        let path = choice.path.clone();
        let io = |source| ExperimentFolderError::File { path: path.clone(), source };
        let mut plan = plan.clone();
        let has_other_files = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some());
        if has_other_files && !path.join(PLAN_FILE).is_file() && !path.join(LOCK_FILE).is_file() {
            return Err(ExperimentFolderError::NoExperiment { path });
        }
        fs::create_dir_all(&path).map_err(io)?;
        let lock = File::create(path.join(LOCK_FILE)).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ExperimentFolderError::Held { path }),
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        match read_plan(&path).map_err(io)? {
            Some(earlier) if !choice.is_fresh => {
                if let Some(difference) = plan.describe_mismatch(&earlier) {
                    return Err(ExperimentFolderError::Another { path, difference });
                }
                plan.id = earlier.id;
                // Items that only the earlier call had stay in the plan, since their attempts stay in the journal.
                for (id, digest) in earlier.requests {
                    plan.requests.entry(id).or_insert(digest);
                }
            }
            _ => remove_if_exists(&path.join(JOURNAL_FILE)).map_err(io)?,
        }
        if choice.is_fresh
            && let Err(error) = fs::remove_dir_all(path.join(".collector"))
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(io(error));
        }
        write_plan(&path, &plan).map_err(io)?;
        let (attempts, is_cut) = read_journal(&path.join(JOURNAL_FILE)).map_err(io)?;
        let mut journal = OpenOptions::new().append(true).create(true).open(path.join(JOURNAL_FILE)).map_err(io)?;
        if is_cut {
            // A line that was cut off must not swallow the next one.
            journal.write_all(b"\n").map_err(io)?;
        }
        Ok((ExperimentFolder { path, plan, journal, _lock: lock }, attempts))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the collector's store for an agent behind HTTP. It outlives a killed process, so that
    /// spans of finished attempts are found again.
    pub(super) fn collector_path(&self) -> PathBuf {
        self.path.join(".collector")
    }

    /// Writes an attempt to the disk, so that it is never run again.
    pub(super) fn add_attempt(&mut self, attempt: &FinishedAttempt) -> Result<(), ExperimentFolderError> {
        let mut write = || -> io::Result<()> {
            let mut line = serde_json::to_vec(attempt)?;
            line.push(b'\n');
            self.journal.write_all(&line)?;
            self.journal.sync_data()
        };
        write().map_err(|source| ExperimentFolderError::File { path: self.path.clone(), source })
    }

    /// Writes a file of JSON lines next to the old one and renames it. Returns a digest of the content.
    pub(super) fn write_lines<T: Serialize>(&self, name: &str, lines: &[T]) -> Result<u128, ExperimentFolderError> {
        let write = || -> io::Result<u128> {
            let new = self.path.join(format!(".{name}.new"));
            let mut out = BufWriter::new(File::create(&new)?);
            let mut digest = 0;
            for line in lines {
                let mut text = serde_json::to_vec(line)?;
                text.push(b'\n');
                out.write_all(&text)?;
                text.extend_from_slice(&u128::to_le_bytes(digest));
                digest = gradus_core::stable_digest(&text);
            }
            out.flush()?;
            fs::rename(&new, self.path.join(name))?;
            Ok(digest)
        };
        write().map_err(|source| ExperimentFolderError::File { path: self.path.clone(), source })
    }

    /// Marks the experiment as finished: the next call with the same plan starts another one.
    pub(super) fn mark_finished(&mut self) -> Result<(), ExperimentFolderError> {
        self.plan.is_finished = true;
        write_plan(&self.path, &self.plan)
            .map_err(|source| ExperimentFolderError::File { path: self.path.clone(), source })
    }
}

fn read_plan(folder: &Path) -> io::Result<Option<ExperimentPlan>> {
    match fs::read(folder.join(PLAN_FILE)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a new file and renames it, so that a plan is complete or absent.
fn write_plan(folder: &Path, plan: &ExperimentPlan) -> io::Result<()> {
    let new = folder.join(".experiment.json.new");
    fs::write(&new, serde_json::to_vec_pretty(plan)?)?;
    fs::rename(new, folder.join(PLAN_FILE))
}

/// Reads the attempts. Returns also whether the last line was cut off. Unreadable lines are those of a killed
/// process.
fn read_journal(path: &Path) -> io::Result<(AttemptMap, bool)> {
    let mut attempts = AttemptMap::new();
    let mut source = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((attempts, false)),
        Err(error) => return Err(error),
    };
    let mut line = Vec::new();
    let mut is_cut = false;
    while source.read_until(b'\n', &mut line)? > 0 {
        is_cut = line.last() != Some(&b'\n');
        if let Ok(attempt) = serde_json::from_slice::<FinishedAttempt>(&line) {
            attempts.insert((attempt.item_id.clone(), attempt.trial), attempt);
        }
        line.clear();
    }
    Ok((attempts, is_cut))
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
