//! The query pool: all queries of callers over the network. Queries run on threads and connections of their own,
//! within time budgets, and take turns by caller, so that they delay neither senders nor each other.

mod pool;
mod pool_state;
#[cfg(test)]
mod tests;
mod turns;
mod workers;

pub(super) use crate::queries::pool_state::QueryKind;
pub(super) use crate::queries::pool_state::{QueryLimits, QueryPermit};
pub(super) use pool::{CancelOnDrop, QueryPool, QueryRefusal};
pub(super) use turns::{are_downloads_waiting, without_turn};

use std::sync::Arc;

tokio::task_local! {
    /// The caller whose request this task answers: the name of a key, or a client address.
    static CALLER: Arc<str>;
}

/// Runs a future whose queries are charged to this caller.
pub(super) async fn with_caller<T>(caller: Arc<str>, answer: impl Future<Output = T>) -> T {
    CALLER.scope(caller, answer).await
}

/// Returns the caller that queries of this task are charged to; the empty name is the server itself.
pub(super) fn current_caller() -> Arc<str> {
    CALLER.try_with(Arc::clone).unwrap_or_else(|_| Arc::from(""))
}
