//! From arguments to an experiment that can begin. Errors in the arguments are found here, before anything is run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use gradus_dataset::{DatasetError, DatasetItem, read_dataset};
use gradus_host::child_environment::find_invalid_variable_name;

use super::arguments::ExperimentArguments;
use super::experiment_plan::ExperimentPlan;
use super::folder::FolderChoice;
use super::http_agent::{AgentRequest, AgentRequestError};
use super::masked_text::MaskedText;
use crate::cli::eval::{EvalSettingsError, GradingOptions};
use crate::config::{ConfigError, ConfigFile, EnvironmentVariables};

/// Maximum time limit, about three years in seconds: `Duration::from_secs_f64` panics on values that do not fit.
const MAX_TRIAL_SECONDS: f64 = 1e8;

/// Why an experiment cannot begin; printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExperimentPlanError {
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error("no items: {tags}: no item of the dataset has such a tag; hint: `gradus dataset check` lists the tags")]
    NoItems { tags: String },
    #[error("option refused: {option}: give at least 1")]
    TooFew { option: &'static str },
    #[error("option refused: {option}: give a number of seconds above 0")]
    Seconds { option: &'static str },
    #[error("option refused: {option}: it is empty; hint: {option} 'python my_agent.py'")]
    EmptyCommand { option: &'static str },
    #[error("option refused: --pass-env {name:?}: not the name of a variable; hint: --pass-env OPENAI_API_KEY")]
    VariableName { name: String },
    #[error("option refused: --collector {text:?}: not an address and a port; hint: --collector 127.0.0.1:4318")]
    Collector { text: String },
    #[error(transparent)]
    Request(#[from] AgentRequestError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The settings of grading, which are those of `gradus eval`.
    #[error(transparent)]
    Grading(#[from] EvalSettingsError),
}

/// Who works on the items.
#[derive(Debug)]
pub(super) enum AgentChoice {
    Command(String),
    Http { request: Box<AgentRequest>, collector: SocketAddr, span_wait: Duration },
}

/// An experiment that can begin.
#[derive(Debug)]
pub(super) struct PreparedExperiment {
    pub(super) items: Vec<DatasetItem>,
    pub(super) agent: AgentChoice,
    pub(super) plan: ExperimentPlan,
    pub(super) timeout: Duration,
    pub(super) jobs: usize,
    pub(super) state_dir: PathBuf,
}

impl PreparedExperiment {
    pub(super) fn new(arguments: &ExperimentArguments) -> Result<PreparedExperiment, ExperimentPlanError> {
        if arguments.trials == 0 {
            return Err(ExperimentPlanError::TooFew { option: "--trials" });
        }
        if arguments.jobs == Some(0) {
            return Err(ExperimentPlanError::TooFew { option: "--jobs" });
        }
        let timeout = parse_seconds("--agent-timeout", arguments.agent_timeout)?;
        let span_wait = parse_seconds("--span-wait", arguments.span_wait.max(f64::MIN_POSITIVE))?;
        for (option, command) in
            [("--agent", &arguments.agent), ("--setup", &arguments.setup), ("--teardown", &arguments.teardown)]
        {
            if command.as_ref().is_some_and(|command| command.trim().is_empty()) {
                return Err(ExperimentPlanError::EmptyCommand { option });
            }
        }
        if let Some(name) = find_invalid_variable_name(&arguments.pass_env) {
            return Err(ExperimentPlanError::VariableName { name: name.to_owned() });
        }
        let mut items = read_dataset(&arguments.dataset)?;
        if !arguments.tags.is_empty() {
            items.retain(|item| item.tags.iter().any(|tag| arguments.tags.contains(tag)));
            if items.is_empty() {
                return Err(ExperimentPlanError::NoItems { tags: arguments.tags.join(", ") });
            }
        }
        let agent = match (&arguments.agent, &arguments.agent_url) {
            (Some(command), _) => AgentChoice::Command(command.clone()),
            (None, url) => {
                let collector = arguments
                    .collector
                    .parse()
                    .map_err(|_| ExperimentPlanError::Collector { text: arguments.collector.clone() })?;
                let url = url.as_deref().unwrap_or_default();
                let (template, path) = (arguments.body_template.as_deref(), arguments.answer_path.as_deref());
                let request = AgentRequest::parse(url, template, path)?;
                let request =
                    Box::new(request.with_headers(&arguments.agent_header, EnvironmentVariables::read_secret)?);
                AgentChoice::Http { request, collector, span_wait }
            }
        };
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.grading.config.as_deref().or(environment.config.as_deref()))?;
        let state_dir =
            arguments.grading.state_dir.clone().or(environment.state_dir).or_else(|| file.state_dir.clone());
        let agent_text = arguments.agent.as_deref().or(arguments.agent_url.as_deref()).unwrap_or_default();
        let MaskedText { text: agent_text, digest: agent_digest } = MaskedText::new(agent_text);
        let plan = ExperimentPlan {
            id: format!("{:08x}", fastrand::u32(..)),
            dataset: arguments.dataset.display().to_string(),
            agent: agent_text,
            agent_digest,
            settings: collect_settings(arguments),
            requests: items.iter().map(|item| (item.id.clone(), digest_request(item))).collect(),
            gradus_version: env!("CARGO_PKG_VERSION").to_owned(),
            is_finished: false,
        };
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(PreparedExperiment {
            items,
            agent,
            plan,
            timeout,
            jobs: arguments.jobs.unwrap_or(cores),
            state_dir: state_dir.unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR)),
        })
    }

    /// Chooses the folder: the given one, else that of an unfinished experiment like this one, else a new one.
    pub(super) fn choose_folder(&self, arguments: &ExperimentArguments) -> FolderChoice {
        FolderChoice::find(&self.state_dir, arguments.out.as_deref(), &self.plan, arguments.grading.fresh)
    }

    /// Returns the options of grading. The judge is `offline` unless `--judge` names another, even if a key is set:
    /// hundreds of trials must not cost money by accident.
    pub(super) fn grading_options(&self, arguments: &ExperimentArguments) -> GradingOptions {
        let mut grading = arguments.grading.clone();
        grading.judge.judge_offline_by_default();
        grading.state_dir = Some(self.state_dir.clone());
        grading
    }
}

fn parse_seconds(option: &'static str, seconds: f64) -> Result<Duration, ExperimentPlanError> {
    match seconds.is_finite() && seconds > 0.0 {
        true => Ok(Duration::from_secs_f64(seconds.min(MAX_TRIAL_SECONDS))),
        false => Err(ExperimentPlanError::Seconds { option }),
    }
}

fn collect_settings(arguments: &ExperimentArguments) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::from([("--agent-timeout".to_owned(), arguments.agent_timeout.to_string())]);
    let mut add = |name: &str, value: Option<String>| settings.extend(value.map(|value| (name.to_owned(), value)));
    add("--pass-env", Some(arguments.pass_env.join(",")).filter(|names| !names.is_empty()));
    let masked = |text: &Option<String>| text.as_deref().map(|text| MaskedText::new(text).into_setting());
    add("--body-template", masked(&arguments.body_template));
    add("--answer-path", arguments.answer_path.clone());
    add("--setup", masked(&arguments.setup));
    // Values come from the environment and are not stored.
    let names = arguments.agent_header.iter().filter_map(|header| Some(header.split_once(':')?.0.trim().to_owned()));
    let names: Vec<String> = names.collect();
    add("--agent-header", Some(names.join(",")).filter(|names| !names.is_empty()));
    settings
}

fn digest_request(item: &DatasetItem) -> String {
    let messages = serde_json::to_string(&item.request_messages()).unwrap_or_default();
    format!("{:032x}", gradus_core::stable_digest(messages.as_bytes()))
}
