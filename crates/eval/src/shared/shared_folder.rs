//! A folder that several processes judge with, on one machine or on a file system that all machines mount.
//!
//! ```text
//! SHARED/format              version of this layout
//! SHARED/answers/ab/KEY.json answers of judges by question; never changed
//! SHARED/questions/NNN       locked while a question with this hash is asked
//! SHARED/slots/NNNN          locked while a call is in flight: as many as the concurrency
//! SHARED/spend.json          what was spent, changed under spend.lock
//! SHARED/processes/ID        locked while the process lives
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::answer_files::AnswerFiles;
use super::call_slots::{CallSlot, CallSlots};
use super::file_locks::{open_lock_file, try_lock};
use super::shared_limits::SharedLimits;
use super::spend_ledger::{Reservation, SharedSpend, SpendAmount, SpendLedger, read_spend};
use super::{CoordinatorFuture, QuestionCoordinator, QuestionIntent, QuestionPermit, QuestionTurn};
use crate::run::{CachedVerdict, QuestionKey, RunFileError};

/// The version of the layout.
const FORMAT: &str = "gradus shared folder 1\n";
/// Number of lock files of questions. Two questions with the same file wait for each other, which is rare.
const QUESTION_LOCK_COUNT: u128 = 4096;
/// Minimum and maximum wait between two checks of a lock or of the budget. It grows while there is nothing to do.
const MIN_WAIT: Duration = Duration::from_millis(20);
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The folder, opened by this process.
#[derive(Debug)]
pub struct SharedFolder {
    root: PathBuf,
    answers: AnswerFiles,
    slots: CallSlots,
    ledger: Arc<SpendLedger>,
}

impl SharedFolder {
    /// Opens or creates the folder. `owner` names this process and must be unique; its first bytes may not be a dot.
    pub fn open(root: &Path, owner: &str, limits: SharedLimits) -> Result<SharedFolder, RunFileError> {
        let io = |reason| RunFileError::new(root, reason);
        for name in ["answers", "questions", "slots", "processes"] {
            fs::create_dir_all(root.join(name)).map_err(io)?;
        }
        check_format(root)?;
        Ok(SharedFolder {
            root: root.to_owned(),
            answers: AnswerFiles::new(root.join("answers")),
            slots: CallSlots::new(root.join("slots"), limits.concurrency),
            ledger: Arc::new(SpendLedger::open(root, owner.to_owned(), limits)?),
        })
    }

    /// Returns what all processes have spent through a folder.
    pub fn read_spend(root: &Path) -> Result<SharedSpend, RunFileError> {
        read_spend(root)
    }

    async fn begin(&self, key: QuestionKey, max_cost_usd: f64) -> Result<QuestionTurn, RunFileError> {
        let number = key.to_u128() % QUESTION_LOCK_COUNT;
        let path = self.root.join("questions").join(format!("{number:03x}"));
        let lock = open_lock_file(&path)?;
        let mut wait = MIN_WAIT;
        while !try_lock(&lock, &path)? {
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(MAX_WAIT);
        }
        if let Some(answer) = self.answers.find(key)? {
            return Ok(QuestionTurn::Answered(answer));
        }
        // The slot before the budget: a reservation that waits for a slot would keep others from asking.
        #[allow(clippy::cast_possible_truncation, reason = "any number does")]
        let slot = self.slots.acquire((key.to_u128() >> 64) as usize).await?;
        let reserved = SpendAmount::new(max_cost_usd, 1);
        let mut wait = MIN_WAIT;
        loop {
            let ledger = Arc::clone(&self.ledger);
            match run_blocking(&self.root, move || ledger.reserve(reserved)).await? {
                Reservation::Granted => break,
                Reservation::Refused(reason) => return Ok(QuestionTurn::Refused(reason)),
                Reservation::Later => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(MAX_WAIT);
        }
        Ok(QuestionTurn::Granted(Box::new(FolderPermit {
            key,
            reserved,
            answers: self.answers.clone(),
            ledger: Arc::clone(&self.ledger),
            root: self.root.clone(),
            _slot: slot,
            _question: lock,
        })))
    }
}

impl QuestionCoordinator for SharedFolder {
    fn find_answer(&self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        self.answers.find(key)
    }

    fn begin_question(&self, intent: QuestionIntent) -> CoordinatorFuture<'_, QuestionTurn> {
        Box::pin(self.begin(intent.key, intent.max_cost_usd))
    }
}

/// The locks of a question that is being asked.
#[derive(Debug)]
struct FolderPermit {
    key: QuestionKey,
    reserved: SpendAmount,
    answers: AnswerFiles,
    ledger: Arc<SpendLedger>,
    root: PathBuf,
    _slot: CallSlot,
    _question: fs::File,
}

impl QuestionPermit for FolderPermit {
    fn finish(
        self: Box<Self>,
        answer: Option<CachedVerdict>,
        cost_usd: f64,
        call_count: u32,
    ) -> CoordinatorFuture<'static, ()> {
        let root = self.root.clone();
        let spent = SpendAmount::new(cost_usd, u64::from(call_count));
        Box::pin(async move {
            // The locks are released when `self` is dropped, after the answer is there.
            run_blocking(&root, move || {
                if let Some(answer) = answer {
                    self.answers.store(self.key, &answer)?;
                }
                self.ledger.settle(self.reserved, spent)
            })
            .await
        })
    }
}

/// Runs blocking file access outside the task that dispatches questions.
async fn run_blocking<T: Send + 'static>(
    root: &Path,
    work: impl FnOnce() -> Result<T, RunFileError> + Send + 'static,
) -> Result<T, RunFileError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(RunFileError::new(root, std::io::Error::other(error))),
    }
}

/// Refuses a folder of another version, and one that is not a shared folder.
fn check_format(root: &Path) -> Result<(), RunFileError> {
    let path = root.join("format");
    match fs::read_to_string(&path) {
        // Several processes may start at once: an empty file is about to be written by another one.
        Ok(text) if text == FORMAT || text.is_empty() => Ok(()),
        Ok(_) => {
            let reason = "made by another version of Gradus; use a new folder";
            Err(RunFileError::new(root, std::io::Error::new(ErrorKind::InvalidData, reason)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::write(&path, FORMAT).map_err(|reason| RunFileError::new(&path, reason))
        }
        Err(error) => Err(RunFileError::new(&path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn answer(label: &str) -> CachedVerdict {
        let explanation = "because".to_owned();
        let (shortened, label_probability, answered_by) = (Vec::new(), None, None);
        CachedVerdict { label: label.to_owned(), explanation, shortened, label_probability, answered_by }
    }

    fn open(root: &Path, owner: &str, concurrency: usize) -> SharedFolder {
        let limits = SharedLimits { concurrency, max_calls: None, max_cost_usd: None };
        SharedFolder::open(root, owner, limits).expect("opened")
    }

    #[tokio::test]
    async fn a_question_is_asked_once_and_concurrency_holds_over_processes() {
        let root = tempfile::tempdir().expect("a folder");
        let folders = ["a", "b", "c"].map(|owner| Arc::new(open(root.path(), owner, 2)));
        let (calls, flying, most) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let mut tasks = tokio::task::JoinSet::new();
        for question in 0..20_u8 {
            for folder in &folders {
                let folder = Arc::clone(folder);
                let (calls, flying, most) = (Arc::clone(&calls), Arc::clone(&flying), Arc::clone(&most));
                tasks.spawn(async move {
                    let key = QuestionKey::from_parts(&[&[question]]);
                    match folder.begin(key, 0.0).await.expect("begun") {
                        QuestionTurn::Answered(known) => known.label,
                        QuestionTurn::Refused(reason) | QuestionTurn::Exhausted(reason) => panic!("{reason}"),
                        QuestionTurn::Granted(permit) => {
                            calls.fetch_add(1, Ordering::SeqCst);
                            most.fetch_max(flying.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            tokio::task::yield_now().await;
                            flying.fetch_sub(1, Ordering::SeqCst);
                            permit.finish(Some(answer("correct")), 0.25, 1).await.expect("finished");
                            "correct".to_owned()
                        }
                    }
                });
            }
        }
        let labels = tasks.join_all().await;
        assert!(labels.len() == 60 && labels.iter().all(|label| label == "correct"));
        assert_eq!(calls.load(Ordering::SeqCst), 20);
        assert!(most.load(Ordering::SeqCst) <= 2);
        let spend = SharedFolder::read_spend(root.path()).expect("read");
        assert_eq!(spend, SharedSpend { cost_usd: 5.0, calls: 20 });
        drop(folders);
        assert_eq!(fs::read_dir(root.path().join("processes")).expect("a folder").count(), 0);
    }

    #[tokio::test]
    async fn a_dropped_permit_frees_the_question_and_stays_spent() {
        let root = tempfile::tempdir().expect("a folder");
        let (first, second) = (open(root.path(), "a", 1), open(root.path(), "b", 1));
        let key = QuestionKey::from_parts(&[b"q"]);
        let turn = first.begin(key, 0.5).await.expect("begun");
        assert!(matches!(turn, QuestionTurn::Granted(_)));
        drop(turn);
        let turn = second.begin(key, 0.5).await.expect("begun");
        assert!(matches!(turn, QuestionTurn::Granted(_)));
        assert_eq!(SharedFolder::read_spend(root.path()).expect("read").calls, 2);
    }

    #[test]
    fn folders_of_other_versions_are_refused() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("format"), "gradus shared folder 9\n").expect("written");
        let limits = SharedLimits { concurrency: 1, max_calls: None, max_cost_usd: None };
        let error = SharedFolder::open(root.path(), "a", limits).expect_err("another version");
        assert!(error.to_string().contains("another version"));
    }
}
