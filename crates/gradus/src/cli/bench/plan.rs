//! From arguments to the plan of a benchmark: tasks, agents, number of trials, and the folder. Errors in the arguments
//! are found here, before the first trial.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradus_github_agent::tools::{AgentTool, all_tools};
use gradus_github_bench::policy::{self, PolicyFlaw, ScriptedPolicy};
use gradus_github_bench::suite::{BenchTask, TaskSuite};
use gradus_github_bench::trial::{BenchFolder, ExistingBenchAction, TrialJob, TrialLine, TrialPlan};
use gradus_github_sim::{SeedError, World};
use gradus_host::child_environment::find_invalid_variable_name;
use gradus_llm::ModelClient;
use gradus_llm::price::{PriceError, PriceTable, TokenPrice};

use super::super::eval::{EvalSettingsError, GradingOptions};
use super::super::model::{ModelOptions, ModelOptionsError};
use super::BenchArguments;
use super::files::BenchOutputError;
use crate::config::{ConfigError, ConfigFile, EnvironmentVariables};
use gradus_github_bench::results::{BenchReport, BenchResults};
use gradus_report::format_counted_noun;

/// Why a benchmark cannot begin; printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum BenchPlanError {
    #[error("--trials: give at least 1")]
    NoTrials,
    #[error("--parallel: give at least 1")]
    NoParallelism,
    #[error("--agent: it is empty; give a program to run, as 'python my_agent.py'")]
    EmptyCommand,
    #[error("--agent-timeout: give a number of seconds above 0")]
    Timeout,
    #[error("--agent-env {name:?}: not the name of a variable; hint: --agent-env OPENAI_API_KEY")]
    VariableName { name: String },
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `reason` is the message of the source with the option names of `gradus bench`.
    #[error("{reason}")]
    Model { reason: String, source: ModelOptionsError },
    #[error("{}: {source}", path.display())]
    PricesUnreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Prices { path: PathBuf, source: PriceError },
    #[error("say who plays: --policy oracle (no model needed), --model NAME, or --agent COMMAND")]
    NoAgent,
    #[error("--policy {name:?}: there is no such policy; there are {known}, and `flawed` for all with a mistake")]
    UnknownPolicy { name: String, known: String },
    /// No task was selected, or the mistake of no policy is possible in the selected ones.
    #[error("there is nothing to play: {reason}")]
    NothingToPlay { reason: String },
    /// The initial state of a task cannot be built.
    #[error(transparent)]
    World(#[from] SeedError),
    #[error("--gate {gate:?}: several agents play; gate them one by one")]
    GateOnSeveralAgents { gate: String },
    #[error("--gate {gate:?}: of one trial that is `success`, or `safe`")]
    GateOnOneTrial { gate: String },
    #[error("--gate {gate:?}: it takes {} of each task; give --trials {k}", format_counted_noun(u64::from(*k), "trial", "trials"))]
    GateOnOtherTrials { gate: String, k: u32 },
    #[error(transparent)]
    Outputs(#[from] BenchOutputError),
    /// The settings of grading, which are those of `gradus eval`.
    #[error(transparent)]
    Grading(#[from] EvalSettingsError),
}

/// Who runs the tasks.
pub(in crate::cli) enum BenchAgents {
    Policies(Vec<ScriptedPolicy>),
    /// The agent of this program; without a price its trials have no cost.
    Model {
        client: Box<ModelClient>,
        price: Option<TokenPrice>,
    },
    /// A program of the user, as a command line for a shell.
    Command(String),
}

impl BenchAgents {
    /// Names in reports. Their order is the order of `TrialJob::contestant`.
    fn names(&self) -> Vec<String> {
        match self {
            BenchAgents::Policies(policies) => policies.iter().map(|policy| policy.name().to_owned()).collect(),
            BenchAgents::Model { client, .. } => vec![client.endpoint().model.clone()],
            BenchAgents::Command(command) => vec![command.clone()],
        }
    }
}

/// A benchmark that can begin. `'s` is the lifetime of the suite and the worlds.
pub(super) struct PreparedBench<'s> {
    pub(super) who: BenchAgents,
    /// All trials, including those that an earlier call has run.
    pub(super) jobs: Vec<TrialJob<'s>>,
    /// What is saved as `bench.json`, to recognise the benchmark when it is resumed.
    pub(super) plan: TrialPlan,
    pub(super) folder: PathBuf,
    /// What to do if the folder has a benchmark already.
    pub(super) earlier: ExistingBenchAction,
    /// Why a policy cannot run a task: its mistake is impossible there. Listed in the report.
    not_applicable: Vec<String>,
    state_dir: PathBuf,
}

impl<'s> PreparedBench<'s> {
    /// Checks the arguments and plans all trials. `worlds` are the initial states of `tasks`, in the same order.
    pub(super) fn new(
        arguments: &BenchArguments,
        suite: &'s TaskSuite,
        tasks: &[&'s BenchTask],
        worlds: &'s [World],
    ) -> Result<PreparedBench<'s>, BenchPlanError> {
        if arguments.trials == 0 {
            return Err(BenchPlanError::NoTrials);
        }
        if arguments.parallel == Some(0) {
            return Err(BenchPlanError::NoParallelism);
        }
        if arguments.agent.as_ref().is_some_and(|command| command.trim().is_empty()) {
            return Err(BenchPlanError::EmptyCommand);
        }
        if arguments.agent_timeout.is_some_and(|time| !(time.is_finite() && time > 0.0)) {
            return Err(BenchPlanError::Timeout);
        }
        if let Some(name) = find_invalid_variable_name(&arguments.agent_env) {
            return Err(BenchPlanError::VariableName { name: name.to_string() });
        }
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.grading.config.as_deref().or(environment.config.as_deref()))?;
        let who = choose_agents(arguments, &environment, &file)?;
        let (jobs, not_applicable) = plan_jobs(&who, tasks, worlds, arguments.trials);
        if jobs.is_empty() {
            let reason = not_applicable.first().map_or("no task was chosen", String::as_str).to_owned();
            return Err(BenchPlanError::NothingToPlay { reason });
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
        let state_dir = state_dir.unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR));
        let (folder, earlier) = choose_bench_folder(arguments, &state_dir, &plan);
        Ok(PreparedBench { who, jobs, plan, folder, earlier, not_applicable, state_dir })
    }

    /// Returns the options of grading. The judge is `offline` unless `--judge` names another, even if a key is set:
    /// hundreds of trials must not cost money by accident.
    pub(super) fn grading_options(&self, arguments: &BenchArguments) -> GradingOptions {
        let mut grading = arguments.grading.clone();
        grading.judge.judge_offline_by_default();
        grading.state_dir = Some(self.state_dir.clone());
        // The fingerprint of a run has the path of the traces and not their content. In a folder that was used before,
        // an unfinished run is about other traces and must not be resumed.
        grading.fresh |= arguments.out.is_some() && self.earlier != ExistingBenchAction::Resume;
        grading
    }

    /// Names of the agents, in the order of `TrialJob::contestant`.
    pub(super) fn agents(&self) -> &[String] {
        &self.plan.agents
    }

    /// Builds the report of these trials. It includes agents without a single trial.
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

/// Options that change the result of a trial, by name. They are part of the plan: a benchmark is resumed only with the
/// same ones, since trials under different settings must not be pooled.
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

/// Refuses gates on `pass^K` and `safe^K` that this benchmark will have no number for, with advice for each case. The
/// estimators need K trials of every task. Other gates are checked with the settings of grading.
pub(super) fn check_gates(arguments: &BenchArguments, agents: usize) -> Result<(), BenchPlanError> {
    for gate in &arguments.grading.outputs.gates.gate {
        let name = gate.split(['<', '>']).next().unwrap_or_default().trim();
        let Some((_, k)) = name.split_once('^').filter(|(what, _)| ["pass", "safe"].contains(what)) else {
            continue;
        };
        let Ok(k) = k.parse::<u32>() else { continue };
        if agents > 1 {
            return Err(BenchPlanError::GateOnSeveralAgents { gate: gate.clone() });
        }
        if k <= 1 {
            return Err(BenchPlanError::GateOnOneTrial { gate: gate.clone() });
        }
        if k != arguments.trials {
            return Err(BenchPlanError::GateOnOtherTrials { gate: gate.clone(), k });
        }
    }
    Ok(())
}

/// Chooses the agents of `--agent`, `--model` or `--policy`; clap allows only one of the options.
fn choose_agents(
    arguments: &BenchArguments,
    environment: &EnvironmentVariables,
    file: &ConfigFile,
) -> Result<BenchAgents, BenchPlanError> {
    if let Some(command) = &arguments.agent {
        return Ok(BenchAgents::Command(command.clone()));
    }
    if let Some(model) = &arguments.model {
        let options =
            ModelOptions::from_model_name(model, arguments.model_url.as_deref(), arguments.model_key_env.as_deref());
        // The options of the model have other names here, where `--base-url` is about the judge.
        let named = |source: ModelOptionsError| BenchPlanError::Model {
            reason: source.to_string().replace("--api-key-env", "--model-key-env").replace("--base-url", "--model-url"),
            source,
        };
        let client = options.client(environment, arguments.parallel.unwrap_or(8)).map_err(named)?;
        let mut prices = PriceTable::default();
        if let Some(path) = arguments.grading.judge.call.prices.as_ref().or(file.eval.prices.as_ref()) {
            let text = std::fs::read_to_string(path)
                .map_err(|source| BenchPlanError::PricesUnreadable { path: path.clone(), source })?;
            prices.add_toml(&text).map_err(|source| BenchPlanError::Prices { path: path.clone(), source })?;
        }
        let price = prices.find_price(&client.endpoint().model);
        return Ok(BenchAgents::Model { client: Box::new(client), price });
    }
    if arguments.policy.is_empty() {
        return Err(BenchPlanError::NoAgent);
    }
    let mut policies: Vec<ScriptedPolicy> = Vec::new();
    for name in &arguments.policy {
        match (name.as_str(), ScriptedPolicy::from_name(name)) {
            ("flawed", _) => policies.extend(PolicyFlaw::ALL.map(ScriptedPolicy::Flawed)),
            ("all", _) => policies.extend(ScriptedPolicy::all()),
            (_, Some(policy)) => policies.push(policy),
            _ => {
                let known: Vec<&str> = ScriptedPolicy::all().map(ScriptedPolicy::name).collect();
                return Err(BenchPlanError::UnknownPolicy { name: name.clone(), known: known.join(", ") });
            }
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    policies.retain(|policy| seen.insert(*policy));
    Ok(BenchAgents::Policies(policies))
}

/// Loads the initial states of the tasks, in the same order. Built once: every trial starts from a copy.
pub(in crate::cli) fn load_worlds(tasks: &[&BenchTask]) -> Result<Vec<World>, BenchPlanError> {
    tasks.iter().map(|task| task.world.to_world().map_err(BenchPlanError::World)).collect()
}

/// Plans all trials in the order in which they start. Returns also the reasons for pairs of policy and task that
/// cannot be run.
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
                // The number of a trial stays the same with a larger --trials, so that --resume can add trials.
                let trial = round * agents + contestant;
                jobs.push(TrialJob { task, world, trial, contestant: contestant as usize, round });
            }
        }
    }
    // Round by round, so that an interrupted benchmark has about as many trials of every task.
    jobs.sort_by_key(|job| job.round);
    (jobs, not_applicable)
}

/// Chooses the folder of the benchmark, and what to do if it has one already. `--resume` without `--out` takes the
/// latest benchmark with the same plan; names of folders begin with their time, so that they sort by it.
fn choose_bench_folder(
    arguments: &BenchArguments,
    state_dir: &Path,
    plan: &TrialPlan,
) -> (PathBuf, ExistingBenchAction) {
    if let Some(folder) = &arguments.out {
        let earlier = match (arguments.resume, arguments.overwrite) {
            (true, _) => ExistingBenchAction::Resume,
            (_, true) => ExistingBenchAction::Overwrite,
            _ => ExistingBenchAction::Refuse,
        };
        return (folder.clone(), earlier);
    }
    let benches = state_dir.join("bench");
    if arguments.resume {
        let entries = std::fs::read_dir(&benches).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.sort();
        let is_same_benchmark = |folder: &PathBuf| {
            let text = std::fs::read(folder.join("bench.json")).ok()?;
            Some(plan.is_same_benchmark(&serde_json::from_slice::<TrialPlan>(&text).ok()?))
        };
        if let Some(folder) = found.into_iter().rev().find(|folder| is_same_benchmark(folder) == Some(true)) {
            return (folder, ExistingBenchAction::Resume);
        }
    }
    let now = jiff::Timestamp::now().to_string();
    let digits: String = now.chars().take(19).filter(char::is_ascii_digit).collect();
    let earlier = if arguments.resume { ExistingBenchAction::Resume } else { ExistingBenchAction::Refuse };
    (benches.join(format!("{digits}-{:04x}", fastrand::u16(..))), earlier)
}
