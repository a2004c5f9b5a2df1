//! Files of a benchmark, so that an interrupted one can be resumed:
//!
//! ```text
//! FOLDER/bench.json                      the plan
//! FOLDER/trials.jsonl                    one line for each finished trial
//! FOLDER/records/<task>-<trial>.json     what the agent did in it
//! FOLDER/traces/<task>-<trial>.bin       its spans, an OTLP export request
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::line::trial_name;
use super::{BenchError, FinishedTrial, TrialLine, TrialPlan};
use crate::record::TrialRecord;
use gradus_github_agent::plural::format_count;

/// Why a folder cannot be used for a benchmark, or a file in it cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: io::Error },
    #[error(
        "{}: the bench in there is another one: {difference}; name another folder with --out, or throw it away with --overwrite",
        path.display()
    )]
    Another { path: PathBuf, difference: String },
    #[error(
        "{}: a bench of {} is in there; --resume goes on with it, --overwrite throws it away",
        path.display(),
        format_count(*trials, "trial", "trials")
    )]
    Taken { path: PathBuf, trials: usize },
    #[error("{}: there are files in it, and no bench: name a folder that is empty or new", path.display())]
    NotABench { path: PathBuf },
    #[error("{}: a bench is at work in it", path.display())]
    Held { path: PathBuf },
    #[error(transparent)]
    Bench(#[from] BenchError),
}

/// What to do with a benchmark that is already in the folder: `--resume`, `--overwrite`, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingBenchAction {
    /// Fail if it has results.
    Refuse,
    /// Continue it if the plans match.
    Resume,
    /// Delete its results and start again.
    Overwrite,
}

/// An open folder. It holds an exclusive lock on `lock` for its lifetime, so that two processes never write to it.
#[derive(Debug)]
pub struct BenchFolder {
    path: PathBuf,
    plan: TrialPlan,
    log: File,
    _lock: File,
}

/// Subfolders with one file per trial, and the extension of those files.
const TRIAL_SUBFOLDERS: [(&str, &str); 2] = [("records", "json"), ("traces", "bin")];
/// Written and synced first, then renamed to `bench.json`, so that a plan is complete or absent.
const NEW_PLAN: &str = "bench.json.new";

impl BenchFolder {
    /// Starts or continues a benchmark. Returns the results that are already there. Files that are not ours are never
    /// deleted: a folder with anything else in it is refused.
    pub fn open(
        path: &Path,
        plan: &TrialPlan,
        earlier: ExistingBenchAction,
    ) -> Result<(BenchFolder, Vec<TrialLine>), FolderError> {
        let io = |reason| FolderError::File { path: path.to_owned(), reason };
        let about = path.join("bench.json");
        if !about.is_file() && !is_unused_folder(path).map_err(io)? {
            return Err(FolderError::NotABench { path: path.to_owned() });
        }
        fs::create_dir_all(path).map_err(io)?;
        let lock = lock_folder(path)?;
        // Checked only now that the lock excludes other processes.
        let is_new = !about.is_file();
        let mut plan = plan.clone();
        let mut lines = Vec::new();
        if !is_new && earlier != ExistingBenchAction::Overwrite {
            lines = read_lines(&path.join("trials.jsonl")).map_err(io)?;
            if earlier == ExistingBenchAction::Refuse && !lines.is_empty() {
                return Err(FolderError::Taken { path: path.to_owned(), trials: lines.len() });
            }
        }
        if !is_new && earlier == ExistingBenchAction::Resume {
            let text = fs::read(&about).map_err(io)?;
            let found: TrialPlan = serde_json::from_slice(&text).map_err(|error| io(error.into()))?;
            if let Some(difference) = plan.describe_mismatch(&found) {
                return Err(FolderError::Another { path: path.to_owned(), difference });
            }
            plan.id = found.id;
            // Tasks that only the earlier call had stay in the plan, since their results stay in the folder.
            for (task, digest) in found.tasks {
                plan.tasks.entry(task).or_insert(digest);
            }
        } else {
            for (part, ending) in TRIAL_SUBFOLDERS {
                remove_trial_files(&path.join(part), ending).map_err(io)?;
            }
            fs::write(path.join("trials.jsonl"), "").map_err(io)?;
        }
        for (part, _) in TRIAL_SUBFOLDERS {
            fs::create_dir_all(path.join(part)).map_err(io)?;
        }
        write_plan(path, &about, &plan).map_err(io)?;
        let log = path.join("trials.jsonl");
        let ends_within_line = ends_within_line(&log).map_err(io)?;
        let mut log = OpenOptions::new().append(true).create(true).open(log).map_err(io)?;
        if ends_within_line {
            // A truncated line must not be joined with the next one.
            log.write_all(b"\n").map_err(io)?;
        }
        Ok((BenchFolder { path: path.to_owned(), plan, log, _lock: lock }, lines))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the stored plan, with all tasks that were ever part of it.
    pub fn plan(&self) -> &TrialPlan {
        &self.plan
    }

    /// Returns the folder of traces, which `gradus eval` can read as a source.
    pub fn traces_path(&self) -> PathBuf {
        self.path.join("traces")
    }

    /// Writes the files of a trial, then its line. A crash in between leaves files without a line, and the trial is
    /// repeated; a line never lacks its files.
    pub fn save_trial(&mut self, finished: &FinishedTrial) -> Result<(), FolderError> {
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

    /// Reads the record of a finished trial.
    pub fn read_record(&self, task: &str, trial: u32) -> io::Result<TrialRecord> {
        let path = self.path.join("records").join(format!("{}.json", trial_name(task, trial)));
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}

/// Whether a folder without a plan can be used: it is empty, or has only files of a process that was killed before it
/// wrote the plan.
fn is_unused_folder(path: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let is_ours = match name.to_str().unwrap_or_default() {
            "lock" | "trials.jsonl" => kind.is_file() && entry.metadata()?.len() == 0,
            NEW_PLAN => kind.is_file(),
            part if TRIAL_SUBFOLDERS.iter().any(|(one, _)| *one == part) => {
                kind.is_dir() && fs::read_dir(entry.path())?.next().is_none()
            }
            _ => false,
        };
        if !is_ours {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a file ends in the middle of a line, after a crash or a full disk.
fn ends_within_line(path: &Path) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(io::SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Writes the plan atomically.
fn write_plan(folder: &Path, about: &Path, plan: &TrialPlan) -> io::Result<()> {
    let new = folder.join(NEW_PLAN);
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec_pretty(plan)?)?;
    file.sync_all()?;
    fs::rename(new, about)
}

/// Acquires an advisory lock; the system releases it when the process ends in any way.
fn lock_folder(path: &Path) -> Result<File, FolderError> {
    let io = |reason| FolderError::File { path: path.to_owned(), reason };
    let lock = File::create(path.join("lock")).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(FolderError::Held { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

/// Reads the complete lines of a log. A truncated one is skipped, and of two lines for the same trial the first
/// counts.
fn read_lines(path: &Path) -> io::Result<Vec<TrialLine>> {
    // A truncated line may end inside a character.
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut seen = BTreeSet::new();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(|line| serde_json::from_str::<TrialLine>(line).ok());
    Ok(lines.filter(|line| seen.insert((line.task.clone(), line.trial))).collect())
}

/// Deletes files named as trials, and no others.
fn remove_trial_files(folder: &Path, ending: &str) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('-'));
        let is_trial = name.is_some_and(|(task, trial)| !task.is_empty() && trial.parse::<u32>().is_ok());
        if is_trial && path.extension().is_some_and(|found| found == ending) && path.is_file() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> TrialPlan {
        TrialPlan {
            id: "first".to_owned(),
            suite: "github".to_owned(),
            tasks: Default::default(),
            agents: vec!["oracle".to_owned()],
            settings: Default::default(),
            gradus_version: "1".to_owned(),
        }
    }

    #[test]
    fn what_is_not_a_benchs_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        fs::create_dir(path.join("traces")).expect("made");
        fs::write(path.join("traces/mine-1.bin"), "mine").expect("written");
        for earlier in [ExistingBenchAction::Refuse, ExistingBenchAction::Resume, ExistingBenchAction::Overwrite] {
            let refused = BenchFolder::open(path, &plan(), earlier).map(|_| ());
            assert!(matches!(refused, Err(FolderError::NotABench { .. })), "{earlier:?}: {refused:?}");
        }
        assert_eq!(fs::read_dir(path).expect("read").count(), 1, "nothing came, nothing went");
        let path = &path.join("new");
        drop(BenchFolder::open(path, &plan(), ExistingBenchAction::Refuse).expect("begun"));
        fs::write(path.join("traces/keep.bin"), "mine").expect("written");
        fs::write(path.join("traces/task-0.bin"), "ours").expect("written");
        drop(BenchFolder::open(path, &plan(), ExistingBenchAction::Overwrite).expect("begun anew"));
        assert!(path.join("traces/keep.bin").is_file() && !path.join("traces/task-0.bin").exists());
    }

    #[test]
    fn what_was_killed_before_it_began_is_no_hindrance() {
        for earlier in [ExistingBenchAction::Refuse, ExistingBenchAction::Resume, ExistingBenchAction::Overwrite] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path();
            for name in ["lock", "trials.jsonl"] {
                fs::write(path.join(name), "").expect("written");
            }
            fs::write(path.join("bench.json.new"), "{\"id\": ").expect("written");
            fs::create_dir(path.join("records")).expect("made");
            let (open, lines) = BenchFolder::open(path, &plan(), earlier).expect("begun");
            assert!(lines.is_empty() && open.plan().id == "first", "{earlier:?}");
            assert!(path.join("bench.json").is_file() && !path.join("bench.json.new").exists());
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("trials.jsonl"), "mine").expect("written");
        let refused = BenchFolder::open(folder.path(), &plan(), ExistingBenchAction::Overwrite).map(|_| ());
        assert!(matches!(refused, Err(FolderError::NotABench { .. })), "{refused:?}");
    }

    #[test]
    fn a_line_may_end_inside_of_a_character() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = &folder.path().join("bench");
        drop(BenchFolder::open(path, &plan(), ExistingBenchAction::Refuse).expect("begun"));
        fs::write(path.join("trials.jsonl"), b"{\"task\": \"\xd0").expect("written");
        let (_, lines) = BenchFolder::open(path, &plan(), ExistingBenchAction::Resume).expect("gone on");
        assert!(lines.is_empty());
        let log = || fs::read(path.join("trials.jsonl")).expect("read");
        assert_eq!(log(), b"{\"task\": \"\xd0\n", "the next line is one of its own");
        drop(BenchFolder::open(path, &plan(), ExistingBenchAction::Resume).expect("gone on again"));
        assert_eq!(log(), b"{\"task\": \"\xd0\n", "and none is empty");
    }

    #[test]
    fn goes_on_under_its_first_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = &folder.path().join("bench");
        drop(BenchFolder::open(path, &plan(), ExistingBenchAction::Refuse).expect("begun"));
        let second = TrialPlan { id: "second".to_owned(), ..plan() };
        let (open, _) = BenchFolder::open(path, &second, ExistingBenchAction::Resume).expect("gone on");
        assert_eq!(open.plan().id, "first");
        let held = BenchFolder::open(path, &second, ExistingBenchAction::Resume).map(|_| ());
        assert!(matches!(held, Err(FolderError::Held { .. })), "{held:?}");
        drop(open);
        let other = TrialPlan { agents: vec!["loop".to_owned()], ..plan() };
        let refused =
            BenchFolder::open(path, &other, ExistingBenchAction::Resume).map(|_| ()).expect_err("another one");
        assert!(refused.to_string().contains("who plays there is \"oracle\", here \"loop\""), "{refused}");
    }
}
