//! Writes the results of a run: verdicts for later runs, outcomes and trajectories for its own report.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use gradus_core::trajectory::{Trajectory, TrajectoryStep};

use super::ledger::RunLedger;
use crate::outcome::OutcomeLine;
use crate::run::{AppendLog, CachedVerdict, JudgeAnswer, QuestionKey, RunFileError, RunFolder, VerdictCache};

/// Buffered bytes above which lines are written, if not earlier.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum stored bytes of an observation: they are stored for reading, not for judging.
const MAX_STORED_RESULT_BYTES: usize = 2_000;

/// The ledger of `gradus eval`: four append-only files and a thread that syncs them.
pub(super) struct RunJournal {
    cache: VerdictCache,
    outcomes: AppendLog,
    trajectories: AppendLog,
    /// Raw answers. Opened with the first one: runs by rules have none.
    responses: Option<AppendLog>,
    responses_path: PathBuf,
    /// Digests of the trajectories that an earlier process of this run has written.
    known: HashSet<u128>,
    syncer: Option<JournalSyncer>,
}

impl RunJournal {
    /// Opens the files of a run for appending.
    pub(super) fn open(folder: &RunFolder, cache: VerdictCache) -> Result<RunJournal, RunFileError> {
        let outcomes = AppendLog::open(&folder.outcomes_path())?;
        let path = folder.trajectories_path();
        // A resumed run reads its sources again. Trajectories that are already in the file are not written twice.
        let known = read_line_digests(&path)?;
        let trajectories = AppendLog::open(&path)?;
        let syncer = JournalSyncer::start(vec![cache.clone_handle()?, outcomes.clone_handle()?]);
        let (responses, responses_path) = (None, folder.responses_path());
        Ok(RunJournal { cache, outcomes, trajectories, responses, responses_path, known, syncer: Some(syncer) })
    }

    /// Writes a trajectory with shortened observations. Returns whether an earlier process wrote the same one.
    fn write_trajectory(&mut self, trajectory: &Trajectory) -> Result<bool, RunFileError> {
        let short = |step: &TrajectoryStep| TrajectoryStep {
            observation: step.observation.as_deref().map(|text| {
                let end = text.floor_char_boundary(MAX_STORED_RESULT_BYTES);
                if end < text.len() { format!("{} [...]", &text[..end]) } else { text.to_owned() }
            }),
            ..step.clone()
        };
        let is_long =
            |step: &TrajectoryStep| step.observation.as_ref().is_some_and(|text| text.len() > MAX_STORED_RESULT_BYTES);
        if !trajectory.steps.iter().any(is_long) {
            return self.trajectories.add_unless_known(trajectory, &self.known);
        }
        let steps = trajectory.steps.iter().map(short).collect();
        self.trajectories.add_unless_known(&Trajectory { steps, ..trajectory.clone() }, &self.known)
    }

    /// Requests an `fsync` without waiting for it.
    fn sync(&self) {
        if let Some(syncer) = &self.syncer {
            syncer.request_sync();
        }
    }
}

impl RunLedger for RunJournal {
    /// Tool definitions are omitted: they are long, and the same in most trajectories.
    fn store_trajectory(&mut self, trajectory: &mut Trajectory) -> Result<bool, RunFileError> {
        let tools = std::mem::replace(&mut trajectory.tools, Arc::from([]));
        let added = self.write_trajectory(trajectory);
        trajectory.tools = tools;
        added
    }

    fn store_outcome(&mut self, line: &OutcomeLine) -> Result<(), RunFileError> {
        self.outcomes.add(line)
    }

    fn store_model_outcome(&mut self, line: &OutcomeLine, key: QuestionKey) -> Result<(), RunFileError> {
        self.outcomes.add_keyed(key, line)
    }

    fn store_raw_response(
        &mut self,
        line: &OutcomeLine,
        key: QuestionKey,
        text: Option<&str>,
    ) -> Result<(), RunFileError> {
        let log = match self.responses.take() {
            Some(log) => log,
            None => AppendLog::open(&self.responses_path)?,
        };
        self.responses.insert(log).add(&JudgeAnswer::new(line, key, text))
    }

    fn find_cached_verdict(&mut self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        self.cache.get(key)
    }

    fn store_verdict(&mut self, key: QuestionKey, verdict: CachedVerdict) -> Result<(), RunFileError> {
        self.cache.add(key, verdict)
    }

    /// Passes verdicts and outcomes to the operating system; they then survive this process. Verdicts come first:
    /// later runs must know a paid answer even if the process dies between the two writes.
    fn write(&mut self) -> Result<(), RunFileError> {
        self.cache.write()?;
        // Trajectories before outcomes: readers drop an outcome without its trajectory.
        if self.trajectories.buffered_bytes() > 0 {
            self.trajectories.write()?;
        }
        if let Some(responses) = &mut self.responses
            && responses.buffered_bytes() > 0
        {
            responses.write()?;
        }
        if self.outcomes.buffered_bytes() > 0 {
            self.outcomes.write()?;
        }
        Ok(())
    }

    fn write_if_large(&mut self) -> Result<(), RunFileError> {
        if self.outcomes.buffered_bytes() + self.trajectories.buffered_bytes() > BATCH_BYTES {
            self.write()
        } else {
            Ok(())
        }
    }

    fn write_all(&mut self) -> Result<(), RunFileError> {
        self.write()?;
        self.sync();
        Ok(())
    }

    fn close(&mut self) -> Result<(), RunFileError> {
        self.write_all()?;
        if let Some(syncer) = self.syncer.take() {
            syncer.finish();
        }
        Ok(())
    }
}

/// Digests of all lines of a file; empty if the file does not exist.
fn read_line_digests(path: &Path) -> Result<HashSet<u128>, RunFileError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(HashSet::new()),
        Err(error) => return Err(RunFileError::new(path, error)),
    };
    let lines = BufReader::new(file).split(b'\n');
    lines
        .map(|line| line.map(|line| gradus_core::stable_digest(&line)).map_err(|error| RunFileError::new(path, error)))
        .collect()
}

/// A thread that waits for `fsync`, which may take tens of milliseconds.
struct JournalSyncer {
    /// A queue of one request: requests while the thread is busy are merged.
    requests: mpsc::SyncSender<()>,
    thread: JoinHandle<()>,
}

impl JournalSyncer {
    fn start(files: Vec<File>) -> JournalSyncer {
        let (requests, received) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let sync = || files.iter().for_each(|file| drop(file.sync_data()));
            while received.recv().is_ok() {
                sync();
            }
            sync();
        });
        JournalSyncer { requests, thread }
    }

    fn request_sync(&self) {
        // A waiting request covers this one as well.
        let _ = self.requests.try_send(());
    }

    /// Syncs a last time and waits for it.
    fn finish(self) {
        drop(self.requests);
        let _ = self.thread.join();
    }
}
