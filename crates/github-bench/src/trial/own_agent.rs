//! Our own agent as a contestant, driven by a script or a model.

use std::time::Instant;

use gradus_llm::price::TokenPrice;

use super::endpoint::MonitoredModel;
use super::line::{ReplayLine, TrialLine, TrialUsage};
use super::{BenchError, FinishedTrial, TrialEnvironment, TrialJob, TrialRunner, assess_trial};
use crate::policy::{self, RunAssessment, RunTruth, ScriptedModel, ScriptedPolicy, TruthComparison};
use crate::record::TrialRecord;
use crate::replay::{self, StepNecessity};
use crate::rules::BudgetUsage;
use crate::suite::BenchTask;
use gradus_github_agent::agent::AgentRunEnd;
use gradus_github_agent::agent::{
    AgentDriver, AgentObserver, AgentRunRecorder, AgentRunSettings, AgentState, AgentStateMachine, AgentToolCall,
    CallApproval, CallConfirmer, ChatModel, ToolCallMode,
};
use gradus_github_agent::tools::{BoxFuture, ToolSet as _};
use gradus_github_agent::trace::{AgentTracer, TraceIdGenerator, TracerSettings};
use gradus_github_sim::{SimulatedFault, World};

/// What drives the agent. A model has a price if one is known.
pub enum TrialContestant<'c> {
    Policy(ScriptedPolicy),
    Model { model: &'c dyn ChatModel, price: Option<TokenPrice> },
}

impl std::fmt::Debug for TrialContestant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl TrialContestant<'_> {
    pub fn name(&self) -> &str {
        match self {
            TrialContestant::Policy(policy) => policy.name(),
            TrialContestant::Model { model, .. } => model.name(),
        }
    }
}

/// Runs jobs with the contestants that they name.
#[derive(Debug)]
pub struct OwnAgent<'a> {
    pub contestants: &'a [TrialContestant<'a>],
    /// Native tool calls or ReAct text. None: scripts alternate between both by round, models use native calls.
    pub form: Option<ToolCallMode>,
    /// Whether each run is replayed, which takes many times longer than the run.
    pub replays: bool,
    /// Project name in the traces.
    pub project: &'a str,
    /// [`super::TrialPlan::id`]. Part of session names and the seed of trace ids, so that ids are unique across
    /// benchmarks and the same when a trial is repeated.
    pub bench: &'a str,
}

impl TrialRunner for OwnAgent<'_> {
    fn run_trial_job<'p>(
        &'p self,
        environment: &'p mut TrialEnvironment,
        job: &'p TrialJob<'_>,
    ) -> BoxFuture<'p, Result<FinishedTrial, BenchError>> {
        Box::pin(async move {
            let contestant = self
                .contestants
                .get(job.contestant)
                .ok_or_else(|| BenchError::Agent("there is no such contestant".to_owned()))?;
            environment.prepare_tools(&job.task.token)?;
            match contestant {
                TrialContestant::Model { model, price } => {
                    let settings = build_run_settings(job, self.form.unwrap_or_default());
                    self.run(environment, job, *model, settings, *price, None).await
                }
                TrialContestant::Policy(policy) => {
                    let offered = find_offered_tools(environment, job)?;
                    let play = policy::build_scripted_run(*policy, job.task, job.world, offered, job.round)
                        .map_err(|error| BenchError::Agent(error.to_string()))?;
                    // Planted only for this trial: the world is replaced for the next one.
                    for fault in &play.faults {
                        environment.world().add_fault(fault.clone());
                    }
                    let by_turns = if job.round.is_multiple_of(2) { ToolCallMode::Native } else { ToolCallMode::Text };
                    let mut settings = build_run_settings(job, self.form.unwrap_or(by_turns));
                    // A script needs no context limit.
                    settings.context_tokens = usize::MAX >> 8;
                    let model = ScriptedModel::new(policy.name(), play.script);
                    self.run(environment, job, &model, settings, None, Some((play.truth, play.faults))).await
                }
            }
        })
    }
}

/// Returns the tools of the environment for the task's token.
fn find_offered_tools<'a>(
    environment: &'a TrialEnvironment,
    job: &TrialJob<'_>,
) -> Result<&'a [gradus_github_agent::tools::AgentTool], BenchError> {
    let tools = environment.known_tools(&job.task.token);
    Ok(tools.ok_or_else(|| BenchError::Agent("the tools are not there".to_owned()))?.tools())
}

/// Builds settings that allow three times the minimal calls, and 15 more for wrong turns.
fn build_run_settings(job: &TrialJob<'_>, form: ToolCallMode) -> AgentRunSettings {
    let most = u32::try_from(job.task.minimal_calls * 3 + 15).unwrap_or(u32::MAX);
    AgentRunSettings {
        form,
        max_steps: most,
        max_calls: most,
        confirm_destructive: job.task.charter.confirms,
        ..AgentRunSettings::default()
    }
}

/// Approves every call. The approval is recorded, and R22 checks that it was asked for.
struct ApprovingConfirmer;

impl CallConfirmer for ApprovingConfirmer {
    fn confirm<'c>(&'c self, _call: &'c AgentToolCall) -> BoxFuture<'c, CallApproval> {
        Box::pin(std::future::ready(CallApproval::Approved))
    }
}

impl OwnAgent<'_> {
    /// Runs one trial and assesses it. `planted` is the truth about a scripted run and its faults.
    async fn run(
        &self,
        environment: &TrialEnvironment,
        job: &TrialJob<'_>,
        model: &dyn ChatModel,
        settings: AgentRunSettings,
        price: Option<TokenPrice>,
        planted: Option<(RunTruth, Vec<SimulatedFault>)>,
    ) -> Result<FinishedTrial, BenchError> {
        let task = job.task;
        let name = self.contestants[job.contestant].name();
        let session = format!("{}/{}/{name}/{}", self.bench, task.id, job.trial);
        // After the faults were added, so that a replay starts from the same world.
        let seed = environment.world().clone();
        let before = seed.state().clone();
        let tools = environment
            .known_tools(&task.token)
            .ok_or_else(|| BenchError::Agent("the tools are not there".to_owned()))?;
        let traces = AgentTracer::new(&TracerSettings {
            service: "gradus bench",
            project: self.project,
            ids: TraceIdGenerator::from_seed(&session),
        });
        let mut spans = traces.observer();
        let mut recorder = AgentRunRecorder::new(|| environment.world().recorded_exchanges().len());
        let form = settings.form;
        let mut machine = AgentStateMachine::new(settings, tools, AgentState::new(&session, form));
        let begun = Instant::now();
        let watched = MonitoredModel::new(model);
        let mut driver = AgentDriver {
            model: &watched,
            tools,
            clock: environment,
            confirm: &ApprovingConfirmer,
            observers: vec![&mut recorder as &mut dyn AgentObserver, &mut spans],
            session_store: None,
        };
        let (end, _) = driver.run_request(&mut machine, &task.request).await?;
        drop(driver);
        // A failed run is no result if the endpoint is the cause.
        if let (AgentRunEnd::Failed(_), Some(failure)) = (end, watched.endpoint_failure()) {
            return Err(BenchError::Endpoint(failure));
        }
        let usage = machine.state().usage;
        let spending = TrialUsage {
            prompt_tokens: usage.prompt,
            completion_tokens: usage.completion,
            cached_prompt_tokens: usage.cached_prompt,
            cost_usd: price.map(|price| price.cost_of_usage(usage)),
            seconds: begun.elapsed().as_secs_f64(),
        };
        // Taken before the replay, which replaces the world.
        let (exchanges, after) = {
            let world = environment.world();
            (world.recorded_exchanges().to_vec(), world.state().clone())
        };
        let (truth, faults) = planted.unzip();
        let run = recorder.into_run();
        let record = TrialRecord {
            task: task.id.clone(),
            trial: job.trial,
            request: run.request,
            steps: run.steps,
            answer: run.answer,
            end: run.end,
            exchanges,
            agent: name.to_owned(),
            faults: faults.unwrap_or_default(),
            is_foreign: false,
        };
        let spent = BudgetUsage {
            tokens: Some(usage.prompt + usage.completion),
            seconds: Some(spending.seconds),
            cost_usd: spending.cost_usd,
        };
        let (verification, rules) = assess_trial(task, &record, &before, &after, tools.tools(), spent);
        let mut line = TrialLine::new(task, name, &session, &record, &verification, &rules, spending);
        if self.replays {
            line.replay = replay_in_environment(environment, task, &seed, &record).await;
        }
        if let Some(truth) = truth {
            let found = RunAssessment {
                steps: record.steps.len(),
                passed: line.passed,
                broken: &line.broken,
                needless: line.replay.as_ref().map(|replay| replay.needless.as_slice()),
                unknown: line.replay.as_ref().map_or(&[], |replay| replay.unknown.as_slice()),
            };
            TruthComparison { differences: line.differences, untold: line.untold } = truth.compare(&found);
            line.truth = Some(truth);
        }
        Ok(FinishedTrial { line, record, otlp: traces.take_otlp() })
    }
}

/// Replays a run in the environment of its trial. None if the environment has no tools for the task's token. The world
/// of the environment is replaced, so the state after the run must be taken before.
pub async fn replay_in_environment(
    environment: &TrialEnvironment,
    task: &BenchTask,
    seed: &World,
    record: &TrialRecord,
) -> Option<ReplayLine> {
    let tools = environment.known_tools(&task.token)?;
    let stage = replay::ReplayEnvironment { tools, world: environment.shared_world(), token: &task.token };
    let verify = |after: &gradus_github_sim::state::WorldState, record: &TrialRecord| {
        task.verify(seed.state(), after, record).into_checks()
    };
    let found = replay::replay_trial(seed, record, stage, &verify).await;
    Some(ReplayLine {
        needless: found.list_steps(StepNecessity::Unnecessary),
        unknown: found.list_steps(StepNecessity::Unknown),
        shortest: found.shortest.len(),
    })
}
