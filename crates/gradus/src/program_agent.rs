//! Programs of users as agents of a benchmark. Each trial has a simulator and an OTLP receiver of its own, whose
//! addresses the program gets in environment variables. The steps of a trial come from the spans that the program sent;
//! without spans, from its requests to the simulator.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use gradus_core::trajectory::Trajectory;
use gradus_github_agent::agent::{AgentRunEnd, RunStep};
use gradus_github_agent::tools::BoxFuture;
use gradus_github_bench::record::TrialRecord;
use gradus_github_bench::rules::BudgetUsage;
use gradus_github_bench::trial::{
    BenchError, FinishedTrial, TrialEnvironment, TrialJob, TrialLine, TrialRunner, TrialUsage, assess_trial,
    replay_in_environment,
};
use gradus_server::RunningServer;
use serde_json::Value;

use crate::program_runner::{ProgramInput, ProgramOutput, ProgramRunner};
use crate::received_traces::{read_received_traces, unique_trace_id};

/// An agent that is a program. One value runs all trials of a benchmark.
#[derive(Debug)]
pub(crate) struct ProgramAgent {
    pub(crate) program: ProgramRunner,
    /// Whether each run is replayed without some of its requests.
    pub(crate) replays: bool,
    /// The id of the benchmark, part of trace and session ids.
    pub(crate) bench: String,
    /// Whether a trial of this benchmark has ever sent a request to the simulator, which proves that the command
    /// exists.
    pub(crate) has_worked: AtomicBool,
}

impl TrialRunner for ProgramAgent {
    fn is_program(&self) -> bool {
        true
    }

    fn run_trial_job<'p>(
        &'p self,
        arena: &'p mut TrialEnvironment,
        job: &'p TrialJob<'_>,
    ) -> BoxFuture<'p, Result<FinishedTrial, BenchError>> {
        Box::pin(self.run_trial(arena, job))
    }
}

impl ProgramAgent {
    /// Runs one trial: runs the program, reads spans and requests, verifies the result, and optionally replays it.
    /// Fails only for reasons that the agent did not cause: a missing command, or a receiver that cannot start.
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
        let refused_exports = receiver.refused_request_count();
        receiver.stop().await;
        let (exchanges, after) = {
            let world = arena.world();
            (world.recorded_exchanges().to_vec(), world.state().clone())
        };
        if !exchanges.is_empty() {
            self.has_worked.store(true, Ordering::Relaxed);
        }
        // If the command has worked before, the 127 comes from something inside it, which is a failure of the agent.
        let failure = ended.end.failure();
        if let (Some(reason), false, true) =
            (&failure, self.has_worked.load(Ordering::Relaxed), ended.end.is_not_found())
        {
            return Err(BenchError::Program(reason.clone()));
        }
        let trial = format!("{}/{}/{}", self.bench, task.id, job.trial);
        let (trajectories, otlp) = read_received_traces(folder.path(), &|id| unique_trace_id(&trial, id))
            .map_err(|error| failed("the spans it sent", &error))?;
        // A program may have several conversations (helper agents); the one with most steps is taken as the main one.
        let trajectory = trajectories.into_iter().max_by_key(|one| one.steps.len());
        let record = TrialRecord {
            task: task.id.clone(),
            trial: job.trial,
            request: task.request.clone(),
            steps: trajectory.as_ref().map(steps_from_trajectory).unwrap_or_default(),
            answer: ended.answer,
            end: failure.map_or(AgentRunEnd::Answered, AgentRunEnd::Failed),
            exchanges,
            agent: self.program.command.clone(),
            faults: Vec::new(),
            is_foreign: true,
        };
        // Without spans, each request to the simulator counts as a step.
        let record = if record.steps.is_empty() { record.with_steps_by_request() } else { record };
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
        let session = session.flatten().unwrap_or(trial);
        let mut line = TrialLine::new(task, &self.program.command, &session, &record, &verification, &rules, spending);
        line.trajectory = trajectory;
        line.refused_exports = refused_exports;
        if self.replays {
            arena.prepare_tools(&task.token)?;
            line.replay = replay_in_environment(arena, task, &seed, &record).await;
        }
        Ok(FinishedTrial { line, record, otlp })
    }

    /// Runs the program with the request, the simulator's address and the receiver's.
    async fn run_program(&self, url: &str, receiver: &RunningServer, job: &TrialJob<'_>) -> ProgramOutput {
        let mut input = ProgramInput {
            stdin: job.task.request.clone(),
            variables: vec![
                ("GRADUS_REQUEST", (&job.task.request).into()),
                ("GRADUS_TASK", (&job.task.id).into()),
                ("GRADUS_TRIAL", job.trial.to_string().into()),
                ("GITHUB_API_URL", url.into()),
                ("GITHUB_TOKEN", (&job.task.token).into()),
                // `gh` and others prefer these variables. The user's own token must not reach a trial.
                ("GH_TOKEN", (&job.task.token).into()),
            ],
            removed_variables: &["GITHUB_ENTERPRISE_TOKEN", "GH_ENTERPRISE_TOKEN"],
        };
        input.add_collector(receiver);
        self.program.run(input).await
    }
}

/// Returns the steps of a trajectory without their requests (`exchanges` is empty): spans and requests have no common
/// clock, and a tool may send several requests or none.
fn steps_from_trajectory(trajectory: &Trajectory) -> Vec<RunStep> {
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
