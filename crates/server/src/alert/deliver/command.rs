//! Runs a program for a notice: without a shell, with a cleaned environment, with the notice as JSON on standard input,
//! and with a time limit on it and on everything that it starts.

use std::process::Stdio;
use std::time::Duration;

use gradus_host::child_environment::child_variables;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::alert::deliver::failure::DeliveryFailure;
use crate::alert::notice::AlertNotice;

/// Succeeds if the program exits with 0 within `timeout`. A program that cannot be found or may not be executed is a
/// permanent failure; everything else is retried.
pub(super) async fn run_alert_command(
    words: &[String],
    passed_variables: &[String],
    notice: &AlertNotice,
    base_url: Option<&str>,
    timeout: Duration,
) -> Result<(), DeliveryFailure> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(DeliveryFailure::Permanent { reason: "no command".to_owned() });
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        // The server's environment may contain API keys. The program gets only the common variables and those named in
        // `env`.
        .env_clear()
        .envs(child_variables(passed_variables))
        .envs(build_alert_environment(notice))
        .stdin(Stdio::piped())
        // Standard output is discarded. Standard error is inherited, so complaints end up in the server's log.
        .stdout(Stdio::null())
        // A process group of its own can be killed as a whole.
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
            DeliveryFailure::Permanent { reason: error.to_string() }
        }
        _ => DeliveryFailure::transient(error.to_string()),
    })?;
    let group = CommandProcessGroup::from_child(&child);
    let finished = tokio::time::timeout(timeout, feed_and_wait(&mut child, notice.to_json(base_url).to_string())).await;
    let status = match finished {
        Ok(status) => status.map_err(|error| DeliveryFailure::transient(error.to_string()))?,
        Err(_) => return Err(DeliveryFailure::transient(format!("not done after {timeout:?}"))),
    };
    // The program has ended and its process id may be reused: the guard must not kill that group any more.
    std::mem::forget(group);
    if status.success() { Ok(()) } else { Err(DeliveryFailure::transient(status.to_string())) }
}

/// Builds environment variables with the notice, for scripts that do not parse JSON. The names are part of the
/// documented interface.
fn build_alert_environment(notice: &AlertNotice) -> [(&'static str, String); 8] {
    [
        ("GRADUS_ALERT_NAME", notice.rule.clone()),
        ("GRADUS_ALERT_KIND", notice.kind.name().to_owned()),
        ("GRADUS_ALERT_PROJECT", notice.project.clone().unwrap_or_default()),
        ("GRADUS_ALERT_CONDITION", notice.condition.clone()),
        ("GRADUS_ALERT_VALUE", notice.value.to_string()),
        ("GRADUS_ALERT_COUNT", notice.count.to_string()),
        ("GRADUS_ALERT_SINCE", notice.since.to_string()),
        ("GRADUS_ALERT_AT", notice.at.to_string()),
    ]
}

/// Writes the input and waits for the program at the same time: a program that does not read all of its input must not
/// block. The writer never resolves by itself, so only the exit of the program ends the wait.
async fn feed_and_wait(child: &mut Child, text: String) -> std::io::Result<std::process::ExitStatus> {
    let stdin = child.stdin.take();
    let feed = async move {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(text.as_bytes()).await;
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        status = child.wait() => status,
        () = feed => Err(std::io::ErrorKind::Other.into()),
    }
}

/// Kills the program and everything that it started when dropped, which happens on a timeout and when the server stops.
struct CommandProcessGroup(Option<Pid>);

impl CommandProcessGroup {
    fn from_child(child: &Child) -> CommandProcessGroup {
        CommandProcessGroup(child.id().and_then(|id| Pid::from_raw(id.cast_signed())))
    }
}

impl Drop for CommandProcessGroup {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // The group may have ended in the meantime, which is not an error.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
