//! Programs of others as players: each trial gets a simulator and a receiver of its own, and the program is told where
//! they are. What it did is known by the spans that it sent, else by its requests.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gradus_core::trajectory::Trajectory;
use gradus_github::bench::{Arena, BenchError, Finished, Job, Player, Spending, TrialLine, assess};
use gradus_github::record::{End, RunRecord, Step};
use gradus_github::rules::Spent;
use gradus_github::simulator::Exchange;
use gradus_github::tools::BoxFuture;
use gradus_store::Store;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::serve::Running;
use crate::source::{Intake, Limits};

/// A command line, as a shell takes it.
#[derive(Clone, Debug)]
pub(crate) struct ForeignAgent {
    pub(crate) command: String,
    pub(crate) timeout: Duration,
}

/// An answer is kept up to this; the rest is read and dropped, so that the program does not hang.
const LONGEST_ANSWER: usize = 1 << 20;
const LONGEST_COMPLAINT: usize = 2_000;
/// How long a program whose time is over may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);

impl Player for ForeignAgent {
    fn play<'p>(
        &'p self,
        arena: &'p mut Arena,
        job: &'p Job<'_>,
    ) -> BoxFuture<'p, Result<Finished, BenchError>> {
        Box::pin(async move { self.trial(arena, job).await.map_err(BenchError::Agent) })
    }
}

impl ForeignAgent {
    async fn trial(&self, arena: &Arena, job: &Job<'_>) -> Result<Finished, String> {
        let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let task = job.task;
        let folder = tempfile::tempdir().map_err(|error| failed("a temporary folder", &error))?;
        let receiver = Running::start_private(folder.path()).await?;
        let before = arena.world().state().clone();
        let begun = Instant::now();
        let (end, answer) = self.run(arena.url(), &receiver, job).await;
        let seconds = begun.elapsed().as_secs_f64();
        receiver.stop().await;
        let (exchanges, after) = {
            let world = arena.world();
            (world.exchanges().to_vec(), world.state().clone())
        };
        let (trajectories, otlp) =
            received(folder.path()).map_err(|error| failed("the spans it sent", &error))?;
        // A program may work in several conversations; what it was asked for is the one that did most.
        let trajectory = trajectories.into_iter().max_by_key(|one| one.steps.len());
        let steps = match trajectory.as_ref().filter(|one| !one.steps.is_empty()) {
            Some(trajectory) => steps_of_spans(trajectory, exchanges.len()),
            None => {
                exchanges.iter().enumerate().map(|(at, exchange)| step_of_request(at, exchange)).collect()
            }
        };
        let record = RunRecord {
            task: task.id.clone(),
            trial: job.trial,
            request: task.request.clone(),
            steps,
            answer,
            end,
            exchanges,
        };
        let tokens = trajectory.as_ref().map(|one| one.tokens).unwrap_or_default();
        let cost_usd = trajectory.as_ref().and_then(|one| one.cost_usd);
        let spending = Spending {
            prompt_tokens: tokens.prompt,
            completion_tokens: tokens.completion,
            cached_prompt_tokens: 0,
            cost_usd,
            seconds,
        };
        let spent = Spent {
            tokens: Some(tokens.prompt + tokens.completion).filter(|sum| *sum > 0),
            seconds: Some(seconds),
            cost_usd,
        };
        // Its tools are its own: rules that hold calls against schemas have nothing to say.
        let (verification, rules) = assess(task, &record, &before, &after, &[], spent);
        let session = trajectory.and_then(|one| one.session_id);
        let session = session.unwrap_or_else(|| format!("{}/{}", task.id, job.trial));
        let line = TrialLine::new(task, &self.command, &session, &record, &verification, &rules, spending);
        Ok(Finished { line, record, otlp })
    }

    /// Runs the program to its end, or to the end of its time. Its answer is what it prints.
    async fn run(&self, url: &str, receiver: &Running, job: &Job<'_>) -> (End, Option<String>) {
        let otlp = format!("http://{}", receiver.http);
        let mut command = tokio::process::Command::new("sh");
        command
            .arg("-c")
            .arg(&self.command)
            .env("GRADUS_REQUEST", &job.task.request)
            .env("GRADUS_TASK", &job.task.id)
            .env("GRADUS_TRIAL", job.trial.to_string())
            .env("GITHUB_API_URL", url)
            .env("GITHUB_TOKEN", &job.task.token)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp)
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
            .env("PHOENIX_COLLECTOR_ENDPOINT", &otlp)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that what it starts ends with it.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return (End::Failed(format!("it does not start: {error}")), None),
        };
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let request = job.task.request.clone();
        let talk = async {
            let tell = async {
                if let Some(mut stdin) = stdin {
                    // A program that does not read it has it in its environment.
                    let _ = stdin.write_all(request.as_bytes()).await;
                }
            };
            let (_, answer, complaint) = tokio::join!(
                tell,
                take_in(stdout, LONGEST_ANSWER, false),
                take_in(stderr, LONGEST_COMPLAINT, true)
            );
            (answer, complaint, child.wait().await)
        };
        let ended = tokio::time::timeout(self.timeout, talk).await;
        let found = match ended {
            Ok((answer, _, Ok(status))) if status.success() => (End::Answered, Some(answer)),
            Ok((answer, complaint, Ok(status))) => {
                let complaint = crate::output::printable_line(&complaint);
                (End::Failed(format!("it ended with {status}: {complaint}")), Some(answer))
            }
            Ok((_, _, Err(error))) => (End::Failed(error.to_string()), None),
            Err(_) => {
                end_group(group, rustix::process::Signal::TERM);
                let _ = tokio::time::timeout(GRACE, child.wait()).await;
                (End::Failed(format!("it took longer than {} s", self.timeout.as_secs_f64())), None)
            }
        };
        // Whatever it has started and left behind.
        end_group(group, rustix::process::Signal::KILL);
        let _ = child.wait().await;
        found
    }
}

fn end_group(group: Option<rustix::process::Pid>, signal: rustix::process::Signal) {
    if let Some(group) = group {
        // None is left, mostly.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

/// Reads to the end and keeps the beginning, or the end, up to a limit.
async fn take_in(source: Option<impl tokio::io::AsyncRead + Unpin>, limit: usize, keeps_end: bool) -> String {
    let Some(mut source) = source else { return String::new() };
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
    while let Ok(count @ 1..) = source.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > limit {
            if keeps_end {
                kept.drain(..kept.len() - limit);
            } else {
                kept.truncate(limit);
            }
        }
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// What came into a receiver's store: as trajectories, and as one export request.
fn received(folder: &Path) -> io::Result<(Vec<Trajectory>, Vec<u8>)> {
    let path = folder.join(gradus_store::FILE_NAME);
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let store = Store::open_to_read(&path).map_err(|error| other(&error))?;
    let mut otlp = Vec::new();
    for project in store.projects().map_err(|error| other(&error))? {
        let mut after = None;
        while let Some((page, last)) =
            store.project_page(&project.name, after).map_err(|error| other(&error))?
        {
            crate::stored_records::write_otlp(&page, &mut |export| otlp.extend_from_slice(export));
            after = Some(last);
        }
    }
    if otlp.is_empty() {
        return Ok((Vec::new(), otlp));
    }
    Ok((trajectories(&otlp)?, otlp))
}

/// The trajectories in an export request.
pub(crate) fn trajectories(otlp: &[u8]) -> io::Result<Vec<Trajectory>> {
    let mut found = Vec::new();
    let mut take = |_: usize, trajectory: Trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = Intake::new(Limits::default(), &mut take);
    intake.export(otlp);
    intake.finish()?;
    Ok(found)
}

/// Requests are put to steps only where there is one for each: spans and requests have no clock in common.
fn steps_of_spans(trajectory: &Trajectory, requests: usize) -> Vec<Step> {
    let one_each = trajectory.steps.len() == requests;
    let steps = trajectory.steps.iter().enumerate();
    steps
        .map(|(at, step)| Step {
            thought: step.thought.clone(),
            tool: step.tool.clone(),
            arguments: step.arguments.clone().unwrap_or(Value::Null),
            observation: step.observation.clone().unwrap_or_default(),
            is_error: step.is_error,
            exchanges: if one_each { at..at + 1 } else { 0..0 },
            approved: None,
        })
        .collect()
}

fn step_of_request(at: usize, exchange: &Exchange) -> Step {
    let body: Value = serde_json::from_str(&exchange.body).unwrap_or(Value::Null);
    Step {
        thought: None,
        tool: exchange.operation.clone().unwrap_or_else(|| format!("{} {}", exchange.method, exchange.path)),
        arguments: json!({
            "method": exchange.method, "path": exchange.path, "query": exchange.query, "body": body
        }),
        observation: exchange.answer.clone(),
        is_error: exchange.status >= 400,
        exchanges: at..at + 1,
        approved: None,
    }
}
