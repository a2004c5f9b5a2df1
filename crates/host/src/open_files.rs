//! The limit of open files. Every call in flight is a connection, and every connection is an open file; systems allow
//! 1,024 by default.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Number of open files that the process needs in addition to connections.
const OTHER_OPEN_FILES: u64 = 64;

/// The system allows fewer open files than a program was asked to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{calls} calls at once need {needed} open files, and the system allows {allowed}: raise it with `ulimit -n`, or ask for fewer"
)]
pub struct OpenFileLimitError {
    /// Calls that the user asked for.
    pub calls: usize,
    pub needed: u64,
    pub allowed: u64,
}

/// Raises the soft limit of open files as far as this many calls need it. After an error, the limit is as high as the
/// system allows.
pub fn raise_open_file_limit(calls: usize) -> Result<(), OpenFileLimitError> {
    let needed = calls as u64 + OTHER_OPEN_FILES;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let allowed = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    limit.current = Some(allowed);
    let is_raised = setrlimit(Resource::Nofile, limit).is_ok();
    if is_raised && allowed >= needed { Ok(()) } else { Err(OpenFileLimitError { calls, needed, allowed }) }
}
