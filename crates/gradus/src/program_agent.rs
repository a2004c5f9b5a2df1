//! Programs of others as players: each trial gets a simulator and a receiver of its own, and the program is told where
//! they are. What it did is known by the spans that it sent, else by its requests.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gradus_core::trajectory::Trajectory;
use gradus_github_agent::agent::{AgentRunEnd, RunStep};
use gradus_github_agent::tools::BoxFuture;
use gradus_github_bench::record::TrialRecord;
use gradus_github_bench::rules::BudgetUsage;
use gradus_github_bench::trial::{
    BenchError, FinishedTrial, TrialEnvironment, TrialJob, TrialLine, TrialRunner, TrialUsage, assess_trial,
    replay_trial,
};
use gradus_host::child_environment::child_variables;
use gradus_otlp::change_trace_ids;
use gradus_store::Store;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::process_groups::ProcessGroupRegistry;
use gradus_ingest::{RecordIntake, SourceLimits};
use gradus_server::RunningServer;

/// A command line, as a shell takes it.
#[derive(Debug)]
pub(crate) struct ForeignAgent {
    pub(crate) command: String,
    pub(crate) timeout: Duration,
    /// Variables of ours that it gets beside `PATH` and the like.
    pub(crate) passed_variables: Vec<String>,
    /// Whether each run is replayed without some of its requests.
    pub(crate) replays: bool,
    /// Which bench it is.
    pub(crate) bench: String,
    /// Those that are at work.
    pub(crate) programs: ProcessGroupRegistry,
    /// Whether a trial of this bench has ever asked GitHub for something: then the program is there.
    pub(crate) has_worked: AtomicBool,
}

/// An answer is kept up to this; the rest is read and dropped, so that the program does not hang.
const MAX_ANSWER: usize = 1 << 20;
const MAX_COMPLAINT: usize = 2_000;
/// How long a program whose time is over may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How long what a program has left behind may go on, once the program has ended.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// What a shell says of a program that is not there, or that it may not run.
const NOT_FOUND: [i32; 2] = [126, 127];

impl TrialRunner for ForeignAgent {
    fn is_program(&self) -> bool {
        true
    }

    fn play<'p>(
        &'p self,
        arena: &'p mut TrialEnvironment,
        job: &'p TrialJob<'_>,
    ) -> BoxFuture<'p, Result<FinishedTrial, BenchError>> {
        Box::pin(self.run_trial(arena, job))
    }
}

/// How a program ended, and what it said.
struct ProgramExit {
    end: AgentRunEnd,
    answer: Option<String>,
    /// As its shell gives it.
    code: Option<i32>,
}

impl ForeignAgent {
    async fn run_trial(&self, arena: &mut TrialEnvironment, job: &TrialJob<'_>) -> Result<FinishedTrial, BenchError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| BenchError::Agent(format!("{what}: {error}"));
        let task = job.task;
        let folder = tempfile::tempdir().map_err(|error| failed("a temporary folder", &error))?;
        let receiver = RunningServer::start_private(folder.path()).await;
        let receiver = receiver.map_err(|error| BenchError::Agent(error.to_string()))?;
        let seed = arena.world().clone();
        let before = seed.state().clone();
        let begun = Instant::now();
        let ended = self.run_program(arena.url(), &receiver, job).await;
        let seconds = begun.elapsed().as_secs_f64();
        let refused_exports = receiver.refused_count();
        receiver.stop().await;
        let (exchanges, after) = {
            let world = arena.world();
            (world.recorded_exchanges().to_vec(), world.state().clone())
        };
        if !exchanges.is_empty() {
            self.has_worked.store(true, Ordering::Relaxed);
        }
        // Once it has worked, something in it was not found, which is its own failure.
        if let (AgentRunEnd::Failed(reason), false) = (&ended.end, self.has_worked.load(Ordering::Relaxed))
            && ended.code.is_some_and(|code| NOT_FOUND.contains(&code))
        {
            return Err(BenchError::Program(reason.clone()));
        }
        let own_id = |id| own_id(&self.bench, &task.id, job.trial, id);
        let (trajectories, otlp) =
            read_received_traces(folder.path(), &own_id).map_err(|error| failed("the spans it sent", &error))?;
        // A program may work in several conversations; what it was asked for is the one that did most.
        let trajectory = trajectories.into_iter().max_by_key(|one| one.steps.len());
        let record = TrialRecord {
            task: task.id.clone(),
            trial: job.trial,
            request: task.request.clone(),
            steps: trajectory.as_ref().map(steps_of_spans).unwrap_or_default(),
            answer: ended.answer,
            end: ended.end,
            exchanges,
            agent: self.command.clone(),
            faults: Vec::new(),
            is_foreign: true,
        };
        // Without spans its requests are all that is known.
        let record = if record.steps.is_empty() { record.by_requests() } else { record };
        let tokens = trajectory.as_ref().map(|one| one.tokens).unwrap_or_default();
        let cost_usd = trajectory.as_ref().and_then(|one| one.cost_usd);
        let spending = TrialUsage {
            prompt_tokens: tokens.prompt,
            completion_tokens: tokens.completion,
            cached_prompt_tokens: 0,
            cost_usd,
            seconds,
        };
        let spent =
            BudgetUsage { tokens: Some(tokens.total()).filter(|sum| *sum > 0), seconds: Some(seconds), cost_usd };
        // Its tools are its own: rules that hold calls against schemas have nothing to say.
        let (verification, rules) = assess_trial(task, &record, &before, &after, &[], spent);
        let (trajectory, session) = trajectory.map(|one| (one.trajectory_id, one.session_id)).unzip();
        let session = session.flatten().unwrap_or_else(|| format!("{}/{}/{}", self.bench, task.id, job.trial));
        let mut line = TrialLine::new(task, &self.command, &session, &record, &verification, &rules, spending);
        line.trajectory = trajectory;
        line.refused_exports = refused_exports;
        if self.replays {
            arena.prepare_tools(&task.token)?;
            line.replay = replay_trial(arena, task, &seed, &record).await;
        }
        Ok(FinishedTrial { line, record, otlp })
    }

    /// Runs the program to its end, or to the end of its time. Its answer is what it prints.
    async fn run_program(&self, url: &str, receiver: &RunningServer, job: &TrialJob<'_>) -> ProgramExit {
        let otlp = format!("http://{}", receiver.http);
        let mut command = tokio::process::Command::new("sh");
        command
            .arg("-c")
            .arg(&self.command)
            .env_clear()
            .envs(child_variables(&self.passed_variables))
            .env("GRADUS_REQUEST", &job.task.request)
            .env("GRADUS_TASK", &job.task.id)
            .env("GRADUS_TRIAL", job.trial.to_string())
            .env("GITHUB_API_URL", url)
            .env("GITHUB_TOKEN", &job.task.token)
            // What `gh` and others look at first; its user's own token is for no trial.
            .env("GH_TOKEN", &job.task.token)
            .env_remove("GITHUB_ENTERPRISE_TOKEN")
            .env_remove("GH_ENTERPRISE_TOKEN")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp)
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
            .env("PHOENIX_COLLECTOR_ENDPOINT", &otlp)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that what it starts ends with it.
            .process_group(0)
            .kill_on_drop(true);
        for name in ["NO_PROXY", "no_proxy"] {
            command.env(name, without_proxy(std::env::var_os(name)));
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let end = AgentRunEnd::Failed(format!("it does not start: {error}"));
                return ProgramExit { end, answer: None, code: None };
            }
        };
        // When this is dropped, whatever it has started and left behind is ended.
        let group = self.programs.register(child.id());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let request = job.task.request.clone();
        let tell = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read it has it in its environment.
                let _ = stdin.write_all(request.as_bytes()).await;
            }
        };
        let mut answer = OutputCapture { text: Vec::new(), limit: MAX_ANSWER, keeps_end: false, is_cut: false };
        let mut complaint = OutputCapture { text: Vec::new(), limit: MAX_COMPLAINT, keeps_end: true, is_cut: false };
        let ended = {
            let talk = async {
                tokio::join!(tell, answer.take_in(stdout), complaint.take_in(stderr));
            };
            tokio::pin!(talk);
            let mut is_said = false;
            let ends = async {
                loop {
                    tokio::select! {
                        status = child.wait() => return status,
                        () = &mut talk, if !is_said => is_said = true,
                    }
                }
            };
            let ended = tokio::time::timeout(self.timeout, ends).await;
            if ended.is_err() {
                group.signal(Signal::TERM);
                let _ = tokio::time::timeout(GRACE, child.wait()).await;
            }
            // Something that it left behind may hold its output open; what it said itself has been read by then.
            if !is_said {
                let _ = tokio::time::timeout(AFTERWARDS, talk).await;
            }
            ended
        };
        drop(group);
        let _ = child.wait().await;
        let code = ended.as_ref().ok().and_then(|status| status.as_ref().ok()).and_then(ExitStatus::code);
        let (end, answer) = match ended {
            // What is not read is not judged either, by no check and by no rule.
            Ok(Ok(_)) if answer.is_cut => {
                let reason = format!("its answer is longer than {} KiB", MAX_ANSWER >> 10);
                (AgentRunEnd::Failed(reason), Some(answer.text()))
            }
            Ok(Ok(status)) if status.success() => (AgentRunEnd::Answered, Some(answer.text())),
            Ok(Ok(status)) => {
                let complaint = gradus_core::visible::printable_line(&complaint.text());
                let said = if complaint.is_empty() { complaint } else { format!(": {complaint}") };
                (AgentRunEnd::Failed(format!("it ended with {status}{said}")), Some(answer.text()))
            }
            Ok(Err(error)) => (AgentRunEnd::Failed(error.to_string()), None),
            Err(_) => (AgentRunEnd::Failed(format!("it took longer than {} s", self.timeout.as_secs_f64())), None),
        };
        ProgramExit { end, answer, code }
    }
}

/// What a variable says of places that are asked without a proxy, and this machine.
fn without_proxy(given: Option<OsString>) -> OsString {
    let mut places = given.unwrap_or_default();
    if !places.is_empty() {
        places.push(",");
    }
    places.push("127.0.0.1,localhost");
    places
}

/// The beginning, or the end, of a text, up to a limit.
struct OutputCapture {
    text: Vec<u8>,
    limit: usize,
    keeps_end: bool,
    is_cut: bool,
}

impl OutputCapture {
    /// Reads to the end.
    async fn take_in(&mut self, source: Option<impl tokio::io::AsyncRead + Unpin>) {
        let Some(mut source) = source else { return };
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = source.read(&mut buffer).await {
            self.text.extend_from_slice(&buffer[..count]);
            if self.text.len() > self.limit {
                self.is_cut = true;
                if self.keeps_end {
                    self.text.drain(..self.text.len() - self.limit);
                } else {
                    self.text.truncate(self.limit);
                }
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).trim().to_owned()
    }
}

/// The id of a trace among those of all trials: programs may give the same ones in each.
fn own_id(bench: &str, task: &str, trial: u32, id: [u8; 16]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{bench}/{task}/{trial}/").as_bytes());
    hasher.update(&id);
    let mut own = [0; 16];
    hasher.finalize_xof().fill(&mut own);
    own
}

/// What came into a receiver's store: as trajectories, and as one export request. Each trace gets the id that `own_id`
/// gives it.
fn read_received_traces(
    folder: &Path,
    own_id: &dyn Fn([u8; 16]) -> [u8; 16],
) -> io::Result<(Vec<Trajectory>, Vec<u8>)> {
    let path = folder.join(gradus_store::FILE_NAME);
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let store = Store::open_to_read(&path).map_err(|error| other(&error))?;
    let mut otlp = Vec::new();
    for project in store.projects().map_err(|error| other(&error))? {
        let mut after = None;
        while let Some((page, last)) = store.project_page(&project.name, after).map_err(|error| other(&error))? {
            gradus_server::stored_records::write_otlp(&page, &mut |export| otlp.extend_from_slice(export));
            after = Some(last);
        }
    }
    if otlp.is_empty() {
        return Ok((Vec::new(), otlp));
    }
    change_trace_ids(&mut otlp, own_id).map_err(|error| other(&error))?;
    Ok((read_trajectories(&otlp)?, otlp))
}

/// The trajectories in an export request.
pub(crate) fn read_trajectories(otlp: &[u8]) -> io::Result<Vec<Trajectory>> {
    let mut found = Vec::new();
    let mut take = |_: usize, trajectory: Trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(SourceLimits::default(), &mut take);
    intake.add_export(otlp);
    intake.finish()?;
    Ok(found)
}

/// Which request belongs to which step is not known: spans and requests have no clock in common, and tools of others may
/// make several requests or none.
fn steps_of_spans(trajectory: &Trajectory) -> Vec<RunStep> {
    let steps = trajectory.steps.iter();
    steps
        .map(|step| RunStep {
            thought: step.thought.clone(),
            tool: step.tool.clone(),
            arguments: step.arguments.clone().unwrap_or(Value::Null),
            observation: step.observation.clone().unwrap_or_default(),
            is_error: step.is_error,
            exchanges: 0..0,
            approved: None,
        })
        .collect()
}
