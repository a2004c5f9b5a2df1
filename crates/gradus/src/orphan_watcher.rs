//! A process that ends the programs of agents if this one is killed by SIGKILL, which no handler sees. It reads the
//! ids of running process groups from a pipe; the system closes the pipe however this process ends.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Pid;

/// Lines are `+ ID` and `- ID`. At the end of the input every group that is left is killed.
const WATCH_SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=" "
while read -r sign id; do
    case $sign in
        +) groups="$groups$id " ;;
        -) case $groups in *" $id "*) groups="${groups%%" $id "*} ${groups#*" $id "}" ;; esac ;;
    esac
done
for id in $groups; do kill -s KILL -- "-$id" 2>/dev/null; done
"#;

#[derive(Debug)]
pub(crate) struct OrphanWatcher {
    /// `None` once it is being ended.
    input: Option<ChildStdin>,
    child: Child,
}

impl OrphanWatcher {
    pub(crate) fn start() -> io::Result<OrphanWatcher> {
        let mut command = Command::new("sh");
        // A process group of its own: Ctrl-C in the terminal must not end it before this process ends.
        command.args(["-c", WATCH_SCRIPT]).process_group(0).current_dir("/");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(OrphanWatcher { input: child.stdin.take(), child })
    }

    /// Adds a group. Returns `None` if the watcher has ended.
    pub(crate) fn add_group(self, id: Pid) -> Option<OrphanWatcher> {
        self.write_line('+', id)
    }

    /// Removes a group. Returns `None` if the watcher has ended.
    pub(crate) fn remove_group(self, id: Pid) -> Option<OrphanWatcher> {
        self.write_line('-', id)
    }

    fn write_line(mut self, sign: char, id: Pid) -> Option<OrphanWatcher> {
        // One write of less than PIPE_BUF bytes is atomic.
        let line = format!("{sign} {}\n", id.as_raw_nonzero());
        let is_written = self.input.as_mut().is_some_and(|input| input.write_all(line.as_bytes()).is_ok());
        is_written.then_some(self)
    }
}

impl Drop for OrphanWatcher {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    fn start_group() -> (Child, Pid) {
        let child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let id = Pid::from_child(&child);
        (child, id)
    }

    #[test]
    fn groups_that_are_left_are_killed_when_the_pipe_closes() {
        let started: Vec<(Child, Pid)> = (0..4).map(|_| start_group()).collect();
        let mut watcher = OrphanWatcher::start().unwrap();
        for (_, id) in &started {
            watcher = watcher.add_group(*id).unwrap();
        }
        for at in [1, 3] {
            watcher = watcher.remove_group(started[at].1).unwrap();
        }
        drop(watcher);
        for (at, (mut child, _)) in started.into_iter().enumerate() {
            if at % 2 == 0 {
                assert_eq!(child.wait().unwrap().signal(), Some(9));
            } else {
                assert_eq!(child.try_wait().unwrap(), None, "{at} was removed before");
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }
}
