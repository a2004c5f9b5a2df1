//! The journal of a trial on many cases: the cost of each question, and its outcome, in the order in which they came.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::run::{CachedVerdict, QuestionKey, RunFileError, VerdictCache};
use gradus_eval::runner::{QuestionCost, RunLedger};
use gradus_store::{JudgeSpend, StoreError, WriteHandle};
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::state::ServerState;

/// Pause before a busy store is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// A line of `journal.jsonl`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JournalLine {
    Cost { calls: u64, cost_usd: f64, is_priced: bool },
    Outcome(Box<OutcomeLine>),
}

/// The content of a trial's journal.
#[derive(Debug, Default)]
pub(crate) struct BulkTrialRecord {
    /// The latest outcome of each question, by trajectory and step.
    pub(crate) outcomes: HashMap<(String, Option<u32>), OutcomeLine>,
    pub(crate) calls: u64,
    pub(crate) cost_usd: f64,
    /// Calls whose price is not known.
    pub(crate) unpriced: u64,
}

impl BulkTrialRecord {
    /// Reads the journal; an empty record if there is no file. A line that a crash has truncated is ignored.
    pub(super) fn read(path: &Path) -> std::io::Result<BulkTrialRecord> {
        let mut record = BulkTrialRecord::default();
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(record),
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).split(b'\n') {
            match serde_json::from_slice(&line?) {
                Ok(JournalLine::Cost { calls, cost_usd, is_priced }) => {
                    record.calls += calls;
                    record.cost_usd += cost_usd;
                    record.unpriced += if is_priced { 0 } else { calls };
                }
                Ok(JournalLine::Outcome(line)) => {
                    record.outcomes.insert((line.trajectory_id.to_string(), line.step_index), *line);
                }
                Err(_) => {}
            }
        }
        Ok(record)
    }

    pub(crate) fn outcome(&self, trajectory_id: &str, step: Option<u32>) -> Option<&OutcomeLine> {
        self.outcomes.get(&(trajectory_id.to_owned(), step))
    }

    /// Whether a question has an answer. Failed questions are asked again.
    pub(super) fn is_answered(&self, trajectory_id: &str, step: Option<u32>) -> bool {
        self.outcome(trajectory_id, step).is_some_and(|line| line.outcome != OutcomeKind::Failed)
    }
}

/// The runner's ledger on the journal. Spending is charged to the grading rule, as that of live grading.
pub(super) struct BulkTrialLedger {
    server: Arc<ServerState>,
    rule: String,
    project: String,
    cache: VerdictCache,
    file: std::fs::File,
    path: String,
    /// Lines that are not written to the file yet.
    buffer: Vec<u8>,
    /// Spending that was not passed to the store yet.
    spend: JudgeSpend,
    /// The latest spending that was handed to the store. The store writes in order.
    latest_write: Option<WriteHandle<()>>,
    /// Whether this ledger charges the calls. Where servers share the store, each call is charged when it is settled.
    charges_calls: bool,
}

impl BulkTrialLedger {
    pub(super) fn open(
        server: &Arc<ServerState>,
        rule: &str,
        project: &str,
        cache: VerdictCache,
        journal: &Path,
    ) -> std::io::Result<BulkTrialLedger> {
        let mut file = std::fs::File::options().create(true).append(true).open(journal)?;
        // A crash may have truncated the last line: the next record begins on a new line.
        file.write_all(b"\n")?;
        Ok(BulkTrialLedger {
            server: Arc::clone(server),
            rule: rule.to_owned(),
            project: project.to_owned(),
            cache,
            file,
            path: journal.display().to_string(),
            buffer: Vec::new(),
            spend: JudgeSpend { rule: rule.to_owned(), ..JudgeSpend::default() },
            latest_write: None,
            charges_calls: !server.store.is_shared(),
        })
    }

    fn append_line(&mut self, line: &JournalLine) -> Result<(), RunFileError> {
        serde_json::to_writer(&mut self.buffer, line).map_err(|error| self.failure(error.into()))?;
        self.buffer.push(b'\n');
        Ok(())
    }

    fn failure(&self, reason: std::io::Error) -> RunFileError {
        RunFileError { path: self.path.clone(), reason }
    }

    /// Passes spending to the store. If the store is busy, it is passed with the next write.
    fn record_spend(&mut self) -> Result<(), RunFileError> {
        if self.spend.calls == 0 {
            return Ok(());
        }
        match self.server.store.record_spend(self.spend.clone(), self.project.clone(), now_ns()) {
            Ok(write) => {
                self.latest_write = Some(write);
                self.spend = JudgeSpend { rule: self.rule.clone(), ..JudgeSpend::default() };
                Ok(())
            }
            Err(StoreError::Busy) => Ok(()),
            Err(error) => Err(self.failure(std::io::Error::other(error.to_string()))),
        }
    }

    /// Waits until the store has all spending, so that an ended trial is charged to its rule even if the store was
    /// busy.
    pub(super) async fn settle_spend(mut self) -> Result<(), RunFileError> {
        self.record_spend()?;
        while self.spend.calls > 0 {
            tokio::time::sleep(BUSY_PAUSE).await;
            self.record_spend()?;
        }
        if let Some(write) = self.latest_write.take() {
            write.wait_async().await.map_err(|error| self.failure(std::io::Error::other(error.to_string())))?;
        }
        Ok(())
    }
}

impl RunLedger for BulkTrialLedger {
    // The store already has the trajectory. False: answered questions are not in the selection.
    fn store_trajectory(&mut self, _trajectory: &mut Trajectory) -> Result<bool, RunFileError> {
        Ok(false)
    }

    fn store_outcome(&mut self, line: &OutcomeLine) -> Result<(), RunFileError> {
        self.append_line(&JournalLine::Outcome(Box::new(line.clone())))
    }

    fn record_question_cost(&mut self, _trajectory_id: &str, effort: QuestionCost) {
        let calls = u64::from(effort.calls);
        self.server.meters.record_call_pricing(calls, effort.is_priced);
        if self.charges_calls {
            self.spend.calls += calls;
            self.spend.unpriced += if effort.is_priced { 0 } else { calls };
            self.spend.cost_usd += effort.cost_usd;
        }
        let line = JournalLine::Cost { calls, cost_usd: effort.cost_usd, is_priced: effort.is_priced };
        if let Err(error) = self.append_line(&line) {
            tracing::error!(%error, "failed to record the cost of a rubric trial");
        }
    }

    fn find_cached_verdict(&mut self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        self.cache.get(key)
    }

    fn store_verdict(&mut self, key: QuestionKey, verdict: CachedVerdict) -> Result<(), RunFileError> {
        self.cache.add(key, verdict)
    }

    fn write(&mut self) -> Result<(), RunFileError> {
        self.cache.write()?;
        self.file.write_all(&self.buffer).map_err(|error| self.failure(error))?;
        self.buffer.clear();
        self.record_spend()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_a_crash_cut_off_counts_what_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        assert_eq!(BulkTrialRecord::read(&path).unwrap().calls, 0);
        let cost =
            |calls| serde_json::to_string(&JournalLine::Cost { calls, cost_usd: 0.25, is_priced: calls != 2 }).unwrap();
        std::fs::write(&path, format!("{}\n{}\n{{\"cost\":{{\"ca\n{}\n", cost(1), cost(2), cost(3))).unwrap();
        let record = BulkTrialRecord::read(&path).unwrap();
        assert_eq!((record.calls, record.cost_usd, record.unpriced), (6, 0.75, 2));
    }
}
