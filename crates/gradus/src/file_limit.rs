//! Every call in flight is a connection, and every connection an open file. Systems allow 1,024 of them until asked.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::cli::complain;

/// Files that the process needs besides connections.
const OTHERS: u64 = 64;

/// Asks for as many open files as this many calls need, and says so if they cannot be had.
pub(crate) fn raise(calls: usize) {
    let wanted = calls as u64 + OTHERS;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
    let allowed = limit.current.unwrap_or(wanted);
    if setrlimit(Resource::Nofile, limit).is_err() || allowed < wanted {
        complain(&format!(
            "{calls} calls at once need {wanted} open files, and the system allows {allowed}: raise it with `ulimit -n`, or ask for fewer"
        ));
    }
}
