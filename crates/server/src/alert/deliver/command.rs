//! Runs a command for a notice: no shell, a cleaned environment, the notice on its input, a time limit on it and on all it started.

use std::process::Stdio;
use std::time::Duration;

use gradus_host::child_environment::child_variables;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::alert::deliver::failure::DeliveryFailure;
use crate::alert::notice::AlertNotice;

pub(super) async fn run_alert_command(
    words: &[String],
    passed_variables: &[String],
    notice: &AlertNotice,
    base_url: Option<&str>,
    timeout: Duration,
) -> Result<(), DeliveryFailure> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(DeliveryFailure::ForGood { reason: "no command".to_owned() });
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        // Keys of ours are for no program that was not named them.
        .env_clear()
        .envs(child_variables(passed_variables))
        .envs(build_alert_environment(notice))
        .stdin(Stdio::piped())
        // What it prints is nobody's; what it complains about belongs to the server's own complaints.
        .stdout(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
            DeliveryFailure::ForGood { reason: error.to_string() }
        }
        _ => DeliveryFailure::for_now(error.to_string()),
    })?;
    let group = CommandProcessGroup::from_child(&child);
    let finished = tokio::time::timeout(timeout, feed_and_wait(&mut child, notice.to_json(base_url).to_string())).await;
    let status = match finished {
        Ok(status) => status.map_err(|error| DeliveryFailure::for_now(error.to_string()))?,
        Err(_) => return Err(DeliveryFailure::for_now(format!("not done after {timeout:?}"))),
    };
    // It is gone, and its number may soon be another's.
    std::mem::forget(group);
    if status.success() { Ok(()) } else { Err(DeliveryFailure::for_now(status.to_string())) }
}

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

/// A command need not read its input, nor all of it.
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

/// The command and all it started. Ends them when dropped: after too long, or when the server stops.
struct CommandProcessGroup(Option<Pid>);

impl CommandProcessGroup {
    fn from_child(child: &Child) -> CommandProcessGroup {
        CommandProcessGroup(child.id().and_then(|id| Pid::from_raw(id.cast_signed())))
    }
}

impl Drop for CommandProcessGroup {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // It may have ended just now.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
