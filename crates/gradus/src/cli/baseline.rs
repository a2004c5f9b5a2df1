//! Baselines: the results of an earlier version that a run is compared with, and the file that the next run is compared
//! with.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::CommandExit;
use super::gates::collect_baseline_metrics;
use super::report_addition::ReportAddition;
use super::run_lookup::{RunNameError, find_run_id};
use super::sources::print_diagnostic;
use crate::experiment_report::load_run_supplement;
use anyhow::Context;
use clap::{Args, ValueEnum};
use gradus_core::visible::printable_line;
use gradus_eval::report::{
    EvaluationSummary, GateError, GateTrials, JudgedHead, QualityGate, RunReader, measure_gate_values,
};
use gradus_eval::run::{EvaluatorRecord, RunFileError, StateFolder};
use gradus_report::compare::{
    BaselineError, ScoredDimension, VersionComparison, VersionResults, find_mismatches, read_baseline, write_baseline,
};
use gradus_report::{RunSupplement, TrialMeasurement, index_trials};
use gradus_stats::comparison::{ComparisonError, ComparisonSettings, ComparisonVerdict, EffectScale};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

#[derive(Args, Clone, Default)]
pub(super) struct BaselineOptions {
    /// Compare with a baseline: a file of --save-baseline, or the id or name of an earlier run.
    #[arg(long, value_name = "FILE|RUN", help_heading = "Comparison")]
    pub(super) baseline: Option<String>,
    /// Write the results as a baseline: text for a repository, without content of traces.
    #[arg(long, value_name = "FILE", help_heading = "Comparison")]
    pub(super) save_baseline: Option<PathBuf>,
    /// Put the beginnings of requests and the ids of runs into the baseline.
    #[arg(long, requires = "save_baseline", help_heading = "Comparison")]
    pub(super) baseline_content: bool,
    #[command(flatten)]
    pub(super) decision: DecisionOptions,
}

/// How versions are compared.
#[derive(Args, Clone, Default)]
pub(super) struct DecisionOptions {
    /// Exit with 3 if a score is WORSE. Steps, tokens, latency and cost do not count; gate them explicitly.
    #[arg(long, value_name = "WHAT", value_enum, help_heading = "Comparison")]
    pub(super) fail_on: Option<FailureCondition>,
    /// Differences up to this do not matter: 0.05 is five points of a share, and 5 % of an amount [default: 0.05].
    #[arg(long, value_name = "SIZE", help_heading = "Comparison")]
    pub(super) min_effect: Option<f64>,
    /// Compare also dimensions that another rubric or another judge scored.
    #[arg(long, help_heading = "Comparison")]
    pub(super) allow_mismatch: bool,
}

/// The values of `--fail-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FailureCondition {
    Regression,
}

/// Why versions cannot be compared.
#[derive(Debug, thiserror::Error)]
pub(super) enum CompareError {
    #[error("{name}: {source}")]
    Baseline { name: String, source: BaselineError },
    #[error("{name}: there is no such baseline file, run id or run name\nhint: `gradus runs` lists the runs")]
    NotFound { name: String },
    #[error("{name}: it has no judged runs to compare")]
    NoRuns { name: String },
    #[error("{name}: no run of it is of the agent's version {version:?}")]
    NoSuchVersion { name: String, version: String },
    #[error(
        "{name}: a baseline does not tell its runs apart by the agent's version, so {version:?} cannot be selected\n\
         hint: save one baseline for each version"
    )]
    VersionOfBaseline { name: String, version: String },
    #[error("{name}: {reason}")]
    Source { name: String, reason: String },
    #[error(
        "{name}: the folder of an experiment or a benchmark, whose results are in its run\nhint: give the name or the id \
         of the run (`gradus runs` lists them; `--name` names one)"
    )]
    TrialFolder { name: String },
    #[error("{name}: {count} runs begin with it\nhint: give more of the id")]
    Ambiguous { name: String, count: usize },
    #[error(
        "{first} and {second} cannot be compared: {differences}\nhint: judge both in the same way, or add \
         --allow-mismatch"
    )]
    Mismatch { first: String, second: String, differences: String },
    #[error(transparent)]
    Comparison(#[from] ComparisonError),
    #[error(transparent)]
    RunFile(#[from] RunFileError),
    #[error(
        "the versions have no score in common, so --fail-on could never fail\nhint: judge both with the same \
         --evaluators"
    )]
    NoCommonScore,
    #[error("--fail-on and --min-effect need something to compare with\nhint: add --baseline FILE")]
    NoBaseline,
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// A version to compare with, and its run where it is one.
pub(super) struct LoadedVersion {
    pub(super) results: VersionResults,
    pub(super) reader: Option<RunReader>,
}

impl DecisionOptions {
    pub(super) fn settings(&self) -> ComparisonSettings {
        let defaults = ComparisonSettings::default();
        ComparisonSettings { min_effect: self.min_effect.unwrap_or(defaults.min_effect), ..defaults }
    }

    /// Refuses dimensions that two versions were not judged on in the same way.
    fn check_mismatch(
        &self,
        first: &str,
        known: &[ScoredDimension],
        second: &str,
        other: &[ScoredDimension],
    ) -> Result<(), CompareError> {
        let differences = find_mismatches(known, other);
        match self.allow_mismatch || differences.is_empty() {
            true => Ok(()),
            false => Err(CompareError::Mismatch {
                first: first.to_owned(),
                second: second.to_owned(),
                differences: differences.join("; "),
            }),
        }
    }

    /// Compares versions, and shows the runs of the first flips.
    pub(super) fn compare(
        &self,
        results: &[VersionResults],
        readers: &mut [Option<&mut RunReader>],
    ) -> Result<VersionComparison, CompareError> {
        if let Some(empty) = results.iter().find(|version| version.run_count() == 0) {
            return Err(CompareError::NoRuns { name: empty.header.name.clone() });
        }
        // All pairs: the first version may lack a dimension on which two others differ.
        for (at, first) in results.iter().enumerate() {
            for second in &results[at + 1..] {
                let (known, other) = (&first.header.dimensions, &second.header.dimensions);
                self.check_mismatch(&first.header.name, known, &second.header.name, other)?;
            }
        }
        let mut comparison = VersionComparison::from_versions(results, &self.settings())?;
        if self.fail_on.is_some() && !comparison.has_common_score() {
            return Err(CompareError::NoCommonScore);
        }
        comparison.add_run_details(results, readers)?;
        Ok(comparison)
    }

    /// Builds one test case for each score, so that the tests agree with the exit code. `None` without `--fail-on`.
    pub(super) fn build_suite(&self, comparison: &VersionComparison) -> Option<TestSuite> {
        self.fail_on?;
        let mut suite = TestSuite::new("regressions");
        let found = comparison.report.pairs.iter().flat_map(|pair| &pair.dimensions);
        for found in found.filter(|found| found.scale == EffectScale::Share) {
            let status = match found.verdict {
                ComparisonVerdict::Worse => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    status.set_type("worse");
                    status.set_message(format!("{:.4} after {:.4}", found.second_mean, found.first_mean));
                    status
                }
                _ => TestCaseStatus::success(),
            };
            let mut case = TestCase::new(printable_line(&found.dimension), status);
            case.set_classname("gradus.regressions");
            suite.add_test_case(case);
        }
        Some(suite)
    }

    /// Returns the exit code of `--fail-on`. It is undecided for a part of a run: a regression may be missing in it,
    /// or be one of its tasks.
    pub(super) fn decide_exit(&self, comparison: &VersionComparison, allow_partial: bool) -> CommandExit {
        match self.fail_on {
            None => CommandExit::Pass,
            Some(_) if !allow_partial && !comparison.is_complete() => CommandExit::GateIncomplete,
            Some(_) if self.is_failure(comparison) => CommandExit::GateFailed,
            Some(_) if !allow_partial && !comparison.without_steps.is_empty() => CommandExit::GateIncomplete,
            Some(_) => CommandExit::Pass,
        }
    }

    pub(super) fn is_failure(&self, comparison: &VersionComparison) -> bool {
        self.fail_on == Some(FailureCondition::Regression) && comparison.has_regression()
    }
}

impl BaselineOptions {
    /// Reads the baseline before the run begins and checks that a run of these evaluators can be compared with it, so
    /// that a wrong name, another judge or another rubric costs nothing.
    pub(super) fn load(
        &self,
        state: &StateFolder,
        gates: &[QualityGate],
        evaluators: &[EvaluatorRecord],
    ) -> Result<Option<LoadedVersion>, CompareError> {
        self.decision.settings().check()?;
        match &self.baseline {
            Some(name) => {
                let mut baseline = load_version(name, state)?;
                let header = &baseline.results.header;
                if baseline.results.run_count() == 0 {
                    return Err(CompareError::NoRuns { name: header.name.clone() });
                }
                let own: Vec<ScoredDimension> = evaluators.iter().map(ScoredDimension::from_evaluator).collect();
                self.decision.check_mismatch(&header.name, &header.dimensions, "this run", &own)?;
                measure_run_baseline(&mut baseline, name, state, gates)?;
                let values = baseline.results.gate_values();
                gates.iter().try_for_each(|gate| gate.check_baseline(Some(&values)))?;
                Ok(Some(baseline))
            }
            None if gates.iter().any(|gate| gate.check_baseline(None).is_err()) => {
                gates.iter().try_for_each(|gate| gate.check_baseline(None))?;
                Ok(None)
            }
            None if self.decision.fail_on.is_some() || self.decision.min_effect.is_some() => {
                Err(CompareError::NoBaseline)
            }
            None => Ok(None),
        }
    }

    /// Compares a run with its baseline, and writes the file of `--save-baseline`. The outer error is for files that
    /// cannot be read or written.
    pub(super) fn compare_run(
        &self,
        reader: &mut RunReader,
        summary: &EvaluationSummary,
        addition: &dyn ReportAddition,
        baseline: Option<LoadedVersion>,
    ) -> anyhow::Result<Result<Option<VersionComparison>, CompareError>> {
        if baseline.is_none() && self.save_baseline.is_none() {
            return Ok(Ok(None));
        }
        let mut results = VersionResults::from_run(reader, &addition.measurements())?;
        let comparison = match baseline {
            None => None,
            Some(LoadedVersion { results: before, reader: mut before_reader }) => {
                let readers = &mut [before_reader.as_mut(), Some(reader)];
                match self.decision.compare(&[before, results.clone()], readers) {
                    Ok(comparison) => Some(comparison),
                    Err(error) => return Ok(Err(error)),
                }
            }
        };
        if let Some(path) = &self.save_baseline {
            let is_regression = comparison.as_ref().is_some_and(|found| self.decision.is_failure(found));
            // A part of a run, or a version that was refused, must not become what later versions are compared with.
            let reason = match () {
                () if results.run_count() == 0 => Some("nothing was judged"),
                () if !results.header.is_complete => Some("the run ended early"),
                () if is_regression => Some("the run has a regression"),
                () => None,
            };
            match reason {
                Some(reason) => print_diagnostic(&format!("{}: baseline not written: {reason}", path.display())),
                None => {
                    results.metrics = collect_baseline_metrics(summary, reader, addition)?;
                    self.save(path, &results).with_context(|| path.display().to_string())?;
                }
            }
        }
        Ok(Ok(comparison))
    }

    /// Writes the file of `--save-baseline`, through a temporary file: an interrupted write must not leave half of a
    /// baseline.
    fn save(&self, path: &Path, results: &VersionResults) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let mut out = BufWriter::new(File::create(&temporary)?);
        write_baseline(results, self.baseline_content, &mut out)?;
        out.flush()?;
        std::fs::rename(&temporary, path)
    }
}

/// Values of a baseline for gates, by the name of the metric.
pub(super) fn baseline_values(baseline: Option<&LoadedVersion>) -> BTreeMap<String, f64> {
    baseline.map(|baseline| baseline.results.gate_values()).unwrap_or_default()
}

/// Measures a run that serves as a baseline for these gates. Files have their numbers; a selected version of the
/// agent is a part of a run, and has the means of its runs only.
fn measure_run_baseline(
    baseline: &mut LoadedVersion,
    name: &str,
    state: &StateFolder,
    gates: &[QualityGate],
) -> Result<(), CompareError> {
    let metrics = gates.iter().filter(|gate| gate.is_relative()).map(|gate| &gate.metric);
    let Some(reader) = baseline.reader.as_mut().filter(|_| split_version(name).1.is_none()) else { return Ok(()) };
    if metrics.clone().next().is_none() {
        return Ok(());
    }
    let folder = state.read_run(&reader.record.run_id)?;
    let mut summary = EvaluationSummary::from_run(reader)?;
    let mut supplement = load_supplement(folder.path());
    if let Some(supplement) = &mut supplement {
        supplement.score(reader)?;
        summary.metrics.extend(supplement.metrics());
    }
    let index = supplement.as_ref().map(|known| index_trials(&known.measurements())).unwrap_or_default();
    let tag_metrics = |tag: &str| supplement.as_ref().map(|known| known.tag_metrics(tag)).unwrap_or_default();
    let trials = GateTrials { index: &index, tag_metrics: &tag_metrics };
    baseline.results.metrics = measure_gate_values(metrics, &summary, reader, &trials)?;
    Ok(())
}

/// Finds a version by its name: a baseline file, a run's id or the beginning of it, or the name of a run. Of several
/// runs with the same name the latest counts. `?version=` after the name of a run selects the trajectories of one
/// version of the agent.
pub(super) fn load_version(name: &str, state: &StateFolder) -> Result<LoadedVersion, CompareError> {
    let (name, version) = split_version(name);
    let path = Path::new(name);
    if path.is_file() {
        if let Some(version) = version {
            return Err(CompareError::VersionOfBaseline { name: name.to_owned(), version: version.to_owned() });
        }
        let bad_file = |source: BaselineError| CompareError::Baseline { name: name.to_owned(), source };
        let file = File::open(path).map_err(|error| bad_file(error.into()))?;
        let mut results = read_baseline(BufReader::new(file)).map_err(bad_file)?;
        let stem = path.file_name().map(|stem| stem.to_string_lossy().into_owned());
        results.header.name = format!("{} ({})", results.header.name, stem.unwrap_or_default());
        return Ok(LoadedVersion { results, reader: None });
    }
    let id = find_run_id(state, name).map_err(|error| match error {
        RunNameError::NotFound => CompareError::NotFound { name: name.to_owned() },
        RunNameError::Ambiguous { count } => CompareError::Ambiguous { name: name.to_owned(), count },
    })?;
    let folder = state.read_run(&id)?;
    let mut reader = RunReader::open(&folder)?;
    let is_selected =
        |head: &JudgedHead<'_>| version.is_none_or(|wanted| head.agent_version.as_deref() == Some(wanted));
    let measurements = load_trial_measurements(folder.path());
    let select = |head: &JudgedHead<'_>| ControlFlow::Continue(is_selected(head));
    let mut results = VersionResults::from_selected(&mut reader, &measurements, select)?;
    if let Some(version) = version {
        if results.tasks.is_empty() {
            return Err(CompareError::NoSuchVersion { name: name.to_owned(), version: version.to_owned() });
        }
        results.header.name = format!("{} {version}", results.header.name);
    }
    Ok(LoadedVersion { results, reader: Some(reader) })
}

/// Splits `store:shop?version=2.3.0` into the name and the version of the agent.
pub(super) fn split_version(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once("?version=") {
        Some((name, version)) if !version.is_empty() => (name, Some(version)),
        _ => (text, None),
    }
}

/// Loads the trials of a run that belongs to a benchmark or an experiment; empty for other runs and for trials that
/// cannot be read.
pub(super) fn load_trial_measurements(folder: &Path) -> Vec<TrialMeasurement> {
    load_supplement(folder).map(|supplement| supplement.measurements()).unwrap_or_default()
}

fn load_supplement(folder: &Path) -> Option<Box<dyn RunSupplement>> {
    load_run_supplement(folder).unwrap_or_else(|error| {
        print_diagnostic(&format!("the trials of a run cannot be read; comparing without them: {error}"));
        None
    })
}
