//! Programs that are at work: each in a process group of its own, and all of them ended with whoever started them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// Process groups that are at work.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessGroupRegistry(Arc<Mutex<BTreeSet<i32>>>);

/// A group that is ended when this is dropped, however that comes about.
#[derive(Debug)]
pub(crate) struct AgentProcessGroup {
    id: Option<Pid>,
    programs: ProcessGroupRegistry,
}

impl ProcessGroupRegistry {
    /// `id` is that of the process that leads the group.
    pub(crate) fn register(&self, id: Option<u32>) -> AgentProcessGroup {
        let id = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        self.lock().extend(id.map(|id| id.as_raw_nonzero().get()));
        AgentProcessGroup { id, programs: self.clone() }
    }

    /// Ends all of them at once.
    pub(crate) fn end_all(&self) {
        for id in self.lock().iter().filter_map(|id| Pid::from_raw(*id)) {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentProcessGroup {
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // None is left, mostly.
            let _ = kill_process_group(id, signal);
        }
    }
}

impl Drop for AgentProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(id) = self.id {
            self.programs.lock().remove(&id.as_raw_nonzero().get());
        }
    }
}
