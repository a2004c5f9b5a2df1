//! Process groups of running agent programs. An agent may start further processes; each agent has a process group of
//! its own, so that all of them can be ended with one signal.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::orphan_watcher::OrphanWatcher;

/// The running process groups, by id. Clones share one list: the thread that handles interrupts has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessGroupRegistry(Arc<Mutex<RunningGroups>>);

#[derive(Debug, Default)]
struct RunningGroups {
    ids: BTreeSet<i32>,
    /// Ends the groups if this process is killed. It is started with the first group.
    watcher: Option<OrphanWatcher>,
}

/// A process group that is killed when this value is dropped, also after an error or a cancelled future.
#[derive(Debug)]
pub(crate) struct AgentProcessGroup {
    id: Option<Pid>,
    programs: ProcessGroupRegistry,
}

/// The line that a gated shell waits for on its standard input, before everything that the program reads.
pub(crate) const START_LINE: &[u8] = b"\n";

/// Builds a shell that runs `command` in a process group of its own once [`START_LINE`] has arrived on its standard
/// input, and exits if this process ends before. Without the gate, a program would continue if this process were
/// killed between starting it and registering its group. `read` takes one byte at a time, so the program gets the
/// rest.
pub(crate) fn build_gated_shell(command: &str) -> tokio::process::Command {
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", r#"read -r start && exec sh -c "$1""#, "sh", command]).stdin(Stdio::piped()).process_group(0);
    shell
}

impl ProcessGroupRegistry {
    /// Adds the group that the process `id` leads. `None` is a process that has already ended, for which nothing is
    /// killed.
    pub(crate) fn register(&self, id: Option<u32>) -> AgentProcessGroup {
        let id = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            let mut groups = self.lock();
            groups.ids.insert(id.as_raw_nonzero().get());
            // Without a watcher everything works except ending the programs after SIGKILL.
            let watcher = groups.watcher.take().or_else(|| OrphanWatcher::start().ok());
            groups.watcher = watcher.and_then(|watcher| watcher.add_group(id));
        }
        AgentProcessGroup { id, programs: self.clone() }
    }

    /// Sends SIGKILL to all groups, before the whole process exits.
    pub(crate) fn end_all(&self) {
        for id in self.lock().ids.iter().filter_map(|id| Pid::from_raw(*id)) {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RunningGroups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentProcessGroup {
    /// Sends a signal to every process of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // Usually all processes have ended, which is the error ESRCH.
            let _ = kill_process_group(id, signal);
        }
    }
}

impl Drop for AgentProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(id) = self.id {
            let mut groups = self.programs.lock();
            groups.ids.remove(&id.as_raw_nonzero().get());
            groups.watcher = groups.watcher.take().and_then(|watcher| watcher.remove_group(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test]
    async fn a_program_begins_when_it_is_told_to() {
        let started = || {
            let mut shell = build_gated_shell("echo started; cat; exit 7");
            shell.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
        };
        let mut child = started();
        // As the system does when this process is killed.
        drop(child.stdin.take());
        let ended = child.wait_with_output().await.unwrap();
        assert_eq!((ended.stdout, ended.status.code()), (Vec::new(), Some(1)));
        let mut child = started();
        child.stdin.take().unwrap().write_all(&[START_LINE, b"the request\nin lines"].concat()).await.unwrap();
        let ended = child.wait_with_output().await.unwrap();
        assert_eq!((ended.stdout.as_slice(), ended.status.code()), (&b"started\nthe request\nin lines"[..], Some(7)));
    }
}
