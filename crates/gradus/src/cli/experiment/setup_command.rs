//! `--setup` and `--teardown`: commands of the user around all trials. Setup may leave processes in the background,
//! such as the agent itself; they are ended after the last trial.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use gradus_core::visible::printable_line;
use gradus_host::child_environment::child_variables;
use tokio::io::AsyncWriteExt as _;

use super::masked_text::MaskedText;
use crate::cli::sources::print_diagnostic;
use crate::process_groups::{AgentProcessGroup, ProcessGroupRegistry, START_LINE, build_gated_shell};

/// Why a command of the user failed.
#[derive(Debug, thiserror::Error)]
#[error("{option} failed: {command}: {reason}")]
pub(super) struct SetupError {
    option: &'static str,
    command: String,
    reason: String,
}

/// A command with what it gets.
#[derive(Clone, Debug)]
pub(super) struct SetupCommand {
    pub(super) option: &'static str,
    pub(super) command: String,
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) passed_variables: Vec<String>,
    pub(super) timeout: Duration,
    /// Standard output and standard error of the command and of what it leaves behind. Not a pipe, because nobody reads
    /// it while the trials run.
    pub(super) log: PathBuf,
}

impl SetupCommand {
    /// Waits until the shell ends. Dropping the result ends all processes that it left behind.
    pub(super) async fn run(&self, programs: &ProcessGroupRegistry) -> Result<AgentProcessGroup, SetupError> {
        let failed = |reason: String| SetupError {
            option: self.option,
            command: printable_line(&MaskedText::new(&self.command).text),
            reason,
        };
        let log = || File::options().create(true).append(true).open(&self.log);
        let open = || -> io::Result<(File, File)> { Ok((log()?, log()?)) };
        let (out, err) = open().map_err(|error| failed(format!("{}: {error}", self.log.display())))?;
        let mut command = build_gated_shell(&self.command);
        command
            .env_clear()
            .envs(child_variables(&self.passed_variables))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdout(out)
            .stderr(err);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let group = programs.register(child.id());
        if let Some(mut stdin) = child.stdin.take() {
            // An error means that the shell has ended, which its exit status shows. Closing the pipe ends the input.
            let _ = stdin.write_all(START_LINE).await;
        }
        match tokio::time::timeout(self.timeout, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(group),
            Ok(Ok(status)) => Err(failed(format!("it ended with {status}{}", self.last_line()))),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!(
                "it took longer than {} s; hint: put what goes on running into the background with &",
                self.timeout.as_secs_f64()
            ))),
        }
    }

    /// Runs a command whose failure ends nothing, and prints why it failed.
    pub(super) async fn run_or_warn(&self, programs: &ProcessGroupRegistry) {
        if let Err(error) = self.run(programs).await {
            print_diagnostic(&error.to_string());
        }
    }

    /// Returns the last line of the log, where the message of a crash is.
    fn last_line(&self) -> String {
        const MAX_TAIL_BYTES: u64 = 2_000;
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(MAX_TAIL_BYTES)))?;
            let mut tail = Vec::new();
            file.read_to_end(&mut tail)?;
            Ok(tail)
        };
        let tail = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&tail);
        text.trim().lines().last().map(|line| format!(": {}", printable_line(line))).unwrap_or_default()
    }
}
