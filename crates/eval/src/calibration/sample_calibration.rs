//! A calibration from a random sample that was labelled on the review page. The judge's verdicts come with the labels, so
//! no run is needed.

use std::collections::BTreeMap;

use super::calibrated_judge::CalibratedJudge;
use super::calibration_builder::measure_cases;
use super::calibration_file::{JudgeCalibration, LabelPopulation, LabelSampling, LabelledVerdict};
use super::calibration_measures::CalibrationMeasures;
use super::label_draw::JudgedCase;
use super::label_merge::MergedLabels;
use crate::run::EvaluatorRecord;

/// The first cases of a random sample, with their labels.
#[derive(Debug)]
pub struct ReviewedSample<'s> {
    pub evaluator: &'s EvaluatorRecord,
    pub population: LabelPopulation,
    /// Verdicts of the population by label.
    pub by_label: &'s BTreeMap<String, u64>,
    /// A beginning of the draw without gaps: only that is random.
    pub cases: &'s [JudgedCase],
    /// By the index into the cases.
    pub labels: &'s MergedLabels,
    pub created: jiff::Timestamp,
    pub expires: jiff::Timestamp,
    pub gradus_version: &'s str,
}

impl ReviewedSample<'_> {
    /// The probability of a case to be among the first ones of the draw.
    fn probability(&self, case: &JudgedCase) -> f64 {
        let (drawn, all) = match self.population.sampling {
            LabelSampling::Stratified => (
                self.cases.iter().filter(|other| other.label == case.label).count() as u64,
                self.by_label.get(&case.label).copied().unwrap_or(0),
            ),
            _ => (self.cases.len() as u64, self.population.judged),
        };
        // Verdicts may have been deleted since they were counted.
        drawn as f64 / all.max(drawn) as f64
    }

    pub fn build_calibration(&self) -> JudgeCalibration {
        let mut cases: Vec<LabelledVerdict> = self
            .labels
            .truths
            .iter()
            .map(|(at, truth)| {
                let case = &self.cases[*at];
                LabelledVerdict {
                    trajectory_id: case.trajectory_id.clone(),
                    step_index: case.step_index,
                    judge_label: Some(case.label.clone()),
                    truth: truth.clone(),
                    votes: None,
                    probability: self.probability(case),
                }
            })
            .collect();
        cases.sort_by(|a, b| (&a.trajectory_id, a.step_index).cmp(&(&b.trajectory_id, b.step_index)));
        let measures = CalibrationMeasures {
            disputed: self.labels.disputed.len() as u64,
            ..measure_cases(&cases, self.evaluator)
        };
        JudgeCalibration {
            evaluator: self.evaluator.name.clone(),
            judge: CalibratedJudge { name: self.evaluator.judge.clone(), ..CalibratedJudge::default() },
            rubric_hash: self.evaluator.rubric_hash.clone(),
            labels: self.evaluator.labels.clone(),
            population: self.population.clone(),
            labellers: self.labels.labellers.clone(),
            measures,
            created: self.created.to_string(),
            expires: self.expires.to_string(),
            gradus_version: self.gradus_version.to_owned(),
            cases,
        }
    }
}
