//! The evaluations of a state folder, as `gradus runs`, `report` and `compare` read them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gradus_core::trajectory::Trajectory;
use gradus_eval::calibration::apply_run_calibration;
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::report::{EvaluationSummary, MetricResult, RunReader};
use gradus_eval::run::{RunFileError, RunFolder, RunManifest, RunNameError, RunState, StateFolder, find_run_id};
use gradus_report::compare::{VersionComparison, VersionResults};
use gradus_report::{RunSupplement, SupplementLoader, TrialMeasurement, check_run_gates};
use gradus_stats::comparison::ComparisonSettings;

use crate::archive::{
    ArchiveError, EvaluationEntry, EvaluationList, EvaluationScores, FlaggedScope, FoundRun, FoundRunPage, GateReport,
    NewRunLabel, RunArchive, RunFlag, SkippedEvaluations,
};
use crate::archived_run::{ArchivedRun, ArchivedVerdict};
use crate::label_file::LabelFile;
use crate::recorded_text::quote_name;
use crate::run_filter::RunFilter;

/// Maximum bytes of an evaluation that is listed with scores. Larger ones would take too long to read.
const MAX_SCORED_BYTES: u64 = 128 << 20;
/// Maximum number of runs of one evaluation that a comparison reads.
const MAX_COMPARED_RUNS: usize = 50_000;
/// Maximum number of evaluations, latest first, that are searched for a run if none is named.
const MAX_SEARCHED_EVALUATIONS: usize = 10;
/// Maximum characters of a name in an error.
const MAX_NAME_CHARS: usize = 80;

/// The evaluations below a state folder.
#[derive(Debug)]
pub struct FolderArchive {
    state_dir: PathBuf,
    supplements: SupplementLoader,
    should_stop: fn() -> bool,
    labels: Option<LabelFile>,
}

/// Why a visit of an evaluation ended.
enum VisitEnd {
    Enough,
    Stopped,
    File(RunFileError),
}

impl From<RunFileError> for VisitEnd {
    fn from(error: RunFileError) -> VisitEnd {
        VisitEnd::File(error)
    }
}

impl FolderArchive {
    /// `supplements` loads trials of benchmarks and experiments. `labels` is the file of labels; without it, labels
    /// are not supported.
    pub fn new(state_dir: &Path, supplements: SupplementLoader, labels: Option<LabelFile>) -> FolderArchive {
        FolderArchive { state_dir: state_dir.to_owned(), supplements, should_stop: || false, labels }
    }

    /// `should_stop` is called between runs, so that a long request can be cancelled.
    #[must_use]
    pub fn with_stop(self, should_stop: fn() -> bool) -> FolderArchive {
        FolderArchive { should_stop, ..self }
    }

    /// Whether the folder has an evaluation.
    pub fn has_evaluations(&self) -> bool {
        !StateFolder::from_path(&self.state_dir).run_ids().is_empty()
    }

    fn find_evaluation(&self, wanted: Option<&str>) -> Result<RunFolder, ArchiveError> {
        let state = StateFolder::from_path(&self.state_dir);
        // Ids begin with their time, and the latest is first.
        let latest = state.run_ids().into_iter().next().ok_or(ArchiveError::NoEvaluations)?;
        let Some(wanted) = wanted else { return Ok(state.read_run(&latest)?) };
        let name = || wanted.chars().take(MAX_NAME_CHARS).collect();
        let id = find_run_id(&state, wanted).map_err(|error| match error {
            RunNameError::NotFound => ArchiveError::UnknownEvaluation { name: name() },
            RunNameError::Ambiguous { count } => ArchiveError::AmbiguousEvaluation { name: name(), count },
        })?;
        Ok(state.read_run(&id)?)
    }

    /// Calls `take` with every run and its position until `take` returns `Break`.
    fn visit_runs(
        &self,
        folder: &RunFolder,
        mut take: impl FnMut(usize, ArchivedRun) -> ControlFlow<()>,
    ) -> Result<(), ArchiveError> {
        let mut reader = RunReader::open(folder)?;
        let (record, origin) = (folder.record.clone(), describe_evaluation(&folder.record));
        let mut position = 0;
        let visited = reader.visit_trajectories(|trajectory, outcomes| {
            if (self.should_stop)() {
                return Err(VisitEnd::Stopped);
            }
            let verdicts = mark_wrong(&record, outcomes);
            let run =
                ArchivedRun { trajectory: trajectory.clone(), verdicts, labels: Vec::new(), origin: origin.clone() };
            let at = position;
            position += 1;
            match take(at, run) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(VisitEnd::Enough),
            }
        });
        match visited {
            Ok(()) | Err(VisitEnd::Enough) => Ok(()),
            Err(VisitEnd::Stopped) => Err(ArchiveError::Stopped),
            Err(VisitEnd::File(error)) => Err(error.into()),
        }
    }

    fn find_in_evaluation(&self, folder: &RunFolder, id: &str) -> Result<Option<ArchivedRun>, ArchiveError> {
        if (self.should_stop)() {
            return Err(ArchiveError::Stopped);
        }
        let mut reader = RunReader::open(folder)?;
        let found = match reader.find_trajectory(id)? {
            Some(found) => Some(found),
            None => find_by_id_prefix(&mut reader, id)?,
        };
        let Some((trajectory, outcomes)) = found else { return Ok(None) };
        let labels = match &self.labels {
            Some(file) => file.read_labels(&trajectory.trajectory_id)?,
            None => Vec::new(),
        };
        let (verdicts, origin) = (mark_wrong(&folder.record, &outcomes), describe_evaluation(&folder.record));
        Ok(Some(ArchivedRun { trajectory, verdicts, labels, origin }))
    }

    /// Loads the trials of a run. A failure to read them does not hide the verdicts.
    fn load_supplement(&self, folder: &RunFolder) -> Option<Box<dyn RunSupplement>> {
        (self.supplements)(folder.path()).ok().flatten()
    }

    /// Measures the baseline values of relative gates, by the name of the metric.
    fn measure_baseline(&self, name: &str) -> Result<BTreeMap<String, f64>, ArchiveError> {
        let folder = self.find_evaluation(Some(name))?;
        let mut reader = RunReader::open(&folder)?;
        Ok(VersionResults::from_run(&mut reader, &self.load_measurements(&folder))?.gate_values())
    }

    fn load_measurements(&self, folder: &RunFolder) -> Vec<TrialMeasurement> {
        self.load_supplement(folder).map(|supplement| supplement.measurements()).unwrap_or_default()
    }

    fn describe_entry(&self, state: &StateFolder, folder: &RunFolder) -> Result<EvaluationEntry, ArchiveError> {
        let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
        let is_large = size(folder.outcomes_path()) + size(folder.trajectories_path()) > MAX_SCORED_BYTES;
        let scores = match is_large {
            true => None,
            false => {
                let mut reader = RunReader::open(folder)?;
                let results = VersionResults::from_run(&mut reader, &self.load_measurements(folder))?;
                let mut metrics = results.metric_values();
                // Results of benchmarks and experiments have two names: `success` and `bench: success`.
                metrics.retain(|name, _| !name.contains(": "));
                Some(EvaluationScores { run_count: results.run_count(), metrics, shares: results.share_names() })
            }
        };
        let word = match folder.record.state {
            RunState::Finished => "finished",
            RunState::Stopped => "stopped early",
            RunState::Running if state.is_held(&folder.record.run_id) => "running",
            RunState::Running => "cut off",
        };
        Ok(EvaluationEntry { manifest: folder.record.clone(), state: word, scores })
    }
}

impl RunArchive for FolderArchive {
    fn list_evaluations(&self, skip: usize, limit: usize) -> Result<EvaluationList, ArchiveError> {
        let state = StateFolder::from_path(&self.state_dir);
        let ids = state.run_ids();
        if ids.is_empty() {
            return Err(ArchiveError::NoEvaluations);
        }
        let mut list =
            EvaluationList { default_scope: "the latest".to_owned(), total: ids.len(), ..Default::default() };
        for id in ids.iter().skip(skip).take(limit) {
            if (self.should_stop)() {
                return Err(ArchiveError::Stopped);
            }
            let entry = state.read_run(id).map_err(ArchiveError::from);
            match entry.and_then(|folder| self.describe_entry(&state, &folder)) {
                Ok(entry) => list.entries.push(entry),
                Err(_) => list.skipped = SkippedEvaluations(list.skipped.0 + 1),
            }
        }
        Ok(list)
    }

    fn find_runs(&self, filter: &RunFilter, cursor: Option<&str>, limit: usize) -> Result<FoundRunPage, ArchiveError> {
        let wrong = |_| ArchiveError::BadArgument {
            argument: "cursor",
            reason: "give the one of the answer before".to_owned(),
        };
        let first: usize = cursor.map(|cursor| cursor.parse().map_err(wrong)).transpose()?.unwrap_or(0);
        let folder = self.find_evaluation(filter.evaluation.as_deref())?;
        let mut page = FoundRunPage { scope: describe_evaluation(&folder.record), ..FoundRunPage::default() };
        self.visit_runs(&folder, |position, run| {
            if filter.matches(&run.trajectory, &run.verdicts) {
                page.total += 1;
                if position >= first && page.runs.len() < limit {
                    page.runs.push(describe_run(&run, position));
                } else if position >= first && page.next_cursor.is_none() {
                    page.next_cursor = Some(position.to_string());
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(page)
    }

    fn load_run(&self, evaluation: Option<&str>, id: &str) -> Result<ArchivedRun, ArchiveError> {
        let state = StateFolder::from_path(&self.state_dir);
        let newest = self.find_evaluation(evaluation)?;
        let place = describe_evaluation(&newest.record);
        if let Some(found) = self.find_in_evaluation(&newest, id)? {
            return Ok(found);
        }
        if evaluation.is_none() {
            // The run may be from an older evaluation whose id the assistant left out.
            for older in state.run_ids().iter().skip(1).take(MAX_SEARCHED_EVALUATIONS - 1) {
                let Ok(folder) = state.read_run(older) else { continue };
                if let Some(found) = self.find_in_evaluation(&folder, id)? {
                    return Ok(found);
                }
            }
        }
        Err(ArchiveError::UnknownRun { id: id.chars().take(MAX_NAME_CHARS).collect(), place })
    }

    fn visit_flagged(
        &self,
        filter: &RunFilter,
        take: &mut dyn FnMut(&ArchivedRun),
    ) -> Result<FlaggedScope, ArchiveError> {
        let folder = self.find_evaluation(filter.evaluation.as_deref())?;
        let mut scope = FlaggedScope { description: describe_evaluation(&folder.record), ..FlaggedScope::default() };
        self.visit_runs(&folder, |_, run| {
            if filter.matches(&run.trajectory, &run.verdicts) {
                scope.run_count += 1;
                if run.verdicts.iter().any(|verdict| verdict.is_wrong) {
                    take(&run);
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(scope)
    }

    fn compare_evaluations(&self, first: &str, second: &str) -> Result<VersionComparison, ArchiveError> {
        let mut results = Vec::new();
        let mut readers = Vec::new();
        let mut is_cut = false;
        for name in [first, second] {
            let folder = self.find_evaluation(Some(name))?;
            let mut reader = RunReader::open(&folder)?;
            let mut count = 0;
            results.push(VersionResults::from_selected(&mut reader, &self.load_measurements(&folder), |_| {
                is_cut |= count == MAX_COMPARED_RUNS;
                if count == MAX_COMPARED_RUNS || (self.should_stop)() {
                    return ControlFlow::Break(());
                }
                count += 1;
                ControlFlow::Continue(true)
            })?);
            readers.push(reader);
        }
        if (self.should_stop)() {
            return Err(ArchiveError::Stopped);
        }
        let not_comparable = |reason: String| ArchiveError::NotComparable { reason };
        let mut comparison = VersionComparison::from_versions(&results, &ComparisonSettings::default())
            .map_err(|error| not_comparable(error.to_string()))?;
        let mut readers: Vec<Option<&mut RunReader>> = readers.iter_mut().map(Some).collect();
        comparison.add_run_details(&results, &mut readers)?;
        if is_cut {
            let note = format!("An evaluation is too long: only its first {MAX_COMPARED_RUNS} runs are compared.");
            comparison.task_mix.push(note);
        }
        Ok(comparison)
    }

    fn check_gates(
        &self,
        evaluation: Option<&str>,
        gate: Option<&str>,
        baseline: Option<&str>,
    ) -> Result<GateReport, ArchiveError> {
        let baseline = baseline.map(|name| self.measure_baseline(name)).transpose()?;
        let folder = self.find_evaluation(evaluation)?;
        let mut reader = RunReader::open(&folder)?;
        let mut summary = EvaluationSummary::from_run(&mut reader)?;
        apply_run_calibration(&mut summary, &mut reader)?;
        let mut supplement = self.load_supplement(&folder);
        if let Some(supplement) = &mut supplement {
            supplement.score(&mut reader)?;
            summary.metrics.extend(supplement.metrics());
        }
        let gates = gate.map_or_else(|| folder.record.gates.clone(), |gate| vec![gate.to_owned()]);
        let results = check_run_gates(&mut reader, supplement.as_deref(), &summary, &gates, baseline.as_ref())?;
        let also = [&summary.combined, &summary.trajectories_right];
        let metrics = summary.metrics.iter().chain(also.into_iter().flatten()).map(describe_metric).collect();
        Ok(GateReport { manifest: folder.record.clone(), results, failure_groups: summary.failure_groups, metrics })
    }

    fn store_label(&self, label: &NewRunLabel) -> Result<String, ArchiveError> {
        let file = self.labels.as_ref().ok_or(ArchiveError::LabelsNotAllowed)?;
        let folder = self.find_evaluation(label.evaluation.as_deref())?;
        let evaluation = Some(folder.record.run_id.clone());
        let run = self.load_run(evaluation.as_deref(), &label.run_id)?;
        file.store_label(&folder.record, &run, label)
    }
}

/// `evaluation 20261117-0210 (main)`.
fn describe_evaluation(record: &RunManifest) -> String {
    let name = record.name.as_deref().map(|name| format!(" ({})", quote_name(name))).unwrap_or_default();
    format!("evaluation {}{name}", quote_name(&record.run_id))
}

fn describe_metric(metric: &MetricResult) -> (String, String) {
    let value = match (metric.value, metric.is_share) {
        (Some(value), true) => format!("{:.1} %", 100.0 * value),
        (Some(value), false) => format!("{value:.2}"),
        (None, _) => "not judged".to_owned(),
    };
    (metric.name.clone(), value)
}

/// Marks each outcome that is below the best label of its evaluator at the time of the run.
fn mark_wrong(record: &RunManifest, outcomes: &[OutcomeLine]) -> Vec<ArchivedVerdict> {
    let is_wrong = |line: &OutcomeLine| {
        let evaluator = record.evaluators.iter().find(|known| known.name == *line.evaluator);
        evaluator.zip(line.score).is_some_and(|(known, score)| known.scale().is_wrong(score))
    };
    outcomes.iter().map(|line| ArchivedVerdict { is_wrong: is_wrong(line), line: line.clone() }).collect()
}

/// Finds a run by the beginning of its id: assistants often shorten ids, and `gradus traces` prints short ones.
fn find_by_id_prefix(
    reader: &mut RunReader,
    beginning: &str,
) -> Result<Option<(Trajectory, Vec<OutcomeLine>)>, ArchiveError> {
    const MIN_CHARS: usize = 6;
    if beginning.chars().count() < MIN_CHARS {
        return Ok(None);
    }
    let mut ids = Vec::new();
    reader.visit_verdicts(|head, _| {
        if head.trajectory_id.starts_with(beginning) {
            ids.push(head.trajectory_id.to_string());
        }
        ControlFlow::Continue(())
    })?;
    match ids.as_slice() {
        [] => Ok(None),
        [id] => Ok(reader.find_trajectory(id)?),
        several => Err(ArchiveError::AmbiguousRun { id: beginning.to_owned(), count: several.len() }),
    }
}

fn describe_run(run: &ArchivedRun, position: usize) -> FoundRun {
    let trajectory = &run.trajectory;
    let mut flags: Vec<RunFlag> = Vec::new();
    for ArchivedVerdict { line, .. } in run.verdicts.iter().filter(|verdict| verdict.is_wrong) {
        match flags.iter_mut().find(|flag| flag.evaluator == *line.evaluator) {
            Some(flag) => flag.count += 1,
            None => flags.push(RunFlag {
                evaluator: line.evaluator.to_string(),
                label: line.label.clone(),
                count: 1,
                first_step: line.step_index,
            }),
        }
    }
    FoundRun {
        run_id: trajectory.trajectory_id.clone(),
        start: trajectory.start.clone(),
        project: trajectory.project.clone(),
        agent: trajectory.agent.clone(),
        agent_version: trajectory.agent_version.clone(),
        model: trajectory.model.clone(),
        query: trajectory.query.clone(),
        step_count: trajectory.steps.len() as u64,
        is_error: trajectory.is_error,
        flags,
        cursor_after: (position + 1).to_string(),
    }
}
