//! Corrects the metrics of a run by calibrations of its judge.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use gradus_stats::calibration::{
    CorrectedShare, CorrectionRefusal, JudgedRun, LabelOrigin, LabelOutlook, LabelledCase, LabelledRun, correct_share,
    outlook_from_labels,
};
use gradus_stats::interval::ConfidenceInterval;

use super::calibrated_judge::{AnsweringModels, RunJudge};
use super::calibration_file::{CalibrationFile, JudgeCalibration, LabelSampling};
use super::calibration_measures::CONFIDENCE;
use super::calibration_mismatch::CalibrationMismatch;
use super::label_draw::PopulationDigest;
use super::verdict_strata::{VerdictStrata, VoteSplit};
use crate::outcome::OutcomeKind;
use crate::report::{CorrectedMetric, EvaluationSummary, MetricCalibration, RunReader};
use crate::run::{EvaluatorRecord, PanelRecord, RunFileError};

/// Estimates from the present labels how many more are needed, for the evaluator with this index in the manifest.
/// Without a calibration nothing is assumed about the judge.
pub fn plan_labels(
    reader: &mut RunReader,
    evaluator: usize,
    calibration: Option<&JudgeCalibration>,
) -> Result<Result<LabelOutlook, CorrectionRefusal>, RunFileError> {
    let record = reader.record.evaluators[evaluator].clone();
    // Strata are labels for every kind of judge: people are asked for a number of labels per judge label.
    let strata: Vec<VerdictStrata> = reader.record.evaluators.iter().map(VerdictStrata::from_labels).collect();
    let mut population = JudgedPopulation::new(strata);
    population.read(reader, |_| true)?;
    let labelled =
        calibration.map(|known| group_labelled_runs(known, &population.strata[evaluator])).unwrap_or_default();
    let unit_score = |score: f64| f64::from(u8::from(record.is_right(Some(score))));
    let scores: Vec<f64> = record.labels.iter().map(|(_, score)| unit_score(*score)).collect();
    Ok(outlook_from_labels(&population.runs[evaluator], &labelled, &scores))
}

/// A calibration that exists for an evaluator and does not apply to its verdicts. Gates refuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCalibration {
    pub evaluator: String,
    pub mismatch: CalibrationMismatch,
}

/// Finds the calibrations for these evaluators that do not apply, as far as that is known before anything is asked.
pub fn find_refusals(
    file: &CalibrationFile,
    evaluators: &[EvaluatorRecord],
    panel: Option<&PanelRecord>,
    now: jiff::Timestamp,
) -> Vec<RefusedCalibration> {
    let judge = RunJudge { panel, ..RunJudge::default() };
    let refusal = |evaluator: &EvaluatorRecord| match file.find(evaluator, judge, now) {
        Some(Err(mismatch)) => Some(RefusedCalibration { evaluator: evaluator.name.clone(), mismatch }),
        _ => None,
    };
    evaluators.iter().filter_map(refusal).collect()
}

/// The correction of one evaluator of a run.
pub(super) struct EvaluatorCorrection {
    /// Index in the manifest.
    pub(super) evaluator: usize,
    /// The mean over all verdicts; `None` without verdicts.
    pub(super) raw: Option<f64>,
    pub(super) calibration: MetricCalibration,
    /// Why the calibration does not apply: another judge or rubric, expired, or too few labels.
    mismatch: Option<CalibrationMismatch>,
}

/// Adds the corrected number, or the reason why there is none, to each metric with a calibration. Returns the
/// calibrations that do not apply.
pub fn apply_calibrations(
    summary: &mut EvaluationSummary,
    reader: &mut RunReader,
    file: &CalibrationFile,
    now: jiff::Timestamp,
) -> Result<Vec<RefusedCalibration>, RunFileError> {
    let mut refused = Vec::new();
    for correction in correct_evaluators(reader, file, now, |_| true)? {
        let evaluator = &reader.record.evaluators[correction.evaluator].name;
        let metric = summary.metrics.iter_mut().find(|metric| metric.name == *evaluator);
        if let Some(metric) = metric.filter(|metric| metric.denominator > 0) {
            metric.calibration = Some(correction.calibration);
        }
        let refuse = |mismatch| RefusedCalibration { evaluator: evaluator.clone(), mismatch };
        refused.extend(correction.mismatch.map(refuse));
    }
    Ok(refused)
}

/// Corrects each evaluator that the file is about, on the trajectories that `is_selected` accepts by their id.
pub(super) fn correct_evaluators(
    reader: &mut RunReader,
    file: &CalibrationFile,
    now: jiff::Timestamp,
    is_selected: impl Fn(&str) -> bool,
) -> Result<Vec<EvaluatorCorrection>, RunFileError> {
    let (evaluators, panel) = (reader.record.evaluators.clone(), reader.record.panel.clone());
    let models = reader.record.models.clone();
    let find = |evaluator: &EvaluatorRecord, answered| {
        file.find(evaluator, RunJudge { panel: panel.as_ref(), answered, models: &models }, now)
    };
    if evaluators.iter().all(|evaluator| find(evaluator, None).is_none()) {
        return Ok(Vec::new());
    }
    let strata = |evaluator: &EvaluatorRecord| {
        let has_votes = matches!(find(evaluator, None), Some(Ok(known)) if known.has_votes());
        VerdictStrata::new(evaluator, panel.as_ref(), has_votes)
    };
    let mut population = JudgedPopulation::new(evaluators.iter().map(strata).collect());
    population.read(reader, is_selected)?;
    let correct = |(at, evaluator): (usize, &EvaluatorRecord)| {
        let (calibration, mismatch) = match find(evaluator, Some(&population.answered[at]))? {
            Ok(calibration) => {
                let corrected = population.correct(at, calibration);
                let refusal = match &corrected {
                    MetricCalibration::NotApplied { reason } => {
                        Some(CalibrationMismatch::Unusable { reason: reason.clone() })
                    }
                    _ => None,
                };
                // Without verdicts there is nothing to correct, and nothing to refuse.
                (corrected, refusal.filter(|_| population.raw_value(at).is_some()))
            }
            Err(mismatch) => (MetricCalibration::NotApplied { reason: mismatch.to_string() }, Some(mismatch)),
        };
        Some(EvaluatorCorrection { evaluator: at, raw: population.raw_value(at), calibration, mismatch })
    };
    Ok(evaluators.iter().enumerate().filter_map(correct).collect())
}

/// Returns an uncorrected result with this reason for each evaluator that a model answers.
pub(super) fn refuse_corrections(
    reader: &mut RunReader,
    reason: &str,
    is_selected: impl Fn(&str) -> bool,
) -> Result<Vec<EvaluatorCorrection>, RunFileError> {
    let evaluators = reader.record.evaluators.clone();
    let mut population = JudgedPopulation::by_labels(&evaluators);
    population.read(reader, is_selected)?;
    let refuse = |(at, evaluator): (usize, &EvaluatorRecord)| {
        MetricCalibration::for_judge(&evaluator.judge)?;
        let calibration = MetricCalibration::NotApplied { reason: reason.to_owned() };
        Some(EvaluatorCorrection { evaluator: at, raw: population.raw_value(at), calibration, mismatch: None })
    };
    Ok(evaluators.iter().enumerate().filter_map(refuse).collect())
}

/// The number of verdicts by evaluator and stratum, run by run.
#[derive(Clone, Debug)]
pub struct JudgedPopulation {
    /// By evaluator, like all fields but the last.
    strata: Vec<VerdictStrata>,
    runs: Vec<Vec<JudgedRun>>,
    answered: Vec<AnsweringModels>,
    /// Sum and number of scores.
    scores: Vec<(f64, u64)>,
    digest: PopulationDigest,
}

impl JudgedPopulation {
    /// With a stratum for each label of each evaluator.
    pub fn by_labels(evaluators: &[EvaluatorRecord]) -> JudgedPopulation {
        JudgedPopulation::new(evaluators.iter().map(VerdictStrata::from_labels).collect())
    }

    fn new(strata: Vec<VerdictStrata>) -> JudgedPopulation {
        JudgedPopulation {
            runs: vec![Vec::new(); strata.len()],
            answered: vec![AnsweringModels::default(); strata.len()],
            scores: vec![(0.0, 0); strata.len()],
            strata,
            digest: PopulationDigest::default(),
        }
    }

    fn read(&mut self, reader: &mut RunReader, is_selected: impl Fn(&str) -> bool) -> Result<(), RunFileError> {
        let (evaluators, panel) = (reader.record.evaluators.clone(), reader.record.panel.clone());
        reader.visit_answers(|head, answers| {
            if !is_selected(&head.trajectory_id) {
                return ControlFlow::Continue(());
            }
            let mut found = Vec::new();
            for answer in answers.iter().filter(|answer| answer.evaluator < self.strata.len()) {
                self.answered[answer.evaluator].add_answer(answer);
                let votes = VoteSplit::count(&evaluators[answer.evaluator], panel.as_ref(), answer);
                let label = answer.label.as_deref().filter(|_| answer.outcome == OutcomeKind::Scored);
                if let (Some(label), Some(score)) = (label, answer.score) {
                    let (sum, count) = &mut self.scores[answer.evaluator];
                    *sum += score;
                    *count += 1;
                    found.extend(self.strata[answer.evaluator].find(label, votes).map(|at| (answer.evaluator, at)));
                }
            }
            self.add_strata(&head.trajectory_id, &found);
            ControlFlow::Continue(())
        })
    }

    /// Adds the labels that evaluators, by their index, gave to one trajectory.
    pub fn add_labels<'l>(&mut self, trajectory_id: &str, labels: impl IntoIterator<Item = (usize, &'l str)>) {
        let find = |(evaluator, label): (usize, &str)| Some((evaluator, self.strata[evaluator].find(label, None)?));
        let found: Vec<(usize, usize)> = labels.into_iter().filter_map(find).collect();
        self.add_strata(trajectory_id, &found);
    }

    /// Adds the verdicts on one trajectory: evaluators, by their index, with the stratum of each verdict.
    fn add_strata(&mut self, trajectory_id: &str, found: &[(usize, usize)]) {
        self.digest.add(trajectory_id);
        let mut counts: Vec<Vec<u32>> = self.strata.iter().map(|strata| vec![0; strata.scores().len()]).collect();
        for (evaluator, stratum) in found {
            counts[*evaluator][*stratum] += 1;
        }
        for (runs, stratum_counts) in self.runs.iter_mut().zip(counts) {
            if stratum_counts.iter().any(|count| *count > 0) {
                runs.push(JudgedRun { stratum_counts });
            }
        }
    }

    fn raw_value(&self, evaluator: usize) -> Option<f64> {
        let (sum, count) = self.scores[evaluator];
        (count > 0).then(|| sum / count as f64)
    }

    /// Corrects the share of one evaluator. Labels that were drawn from these trajectories allow post-stratification;
    /// others only give the error rates of the judge.
    pub fn correct(&self, evaluator: usize, calibration: &JudgeCalibration) -> MetricCalibration {
        let is_drawn = calibration.population.sampling != LabelSampling::Given;
        let is_same = calibration.population.digest == self.digest.to_text();
        let origin = if is_drawn && is_same { LabelOrigin::SamePopulation } else { LabelOrigin::OtherPopulation };
        let strata = &self.strata[evaluator];
        let (labelled, scores) = (group_labelled_runs(calibration, strata), strata.scores());
        match correct_share(&self.runs[evaluator], &labelled, &scores, origin, CONFIDENCE) {
            Ok(share) => MetricCalibration::Corrected(rescale_share(&share, calibration)),
            // The hint of the message is only for calibration commands.
            Err(refusal) => MetricCalibration::NotApplied {
                reason: refusal.to_string().lines().next().unwrap_or_default().to_owned(),
            },
        }
    }
}

/// Groups the labelled cases by trajectory. Cases that the judge could not judge are left out.
fn group_labelled_runs(calibration: &JudgeCalibration, strata: &VerdictStrata) -> Vec<LabelledRun> {
    let mut runs: BTreeMap<&str, LabelledRun> = BTreeMap::new();
    for case in &calibration.cases {
        let stratum = case.judge_label.as_deref().and_then(|label| strata.find(label, case.votes));
        if let (Some(stratum), Some(truth)) = (stratum, calibration.unit_score(&case.truth)) {
            let labelled = LabelledCase { stratum, truth, probability: case.probability };
            runs.entry(&case.trajectory_id).or_default().cases.push(labelled);
        }
    }
    runs.into_values().collect()
}

/// Rescales a share from 0 to 1 to the scale of the rubric.
fn rescale_share(share: &CorrectedShare, calibration: &JudgeCalibration) -> CorrectedMetric {
    let scale = calibration.scale();
    let rescale = |unit: f64| scale.worst + unit * (scale.best - scale.worst);
    CorrectedMetric {
        value: rescale(share.estimate),
        interval: ConfidenceInterval { low: rescale(share.lower), high: rescale(share.upper) },
        estimator: share.estimator,
        labelled_cases: share.labelled_cases as u64,
        labelled_trajectories: share.labelled_runs as u64,
    }
}
