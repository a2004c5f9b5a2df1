//! Limits on a query that somebody else waits for: while one runs, the store asks its monitor again and again whether it
//! should go on, and stops inside of SQLite when it should not.
//!
//! The monitor belongs to the thread that runs the query, so that the many functions that read need not pass it on.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use rusqlite::InterruptHandle;

/// Decides whether a query goes on.
pub trait QueryMonitor: Send + Sync {
    /// Called every few microseconds while a query runs. It may wait, to let others run. An error is final: every later
    /// call returns it, too.
    fn check(&self) -> Result<(), QueryStop>;
    /// Called before the query uses a connection, with what interrupts it. Some work of SQLite (the index of words) never
    /// asks [`QueryMonitor::check`].
    fn attach(&self, interrupt: &Arc<QueryInterrupt>);
    /// Called when the query is done with that connection: interrupting it later would stop somebody else's query.
    fn detach(&self, interrupt: &Arc<QueryInterrupt>);
}

/// Why a query was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryStop {
    /// Whoever asked has left.
    #[error("query stopped: the client has left")]
    Cancelled,
    #[error(
        "query stopped: it ran longer than {limit_s} s; narrow it by project or time, use longer words, or raise {setting}"
    )]
    TimedOut { limit_s: u64, setting: &'static str },
    #[error("query stopped: too many other queries are running; try again later")]
    Overloaded,
    /// Responses take disk until they are read.
    #[error("query stopped: too much of earlier responses was not read yet; read them, or try again later")]
    TooMuchUnread,
    #[error("query stopped: the server is going down")]
    ShuttingDown,
}

/// Interrupts what runs on a connection.
pub struct QueryInterrupt(InterruptHandle);

impl QueryInterrupt {
    pub(crate) fn new(handle: InterruptHandle) -> QueryInterrupt {
        QueryInterrupt(handle)
    }

    pub fn interrupt(&self) {
        self.0.interrupt();
    }
}

impl fmt::Debug for QueryInterrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueryInterrupt")
    }
}

/// Operations of SQLite's machine between two checks: some ten microseconds.
pub(crate) const OPERATIONS_PER_CHECK: i32 = 1000;

thread_local! {
    static MONITOR: RefCell<Option<Arc<dyn QueryMonitor>>> = const { RefCell::new(None) };
}

/// Runs `query` on this thread under a monitor: it reads through connections that only such queries use.
pub fn run_monitored<T>(monitor: Arc<dyn QueryMonitor>, query: impl FnOnce() -> T) -> T {
    /// Puts back what was there before, also when the query panics.
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

/// Whether this thread's query may go on; always, without a monitor. Loops over rows call this.
pub fn check_query() -> Result<(), QueryStop> {
    match current_monitor() {
        Some(monitor) => monitor.check(),
        None => Ok(()),
    }
}

pub(crate) fn current_monitor() -> Option<Arc<dyn QueryMonitor>> {
    MONITOR.with(|current| current.borrow().clone())
}

/// Why this thread's query was stopped, if it was.
pub(crate) fn current_stop() -> Option<QueryStop> {
    current_monitor()?.check().err()
}
