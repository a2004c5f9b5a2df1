//! Limits of queries that a client waits for. While a query runs, the store calls its monitor again and again, and
//! stops the query inside of SQLite if the monitor says so.
//!
//! The monitor belongs to the thread that runs the query, so that the many functions that read need not pass it on.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// Decides whether a query may continue.
pub trait QueryMonitor: Send + Sync {
    /// Called every few microseconds while a query runs. May block, to let other queries run. An error is final: every
    /// later call must return it, too.
    fn check(&self) -> Result<(), QueryStop>;
    /// Called before the query uses a connection, with a handle that interrupts it. Some work inside of SQLite (the
    /// full-text index) never reaches [`QueryMonitor::check`].
    fn attach(&self, interrupt: &Arc<QueryInterrupt>);
    /// Called when the query is done with that connection. Interrupting it later would stop another query.
    fn detach(&self, interrupt: &Arc<QueryInterrupt>);
}

/// Why a query was stopped. The messages are shown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryStop {
    /// The client has closed its connection.
    #[error("query stopped: the client has left")]
    Cancelled,
    #[error(
        "query stopped: it ran longer than {limit_s} s; narrow it by project or time, use longer words, or raise {setting}"
    )]
    TimedOut { limit_s: u64, setting: &'static str },
    #[error("query stopped: too many other queries are running; try again later")]
    Overloaded,
    /// Responses are spilled to disk until they are read.
    #[error("query stopped: too much of earlier responses was not read yet; read them, or try again later")]
    TooMuchUnread,
    #[error("query stopped: the server is going down")]
    ShuttingDown,
}

/// Interrupts the statement that runs on a connection.
pub struct QueryInterrupt(Box<dyn Fn() + Send + Sync>);

impl QueryInterrupt {
    /// `interrupt` is what the engine of the connection has for it.
    pub(crate) fn new(interrupt: impl Fn() + Send + Sync + 'static) -> QueryInterrupt {
        QueryInterrupt(Box::new(interrupt))
    }

    /// Can be called from any thread; does nothing if no statement runs.
    pub fn interrupt(&self) {
        (self.0)();
    }
}

impl fmt::Debug for QueryInterrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueryInterrupt")
    }
}

/// Number of instructions of SQLite's virtual machine between two checks: some ten microseconds.
pub(crate) const OPERATIONS_PER_CHECK: i32 = 1000;

thread_local! {
    static MONITOR: RefCell<Option<Arc<dyn QueryMonitor>>> = const { RefCell::new(None) };
}

/// Runs `query` on this thread under a monitor. It reads through connections that only such queries use.
pub fn run_monitored<T>(monitor: Arc<dyn QueryMonitor>, query: impl FnOnce() -> T) -> T {
    /// Restores the previous monitor, also if the query panics.
    struct MonitorGuard(Option<Arc<dyn QueryMonitor>>);
    impl Drop for MonitorGuard {
        fn drop(&mut self) {
            let before = self.0.take();
            MONITOR.with(|current| *current.borrow_mut() = before);
        }
    }
    let _restore = MonitorGuard(MONITOR.with(|current| current.borrow_mut().replace(monitor)));
    query()
}

/// Fails if the query of this thread must stop. Always succeeds without a monitor. Loops over rows call this, because
/// work between rows does not reach SQLite.
pub fn check_query() -> Result<(), QueryStop> {
    match current_monitor() {
        Some(monitor) => monitor.check(),
        None => Ok(()),
    }
}

/// The monitor of this thread, if a client waits for its query.
pub(crate) fn current_monitor() -> Option<Arc<dyn QueryMonitor>> {
    MONITOR.with(|current| current.borrow().clone())
}

/// Why the query of this thread was stopped, if it was.
pub(crate) fn current_stop() -> Option<QueryStop> {
    current_monitor()?.check().err()
}
