//! Builds a calibration from labelled verdicts: the confusion matrix and the measures derived from it.

use std::collections::BTreeMap;

use gradus_stats::calibration::{LabelledCase, LabelledRun, UnjudgedCases, measure_judge};

use super::calibrated_judge::CalibratedJudge;
use super::calibration_file::{JudgeCalibration, LabelPopulation, LabelSampling, LabelledVerdict};
use super::calibration_measures::{CONFIDENCE, CalibrationMeasures, VoteStratum};
use super::label_draw::{CasePopulation, LabelDraw};
use super::label_merge::MergedLabels;
use super::verdict_strata::VoteSplit;
use crate::run::{EvaluatorRecord, RunManifest};

/// The input of a calibration.
#[derive(Debug)]
pub struct CalibrationInput<'i> {
    pub manifest: &'i RunManifest,
    pub evaluator: &'i EvaluatorRecord,
    pub population: &'i CasePopulation,
    /// `None` for labels that were not drawn.
    pub draw: Option<DrawnCases<'i>>,
    pub labels: &'i MergedLabels,
    pub created: jiff::Timestamp,
    pub expires: jiff::Timestamp,
    pub gradus_version: &'i str,
}

/// The random draw whose labels are used, and how many of its cases were labelled.
#[derive(Clone, Copy, Debug)]
pub struct DrawnCases<'d> {
    pub draw: &'d LabelDraw,
    pub sampling: LabelSampling,
    pub seed: u64,
    /// Number of cases from the beginning of the draw that somebody has reviewed.
    pub count: usize,
}

/// Makes a calibration. Of a draw, only the cases that were drawn are used: others would not be random.
pub fn build_calibration(input: &CalibrationInput<'_>) -> JudgeCalibration {
    let probabilities: BTreeMap<usize, f64> = match input.draw {
        Some(drawn) => drawn.draw.order().iter().copied().zip(drawn.draw.probabilities(drawn.count)).collect(),
        None => input.labels.truths.keys().map(|case| (*case, 1.0)).collect(),
    };
    let mut cases: Vec<LabelledVerdict> = input
        .labels
        .truths
        .iter()
        .filter_map(|(at, truth)| {
            let case = &input.population.cases[*at];
            Some(LabelledVerdict {
                trajectory_id: case.trajectory_id.clone(),
                step_index: case.step_index,
                judge_label: Some(case.label.clone()),
                votes: case.votes,
                truth: truth.clone(),
                probability: *probabilities.get(at)?,
            })
        })
        .collect();
    cases.sort_by(|a, b| (&a.trajectory_id, a.step_index).cmp(&(&b.trajectory_id, b.step_index)));
    let measures = CalibrationMeasures {
        flip_rate: input.population.flip_rate,
        disputed: input.labels.disputed.len() as u64,
        ..measure_cases(&cases, input.evaluator)
    };
    JudgeCalibration {
        evaluator: input.evaluator.name.clone(),
        judge: CalibratedJudge::from_run(input.manifest, input.evaluator, &input.population.answered),
        rubric_hash: input.evaluator.rubric_hash.clone(),
        labels: input.evaluator.labels.clone(),
        population: LabelPopulation {
            run_id: input.manifest.run_id.clone(),
            sources: input.manifest.sources.clone(),
            digest: input.population.digest.clone(),
            trajectories: input.population.trajectories,
            judged: input.population.cases.len() as u64,
            not_judged: input.population.not_judged,
            sampling: match input.draw {
                Some(drawn) => drawn.sampling,
                // If everything is labelled, every case has the probability 1.
                None if input.labels.truths.len() == input.population.cases.len() => LabelSampling::Uniform,
                None => LabelSampling::Given,
            },
            seed: input.draw.map_or(0, |drawn| drawn.seed),
        },
        labellers: input.labels.labellers.clone(),
        measures,
        created: input.created.to_string(),
        expires: input.expires.to_string(),
        gradus_version: input.gradus_version.to_owned(),
        cases,
    }
}

/// Computes the confusion matrix and its measures. Cases are weighted by the inverse of their probability.
pub(super) fn measure_cases(cases: &[LabelledVerdict], evaluator: &EvaluatorRecord) -> CalibrationMeasures {
    let score = |label: &str| evaluator.labels.iter().find(|(known, _)| known == label).map(|(_, score)| *score);
    let as_share = |is_right: bool| f64::from(u8::from(is_right));
    let is_right = |label: &str| evaluator.is_right(score(label));
    let mut measures = CalibrationMeasures { cases: cases.len() as u64, ..CalibrationMeasures::default() };
    let mut runs: BTreeMap<&str, LabelledRun> = BTreeMap::new();
    let mut by_votes: BTreeMap<VoteSplit, VoteStratum> = BTreeMap::new();
    for case in cases {
        let run = runs.entry(&case.trajectory_id).or_default();
        let Some(label) = &case.judge_label else {
            *measures.could_not_judge.entry(case.truth.clone()).or_default() += 1;
            continue;
        };
        *measures.confusion.entry(label.clone()).or_default().entry(case.truth.clone()).or_default() += 1;
        if let Some(votes) = case.votes {
            let stratum = by_votes.entry(votes).or_insert(VoteStratum { votes, cases: 0, right: 0 });
            stratum.cases += 1;
            stratum.right += u64::from(is_right(&case.truth));
        }
        run.cases.push(LabelledCase {
            stratum: evaluator.labels.iter().position(|(known, _)| known == label).unwrap_or_default(),
            truth: as_share(is_right(&case.truth)),
            probability: case.probability,
        });
    }
    measures.trajectories = runs.len() as u64;
    measures.by_votes = by_votes.into_values().collect();
    let runs: Vec<LabelledRun> = runs.into_values().collect();
    // Only the best label is right, however many there are.
    let strata_scores: Vec<f64> = evaluator.labels.iter().map(|(label, _)| as_share(is_right(label))).collect();
    if let Ok(found) = measure_judge(&runs, &strata_scores, UnjudgedCases::default(), CONFIDENCE) {
        measures.true_positive_rate = found.true_positive_rate.into();
        measures.true_negative_rate = found.true_negative_rate.into();
        measures.precision = found.precision.into();
        measures.agreement = found.accuracy.into();
        measures.base_rate = found.base_rate.into();
        measures.kappa = found.kappa.into();
        measures.ac1 = found.ac1.into();
    }
    measures
}

#[cfg(test)]
mod tests {
    use super::super::calibration_measures::MeasuredShare;
    use super::*;

    fn evaluator() -> EvaluatorRecord {
        EvaluatorRecord {
            name: "thought_to_tool".to_owned(),
            title: String::new(),
            of_steps: true,
            labels: vec![("correct".to_owned(), 1.0), ("incorrect".to_owned(), 0.0)],
            rubric_hash: "h".to_owned(),
            phoenix_name: String::new(),
            judge: "openai:a".to_owned(),
        }
    }

    fn case(number: u32, judge_label: &str, truth: &str, probability: f64) -> LabelledVerdict {
        LabelledVerdict {
            trajectory_id: format!("t{number}"),
            step_index: Some(1),
            judge_label: (!judge_label.is_empty()).then(|| judge_label.to_owned()),
            votes: None,
            truth: truth.to_owned(),
            probability,
        }
    }

    /// 18 of 20 right ones called right, 6 of 10 wrong ones called wrong, 2 that the judge did not answer.
    fn cases() -> Vec<LabelledVerdict> {
        let mut cases: Vec<LabelledVerdict> =
            (0..20).map(|at| case(at, if at < 18 { "correct" } else { "incorrect" }, "correct", 1.0)).collect();
        cases.extend((20..30).map(|at| case(at, if at < 26 { "incorrect" } else { "correct" }, "incorrect", 1.0)));
        cases.extend([case(30, "", "incorrect", 1.0), case(31, "", "incorrect", 1.0)]);
        cases
    }

    #[test]
    fn measures_follow_from_the_confusion_matrix() {
        let found = measure_cases(&cases(), &evaluator());
        assert_eq!((found.cases, found.trajectories), (32, 32));
        assert_eq!(found.confusion["correct"], [("correct".to_owned(), 18), ("incorrect".to_owned(), 4)].into());
        assert_eq!(found.could_not_judge, [("incorrect".to_owned(), 2)].into());
        let value = |share: MeasuredShare| (share.value.unwrap(), share.count);
        assert_eq!(value(found.true_positive_rate), (0.9, 20));
        assert_eq!(value(found.true_negative_rate), (0.6, 10));
        assert_eq!(value(found.precision), (18.0 / 22.0, 22));
        assert_eq!(value(found.agreement), (0.8, 30));
        let interval = found.true_negative_rate.interval.unwrap();
        assert!(interval.low < 0.4 && interval.high > 0.75, "{interval:?}");
        // (0.8 - chance) / (1 - chance), with chance = (22 * 20 + 8 * 10) / 900.
        let chance = 520.0 / 900.0;
        assert!((found.kappa.value.unwrap() - (0.8 - chance) / (1.0 - chance)).abs() < 1e-12);
        assert!(found.ac1.value.unwrap() > found.kappa.value.unwrap(), "most cases are right");
    }

    #[test]
    fn a_missing_class_has_no_rate() {
        let only_right: Vec<LabelledVerdict> = cases().into_iter().take(18).collect();
        let found = measure_cases(&only_right, &evaluator());
        assert_eq!(found.true_negative_rate, MeasuredShare::default());
        assert_eq!(found.kappa.value, None);
        let interval = found.true_positive_rate.interval.unwrap();
        assert!(interval.low < 0.9, "18 of 18 prove no perfect judge: {interval:?}");
        assert_eq!(measure_cases(&[], &evaluator()).agreement, MeasuredShare::default());
    }

    #[test]
    fn rarely_drawn_cases_stand_for_many() {
        let mut cases = cases();
        // The judge's right label was drawn ten times less often than its wrong one.
        for case in &mut cases {
            case.probability = if case.judge_label.as_deref() == Some("correct") { 0.1 } else { 1.0 };
        }
        let found = measure_cases(&cases, &evaluator());
        assert!((found.true_positive_rate.value.unwrap() - 180.0 / 182.0).abs() < 1e-12);
        assert!((found.base_rate.value.unwrap() - 182.0 / 228.0).abs() < 1e-12);
    }
}
