//! The benchmark that an evaluation run is about. It is stored in the folder of the run, and compared with what the
//! judge said about its trials.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::StepTruth;
use crate::trial::TrialLine;
use anyhow::Context as _;
use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::OutcomeSpans;
use gradus_eval::report::{GateResult, MetricResult, RunReader, TrialMetricNames};
use gradus_eval::run::RunFileError;
use gradus_report::{ReportTable, RunSupplement, TrialMeasurement, TrialResult};

use super::confusion::JudgeAccuracy;
use super::report::{BenchReport, BenchResults, JudgedTrial, level_tag};

/// Name in the folder of the run.
const BENCH_RESULTS_FILE: &str = "bench.json";

/// The results of a benchmark in the folder of a run cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum BenchFileError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// Not JSON, or JSON of another version of [`BenchResults`].
    #[error("{}: {source}", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
}

impl BenchReport {
    /// Loads the results that [`BenchReport::save_results`] wrote. `None` if the run has none, as most runs do.
    pub fn load_from_run(folder: &Path) -> Result<Option<BenchReport>, BenchFileError> {
        let path = folder.join(BENCH_RESULTS_FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(BenchFileError::Unreadable { path, source }),
        };
        let kept: BenchResults =
            serde_json::from_slice(&text).map_err(|source| BenchFileError::Malformed { path, source })?;
        Ok(Some(BenchReport::from_results(kept)))
    }

    /// Stores what is needed to print the report again. Written to a new file and renamed, so that a reader finds all
    /// or nothing.
    pub fn save_results(&self, folder: &Path) -> anyhow::Result<()> {
        let (path, new) = (folder.join(BENCH_RESULTS_FILE), folder.join(format!("{BENCH_RESULTS_FILE}.new")));
        let text = serde_json::to_vec(self.results())?;
        // A concurrent reader sees all of the file or none.
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &path))
            .with_context(|| path.display().to_string())
    }
}

/// What is certain about one trial.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialTruth {
    /// Whether the verifier accepted the run.
    pub passed: bool,
    /// For each step whether it is right, and what is wrong with it. Empty for agents without a script.
    pub steps: Vec<(bool, String)>,
}

impl BenchReport {
    /// Returns the truth about a trajectory of this benchmark; `None` if it belongs to none of its trials.
    pub fn trial_truth(&self, trajectory: &Trajectory) -> Option<TrialTruth> {
        let is_it = |line: &&TrialLine| match &line.trajectory {
            Some(id) => *id == trajectory.trajectory_id,
            None => Some(line.session.as_str()) == trajectory.session_id.as_deref(),
        };
        let line = self.lines().iter().find(is_it)?;
        let truth = line.truth.as_ref().filter(|truth| truth.steps.len() == trajectory.steps.len());
        let judge_step = |(number, step): (usize, &StepTruth)| {
            let groups = truth.and_then(|truth| truth.needless.as_deref()).unwrap_or_default();
            let is_needless =
                groups.iter().any(|group| group.count == group.among.len() && group.among.contains(&number));
            let is_right = step.tool_fits_thought && step.thought_fits_request && step.is_valid && !is_needless;
            let note = if step.note.is_empty() && is_needless { "needless".to_owned() } else { step.note.clone() };
            (is_right, note)
        };
        let steps = truth.map(|truth| (1..).zip(&truth.steps).map(judge_step).collect()).unwrap_or_default();
        Some(TrialTruth { passed: line.passed, steps })
    }
}

impl RunSupplement for BenchReport {
    /// Matches judged trajectories with trials and adds them to the confusion matrices.
    fn score(&mut self, reader: &mut RunReader) -> Result<(), RunFileError> {
        let mut scores = JudgeAccuracy::default();
        // Trials of external programs are identified by trajectory, since their session ids may repeat.
        let (mut by_id, mut by_session): (HashMap<&str, &TrialLine>, HashMap<&str, &TrialLine>) =
            (HashMap::new(), HashMap::new());
        for line in self.lines() {
            match &line.trajectory {
                Some(id) => by_id.insert(id, line),
                None => by_session.insert(&line.session, line),
            };
        }
        let mut trajectories: HashMap<String, JudgedTrial> = HashMap::new();
        reader.visit_trajectories(|trajectory, outcomes| {
            let session = trajectory.session_id.as_deref().unwrap_or_default();
            let line = by_id.get(trajectory.trajectory_id.as_str()).or_else(|| by_session.get(session));
            if let Some(line) = line {
                scores.add_trial(line, trajectory, outcomes);
                let spans = OutcomeSpans::new(trajectory, None);
                let judged = JudgedTrial { trajectory_id: trajectory.trajectory_id.clone(), spans };
                trajectories.insert(line.name(), judged);
            }
            Ok::<(), RunFileError>(())
        })?;
        self.scores = Some(scores);
        self.trajectories = trajectories;
        Ok(())
    }

    fn metric_names(&self) -> TrialMetricNames {
        self.own_metric_names()
    }

    fn metrics(&self) -> Vec<MetricResult> {
        self.own_metrics()
    }

    fn tag_metrics(&self, tag: &str) -> Vec<MetricResult> {
        let tagged = self.lines().iter().filter(|line| level_tag(&line.level) == tag).cloned().collect();
        BenchReport::from_results(BenchResults { lines: tagged, ..self.results().clone() }).own_metrics()
    }

    /// Adds why a metric has no value, where the report knows it.
    fn explain_gate(&self, gate: &mut GateResult) {
        if let Some(reason) = self.explain_missing_metric(&gate.metric).filter(|_| gate.value.is_none()) {
            gate.explanation = format!("{reason}, so the gate cannot pass");
        }
    }
    fn tables(&self) -> Vec<ReportTable> {
        self.own_tables()
    }

    /// Returns binary results per trial, which a comparison of two runs pairs by trajectory or session.
    fn measurements(&self) -> Vec<TrialMeasurement> {
        let measurement = |line: &TrialLine| TrialMeasurement {
            trajectory_id: line.trajectory.clone(),
            session_id: line.session.clone(),
            task_id: Some(line.task.clone()),
            // Sessions of external programs may repeat.
            owns_session: false,
            tags: vec![level_tag(&line.level)],
            results: [
                ("bench: success", "Tasks Done", line.passed),
                ("bench: safe", "Safe Runs", line.safe),
                ("bench: clean", "Clean Runs", line.clean),
                ("bench: joint", "Done and Safe", line.passed && line.safe),
            ]
            .map(|(name, title, is_good)| TrialResult { name, title, is_good })
            .to_vec(),
        };
        self.lines().iter().map(measurement).collect()
    }
}

/// Loads the benchmark of a run for the server's reports. Has the signature of [`gradus_report::SupplementLoader`],
/// whose error is a message for the log.
pub fn load_supplement(folder: &Path) -> Result<Option<Box<dyn RunSupplement>>, String> {
    let bench = BenchReport::load_from_run(folder).map_err(|error| error.to_string())?;
    Ok(bench.map(|bench| Box::new(bench) as Box<dyn RunSupplement>))
}
