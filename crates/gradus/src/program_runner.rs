//! Runs the program of a user as an agent: input on standard input and in the environment, standard output as its
//! answer, bounded in time and output, in a process group that is ended with it. `gradus bench` and `gradus experiment`
//! share it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use gradus_host::child_environment::child_variables;
use gradus_server::RunningServer;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use crate::process_groups::{ProcessGroupRegistry, START_LINE, build_gated_shell};

/// A program that is a command line for `sh -c`. One value runs it any number of times, also concurrently.
#[derive(Clone, Debug)]
pub(crate) struct ProgramRunner {
    pub(crate) command: String,
    /// For one run; after it the process group gets SIGTERM, then SIGKILL.
    pub(crate) timeout: Duration,
    /// Names of variables that the program gets from our environment in addition to `PATH` and the like. Everything
    /// else is withheld, since our environment has keys.
    pub(crate) passed_variables: Vec<String>,
    /// The running programs, for interrupts.
    pub(crate) programs: ProcessGroupRegistry,
}

/// What a program gets for one run.
#[derive(Debug, Default)]
pub(crate) struct ProgramInput {
    pub(crate) stdin: String,
    /// Variables that are set; they win over those that are passed on.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// Variables that are never passed on.
    pub(crate) removed_variables: &'static [&'static str],
}

/// How a program ended, and its output.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) end: ProgramEnd,
    /// Standard output; `None` if the program did not start or ran out of time.
    pub(crate) answer: Option<String>,
}

#[derive(Debug)]
pub(crate) enum ProgramEnd {
    Answered,
    NotStarted {
        reason: String,
    },
    /// An exit code other than 0, or a signal. `complaint` is the end of standard error.
    Exited {
        status: ExitStatus,
        complaint: String,
    },
    TimedOut {
        timeout: Duration,
    },
    /// A cut answer counts as a failure: checks and judges would look at a text that the agent did not write.
    AnswerTooLong,
}

/// Maximum size of an answer in bytes. A program that prints more is ended, since its answer cannot count.
pub(crate) const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Maximum number of bytes of standard error that are kept, from its end, where the message of a crash is.
const MAX_STDERR_TAIL_BYTES: usize = 2_000;
/// Maximum length of a variable: Linux refuses to start a program with a longer one (MAX_ARG_STRLEN).
const MAX_VARIABLE_BYTES: usize = 120 << 10;
/// Time between SIGTERM and SIGKILL.
const KILL_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Time for which output is read after the program has ended, while a process that it left behind keeps the pipe open.
const TRAILING_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Exit codes of a POSIX shell for a command that it may not execute, or that does not exist.
const COMMAND_NOT_FOUND_CODES: [i32; 2] = [126, 127];

impl ProgramEnd {
    /// Returns why the program did not answer, in a few words; `None` if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        Some(match self {
            ProgramEnd::Answered => return None,
            ProgramEnd::NotStarted { reason } => format!("it does not start: {reason}"),
            ProgramEnd::Exited { status, complaint } if complaint.is_empty() => format!("it ended with {status}"),
            ProgramEnd::Exited { status, complaint } => format!("it ended with {status}: {complaint}"),
            ProgramEnd::TimedOut { timeout } => format!("it took longer than {} s", timeout.as_secs_f64()),
            ProgramEnd::AnswerTooLong => format!("its answer is longer than {} KiB", MAX_ANSWER_BYTES >> 10),
        })
    }

    /// Whether the shell did not find the command, or may not execute it.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, ProgramEnd::Exited { status, .. } if status.code().is_some_and(|code| COMMAND_NOT_FOUND_CODES.contains(&code)))
    }

    /// Whether a signal ended it.
    pub(crate) fn is_signal(&self) -> bool {
        matches!(self, ProgramEnd::Exited { status, .. } if status.signal().is_some())
    }
}

impl ProgramInput {
    /// Adds [`collector_variables`].
    pub(crate) fn add_collector(&mut self, collector: &RunningServer) {
        let variables = collector_variables(collector).into_iter();
        self.variables.extend(variables.map(|(name, value)| (name, value.into())));
    }
}

/// Returns the variables by which OpenTelemetry SDKs and Phoenix's clients find a collector.
pub(crate) fn collector_variables(collector: &RunningServer) -> [(&'static str, String); 4] {
    let endpoint = format!("http://{}", collector.http);
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.clone()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".to_owned()),
        ("PHOENIX_COLLECTOR_ENDPOINT", endpoint),
        // `phoenix.otel.register()` sends to this port over gRPC; of the address above it takes the host only.
        ("PHOENIX_GRPC_PORT", collector.grpc.port().to_string()),
    ]
}

impl ProgramRunner {
    /// Runs the program until it ends or its time is over.
    pub(crate) async fn run(&self, input: ProgramInput) -> ProgramOutput {
        // In a process group of its own, so that processes which it starts can be killed with it.
        let mut command = build_gated_shell(&self.command);
        command
            .env_clear()
            .envs(child_variables(&self.passed_variables))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for name in input.removed_variables {
            command.env_remove(name);
        }
        for (name, value) in input.variables {
            // A value that is too long is on standard input as well.
            if value.len() <= MAX_VARIABLE_BYTES {
                command.env(name, value);
            }
        }
        for name in ["NO_PROXY", "no_proxy"] {
            command.env(name, without_proxy(std::env::var_os(name)));
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                return ProgramOutput { end: ProgramEnd::NotStarted { reason: error.to_string() }, answer: None };
            }
        };
        // Dropping this kills every process that the program has started and left behind.
        let group = self.programs.register(child.id());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let tell = async {
            if let Some(mut stdin) = stdin {
                // A program may close its standard input without reading it: the request is in its environment as well.
                let _ = stdin.write_all(&[START_LINE, input.stdin.as_bytes()].concat()).await;
            }
        };
        let mut answer = OutputCapture::from_start(MAX_ANSWER_BYTES);
        let mut complaint = OutputCapture::from_end(MAX_STDERR_TAIL_BYTES);
        let limit_reached = Notify::new();
        let ended = {
            // Input and output must be moved while the program runs: it would block on a full pipe otherwise.
            let talk = async {
                tokio::join!(
                    tell,
                    answer.capture_stream(stdout, Some(&limit_reached)),
                    complaint.capture_stream(stderr, None)
                );
            };
            tokio::pin!(talk);
            let mut is_said = false;
            let ends = async {
                loop {
                    tokio::select! {
                        status = child.wait() => return Some(status),
                        // A program that prints without end would go on until its time is over.
                        () = limit_reached.notified() => return None,
                        () = &mut talk, if !is_said => is_said = true,
                    }
                }
            };
            let ended = tokio::time::timeout(self.timeout, ends).await;
            if !matches!(ended, Ok(Some(_))) {
                group.signal(Signal::TERM);
                let _ = tokio::time::timeout(KILL_GRACE_PERIOD, child.wait()).await;
            }
            // A process that it left behind may hold the pipe open, so reading to its end could take forever. The
            // output of the program itself has arrived within this time.
            if !is_said {
                let _ = tokio::time::timeout(TRAILING_OUTPUT_TIMEOUT, talk).await;
            }
            ended
        };
        drop(group);
        let _ = child.wait().await;
        let (end, answer) = match ended {
            Ok(None) => (ProgramEnd::AnswerTooLong, Some(answer.text())),
            // Whatever its exit status: the pipe was closed on it.
            Ok(Some(Ok(_))) if answer.is_cut => (ProgramEnd::AnswerTooLong, Some(answer.text())),
            Ok(Some(Ok(status))) if status.success() => (ProgramEnd::Answered, Some(answer.text())),
            Ok(Some(Ok(status))) => {
                let complaint = gradus_core::visible::printable_line(&complaint.text());
                (ProgramEnd::Exited { status, complaint }, Some(answer.text()))
            }
            Ok(Some(Err(error))) => (ProgramEnd::NotStarted { reason: error.to_string() }, None),
            Err(_) => (ProgramEnd::TimedOut { timeout: self.timeout }, None),
        };
        ProgramOutput { end, answer }
    }
}

/// Returns a NO_PROXY list with this machine added: collectors are on loopback, which a proxy cannot reach.
fn without_proxy(list: Option<OsString>) -> OsString {
    let mut hosts = list.unwrap_or_default();
    if !hosts.is_empty() {
        hosts.push(",");
    }
    hosts.push("127.0.0.1,localhost");
    hosts
}

/// The beginning or the end of an output stream, up to a limit.
struct OutputCapture {
    text: Vec<u8>,
    /// In bytes.
    limit: usize,
    keeps_end: bool,
    is_cut: bool,
}

impl OutputCapture {
    fn from_start(limit: usize) -> OutputCapture {
        OutputCapture { text: Vec::new(), limit, keeps_end: false, is_cut: false }
    }

    fn from_end(limit: usize) -> OutputCapture {
        OutputCapture { text: Vec::new(), limit, keeps_end: true, is_cut: false }
    }

    /// Reads the stream to its end or to an error. Memory stays within the limit and one buffer. With
    /// `limit_reached`, reading stops at the limit and notifies it.
    async fn capture_stream(
        &mut self,
        source: Option<impl tokio::io::AsyncRead + Unpin>,
        limit_reached: Option<&Notify>,
    ) {
        let Some(mut source) = source else { return };
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = source.read(&mut buffer).await {
            self.text.extend_from_slice(&buffer[..count]);
            if self.text.len() > self.limit {
                self.is_cut = true;
                if self.keeps_end {
                    self.text.drain(..self.text.len() - self.limit);
                } else {
                    self.text.truncate(self.limit);
                }
                if let Some(limit_reached) = limit_reached {
                    limit_reached.notify_one();
                    return;
                }
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).trim().to_owned()
    }
}
