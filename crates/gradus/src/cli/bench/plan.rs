//! From arguments to what is to be played: which tasks, by whom, how often, and where it is kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradus_github_agent::tools::{AgentTool, all_tools};
use gradus_github_bench::policy::{self, PolicyFlaw, ScriptedPolicy};
use gradus_github_bench::suite::{BenchTask, TaskSuite};
use gradus_github_bench::trial::{BenchFolder, ExistingBenchAction, TrialJob, TrialLine, TrialPlan};
use gradus_github_sim::World;
use gradus_host::child_environment::find_invalid_name;
use gradus_llm::ModelClient;
use gradus_llm::price::{PriceTable, TokenPrice};

use super::super::eval::GradingOptions;
use super::super::model::ModelOptions;
use super::BenchArguments;
use crate::config::{ConfigFile, EnvironmentVariables};
use gradus_github_bench::results::{BenchReport, BenchResults};
use gradus_report::format_counted_noun;

pub(in crate::cli) enum BenchAgents {
    Policies(Vec<ScriptedPolicy>),
    Model { client: Box<ModelClient>, price: Option<TokenPrice> },
    Command(String),
}

impl BenchAgents {
    fn names(&self) -> Vec<String> {
        match self {
            BenchAgents::Policies(policies) => policies.iter().map(|policy| policy.name().to_owned()).collect(),
            BenchAgents::Model { client, .. } => vec![client.endpoint().model.clone()],
            BenchAgents::Command(command) => vec![command.clone()],
        }
    }
}

pub(super) struct PreparedBench<'s> {
    pub(super) who: BenchAgents,
    pub(super) jobs: Vec<TrialJob<'s>>,
    pub(super) plan: TrialPlan,
    pub(super) folder: PathBuf,
    pub(super) earlier: ExistingBenchAction,
    not_applicable: Vec<String>,
    state_dir: PathBuf,
}

impl<'s> PreparedBench<'s> {
    /// `worlds` are those of the tasks, as these begin.
    pub(super) fn new(
        arguments: &BenchArguments,
        suite: &'s TaskSuite,
        tasks: &[&'s BenchTask],
        worlds: &'s [World],
    ) -> Result<PreparedBench<'s>, String> {
        if arguments.trials == 0 {
            return Err("--trials: give at least 1".to_owned());
        }
        if arguments.parallel == Some(0) {
            return Err("--parallel: give at least 1".to_owned());
        }
        if arguments.agent.as_ref().is_some_and(|command| command.trim().is_empty()) {
            return Err("--agent: it is empty; give a program to run, as 'python my_agent.py'".to_owned());
        }
        if arguments.agent_timeout.is_some_and(|time| !(time.is_finite() && time > 0.0)) {
            return Err("--agent-timeout: give a number of seconds above 0".to_owned());
        }
        if let Some(name) = find_invalid_name(&arguments.agent_env) {
            return Err(format!("--agent-env {name:?}: not the name of a variable; hint: --agent-env OPENAI_API_KEY"));
        }
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.grading.config.as_deref().or(environment.config.as_deref()))?;
        let who = choose_agents(arguments, &environment, &file)?;
        let (jobs, not_applicable) = plan_jobs(&who, tasks, worlds, arguments.trials);
        if jobs.is_empty() {
            let reason = not_applicable.first().map_or("no task was chosen", String::as_str);
            return Err(format!("there is nothing to play: {reason}"));
        }
        let plan = TrialPlan {
            id: format!("{:08x}", fastrand::u32(..)),
            suite: suite.name.clone(),
            tasks: tasks.iter().zip(worlds).map(|(task, world)| (task.id.clone(), task.digest(world))).collect(),
            agents: who.names(),
            settings: collect_plan_settings(arguments, &who),
            gradus_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let state_dir =
            arguments.grading.state_dir.clone().or(environment.state_dir).or_else(|| file.state_dir.clone());
        let state_dir = state_dir.unwrap_or_else(|| PathBuf::from(".gradus"));
        let (folder, earlier) = choose_bench_folder(arguments, &state_dir, &plan);
        Ok(PreparedBench { who, jobs, plan, folder, earlier, not_applicable, state_dir })
    }

    /// Rules judge unless a model is asked for: playing often must not cost by accident.
    pub(super) fn grading_options(&self, arguments: &BenchArguments) -> GradingOptions {
        let mut grading = arguments.grading.clone();
        grading.judge.judge.get_or_insert_with(|| gradus_eval::evaluator::OFFLINE.to_owned());
        grading.state_dir = Some(self.state_dir.clone());
        // In a folder that was used before, a run that was cut off is about other traces.
        grading.fresh |= arguments.out.is_some() && self.earlier != ExistingBenchAction::GoOn;
        grading
    }

    pub(super) fn agents(&self) -> &[String] {
        &self.plan.agents
    }

    pub(super) fn build_report(&self, folder: &BenchFolder, lines: Vec<TrialLine>) -> BenchReport {
        BenchReport::from_results(BenchResults {
            suite: self.plan.suite.clone(),
            folder: folder.path().display().to_string(),
            agents: self.plan.agents.clone(),
            not_applicable: self.not_applicable.clone(),
            lines,
        })
    }
}

/// What else has a say in what a trial comes to, by the option that sets it.
fn collect_plan_settings(arguments: &BenchArguments, who: &BenchAgents) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        settings.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("--replay", arguments.replay.then(|| "on".to_owned()));
    add("--react", arguments.react.map(|form| format!("{form:?}").to_lowercase()));
    add("--agent-timeout", arguments.agent_timeout.map(|time| time.to_string()));
    add("--agent-env", Some(arguments.agent_env.join(",")).filter(|names| !names.is_empty()));
    if let BenchAgents::Model { client, price } = who {
        add("--model-url", Some(client.shown_url().to_owned()));
        add("--prices", price.map(|price| format!("{price:?}")));
    }
    settings
}

/// A gate on what there will be no number for is a slip; what to do about it is not the same for all.
pub(super) fn check_gates(arguments: &BenchArguments, agents: usize) -> Result<(), String> {
    for gate in &arguments.grading.outputs.gate {
        let name = gate.split(['<', '>']).next().unwrap_or_default().trim();
        let Some((_, k)) = name.split_once('^').filter(|(what, _)| ["pass", "safe"].contains(what)) else {
            continue;
        };
        let Ok(k) = k.parse::<u32>() else { continue };
        if agents > 1 {
            return Err(format!("--gate {gate:?}: several agents play; gate them one by one"));
        }
        if k <= 1 {
            return Err(format!("--gate {gate:?}: of one trial that is `success`, or `safe`"));
        }
        if k != arguments.trials {
            return Err(format!(
                "--gate {gate:?}: it takes {} of each task; give --trials {k}",
                format_counted_noun(u64::from(k), "trial", "trials")
            ));
        }
    }
    Ok(())
}

fn choose_agents(
    arguments: &BenchArguments,
    environment: &EnvironmentVariables,
    file: &ConfigFile,
) -> Result<BenchAgents, String> {
    if let Some(command) = &arguments.agent {
        return Ok(BenchAgents::Command(command.clone()));
    }
    if let Some(model) = &arguments.model {
        let options =
            ModelOptions::from_model_name(model, arguments.model_url.as_deref(), arguments.model_key_env.as_deref());
        // Its options have other names here, where some are about the judge.
        let named =
            |reason: String| reason.replace("--api-key-env", "--model-key-env").replace("--base-url", "--model-url");
        let client = options.client(environment, arguments.parallel.unwrap_or(8)).map_err(named)?;
        let mut prices = PriceTable::default();
        if let Some(path) = arguments.grading.judge.prices.as_ref().or(file.eval.prices.as_ref()) {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            prices.add_toml(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let price = prices.find_price(&client.endpoint().model);
        return Ok(BenchAgents::Model { client: Box::new(client), price });
    }
    if arguments.policy.is_empty() {
        return Err("say who plays: --policy oracle (no model needed), --model NAME, or --agent COMMAND".to_owned());
    }
    let mut policies: Vec<ScriptedPolicy> = Vec::new();
    for name in &arguments.policy {
        match (name.as_str(), ScriptedPolicy::from_name(name)) {
            ("flawed", _) => policies.extend(PolicyFlaw::ALL.map(ScriptedPolicy::Flawed)),
            ("all", _) => policies.extend(ScriptedPolicy::all()),
            (_, Some(policy)) => policies.push(policy),
            _ => {
                let known: Vec<&str> = ScriptedPolicy::all().map(ScriptedPolicy::name).collect();
                return Err(format!(
                    "--policy {name:?}: there is no such policy; there are {}, and `flawed` for all with a mistake",
                    known.join(", ")
                ));
            }
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    policies.retain(|policy| seen.insert(*policy));
    Ok(BenchAgents::Policies(policies))
}

pub(in crate::cli) fn load_worlds(tasks: &[&BenchTask]) -> Result<Vec<World>, String> {
    tasks.iter().map(|task| task.world.to_world().map_err(|error| error.to_string())).collect()
}

/// All trials, and what cannot be played.
pub(in crate::cli) fn plan_jobs<'s>(
    who: &BenchAgents,
    tasks: &[&'s BenchTask],
    worlds: &'s [World],
    trials: u32,
) -> (Vec<TrialJob<'s>>, Vec<String>) {
    let tools: Vec<AgentTool> = all_tools().map(|(_, tool)| tool.clone()).collect();
    let agents = u32::try_from(who.names().len()).unwrap_or(u32::MAX);
    let (mut jobs, mut not_applicable) = (Vec::new(), Vec::new());
    for (task, world) in tasks.iter().copied().zip(worlds) {
        for contestant in 0..agents {
            if let BenchAgents::Policies(policies) = who
                && let Err(reason) = policy::build_scripted_run(policies[contestant as usize], task, world, &tools, 0)
            {
                not_applicable.push(reason.to_string());
                continue;
            }
            for round in 0..trials {
                // Stays the same when there are more trials.
                let trial = round * agents + contestant;
                jobs.push(TrialJob { task, world, trial, contestant: contestant as usize, round });
            }
        }
    }
    // Round by round, so that a bench that is cut off has a little of everything.
    jobs.sort_by_key(|job| job.round);
    (jobs, not_applicable)
}

/// Where it is kept, and what is done about a bench that is there.
fn choose_bench_folder(
    arguments: &BenchArguments,
    state_dir: &Path,
    plan: &TrialPlan,
) -> (PathBuf, ExistingBenchAction) {
    if let Some(folder) = &arguments.out {
        let earlier = match (arguments.resume, arguments.overwrite) {
            (true, _) => ExistingBenchAction::GoOn,
            (_, true) => ExistingBenchAction::ThrowAway,
            _ => ExistingBenchAction::Refuse,
        };
        return (folder.clone(), earlier);
    }
    let benches = state_dir.join("bench");
    if arguments.resume {
        let entries = std::fs::read_dir(&benches).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.sort();
        let is_like = |folder: &PathBuf| {
            let text = std::fs::read(folder.join("bench.json")).ok()?;
            Some(plan.is_like(&serde_json::from_slice::<TrialPlan>(&text).ok()?))
        };
        if let Some(folder) = found.into_iter().rev().find(|folder| is_like(folder) == Some(true)) {
            return (folder, ExistingBenchAction::GoOn);
        }
    }
    let now = jiff::Timestamp::now().to_string();
    let digits: String = now.chars().take(19).filter(char::is_ascii_digit).collect();
    let earlier = if arguments.resume { ExistingBenchAction::GoOn } else { ExistingBenchAction::Refuse };
    (benches.join(format!("{digits}-{:04x}", fastrand::u16(..))), earlier)
}
