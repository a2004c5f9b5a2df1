//! What is exported: trajectories of runs with their verdicts, or of sources without.

use std::collections::BTreeMap;
use std::path::Path;

use gradus_core::trajectory::{RecordedAnnotation, Trajectory, TrajectoryStep};
use gradus_eval::calibration::{CalibrationFile, JudgeCalibration, read_run_calibration};
use gradus_eval::evaluator::{OFFLINE_JUDGE, RULES_JUDGE, SIMULATOR_JUDGE};
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::report::RunReader;
use gradus_eval::run::{RunFileError, RunFolder, StateFolder};
use gradus_export::{GradedRun, GradedRuns, RunVerdict, VerdictSource};
use gradus_github_bench::results::BenchReport;

use super::super::CommandExit;
use super::super::run_lookup::{RunNameError, find_run, find_run_id, resolve_state_dir};
use super::super::sources::{SourceOptions, StateLocations, print_diagnostic};
use super::ExportArguments;
use crate::config::{ConfigFile, EnvironmentVariables};

/// Why nothing can be exported.
pub(super) enum ExportInputError {
    /// An error of the user's input, as it is printed.
    Rejected(String),
    Unexpected(anyhow::Error),
}

impl From<RunFileError> for ExportInputError {
    fn from(error: RunFileError) -> Self {
        ExportInputError::Unexpected(error.into())
    }
}

/// The trajectories to export, and where they come from.
pub(super) struct GradedInput {
    pub(super) runs: GradedRuns,
    pub(super) sources: Vec<String>,
    pub(super) run_id: Option<String>,
    pub(super) verdict_sources: Vec<VerdictSource>,
    /// Set if a source could not be read; the others are exported.
    pub(super) failed_exit: Option<CommandExit>,
}

impl GradedInput {
    pub(super) fn load(arguments: &ExportArguments) -> Result<GradedInput, ExportInputError> {
        let rejected = |message: String| ExportInputError::Rejected(message);
        if arguments.min_precision.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err(rejected("--min-precision: expected a share between 0 and 1".to_owned()));
        }
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.config.as_deref().or(environment.config.as_deref()))
            .map_err(|error| rejected(error.to_string()))?;
        let state_dir = resolve_state_dir(arguments.state_dir.as_ref(), &environment, &file);
        if arguments.inputs.is_empty() {
            let latest = find_run(state_dir, None).map_err(|error| rejected(error.to_string()))?;
            return load_runs(arguments, vec![latest]);
        }
        let state = StateFolder::from_path(&state_dir);
        let mut folders = Vec::new();
        for name in &arguments.inputs {
            if is_source(name) {
                if find_run_id(&state, name).is_ok() {
                    print_diagnostic(&format!(
                        "{name}: exporting the file or folder; the run of this name is run:{name}"
                    ));
                }
                continue;
            }
            let run = name.strip_prefix(RUN_PREFIX).unwrap_or(name);
            let id = find_run_id(&state, run).map_err(|error| rejected(describe_run_name_error(name, error)))?;
            folders.push(state.read_run(&id)?);
        }
        match folders.len() {
            0 => load_sources(arguments),
            count if count == arguments.inputs.len() => load_runs(arguments, folders),
            _ => Err(rejected(
                "runs and sources cannot be exported together; name only runs, or only sources".to_owned(),
            )),
        }
    }

    pub(super) fn has_verdicts(&self) -> bool {
        self.runs.iter().any(|run| !run.verdicts.is_empty())
    }
}

/// In front of the name of a run that is also the name of a file.
const RUN_PREFIX: &str = "run:";

/// Whether a name is one of a source rather than of a run.
fn is_source(name: &str) -> bool {
    !name.starts_with(RUN_PREFIX)
        && (name == "-" || name.contains("://") || name.starts_with("store:") || Path::new(name).exists())
}

fn describe_run_name_error(name: &str, error: RunNameError) -> String {
    match error {
        RunNameError::NotFound => format!("{name}: no such file, source or run; `gradus runs` lists the runs"),
        RunNameError::Ambiguous { count } => format!("{count} runs begin with {name:?}; give more of the id"),
    }
}

fn load_sources(arguments: &ExportArguments) -> Result<GradedInput, ExportInputError> {
    let places = StateLocations {
        config: arguments.config.as_deref(),
        state_dir: arguments.state_dir.as_deref(),
        ..StateLocations::default()
    };
    let sources = arguments.which.resolve(&arguments.inputs, places);
    let sources = sources.map_err(|error| ExportInputError::Rejected(error.to_string()))?;
    let mut runs = Vec::new();
    let report = sources.read(&mut |_, trajectory| {
        runs.push(GradedRun { trajectory, verdicts: Vec::new() });
        Ok(())
    });
    let report = report.map_err(ExportInputError::Unexpected)?;
    let failed_exit = Some(report.command_exit(runs.len())).filter(|exit| *exit != CommandExit::Pass);
    Ok(GradedInput {
        runs: GradedRuns::new(runs),
        sources: sources.names(),
        run_id: None,
        verdict_sources: Vec::new(),
        failed_exit,
    })
}

/// Loads the trajectories of runs with their verdicts. A run stores only the beginning of long results and no tools,
/// so the trajectories are read from the sources again.
fn load_runs(arguments: &ExportArguments, folders: Vec<RunFolder>) -> Result<GradedInput, ExportInputError> {
    if arguments.which != SourceOptions::default() {
        let message = "options about which traces are for sources; a run has the traces that it was made of";
        return Err(ExportInputError::Rejected(message.to_owned()));
    }
    let mut input = GradedInput {
        runs: GradedRuns::default(),
        sources: Vec::new(),
        run_id: None,
        verdict_sources: Vec::new(),
        failed_exit: None,
    };
    let (mut runs, mut ids) = (Vec::new(), Vec::new());
    let mut used = UsedVerdicts::new();
    for folder in folders {
        let mut reader = RunReader::open(&folder)?;
        check_evaluators(arguments, &reader)?;
        let mut judged = load_judged(arguments, &mut reader, &mut used)?;
        let mut found = reload_full_trajectories(arguments, &folder, &mut judged)?;
        if !judged.is_empty() {
            print_diagnostic(&format!(
                "run {}: left out {} trajectories: their sources are gone or have changed, and the run keeps only the \
                 beginning of long results",
                folder.record.run_id,
                judged.len()
            ));
        }
        if let Some(bench) =
            BenchReport::load_from_run(folder.path()).map_err(|error| ExportInputError::Rejected(error.to_string()))?
        {
            found.iter_mut().for_each(|run| replace_with_truth(run, &bench, &mut used));
        }
        runs.append(&mut found);
        input.sources.extend(folder.record.sources.iter().cloned());
        ids.push(folder.record.run_id.clone());
    }
    input.runs = GradedRuns::new(runs);
    input.run_id = Some(ids.join(","));
    // The truth of a benchmark replaces verdicts.
    let is_used = |source: &VerdictSource| {
        let mut verdicts = input.runs.iter().flat_map(|run| &run.verdicts);
        verdicts.any(|verdict| verdict.evaluator == source.evaluator && verdict.judge == source.judge)
    };
    input.verdict_sources = used.into_values().filter(is_used).collect();
    Ok(input)
}

/// By evaluator, judge and rubric.
type UsedVerdicts = BTreeMap<(String, String, String), VerdictSource>;

/// Loads the trajectories of a run as it stores them, by id, in the order of their ids.
fn load_judged(
    arguments: &ExportArguments,
    reader: &mut RunReader,
    used: &mut UsedVerdicts,
) -> Result<BTreeMap<String, GradedRun>, ExportInputError> {
    let trust = LabelTrust::load(arguments, reader)?;
    let mut judged = BTreeMap::new();
    reader.visit_trajectories(|trajectory, outcomes| {
        let mut verdicts = Vec::new();
        for outcome in outcomes.iter().filter(|outcome| is_selected_outcome(arguments, outcome)) {
            let calibration = trust.find_calibration(outcome);
            if !trust.meets_precision_bar(outcome, calibration, arguments.min_precision) {
                continue;
            }
            let key = (outcome.evaluator.to_string(), outcome.judge.to_string(), outcome.rubric_hash.to_string());
            used.entry(key).or_insert_with(|| verdict_source(outcome, calibration));
            verdicts.push(run_verdict(arguments, outcome));
        }
        let run = GradedRun { trajectory: trajectory.clone(), verdicts };
        judged.insert(trajectory.trajectory_id.clone(), run);
        Ok::<(), RunFileError>(())
    })?;
    Ok(judged)
}

/// Takes from `judged` the trajectories that the sources of the run still have unchanged, in full.
fn reload_full_trajectories(
    arguments: &ExportArguments,
    folder: &RunFolder,
    judged: &mut BTreeMap<String, GradedRun>,
) -> Result<Vec<GradedRun>, ExportInputError> {
    let places = StateLocations {
        config: arguments.config.as_deref(),
        state_dir: arguments.state_dir.as_deref(),
        ..StateLocations::default()
    };
    let is_there = |source: &&String| source.contains(':') || Path::new(source.as_str()).exists();
    let names: Vec<String> = folder.record.sources.iter().filter(is_there).cloned().collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let sources = SourceOptions::default().resolve(&names, places);
    let sources = sources.map_err(|error| ExportInputError::Rejected(error.to_string()))?;
    let mut found = Vec::new();
    let read = sources.read(&mut |_, trajectory| {
        let is_same =
            judged.get(&trajectory.trajectory_id).is_some_and(|run| has_same_steps(&run.trajectory, &trajectory));
        if is_same && let Some(run) = judged.remove(&trajectory.trajectory_id) {
            found.push(GradedRun { trajectory, ..run });
        }
        Ok(())
    });
    read.map_err(ExportInputError::Unexpected)?;
    Ok(found)
}

/// Whether the verdicts on one are about the steps of the other.
fn has_same_steps(judged: &Trajectory, read: &Trajectory) -> bool {
    let steps = |one: &Trajectory| {
        one.steps.iter().map(|step| (step.index, step.tool.clone(), step.arguments.clone())).collect::<Vec<_>>()
    };
    steps(judged) == steps(read)
}

/// Replaces the verdicts on a trial of the benchmark by what is known about it for certain.
fn replace_with_truth(run: &mut GradedRun, bench: &BenchReport, used: &mut UsedVerdicts) {
    let Some(truth) = bench.trial_truth(&run.trajectory) else { return };
    run.trajectory.annotations.push(RecordedAnnotation {
        name: "success".to_owned(),
        score: Some(f64::from(u8::from(truth.passed))),
        annotator: Some("code".to_owned()),
        ..RecordedAnnotation::default()
    });
    if truth.steps.is_empty() {
        return;
    }
    let source = VerdictSource {
        evaluator: TRUTH.to_owned(),
        judge: SIMULATOR_JUDGE.to_owned(),
        expected_noise_of_good: Some(0.0),
        expected_noise_of_bad: Some(0.0),
        ..VerdictSource::default()
    };
    used.insert((TRUTH.to_owned(), SIMULATOR_JUDGE.to_owned(), String::new()), source);
    let verdict = |(step, (is_right, note)): (&TrajectoryStep, (bool, String))| RunVerdict {
        evaluator: TRUTH.to_owned(),
        step_index: Some(step.index),
        label: if is_right { "right" } else { "wrong" }.to_owned(),
        score: Some(f64::from(u8::from(is_right))),
        explanation: (!note.is_empty()).then_some(note),
        judge: SIMULATOR_JUDGE.to_owned(),
        rubric_hash: String::new(),
        can_confirm: true,
    };
    run.verdicts = run.trajectory.steps.iter().zip(truth.steps).map(verdict).collect();
}

/// The name of what the benchmark knows for certain.
const TRUTH: &str = "truth";

fn check_evaluators(arguments: &ExportArguments, reader: &RunReader) -> Result<(), ExportInputError> {
    let known: Vec<&str> = reader.record.evaluators.iter().map(|one| one.name.as_str()).collect();
    match arguments.evaluators.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(ExportInputError::Rejected(format!(
            "--evaluators: run {} has no {name:?}; it has {}",
            reader.record.run_id,
            known.join(", ")
        ))),
        None => Ok(()),
    }
}

fn is_selected_outcome(arguments: &ExportArguments, outcome: &OutcomeLine) -> bool {
    outcome.outcome == OutcomeKind::Scored
        && (arguments.evaluators.is_empty() || arguments.evaluators.iter().any(|name| **name == *outcome.evaluator))
}

fn run_verdict(arguments: &ExportArguments, outcome: &OutcomeLine) -> RunVerdict {
    // That no rule found a fault does not make a step right, unless the user says that this rule is what counts.
    let is_named = arguments.evaluators.iter().any(|name| **name == *outcome.evaluator);
    let is_rule = matches!(&*outcome.judge, OFFLINE_JUDGE | RULES_JUDGE);
    RunVerdict {
        evaluator: outcome.evaluator.to_string(),
        step_index: outcome.step_index,
        label: outcome.label.clone().unwrap_or_default(),
        score: outcome.score,
        explanation: outcome.explanation.clone(),
        judge: outcome.judge.to_string(),
        rubric_hash: outcome.rubric_hash.to_string(),
        can_confirm: is_named || !is_rule,
    }
}

/// How far labels can be trusted, by calibration.
struct LabelTrust {
    calibrations: Vec<JudgeCalibration>,
}

impl LabelTrust {
    fn load(arguments: &ExportArguments, reader: &RunReader) -> Result<LabelTrust, ExportInputError> {
        let file = match &arguments.calibration {
            Some(path) => Some(CalibrationFile::read(path)),
            None => read_run_calibration(reader.calibration_path()).transpose(),
        };
        let file = file.transpose().map_err(|error| ExportInputError::Rejected(error.to_string()))?;
        if file.is_none() && arguments.min_precision.is_some() {
            let message = "--min-precision: the run has no calibration, so nobody knows how often its labels are \
                           right\nhint: make one with `gradus judge calibrate`, and give it with --calibration";
            return Err(ExportInputError::Rejected(message.to_owned()));
        }
        Ok(LabelTrust { calibrations: file.map(|file| file.calibrations).unwrap_or_default() })
    }

    /// Finds the calibration of the judge on the rubric that gave this outcome.
    fn find_calibration(&self, outcome: &OutcomeLine) -> Option<&JudgeCalibration> {
        self.calibrations.iter().find(|one| {
            *one.evaluator == *outcome.evaluator
                && *one.rubric_hash == *outcome.rubric_hash
                && *one.judge.name == *outcome.judge
        })
    }

    fn meets_precision_bar(
        &self,
        outcome: &OutcomeLine,
        calibration: Option<&JudgeCalibration>,
        bar: Option<f64>,
    ) -> bool {
        let Some(bar) = bar else { return true };
        let noise = calibration.and_then(|one| label_noise(one, outcome.score.is_some_and(|score| score >= 0.5)));
        noise.is_some_and(|noise| 1.0 - noise >= bar)
    }
}

/// Returns the share of labels on one side of the rubric that are wrong, among the labelled cases; `None` without
/// any.
fn label_noise(calibration: &JudgeCalibration, is_good: bool) -> Option<f64> {
    let is_on_side = |label: &str| {
        calibration.labels.iter().any(|(name, score)| name.as_str() == label && (*score >= 0.5) == is_good)
    };
    let (mut all, mut wrong) = (0u64, 0u64);
    let judged_so = calibration.measures.confusion.iter().filter(|(label, _)| is_on_side(label));
    for (_, by_truth) in judged_so {
        for (truth, count) in by_truth {
            all += count;
            wrong += if is_on_side(truth) { 0 } else { *count };
        }
    }
    (all > 0).then(|| wrong as f64 / all as f64)
}

fn verdict_source(outcome: &OutcomeLine, calibration: Option<&JudgeCalibration>) -> VerdictSource {
    VerdictSource {
        evaluator: outcome.evaluator.to_string(),
        judge: outcome.judge.to_string(),
        rubric_hash: outcome.rubric_hash.to_string(),
        expected_noise_of_good: calibration.and_then(|one| label_noise(one, true)),
        expected_noise_of_bad: calibration.and_then(|one| label_noise(one, false)),
        labelled_cases: calibration.map(|one| one.measures.cases),
    }
}
