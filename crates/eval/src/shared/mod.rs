//! Judging by several processes at once, as the tasks of Spark or Ray do: a question is paid for once, and budget and
//! concurrency hold for all of them together.
//!
//! [`QuestionCoordinator`] is what the runner needs; [`SharedFolder`] implements it with files and locks, the server with
//! its database.

mod answer_files;
mod call_slots;
mod file_locks;
mod shared_folder;
mod shared_limits;
mod spend_ledger;

pub use shared_folder::SharedFolder;
pub use shared_limits::SharedLimits;
pub use spend_ledger::SharedSpend;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::run::{CachedVerdict, QuestionKey, RunFileError};

/// A future of a coordinator, which is used as a trait object.
pub type CoordinatorFuture<'c, T> = Pin<Box<dyn Future<Output = Result<T, RunFileError>> + Send + 'c>>;

/// A question that is about to be asked.
#[derive(Clone, Debug)]
pub struct QuestionIntent {
    pub key: QuestionKey,
    pub trajectory_id: Arc<str>,
    /// `None` for the whole trajectory.
    pub step_index: Option<u32>,
    pub rubric_hash: Arc<str>,
    pub judge: Arc<str>,
    /// Upper bound of its cost; 0 if the price is unknown.
    pub max_cost_usd: f64,
}

/// Coordinates which process asks a question, and when.
pub trait QuestionCoordinator: fmt::Debug + Send + Sync {
    /// Returns the answer that any process has stored.
    fn find_answer(&self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError>;

    /// Waits until this process may ask a question, or until another one has answered it.
    fn begin_question(&self, intent: QuestionIntent) -> CoordinatorFuture<'_, QuestionTurn>;
}

/// The result of waiting for the turn to ask a question.
#[derive(Debug)]
pub enum QuestionTurn {
    /// Another process has answered it in the meantime.
    Answered(CachedVerdict),
    /// Ask it. Until the permit is finished or dropped, no other process asks the same question.
    Granted(Box<dyn QuestionPermit>),
    /// A limit is reached, with the reason for people. It will not be granted later.
    Refused(String),
    /// A limit is reached that is lifted later. The run stops, and the question stays open for the next one.
    Exhausted(String),
}

/// The right to ask one question. Dropped without [`QuestionPermit::finish`], its upper bound counts as spent: the call
/// may have been billed.
pub trait QuestionPermit: fmt::Debug + Send {
    /// Stores the answer for all processes, if there is one, and replaces the upper bound by what was spent.
    fn finish(
        self: Box<Self>,
        answer: Option<CachedVerdict>,
        cost_usd: f64,
        call_count: u32,
    ) -> CoordinatorFuture<'static, ()>;
}
