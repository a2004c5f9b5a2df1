//! From arguments, environment and file to the settings of a run. Every error in them is found here, before traces are
//! read or a model is asked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gradus_core::trajectory::ToolDefinition;
use gradus_eval::evaluator::{Evaluator, OFFLINE_JUDGE};
use gradus_eval::evaluator_selection::{known_evaluators, rubric_library, select_evaluators};
use gradus_eval::judge_selection::timeout_from_seconds;
use gradus_eval::prompt::ToolTexts;
use gradus_eval::report::{GateError, GateVocabulary, QualityGate, TrialMetricNames};
use gradus_eval::rubric::RubricLibrary;
use gradus_eval::runner::{JudgePanel, RunLimits};
use gradus_eval::tool_file;
use gradus_llm::price::ModelPrices;

use super::super::destinations::DestinationError;
use super::super::outputs::OutputError;
use super::super::sources::{ResolvedSources, SourceOptionsError, StateLocations};
use super::arguments::EvalArguments;
use super::judges::{JudgePanelError, SelectedJudges};
use super::stop_early::StopEarlyError;
use crate::cli::baseline::CompareError;
use crate::cli::calibration_options::CalibrationOptionError;
use crate::cli::code_version::CodeVersion;
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
    #[error(transparent)]
    Judges(#[from] JudgePanelError),
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
    /// Without a price, a limit on the cost would have no effect.
    #[error(
        "--max-cost: the price of {model:?} is not known; give it with --prices FILE ([\"{model}\"] input = ..., output = ...)"
    )]
    UnknownPrice { model: String },
    #[error("--max-time: give a number of seconds above 0")]
    MaxTime,
    #[error(transparent)]
    Compare(#[from] CompareError),
    #[error(transparent)]
    StopEarly(#[from] StopEarlyError),
    #[error(transparent)]
    Calibration(#[from] CalibrationOptionError),
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
    pub(super) judge: Option<JudgePanel>,
    /// Whether `offline` was chosen because no key and no endpoint is set; the user gets a notice.
    pub(super) offline_by_default: bool,
    pub(super) given_tools: Vec<ToolDefinition>,
    pub(super) tool_notes: BTreeMap<String, String>,
    /// The user's prices, which reports need for the cost of the agent.
    pub(super) prices: ModelPrices,
    pub(super) limits: RunLimits,
    pub(super) gates: Vec<QualityGate>,
    /// The calibration of the settings file; the option wins.
    pub(super) calibration: Option<PathBuf>,
    pub(super) state_dir: PathBuf,
    pub(super) phoenix: PhoenixSection,
    pub(super) run_name: Option<String>,
    pub(super) run_tags: BTreeMap<String, String>,
    pub(super) code_version: CodeVersion,
}

impl EvalSettings {
    /// Reads and checks the settings. `trials` are the metrics of the addition, which gates may name in addition to
    /// the evaluators.
    pub(super) fn read(
        arguments: &EvalArguments,
        trials: Option<&TrialMetricNames>,
    ) -> Result<EvalSettings, EvalSettingsError> {
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.grading.config.as_deref().or(environment.config.as_deref()))?;
        let config = arguments.grading.judge.judge_config(&file);
        let SelectedJudges { panel: judge, is_offline_by_default } = SelectedJudges::select(
            &arguments.grading.judge,
            &file,
            &environment.judge_credentials(),
            arguments.grading.max_calls,
            arguments.seed,
        )?;
        let prices = config.read_prices().map_err(|error| EvalSettingsError::Judge { reason: error.to_string() })?;
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
        let first = judge.as_ref().and_then(|panel| panel.members().first());
        let mut selection =
            select_evaluators(&library, &names, first.map(|judge| &**judge), !config.is_plain_text, is_strict)
                .map_err(|error| EvalSettingsError::Evaluators { reason: error.to_string() })?;
        if let Some(panel) = &judge {
            selection.evaluators.iter_mut().filter(|evaluator| evaluator.asks_model()).for_each(|evaluator| {
                evaluator.judge = panel.name().into();
            });
        }
        if !selection.without_rules.is_empty() {
            let left_out = selection.without_rules.join(", ");
            print_diagnostic(&format!("left out, as the offline judge has no rules for it: {left_out}"));
        }
        let evaluators = if arguments.is_judged { selection.evaluators } else { Vec::new() };
        let gates = parse_gates(arguments, &file, &evaluators, trials)?;
        check_names(&file.phoenix, &library)?;
        let places = StateLocations {
            config: arguments.grading.config.as_deref(),
            state_dir: arguments.grading.state_dir.as_deref(),
            fresh: arguments.grading.fresh,
            ..StateLocations::default()
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
            offline_by_default: is_offline_by_default,
            given_tools,
            tool_notes,
            prices,
            limits: build_run_limits(arguments, judge.as_ref(), concurrency)?,
            judge,
            gates,
            calibration: file.eval.calibration,
            state_dir: state_dir.unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR)),
            phoenix: file.phoenix,
            run_name: arguments.grading.name.clone(),
            run_tags: arguments.grading.tag.iter().cloned().collect(),
            code_version: CodeVersion::detect(),
        })
    }

    /// Returns the judge as it is recorded with the run.
    pub(super) fn judge_name(&self) -> String {
        self.judge.as_ref().map_or_else(|| OFFLINE_JUDGE.to_owned(), JudgePanel::name)
    }

    /// Returns tool definitions and notes for prompts, which complete those in the traces.
    pub(super) fn tool_texts(&self) -> ToolTexts {
        ToolTexts::new(self.given_tools.clone(), self.tool_notes.clone())
    }
}

/// Refuses names of unknown evaluators in `[phoenix.names]`, which would silently have no effect.
fn check_names(phoenix: &PhoenixSection, library: &RubricLibrary) -> Result<(), EvalSettingsError> {
    let known = known_evaluators(library);
    match phoenix.names.keys().find(|name| !known.contains(name)) {
        Some(unknown) => Err(EvalSettingsError::UnknownName { name: unknown.clone(), known: known.join(", ") }),
        None => Ok(()),
    }
}

/// Parses the gates of the command line, else those of the file. A gate must name a metric that the run will have.
fn parse_gates(
    arguments: &EvalArguments,
    file: &ConfigFile,
    evaluators: &[Evaluator],
    trials: Option<&TrialMetricNames>,
) -> Result<Vec<QualityGate>, EvalSettingsError> {
    let vocabulary = GateVocabulary::new(evaluators.iter().map(Evaluator::to_record).collect(), trials.cloned());
    let given = if arguments.grading.outputs.gates.gate.is_empty() {
        &file.eval.gates
    } else {
        &arguments.grading.outputs.gates.gate
    };
    let given = if arguments.has_file_gates { given.as_slice() } else { &[] };
    given.iter().map(|text| QualityGate::parse(text, &vocabulary).map_err(EvalSettingsError::Gate)).collect()
}

/// Builds the limits at which a run stops early: dollars, calls, time.
fn build_run_limits(
    arguments: &EvalArguments,
    panel: Option<&JudgePanel>,
    concurrency: usize,
) -> Result<RunLimits, EvalSettingsError> {
    if let Some(cost) = arguments.grading.max_cost {
        if !cost.is_finite() || cost < 0.0 {
            return Err(EvalSettingsError::MaxCost);
        }
        if let Some(judge) = panel.and_then(|panel| panel.judges().find(|judge| judge.price.is_none())) {
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
