//! Corrects the metrics of a run by calibrations of its judge.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use gradus_stats::calibration::{
    CorrectedShare, CorrectionRefusal, JudgedRun, LabelOrigin, LabelOutlook, LabelledCase, LabelledRun, correct_share,
    outlook_from_labels,
};
use gradus_stats::interval::ConfidenceInterval;

use super::calibrated_judge::{AnsweredModels, RunJudge};
use super::calibration_file::{CalibrationFile, JudgeCalibration, LabelSampling};
use super::calibration_measures::CONFIDENCE;
use super::calibration_mismatch::CalibrationMismatch;
use super::label_draw::PopulationDigest;
use super::verdict_strata::{VerdictStrata, VoteSplit};
use crate::outcome::OutcomeKind;
use crate::report::{CorrectedMetric, EvaluationSummary, MetricCalibration, RunReader};
use crate::run::{EvaluatorRecord, PanelRecord, RunFileError};

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
    // By label, whoever judges: people are asked to label so many verdicts of each label.
    let strata: Vec<VerdictStrata> = reader.record.evaluators.iter().map(VerdictStrata::from_labels).collect();
    let mut population = JudgedPopulation::new(strata);
    population.read(reader)?;
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

/// The calibrations for these evaluators that do not apply, as far as it is known before anything is asked.
pub fn find_refusals(
    file: &CalibrationFile,
    evaluators: &[EvaluatorRecord],
    panel: Option<&PanelRecord>,
    now: jiff::Timestamp,
) -> Vec<RefusedCalibration> {
    let judge = RunJudge { panel, answered: None };
    let refusal = |evaluator: &EvaluatorRecord| match file.find(evaluator, judge, now) {
        Some(Err(mismatch)) => Some(RefusedCalibration { evaluator: evaluator.name.clone(), mismatch }),
        _ => None,
    };
    evaluators.iter().filter_map(refusal).collect()
}

/// Adds the corrected number, or the reason why there is none, to each metric that a calibration is about. Returns the
/// calibrations that are of another judge, rubric or time.
pub fn apply_calibrations(
    summary: &mut EvaluationSummary,
    reader: &mut RunReader,
    file: &CalibrationFile,
    now: jiff::Timestamp,
) -> Result<Vec<RefusedCalibration>, RunFileError> {
    let (evaluators, panel) = (reader.record.evaluators.clone(), reader.record.panel.clone());
    let find =
        |evaluator: &EvaluatorRecord, answered| file.find(evaluator, RunJudge { panel: panel.as_ref(), answered }, now);
    let mut refused = Vec::new();
    if evaluators.iter().all(|evaluator| find(evaluator, None).is_none()) {
        return Ok(refused);
    }
    let strata = |evaluator: &EvaluatorRecord| {
        let has_votes = matches!(find(evaluator, None), Some(Ok(known)) if known.has_votes());
        VerdictStrata::new(evaluator, panel.as_ref(), has_votes)
    };
    let mut population = JudgedPopulation::new(evaluators.iter().map(strata).collect());
    population.read(reader)?;
    for (at, evaluator) in evaluators.iter().enumerate() {
        let calibrated = match find(evaluator, Some(&population.answered[at])) {
            None => continue,
            Some(Ok(calibration)) => population.correct(at, calibration),
            Some(Err(mismatch)) => {
                let reason = mismatch.to_string();
                refused.push(RefusedCalibration { evaluator: evaluator.name.clone(), mismatch });
                MetricCalibration::NotApplied { reason }
            }
        };
        let metric = summary.metrics.iter_mut().find(|metric| metric.name == evaluator.name);
        if let Some(metric) = metric.filter(|metric| metric.denominator > 0) {
            metric.calibration = Some(calibrated);
        }
    }
    Ok(refused)
}

/// How often each evaluator gave verdicts of each stratum, run by run.
struct JudgedPopulation {
    /// By evaluator, like the next two.
    strata: Vec<VerdictStrata>,
    runs: Vec<Vec<JudgedRun>>,
    answered: Vec<AnsweredModels>,
    digest: PopulationDigest,
}

impl JudgedPopulation {
    fn new(strata: Vec<VerdictStrata>) -> JudgedPopulation {
        JudgedPopulation {
            runs: vec![Vec::new(); strata.len()],
            answered: vec![AnsweredModels::default(); strata.len()],
            strata,
            digest: PopulationDigest::default(),
        }
    }

    fn read(&mut self, reader: &mut RunReader) -> Result<(), RunFileError> {
        let (evaluators, panel) = (reader.record.evaluators.clone(), reader.record.panel.clone());
        let sizes: Vec<usize> = self.strata.iter().map(|strata| strata.scores().len()).collect();
        reader.visit_answers(|head, answers| {
            self.digest.add(&head.trajectory_id);
            let mut counts: Vec<Vec<u32>> = sizes.iter().map(|size| vec![0; *size]).collect();
            for answer in answers {
                let Some(strata) = self.strata.get(answer.evaluator) else { continue };
                self.answered[answer.evaluator].add_answer(answer);
                let votes = VoteSplit::count(&evaluators[answer.evaluator], panel.as_ref(), answer);
                let label = answer.label.as_deref().filter(|_| answer.outcome == OutcomeKind::Scored);
                let stratum = label.and_then(|label| strata.find(label, votes));
                if let (Some(stratum), Some(_)) = (stratum, answer.score) {
                    counts[answer.evaluator][stratum] += 1;
                }
            }
            for (runs, stratum_counts) in self.runs.iter_mut().zip(counts) {
                if stratum_counts.iter().any(|count| *count > 0) {
                    runs.push(JudgedRun { stratum_counts });
                }
            }
            ControlFlow::Continue(())
        })
    }

    /// Labels that were drawn from these very trajectories allow post-stratification; others only say how often the
    /// judge errs.
    fn correct(&self, evaluator: usize, calibration: &JudgeCalibration) -> MetricCalibration {
        let is_drawn = calibration.population.sampling != LabelSampling::Given;
        let is_same = calibration.population.digest == self.digest.to_text();
        let origin = if is_drawn && is_same { LabelOrigin::SamePopulation } else { LabelOrigin::OtherPopulation };
        let strata = &self.strata[evaluator];
        let (labelled, scores) = (group_labelled_runs(calibration, strata), strata.scores());
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
