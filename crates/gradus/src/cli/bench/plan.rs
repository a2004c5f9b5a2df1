//! From arguments to what is to be played: which tasks, by whom, how often, and where it is kept.

use std::path::{Path, PathBuf};

use gradus_github::bench::{BenchFolder, Job, Plan, TrialLine};
use gradus_github::policy::{self, Flaw, Policy};
use gradus_github::simulator::World;
use gradus_github::suite::{Suite, Task};
use gradus_github::tools::{Tool, all_tools};
use gradus_llm::Client;
use gradus_llm::price::{Price, PriceTable};

use super::super::eval::Grading;
use super::super::model::ModelOptions;
use super::Arguments;
use crate::bench::report::BenchReport;
use crate::config::{Environment, File};

pub(in crate::cli) enum Who {
    Policies(Vec<Policy>),
    Model { client: Box<Client>, price: Option<Price> },
    Command(String),
}

impl Who {
    fn names(&self) -> Vec<String> {
        match self {
            Who::Policies(policies) => policies.iter().map(|policy| policy.name().to_owned()).collect(),
            Who::Model { client, .. } => vec![client.endpoint().model.clone()],
            Who::Command(command) => vec![command.clone()],
        }
    }
}

pub(super) struct Planned<'s> {
    pub(super) who: Who,
    pub(super) jobs: Vec<Job<'s>>,
    pub(super) plan: Plan,
    pub(super) folder: PathBuf,
    pub(super) goes_on: bool,
    not_applicable: Vec<String>,
    state_dir: PathBuf,
}

impl<'s> Planned<'s> {
    /// `worlds` are those of the tasks, as these begin.
    pub(super) fn new(
        arguments: &Arguments,
        suite: &'s Suite,
        tasks: &[&'s Task],
        worlds: &'s [World],
    ) -> Result<Planned<'s>, String> {
        if arguments.trials == 0 {
            return Err("--trials: give at least 1".to_owned());
        }
        if !(arguments.agent_timeout.is_finite() && arguments.agent_timeout > 0.0) {
            return Err("--agent-timeout: give a number of seconds above 0".to_owned());
        }
        let environment = Environment::read();
        let file = File::read(arguments.grading.config.as_deref().or(environment.config.as_deref()))?;
        let who = who(arguments, &environment, &file)?;
        let (jobs, not_applicable) = jobs(&who, tasks, worlds, arguments.trials);
        if jobs.is_empty() {
            let reason = not_applicable.first().map_or("no task was chosen", String::as_str);
            return Err(format!("there is nothing to play: {reason}"));
        }
        let mut digest = String::new();
        for task in tasks {
            digest.push_str(&format!("{} {:?} {}\n", task.id, task.oracle, task.request));
        }
        let plan = Plan {
            suite: suite.name.clone(),
            tasks: format!("{:032x}", gradus_core::digest(digest.as_bytes())),
            agents: who.names(),
            gradus_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let state_dir =
            arguments.grading.state_dir.clone().or(environment.state_dir).or_else(|| file.state_dir.clone());
        let state_dir = state_dir.unwrap_or_else(|| PathBuf::from(".gradus"));
        let (folder, goes_on) = place(arguments, &state_dir, &plan);
        Ok(Planned { who, jobs, plan, folder, goes_on, not_applicable, state_dir })
    }

    /// Rules judge unless a model is asked for: playing often must not cost by accident.
    pub(super) fn grading(&self, arguments: &Arguments) -> Grading {
        let mut grading = arguments.grading.clone();
        grading.judge.judge.get_or_insert_with(|| gradus_eval::evaluator::OFFLINE.to_owned());
        grading.state_dir = Some(self.state_dir.clone());
        // In a folder that was used before, a run that was cut off is about other traces.
        grading.fresh |= arguments.out.is_some() && !self.goes_on;
        grading
    }

    pub(super) fn report(&self, folder: &BenchFolder, lines: Vec<TrialLine>) -> BenchReport {
        let path = folder.path().display().to_string();
        let mut report = BenchReport::of(&self.plan.suite, &path, &self.who.names(), lines);
        report.not_applicable.clone_from(&self.not_applicable);
        report
    }
}

fn who(arguments: &Arguments, environment: &Environment, file: &File) -> Result<Who, String> {
    if let Some(command) = &arguments.agent {
        return Ok(Who::Command(command.clone()));
    }
    if let Some(model) = &arguments.model {
        let options =
            ModelOptions::named(model, arguments.model_url.as_deref(), arguments.model_key_env.as_deref());
        let client = options.client(environment, arguments.parallel.unwrap_or(8))?;
        let mut prices = PriceTable::default();
        if let Some(path) = arguments.grading.judge.prices.as_ref().or(file.eval.prices.as_ref()) {
            let text =
                std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            prices.add(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let price = prices.find(&client.endpoint().model);
        return Ok(Who::Model { client: Box::new(client), price });
    }
    if arguments.policy.is_empty() {
        return Err(
            "say who plays: --policy oracle (no model needed), --model NAME, or --agent COMMAND".to_owned()
        );
    }
    let mut policies: Vec<Policy> = Vec::new();
    for name in &arguments.policy {
        match (name.as_str(), Policy::from_name(name)) {
            ("flawed", _) => policies.extend(Flaw::ALL.map(Policy::Flawed)),
            ("all", _) => policies.extend(Policy::all()),
            (_, Some(policy)) => policies.push(policy),
            _ => {
                let known: Vec<&str> = Policy::all().map(Policy::name).collect();
                return Err(format!(
                    "--policy {name:?}: there is no such policy; there are {}, and `flawed` for all with a mistake",
                    known.join(", ")
                ));
            }
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    policies.retain(|policy| seen.insert(*policy));
    Ok(Who::Policies(policies))
}

pub(in crate::cli) fn worlds(tasks: &[&Task]) -> Result<Vec<World>, String> {
    tasks.iter().map(|task| task.world.world().map_err(|error| error.to_string())).collect()
}

/// All trials, and what cannot be played.
pub(in crate::cli) fn jobs<'s>(
    who: &Who,
    tasks: &[&'s Task],
    worlds: &'s [World],
    trials: u32,
) -> (Vec<Job<'s>>, Vec<String>) {
    let tools: Vec<Tool> = all_tools().map(|(_, tool)| tool.clone()).collect();
    let agents = u32::try_from(who.names().len()).unwrap_or(u32::MAX);
    let (mut jobs, mut not_applicable) = (Vec::new(), Vec::new());
    for (task, world) in tasks.iter().copied().zip(worlds) {
        for contestant in 0..agents {
            if let Who::Policies(policies) = who
                && let Err(reason) = policy::play(policies[contestant as usize], task, world, &tools, 0)
            {
                not_applicable.push(reason.to_string());
                continue;
            }
            for round in 0..trials {
                // Stays the same when there are more trials.
                let trial = round * agents + contestant;
                jobs.push(Job { task, world, trial, contestant: contestant as usize, round });
            }
        }
    }
    // Round by round, so that a bench that is cut off has a little of everything.
    jobs.sort_by_key(|job| job.round);
    (jobs, not_applicable)
}

/// Where it is kept, and whether something is there to go on with.
fn place(arguments: &Arguments, state_dir: &Path, plan: &Plan) -> (PathBuf, bool) {
    if let Some(folder) = &arguments.out {
        return (folder.clone(), arguments.resume);
    }
    let benches = state_dir.join("bench");
    if arguments.resume {
        let entries = std::fs::read_dir(&benches).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.sort();
        let is_same = |folder: &PathBuf| {
            let text = std::fs::read(folder.join("bench.json")).ok()?;
            Some(serde_json::from_slice::<Plan>(&text).ok()? == *plan)
        };
        if let Some(folder) = found.into_iter().rev().find(|folder| is_same(folder) == Some(true)) {
            return (folder, true);
        }
    }
    let now = jiff::Timestamp::now().to_string();
    let digits: String = now.chars().take(19).filter(char::is_ascii_digit).collect();
    (benches.join(format!("{digits}-{:04x}", fastrand::u16(..))), false)
}
