//! A server as a child process: its environment, and the end of its standard error.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::transport::TokioChildProcess;
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, Command};

use super::McpServerSpec;
use super::content::clean_short_line;
use gradus_host::child_environment::child_variables;

/// Maximum size in bytes of the kept end of standard error.
const MAX_STDERR_TAIL_BYTES: usize = 4096;

/// The end of a server's standard error. Shared with the task that reads it.
#[derive(Clone, Debug, Default)]
pub(super) struct StderrTail(Arc<Mutex<VecDeque<u8>>>);

/// Starts the server with a cleared environment, a few harmless variables, and those of its command line. The process
/// is killed when its handle is dropped.
pub(super) fn start_server_process(server: &McpServerSpec) -> std::io::Result<(TokioChildProcess, StderrTail)> {
    let McpServerSpec::Command { program, arguments, environment } = server else {
        return Err(std::io::Error::other("not a command"));
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().kill_on_drop(true);
    command.envs(child_variables(&[]));
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let (process, stderr) = TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn()?;
    let stderr_tail = StderrTail::default();
    if let Some(stderr) = stderr {
        tokio::spawn(stderr_tail.clone().collect_from(stderr));
    }
    Ok((process, stderr_tail))
}

impl StderrTail {
    /// Reads standard error to its end. It must not stop earlier: a full pipe would block the server.
    async fn collect_from(self, mut stderr: ChildStderr) {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(&buffer[..count]);
            let surplus = kept.len().saturating_sub(MAX_STDERR_TAIL_BYTES);
            kept.drain(..surplus);
        }
    }

    /// Returns the last line that is not blank; empty if there is none.
    pub(super) fn last_line(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: Vec<u8> = kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&kept);
        text.lines().rev().find(|line| !line.trim().is_empty()).map(clean_short_line).unwrap_or_default()
    }
}
