//! Programs of users as agents of a benchmark. Each trial has a simulator and an OTLP receiver of its own, whose
//! addresses the program gets in environment variables. The steps of a trial come from the spans that the program sent;
//! without spans, from its requests to the simulator.

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

/// An agent that is a command line for `sh -c`. One value plays all trials of a benchmark.
#[derive(Debug)]
pub(crate) struct ForeignAgent {
    pub(crate) command: String,
    /// For one trial; after it the process group gets SIGTERM, then SIGKILL.
    pub(crate) timeout: Duration,
    /// Names of variables that the program gets from our environment beside `PATH` and the like. Everything else is
    /// withheld, since our environment has keys.
    pub(crate) passed_variables: Vec<String>,
    /// Whether each run is replayed without some of its requests.
    pub(crate) replays: bool,
    /// The id of the benchmark, part of trace and session ids.
    pub(crate) bench: String,
    /// The running programs, for interrupts.
    pub(crate) programs: ProcessGroupRegistry,
    /// Whether a trial of this benchmark has ever sent a request to the simulator, which proves that the command
    /// exists.
    pub(crate) has_worked: AtomicBool,
}

/// Bytes of an answer that are kept; the rest is read and dropped, so that the program does not block on a full pipe.
const MAX_ANSWER: usize = 1 << 20;
/// Bytes of standard error that are kept, from its end, where the message of a crash is.
const MAX_COMPLAINT: usize = 2_000;
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long output is read after the program has ended, while a process that it left behind keeps the pipe open.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// Exit codes of a POSIX shell for a command that it may not execute, or that does not exist.
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

/// How a program ended, and its output.
struct ProgramExit {
    end: AgentRunEnd,
    /// Standard output; `None` if the program did not start or ran out of time.
    answer: Option<String>,
    /// The exit code of the shell; `None` after a signal or a timeout.
    code: Option<i32>,
}

impl ForeignAgent {
    /// Plays one trial: runs the program, reads spans and requests, verifies the result, and optionally replays it.
    /// Fails only for reasons that are none of the agent: a missing command, or a receiver that cannot start.
    async fn run_trial(&self, arena: &mut TrialEnvironment, job: &TrialJob<'_>) -> Result<FinishedTrial, BenchError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| BenchError::Agent(format!("{what}: {error}"));
        let task = job.task;
        let folder = tempfile::tempdir().map_err(|error| failed("a temporary folder", &error))?;
        let receiver =
            RunningServer::start_private(folder.path()).await.map_err(|error| BenchError::Agent(error.to_string()))?;
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
        // If the command has worked before, the 127 comes from something inside it, which is a failure of the agent.
        if let (AgentRunEnd::Failed(reason), false) = (&ended.end, self.has_worked.load(Ordering::Relaxed))
            && ended.code.is_some_and(|code| NOT_FOUND.contains(&code))
        {
            return Err(BenchError::Program(reason.clone()));
        }
        let own_id = |id| own_id(&self.bench, &task.id, job.trial, id);
        let (trajectories, otlp) =
            read_received_traces(folder.path(), &own_id).map_err(|error| failed("the spans it sent", &error))?;
        // A program may have several conversations (helper agents); the one with most steps is taken as the main one.
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
        // Without spans, each request to the simulator counts as a step.
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
        // The tools of the program are unknown, so rules that compare calls with schemas get no tools.
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

    /// Runs the program until it ends or its time is over. Standard input and GRADUS_REQUEST have the request, standard
    /// output is the answer.
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
            // `gh` and others prefer these variables. The user's own token must not reach a trial.
            .env("GH_TOKEN", &job.task.token)
            .env_remove("GITHUB_ENTERPRISE_TOKEN")
            .env_remove("GH_ENTERPRISE_TOKEN")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp)
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
            .env("PHOENIX_COLLECTOR_ENDPOINT", &otlp)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A process group of its own, so that processes which it starts can be killed with it.
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
        // Dropping this kills every process that the program has started and left behind.
        let group = self.programs.register(child.id());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let request = job.task.request.clone();
        let tell = async {
            if let Some(mut stdin) = stdin {
                // A program may close its standard input without reading it: the request is in its environment as well.
                let _ = stdin.write_all(request.as_bytes()).await;
            }
        };
        let mut answer = OutputCapture { text: Vec::new(), limit: MAX_ANSWER, keeps_end: false, is_cut: false };
        let mut complaint = OutputCapture { text: Vec::new(), limit: MAX_COMPLAINT, keeps_end: true, is_cut: false };
        let ended = {
            // Input and output must be moved while the program runs: it would block on a full pipe otherwise.
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
            // A process that it left behind may hold the pipe open, so reading to its end could take forever. The
            // output of the program itself has arrived within this time.
            if !is_said {
                let _ = tokio::time::timeout(AFTERWARDS, talk).await;
            }
            ended
        };
        drop(group);
        let _ = child.wait().await;
        let code = ended.as_ref().ok().and_then(|status| status.as_ref().ok()).and_then(ExitStatus::code);
        let (end, answer) = match ended {
            // A cut answer fails: checks and rules would judge a text that the agent did not write.
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

/// A NO_PROXY list with this machine added: simulator and receiver are on loopback, where a proxy cannot reach them.
fn without_proxy(given: Option<OsString>) -> OsString {
    let mut places = given.unwrap_or_default();
    if !places.is_empty() {
        places.push(",");
    }
    places.push("127.0.0.1,localhost");
    places
}

/// The beginning or the end of an output stream, up to a limit. The stream is read to its end in any case.
struct OutputCapture {
    text: Vec<u8>,
    /// In bytes.
    limit: usize,
    keeps_end: bool,
    is_cut: bool,
}

impl OutputCapture {
    /// Reads the stream to its end or to an error. Memory stays within the limit and one buffer.
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

/// A trace id that is unique among all trials of all benchmarks. Programs with a fixed random seed send the same ids in
/// every trial, and their traces would be merged.
fn own_id(bench: &str, task: &str, trial: u32, id: [u8; 16]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{bench}/{task}/{trial}/").as_bytes());
    hasher.update(&id);
    let mut own = [0; 16];
    hasher.finalize_xof().fill(&mut own);
    own
}

/// The contents of a receiver's store, as trajectories and as one OTLP export request. Each trace gets the id that
/// `own_id` gives it.
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

/// The trajectories in an OTLP export request.
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

/// The steps of a trajectory without their requests (`exchanges` is empty): spans and requests have no clock in common,
/// and a tool may send several requests or none.
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
