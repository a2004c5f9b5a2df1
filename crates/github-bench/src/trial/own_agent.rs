//! The agent of this crate as a player, with a script or a model that thinks for it.

use std::time::Instant;

use gradus_llm::price::Price;

use super::endpoint::Watched;
use super::line::{ReplayLine, Spending, TrialLine};
use super::{Arena, BenchError, Finished, Job, Player, assess};
use crate::policy::{self, Comparison, Found, Policy, Scripted, Truth};
use crate::record::RunRecord;
use crate::replay::{self, Need};
use crate::rules::Spent;
use crate::suite::Task;
use gradus_github_agent::agent::RunEnd;
use gradus_github_agent::agent::{
    Approval, Call, Confirm, Driver, Form, Machine, Model, Observer, Recorder, Settings, State,
};
use gradus_github_agent::tools::{BoxFuture, ToolBox as _};
use gradus_github_agent::trace::{Ids, Origin, Traces};
use gradus_github_sim::{Fault, World};

/// Who thinks.
pub enum Contestant<'c> {
    Policy(Policy),
    Model { model: &'c dyn Model, price: Option<Price> },
}

impl std::fmt::Debug for Contestant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Contestant<'_> {
    pub fn name(&self) -> &str {
        match self {
            Contestant::Policy(policy) => policy.name(),
            Contestant::Model { model, .. } => model.name(),
        }
    }
}

/// Plays jobs with the contestants that they name.
#[derive(Debug)]
pub struct OwnAgent<'a> {
    pub contestants: &'a [Contestant<'a>],
    /// How the model says what it wants. None: scripts say it in one form and the other by turns, models natively.
    pub form: Option<Form>,
    /// Whether each run is replayed without some of its steps.
    pub replays: bool,
    /// As traces call the project.
    pub project: &'a str,
    /// Which bench it is (`Plan::id`); in the names of sessions and in the ids of traces.
    pub bench: &'a str,
}

impl Player for OwnAgent<'_> {
    fn play<'p>(
        &'p self,
        arena: &'p mut Arena,
        job: &'p Job<'_>,
    ) -> BoxFuture<'p, Result<Finished, BenchError>> {
        Box::pin(async move {
            let contestant = self
                .contestants
                .get(job.contestant)
                .ok_or_else(|| BenchError::Agent("there is no such contestant".to_owned()))?;
            arena.tools(&job.task.token)?;
            match contestant {
                Contestant::Model { model, price } => {
                    let settings = settings(job, self.form.unwrap_or_default());
                    self.run(arena, job, *model, settings, *price, None).await
                }
                Contestant::Policy(policy) => {
                    let offered = offered(arena, job)?;
                    let play = policy::play(*policy, job.task, job.world, offered, job.round)
                        .map_err(|error| BenchError::Agent(error.to_string()))?;
                    for fault in &play.faults {
                        arena.world().add_fault(fault.clone());
                    }
                    let by_turns = if job.round.is_multiple_of(2) { Form::Native } else { Form::Text };
                    let mut settings = settings(job, self.form.unwrap_or(by_turns));
                    // A script needs no window.
                    settings.context_tokens = usize::MAX >> 8;
                    let model = Scripted::new(policy.name(), play.script);
                    self.run(arena, job, &model, settings, None, Some((play.truth, play.faults))).await
                }
            }
        })
    }
}

fn offered<'a>(
    arena: &'a Arena,
    job: &Job<'_>,
) -> Result<&'a [gradus_github_agent::tools::Tool], BenchError> {
    let tools = arena.known_tools(&job.task.token);
    Ok(tools.ok_or_else(|| BenchError::Agent("the tools are not there".to_owned()))?.tools())
}

/// Room for thrice the shortest way, and for a few wrong turns.
fn settings(job: &Job<'_>, form: Form) -> Settings {
    let most = u32::try_from(job.task.minimal_calls * 3 + 15).unwrap_or(u32::MAX);
    Settings {
        form,
        max_steps: most,
        max_calls: most,
        confirm_destructive: job.task.charter.confirms,
        ..Settings::default()
    }
}

/// Whoever is asked in a bench agrees: what was agreed to is in the record, and rules look at it.
struct Agrees;

impl Confirm for Agrees {
    fn confirm<'c>(&'c self, _call: &'c Call) -> BoxFuture<'c, Approval> {
        Box::pin(std::future::ready(Approval::Approved))
    }
}

impl OwnAgent<'_> {
    async fn run(
        &self,
        arena: &Arena,
        job: &Job<'_>,
        model: &dyn Model,
        settings: Settings,
        price: Option<Price>,
        planted: Option<(Truth, Vec<Fault>)>,
    ) -> Result<Finished, BenchError> {
        let task = job.task;
        let name = self.contestants[job.contestant].name();
        let session = format!("{}/{}/{name}/{}", self.bench, task.id, job.trial);
        let seed = arena.world().clone();
        let before = seed.state().clone();
        let tools = arena
            .known_tools(&task.token)
            .ok_or_else(|| BenchError::Agent("the tools are not there".to_owned()))?;
        let traces = Traces::new(&Origin {
            service: "gradus bench",
            project: self.project,
            ids: Ids::counted(&session),
        });
        let mut spans = traces.observer();
        let mut recorder = Recorder::new(|| arena.world().exchanges().len());
        let form = settings.form;
        let mut machine = Machine::new(settings, tools, State::new(&session, form));
        let begun = Instant::now();
        let watched = Watched::new(model);
        let mut driver = Driver {
            model: &watched,
            tools,
            clock: arena,
            confirm: &Agrees,
            observers: vec![&mut recorder as &mut dyn Observer, &mut spans],
            keeper: None,
        };
        let (end, _) = driver.request(&mut machine, &task.request).await?;
        drop(driver);
        if let (RunEnd::Failed(_), Some(failure)) = (end, watched.fault()) {
            return Err(BenchError::Endpoint(failure));
        }
        let usage = machine.state().usage;
        let spending = Spending {
            prompt_tokens: usage.prompt,
            completion_tokens: usage.completion,
            cached_prompt_tokens: usage.cached_prompt,
            cost_usd: price.map(|price| price.of(usage)),
            seconds: begun.elapsed().as_secs_f64(),
        };
        let (exchanges, after) = {
            let world = arena.world();
            (world.exchanges().to_vec(), world.state().clone())
        };
        let (truth, faults) = planted.unzip();
        let run = recorder.into_run();
        let record = RunRecord {
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
        let spent = Spent {
            tokens: Some(usage.prompt + usage.completion),
            seconds: Some(spending.seconds),
            cost_usd: spending.cost_usd,
        };
        let (verification, rules) = assess(task, &record, &before, &after, tools.tools(), spent);
        let mut line = TrialLine::new(task, name, &session, &record, &verification, &rules, spending);
        if self.replays {
            line.replay = replayed(arena, task, &seed, &record).await;
        }
        if let Some(truth) = truth {
            let found = Found {
                steps: record.steps.len(),
                passed: line.passed,
                broken: &line.broken,
                needless: line.replay.as_ref().map(|replay| replay.needless.as_slice()),
                unknown: line.replay.as_ref().map_or(&[], |replay| replay.unknown.as_slice()),
            };
            Comparison { differences: line.differences, untold: line.untold } = truth.compare(&found);
            line.truth = Some(truth);
        }
        Ok(Finished { line, record, otlp: traces.take_otlp() })
    }
}

/// Plays a run again without some of its steps, in the world in which it was played. None if the arena has no tools for
/// the task's token.
pub async fn replayed(arena: &Arena, task: &Task, seed: &World, record: &RunRecord) -> Option<ReplayLine> {
    let tools = arena.known_tools(&task.token)?;
    let stage = replay::Stage { tools, world: arena.shared_world(), token: &task.token };
    let verify = |after: &gradus_github_sim::state::State, record: &RunRecord| {
        task.verify(seed.state(), after, record).into_checks()
    };
    let found = replay::replay(seed, record, stage, &verify).await;
    Some(ReplayLine {
        needless: found.steps_that_are(Need::Unnecessary),
        unknown: found.steps_that_are(Need::Unknown),
        shortest: found.shortest.len(),
    })
}
