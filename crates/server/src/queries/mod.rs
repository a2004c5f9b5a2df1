//! Queries: what somebody asks of the store over the network. They run on threads and connections of their own, within a
//! budget, and take turns by caller, so that they hold up neither senders nor each other.

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
    /// Whose request this task answers: the name of a key, or an address.
    static CALLER: Arc<str>;
}

/// Answers a request: queries that it makes count as this caller's.
pub(super) async fn with_caller<T>(caller: Arc<str>, answer: impl Future<Output = T>) -> T {
    CALLER.scope(caller, answer).await
}

/// Whose queries this task makes; the server's own without a caller.
pub(super) fn current_caller() -> Arc<str> {
    CALLER.try_with(Arc::clone).unwrap_or_else(|_| Arc::from(""))
}
