//! From arguments, environment and file to what a run needs. Everything that can be wrong is found here, before
//! anything is read or asked.

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
use gradus_eval::report::QualityGate;
use gradus_eval::rubric::RubricLibrary;
use gradus_eval::runner::RunLimits;
use gradus_eval::tool_file;

use super::super::sources::{ResolvedSources, StateLocations};
use super::arguments::EvalArguments;
use crate::cli::print_diagnostic;
use crate::config::{ConfigFile, EnvironmentVariables, PhoenixSection};

pub(super) struct EvalSettings {
    pub(super) sources: ResolvedSources,
    pub(super) evaluators: Vec<Evaluator>,
    pub(super) judge: Option<Arc<ModelJudge>>,
    /// Whether `offline` was chosen because nothing else could be.
    pub(super) offline_by_default: bool,
    pub(super) given_tools: Vec<ToolDefinition>,
    pub(super) tool_notes: BTreeMap<String, String>,
    pub(super) limits: RunLimits,
    pub(super) gates: Vec<QualityGate>,
    pub(super) state_dir: PathBuf,
    pub(super) phoenix: PhoenixSection,
}

impl EvalSettings {
    pub(super) fn read(arguments: &EvalArguments, more_metrics: &[&str]) -> Result<EvalSettings, String> {
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.grading.config.as_deref().or(environment.config.as_deref()))?;
        let config = arguments.grading.judge.judge_config(&file);
        let choice = config.select(&environment.judge_credentials()).map_err(|error| error.to_string())?;
        let judge = match &choice {
            JudgeChoice::Offline { .. } => None,
            JudgeChoice::Model(endpoint) => {
                let mut judge = config.model_judge(endpoint).map_err(|error| error.to_string())?;
                judge.client = judge.client.with_max_calls(arguments.grading.max_calls);
                Some(Arc::new(judge))
            }
        };
        if arguments.sample == Some(0) {
            return Err("--sample: give at least 1".to_owned());
        }
        let library = rubric_library(file.eval.rubrics.iter().chain(&arguments.grading.rubrics))
            .map_err(|error| error.to_string())?;
        let names = if arguments.grading.evaluators.is_empty() {
            file.eval.evaluators.clone().unwrap_or_default()
        } else {
            arguments.grading.evaluators.clone()
        };
        // Whoever gives a rubric on the command line wants it judged.
        let is_strict = !arguments.grading.rubrics.is_empty();
        let evaluators = select_evaluators(&library, &names, judge.as_deref(), !config.is_plain_text, is_strict)
            .map_err(|error| error.to_string())?;
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
        Ok(EvalSettings {
            sources,
            evaluators,
            offline_by_default: matches!(choice, JudgeChoice::Offline { by_default: true }),
            given_tools: tools
                .map(|path| tool_file::read_tools(path))
                .transpose()
                .map_err(|error| error.to_string())?
                .unwrap_or_default(),
            tool_notes: notes
                .map(|path| tool_file::read_notes(path))
                .transpose()
                .map_err(|error| error.to_string())?
                .unwrap_or_default(),
            limits: build_run_limits(
                arguments,
                judge.as_deref(),
                config.checked_concurrency().map_err(|error| error.to_string())?,
            )?,
            judge,
            gates,
            state_dir: state_dir.unwrap_or_else(|| PathBuf::from(".gradus")),
            phoenix: file.phoenix,
        })
    }

    pub(super) fn judge_name(&self) -> String {
        self.judge.as_ref().map_or_else(|| OFFLINE.to_owned(), |judge| judge.name())
    }

    pub(super) fn tool_texts(&self) -> ToolTexts {
        ToolTexts::new(self.given_tools.clone(), self.tool_notes.clone())
    }
}

/// A name for an evaluation that is not there is a slip.
fn check_names(phoenix: &PhoenixSection, library: &RubricLibrary) -> Result<(), String> {
    let known = known_evaluators(library);
    match phoenix.names.keys().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => {
            Err(format!("[phoenix.names] {unknown:?}: there is no such evaluation; there are {}", known.join(", ")))
        }
        None => Ok(()),
    }
}

fn parse_gates(
    arguments: &EvalArguments,
    file: &ConfigFile,
    evaluators: &[Evaluator],
    more_metrics: &[&str],
) -> Result<Vec<QualityGate>, String> {
    let names: Vec<&str> =
        evaluators.iter().map(|evaluator| &*evaluator.name).chain(more_metrics.iter().copied()).collect();
    let given =
        if arguments.grading.outputs.gate.is_empty() { &file.eval.gates } else { &arguments.grading.outputs.gate };
    given.iter().map(|text| QualityGate::parse(text, &names).map_err(|error| error.to_string())).collect()
}

fn build_run_limits(
    arguments: &EvalArguments,
    judge: Option<&ModelJudge>,
    concurrency: usize,
) -> Result<RunLimits, String> {
    if let Some(cost) = arguments.grading.max_cost {
        if !cost.is_finite() || cost < 0.0 {
            return Err("--max-cost: give an amount of dollars".to_owned());
        }
        if let Some(judge) = judge.filter(|judge| judge.price.is_none()) {
            let model = &judge.client.endpoint().model;
            return Err(format!(
                "--max-cost: the price of {model:?} is not known; give it with --prices FILE ([\"{model}\"] input = ..., output = ...)"
            ));
        }
    }
    let max_time = match arguments.grading.max_time {
        Some(time) => Some(timeout_from_seconds(time).ok_or("--max-time: give a number of seconds above 0")?),
        None => None,
    };
    Ok(RunLimits {
        concurrency,
        max_calls: arguments.grading.max_calls,
        max_cost_usd: arguments.grading.max_cost,
        max_time,
    })
}
