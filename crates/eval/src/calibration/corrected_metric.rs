//! Corrects the metrics of a run by calibrations of its judge.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use gradus_stats::calibration::{
    CorrectedShare, CorrectionRefusal, JudgedRun, LabelOrigin, LabelOutlook, LabelledCase, LabelledRun, correct_share,
    outlook_from_labels,
};
use gradus_stats::interval::ConfidenceInterval;

use super::calibration_builder::CONFIDENCE;
use super::calibration_file::{CalibrationFile, CalibrationMismatch, JudgeCalibration, LabelSampling};
use super::label_draw::PopulationDigest;
use crate::outcome::OutcomeKind;
use crate::report::{CorrectedMetric, EvaluationSummary, JudgedHead, MetricCalibration, RunReader, VerdictHead};
use crate::run::{EvaluatorRecord, RunFileError};

/// Where an estimator draws random numbers, the same file gives the same result.
const SEED: u64 = 0;

/// What the labels so far say about how many more are needed, for the evaluator with this index in the manifest. Without
/// a calibration nothing is assumed about the judge.
pub fn plan_labels(
    reader: &mut RunReader,
    evaluator: usize,
    calibration: Option<&JudgeCalibration>,
) -> Result<Result<LabelOutlook, CorrectionRefusal>, RunFileError> {
    let record = reader.record.evaluators[evaluator].clone();
    let mut population = JudgedPopulation::new(&reader.record.evaluators);
    population.read(reader)?;
    let labelled = calibration.map(group_labelled_runs).unwrap_or_default();
    let unit_score = |score: f64| f64::from(u8::from(record.is_right(Some(score))));
    let scores: Vec<f64> = record.labels.iter().map(|(_, score)| unit_score(*score)).collect();
    Ok(outlook_from_labels(&population.runs[evaluator], &labelled, &scores))
}

/// Calibrations that exist for these evaluators and do not apply to them, with the reason. Gates refuse them.
pub fn find_refusals<'e>(
    file: &CalibrationFile,
    evaluators: &'e [EvaluatorRecord],
    now: jiff::Timestamp,
) -> Vec<(&'e str, CalibrationMismatch)> {
    let refusal = |evaluator: &'e EvaluatorRecord| match file.find(evaluator, now) {
        Some(Err(mismatch)) => Some((evaluator.name.as_str(), mismatch)),
        _ => None,
    };
    evaluators.iter().filter_map(refusal).collect()
}

/// Adds the corrected number, or the reason why there is none, to each metric that a calibration is about.
pub fn apply_calibrations(
    summary: &mut EvaluationSummary,
    reader: &mut RunReader,
    file: &CalibrationFile,
    now: jiff::Timestamp,
) -> Result<(), RunFileError> {
    let evaluators = reader.record.evaluators.clone();
    let found: Vec<(usize, Result<&JudgeCalibration, CalibrationMismatch>)> =
        evaluators.iter().enumerate().filter_map(|(at, evaluator)| Some((at, file.find(evaluator, now)?))).collect();
    if found.is_empty() {
        return Ok(());
    }
    let mut population = JudgedPopulation::new(&evaluators);
    population.read(reader)?;
    for (at, calibration) in found {
        let calibrated = match calibration {
            Ok(calibration) => population.correct(at, calibration),
            Err(mismatch) => MetricCalibration::NotApplied { reason: mismatch.to_string() },
        };
        let metric = summary.metrics.iter_mut().find(|metric| metric.name == evaluators[at].name);
        if let Some(metric) = metric.filter(|metric| metric.denominator > 0) {
            metric.calibration = Some(calibrated);
        }
    }
    Ok(())
}

/// How often each evaluator gave each of its labels, trajectory by trajectory.
#[derive(Clone, Debug)]
pub struct JudgedPopulation {
    /// Labels by evaluator; the position of a label is its stratum.
    labels: Vec<Vec<(String, f64)>>,
    /// By evaluator.
    runs: Vec<Vec<JudgedRun>>,
    digest: PopulationDigest,
}

impl JudgedPopulation {
    pub fn new(evaluators: &[EvaluatorRecord]) -> JudgedPopulation {
        JudgedPopulation {
            labels: evaluators.iter().map(|evaluator| evaluator.labels.clone()).collect(),
            runs: vec![Vec::new(); evaluators.len()],
            digest: PopulationDigest::default(),
        }
    }

    fn read(&mut self, reader: &mut RunReader) -> Result<(), RunFileError> {
        reader.visit_verdicts(|head, verdicts| {
            self.add_trajectory(head, verdicts);
            ControlFlow::Continue(())
        })
    }

    /// Adds the verdicts on one trajectory.
    pub fn add_trajectory(&mut self, head: &JudgedHead<'_>, verdicts: &[VerdictHead]) {
        let scored =
            verdicts.iter().filter(|verdict| verdict.outcome == OutcomeKind::Scored && verdict.score.is_some());
        let labelled = scored.filter_map(|verdict| Some((verdict.evaluator, verdict.label.as_deref()?)));
        self.add_labels(&head.trajectory_id, labelled);
    }

    /// Adds the labels that evaluators, by their index, gave to one trajectory.
    pub fn add_labels<'l>(&mut self, trajectory_id: &str, labels: impl IntoIterator<Item = (usize, &'l str)>) {
        self.digest.add(trajectory_id);
        let mut counts: Vec<Vec<u32>> = self.labels.iter().map(|labels| vec![0; labels.len()]).collect();
        for (evaluator, label) in labels {
            let known = self.labels.get(evaluator);
            if let Some(stratum) = known.and_then(|labels| labels.iter().position(|(known, _)| known == label)) {
                counts[evaluator][stratum] += 1;
            }
        }
        for (runs, stratum_counts) in self.runs.iter_mut().zip(counts) {
            if stratum_counts.iter().any(|count| *count > 0) {
                runs.push(JudgedRun { stratum_counts });
            }
        }
    }

    /// The mean score of an evaluator; `None` without verdicts.
    pub fn raw_value(&self, evaluator: usize) -> Option<f64> {
        let (mut sum, mut count) = (0.0, 0.0);
        for run in &self.runs[evaluator] {
            for (verdicts, (_, score)) in run.stratum_counts.iter().zip(&self.labels[evaluator]) {
                sum += f64::from(*verdicts) * score;
                count += f64::from(*verdicts);
            }
        }
        (count > 0.0).then(|| sum / count)
    }

    /// Labels that were drawn from these very trajectories allow post-stratification; others only say how often the
    /// judge errs.
    pub fn correct(&self, evaluator: usize, calibration: &JudgeCalibration) -> MetricCalibration {
        let is_drawn = calibration.population.sampling != LabelSampling::Given;
        let is_same = calibration.population.digest == self.digest.to_text();
        let origin = if is_drawn && is_same { LabelOrigin::SamePopulation } else { LabelOrigin::OtherPopulation };
        let labelled = group_labelled_runs(calibration);
        let scores: Vec<f64> =
            calibration.labels.iter().map(|(label, _)| calibration.unit_score(label).unwrap_or_default()).collect();
        match correct_share(&self.runs[evaluator], &labelled, &scores, origin, CONFIDENCE, SEED) {
            Ok(share) => MetricCalibration::Corrected(rescale_share(&share, calibration)),
            // The hint of the message is for whoever calibrates.
            Err(refusal) => MetricCalibration::NotApplied {
                reason: refusal.to_string().lines().next().unwrap_or_default().to_owned(),
            },
        }
    }
}

/// The labelled cases by trajectory. Cases that the judge could not judge are part of no share.
pub(super) fn group_labelled_runs(calibration: &JudgeCalibration) -> Vec<LabelledRun> {
    let mut runs: BTreeMap<&str, LabelledRun> = BTreeMap::new();
    for case in &calibration.cases {
        let stratum = case.judge_label.as_deref().and_then(|label| calibration.stratum(label));
        if let (Some(stratum), Some(truth)) = (stratum, calibration.unit_score(&case.truth)) {
            let labelled = LabelledCase { stratum, truth, probability: case.probability };
            runs.entry(&case.trajectory_id).or_default().cases.push(labelled);
        }
    }
    runs.into_values().collect()
}

/// From a share of 0 to 1 to the scale of the rubric.
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
