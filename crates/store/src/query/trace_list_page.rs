//! What pages of traces have in common, whether they are listed by time or found by words: cursor and portions.

use std::fmt;
use std::str::FromStr;

/// Position in a list. Its text is the cursor of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceListCursor {
    /// Before this trace, in order of time.
    Time { start_ns: i64, trace: i64 },
    /// Before this trajectory, in order of arrival, which is the order of search results.
    Found { trajectory: i64 },
}

impl fmt::Display for TraceListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceListCursor::Time { start_ns, trace } => write!(f, "t{start_ns:x}.{trace:x}"),
            TraceListCursor::Found { trajectory } => write!(f, "f{trajectory:x}"),
        }
    }
}

impl FromStr for TraceListCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<TraceListCursor, ()> {
        let number = |digits: &str| i64::from_str_radix(digits, 16).map_err(drop);
        if let Some(digits) = text.strip_prefix('f') {
            return Ok(TraceListCursor::Found { trajectory: number(digits)? });
        }
        let (start, trace) = text.strip_prefix('t').and_then(|rest| rest.split_once('.')).ok_or(())?;
        Ok(TraceListCursor::Time { start_ns: number(start)?, trace: number(trace)? })
    }
}

/// Maximum number of traces that one request examines.
pub(super) const MAX_EXAMINED_TRACES: usize = 20_000;
/// Traces that the first statement of a walk examines at least. PostgreSQL computes all rows of a statement before the first
/// one is read, so a walk begins with a few, and each further statement examines more.
pub(super) const FIRST_PORTION: usize = 64;
/// Growth factor of the number of traces that the next statement of a walk examines.
pub(super) const PORTION_GROWTH: usize = 4;
/// Numbers of the traces of a page, and where the next one begins.
pub(super) type TraceNumberPage = (Vec<i64>, Option<TraceListCursor>);
