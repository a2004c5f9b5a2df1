//! From arguments, environment and file to the settings of a run. Every error in them is found here, before traces are
//! read or a model is asked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gradus_core::trajectory::ToolDefinition;
use gradus_eval::evaluator::{Evaluator, OFFLINE};
use gradus_eval::judge::ModelJudge;
use gradus_eval::judge_selection::{
    JudgeChoice, known_evaluators, rubric_library, select_evaluators, timeout_from_seconds,
};
use gradus_eval::prompt::ToolTexts;
use gradus_eval::report::{GateError, QualityGate};
use gradus_eval::rubric::RubricLibrary;
use gradus_eval::runner::RunLimits;
use gradus_eval::tool_file;

use super::super::destinations::DestinationError;
use super::super::outputs::OutputError;
use super::super::sources::{ResolvedSources, SourceOptionsError, StateLocations};
use super::arguments::EvalArguments;
use crate::cli::print_diagnostic;
use crate::config::{ConfigError, ConfigFile, EnvironmentVariables, PhoenixSection};

/// Why a run cannot begin: settings, outputs or destinations. Printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum EvalSettingsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No judge can be selected or set up: name, address, key, prices, limits.
    #[error("{reason}")]
    Judge { reason: String },
    /// A rubric cannot be read, or an evaluator does not exist.
    #[error("{reason}")]
    Evaluators { reason: String },
    #[error("--sample: give at least 1")]
    EmptySample,
    #[error("[phoenix.names] {name:?}: there is no such evaluation; there are {known}")]
    UnknownName { name: String, known: String },
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error(transparent)]
    Sources(#[from] SourceOptionsError),
    /// The file of `--tools` or `--tool-notes`.
    #[error("{reason}")]
    ToolFile { reason: String },
    #[error("--max-cost: give an amount of dollars")]
    MaxCost,
    /// Without a price, a limit on the cost could never be reached.
    #[error(
        "--max-cost: the price of {model:?} is not known; give it with --prices FILE ([\"{model}\"] input = ..., output = ...)"
    )]
    UnknownPrice { model: String },
    #[error("--max-time: give a number of seconds above 0")]
    MaxTime,
    #[error(transparent)]
    Outputs(#[from] OutputError),
    #[error(transparent)]
    Destinations(#[from] DestinationError),
}

/// The settings of a run, checked.
pub(super) struct EvalSettings {
    pub(super) sources: ResolvedSources,
    pub(super) evaluators: Vec<Evaluator>,
    /// `None` is the offline judge.
    pub(super) judge: Option<Arc<ModelJudge>>,
    /// Whether `offline` was chosen because no key and no endpoint is set; the user gets a notice.
    pub(super) offline_by_default: bool,
    pub(super) given_tools: Vec<ToolDefinition>,
    pub(super) tool_notes: BTreeMap<String, String>,
    pub(super) limits: RunLimits,
    pub(super) gates: Vec<QualityGate>,
    pub(super) state_dir: PathBuf,
    pub(super) phoenix: PhoenixSection,
}

impl EvalSettings {
    /// `more_metrics` are the metrics of the addition, which gates may name beside the evaluators.
    pub(super) fn read(arguments: &EvalArguments, more_metrics: &[&str]) -> Result<EvalSettings, EvalSettingsError> {
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.grading.config.as_deref().or(environment.config.as_deref()))?;
        let config = arguments.grading.judge.judge_config(&file);
        let choice = config
            .select(&environment.judge_credentials())
            .map_err(|error| EvalSettingsError::Judge { reason: error.to_string() })?;
        let judge = match &choice {
            JudgeChoice::Offline { .. } => None,
            JudgeChoice::Model(endpoint) => {
                let mut judge = config
                    .model_judge(endpoint)
                    .map_err(|error| EvalSettingsError::Judge { reason: error.to_string() })?;
                judge.client = judge.client.with_max_calls(arguments.grading.max_calls);
                Some(Arc::new(judge))
            }
        };
        if arguments.sample == Some(0) {
            return Err(EvalSettingsError::EmptySample);
        }
        let library = rubric_library(file.eval.rubrics.iter().chain(&arguments.grading.rubrics))
            .map_err(|error| EvalSettingsError::Evaluators { reason: error.to_string() })?;
        let names = if arguments.grading.evaluators.is_empty() {
            file.eval.evaluators.clone().unwrap_or_default()
        } else {
            arguments.grading.evaluators.clone()
        };
        // A rubric on the command line is meant to be judged: that the offline judge cannot is then an error.
        let is_strict = !arguments.grading.rubrics.is_empty();
        let evaluators = select_evaluators(&library, &names, judge.as_deref(), !config.is_plain_text, is_strict)
            .map_err(|error| EvalSettingsError::Evaluators { reason: error.to_string() })?;
        let left_out: Vec<&str> = library
            .iter()
            .map(|rubric| rubric.name.as_str())
            .filter(|name| names.is_empty() && !evaluators.iter().any(|known| *known.name == **name))
            .collect();
        if !left_out.is_empty() {
            print_diagnostic(&format!("left out, as the offline judge has no rules for it: {}", left_out.join(", ")));
        }
        let gates = parse_gates(arguments, &file, &evaluators, more_metrics)?;
        check_names(&file.phoenix, &library)?;
        let places = StateLocations {
            config: arguments.grading.config.as_deref(),
            state_dir: arguments.grading.state_dir.as_deref(),
            fresh: arguments.grading.fresh,
        };
        let sources = arguments.which.resolve(&arguments.sources, places)?;
        let tools = arguments.grading.tools.as_ref().or(file.eval.tools.as_ref());
        let notes = arguments.grading.tool_notes.as_ref().or(file.eval.tool_notes.as_ref());
        let state_dir =
            arguments.grading.state_dir.clone().or(environment.state_dir).or_else(|| file.state_dir.clone());
        let given_tools = tools
            .map(|path| tool_file::read_tools(path))
            .transpose()
            .map_err(|error| EvalSettingsError::ToolFile { reason: error.to_string() })?
            .unwrap_or_default();
        let tool_notes = notes
            .map(|path| tool_file::read_notes(path))
            .transpose()
            .map_err(|error| EvalSettingsError::ToolFile { reason: error.to_string() })?
            .unwrap_or_default();
        let concurrency =
            config.checked_concurrency().map_err(|error| EvalSettingsError::Judge { reason: error.to_string() })?;
        Ok(EvalSettings {
            sources,
            evaluators,
            offline_by_default: matches!(choice, JudgeChoice::Offline { by_default: true }),
            given_tools,
            tool_notes,
            limits: build_run_limits(arguments, judge.as_deref(), concurrency)?,
            judge,
            gates,
            state_dir: state_dir.unwrap_or_else(|| PathBuf::from(".gradus")),
            phoenix: file.phoenix,
        })
    }

    /// The judge as it is recorded with the run.
    pub(super) fn judge_name(&self) -> String {
        self.judge.as_ref().map_or_else(|| OFFLINE.to_owned(), |judge| judge.name())
    }

    /// Tool definitions and notes for prompts, which complete those in the traces.
    pub(super) fn tool_texts(&self) -> ToolTexts {
        ToolTexts::new(self.given_tools.clone(), self.tool_notes.clone())
    }
}

/// Refuses names of unknown evaluators in `[phoenix.names]`, which would silently have no effect.
fn check_names(phoenix: &PhoenixSection, library: &RubricLibrary) -> Result<(), EvalSettingsError> {
    let known = known_evaluators(library);
    match phoenix.names.keys().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => Err(EvalSettingsError::UnknownName { name: unknown.clone(), known: known.join(", ") }),
        None => Ok(()),
    }
}

/// The gates of the command line, else those of the file. A gate must name a metric that the run will have.
fn parse_gates(
    arguments: &EvalArguments,
    file: &ConfigFile,
    evaluators: &[Evaluator],
    more_metrics: &[&str],
) -> Result<Vec<QualityGate>, EvalSettingsError> {
    let names: Vec<&str> =
        evaluators.iter().map(|evaluator| &*evaluator.name).chain(more_metrics.iter().copied()).collect();
    let given =
        if arguments.grading.outputs.gate.is_empty() { &file.eval.gates } else { &arguments.grading.outputs.gate };
    given.iter().map(|text| QualityGate::parse(text, &names).map_err(EvalSettingsError::Gate)).collect()
}

/// The limits at which a run stops early: dollars, calls, time.
fn build_run_limits(
    arguments: &EvalArguments,
    judge: Option<&ModelJudge>,
    concurrency: usize,
) -> Result<RunLimits, EvalSettingsError> {
    if let Some(cost) = arguments.grading.max_cost {
        if !cost.is_finite() || cost < 0.0 {
            return Err(EvalSettingsError::MaxCost);
        }
        if let Some(judge) = judge.filter(|judge| judge.price.is_none()) {
            return Err(EvalSettingsError::UnknownPrice { model: judge.client.endpoint().model.clone() });
        }
    }
    let max_time = match arguments.grading.max_time {
        Some(time) => Some(timeout_from_seconds(time).ok_or(EvalSettingsError::MaxTime)?),
        None => None,
    };
    Ok(RunLimits {
        concurrency,
        max_calls: arguments.grading.max_calls,
        max_cost_usd: arguments.grading.max_cost,
        max_time,
    })
}
