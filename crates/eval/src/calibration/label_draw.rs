//! Draws the cases to label from the verdicts of a run. The draw is an order of all cases, by hash of seed and id:
//! labelling may stop after any number of cases and continue later in the same order. The sampling probability of a
//! case follows from the number of labelled cases.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use gradus_stats::calibration::{RepeatedRun, measure_repeats};

use super::calibrated_judge::AnsweringModels;
use super::calibration_file::LabelSampling;
use super::calibration_measures::{CONFIDENCE, MeasuredShare};
use super::verdict_strata::VoteSplit;
use crate::outcome::OutcomeKind;
use crate::report::{AnswerHead, RunReader};
use crate::run::{EvaluatorRecord, RunFileError};

/// A verdict of a run that can be labelled.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedCase {
    pub trajectory_id: String,
    pub step_index: Option<u32>,
    /// The judge's label.
    pub label: String,
    /// The uncertainty of the judge, from 0 to 1: by the disagreement of its votes, or by the probability of its
    /// label. `None` if neither is known.
    pub uncertainty: Option<f64>,
    /// The votes of a panel; `None` if votes are not used as strata.
    pub votes: Option<VoteSplit>,
}

/// All verdicts of an evaluator in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CasePopulation {
    /// In the order of the run.
    pub cases: Vec<JudgedCase>,
    /// Trajectories of the run.
    pub trajectories: u64,
    /// Questions that the judge could not answer.
    pub not_judged: u64,
    /// See [`super::LabelPopulation::digest`].
    pub digest: String,
    /// The models that answered.
    pub answered: AnsweringModels,
    /// How often two answers of one model to the same question differ.
    pub flip_rate: MeasuredShare,
}

/// An order in which cases are labelled.
#[derive(Clone, Debug)]
pub struct LabelDraw {
    sampling: LabelSampling,
    /// Indices into the cases of the population, the first to label first.
    order: Vec<usize>,
    /// For each case of the population: its label for stratified draws, its uncertainty for active ones.
    strata: Vec<usize>,
    sizes: Vec<f64>,
}

/// Why cases cannot be drawn as asked.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelDrawError {
    #[error(
        "active sampling needs to know how unsure the judge was, and this run does not tell\nhint: judge with --repeats \
         3 or several judges, or use --sampling uniform"
    )]
    NoUncertainty,
}

/// Minimum uncertainty, so that cases that a judge is sure of are sampled, too.
const MIN_UNCERTAINTY: f64 = 0.1;

/// A digest of a set of trajectories, which does not depend on their order.
#[derive(Clone, Copy, Debug, Default)]
pub struct PopulationDigest {
    sum: u128,
    count: u64,
}

impl PopulationDigest {
    pub fn add(&mut self, trajectory_id: &str) {
        self.sum = self.sum.wrapping_add(gradus_core::stable_digest(trajectory_id.as_bytes()));
        self.count += 1;
    }

    pub fn to_text(self) -> String {
        format!("{:032x}-{}", self.sum, self.count)
    }
}

impl CasePopulation {
    /// Reads the verdicts of one evaluator, by its index in the manifest. Verdicts whose label has no score are left
    /// out: they are not part of any share.
    pub fn read(reader: &mut RunReader, evaluator: usize) -> Result<CasePopulation, RunFileError> {
        let (record, panel) = (reader.record.evaluators[evaluator].clone(), reader.record.panel.clone());
        let mut population = CasePopulation::default();
        let mut digest = PopulationDigest::default();
        let mut repeated: Vec<RepeatedRun> = Vec::new();
        reader.visit_answers(|head, answers| {
            population.trajectories += 1;
            digest.add(&head.trajectory_id);
            let mut run = RepeatedRun::default();
            for answer in answers.iter().filter(|answer| answer.evaluator == evaluator) {
                population.answered.add_answer(answer);
                run.cases.extend(group_repeats(&record, answer));
                match (answer.outcome, &answer.label, answer.score) {
                    (OutcomeKind::Scored, Some(label), Some(_)) => population.cases.push(JudgedCase {
                        trajectory_id: head.trajectory_id.to_string(),
                        step_index: answer.step_index,
                        label: label.clone(),
                        uncertainty: measure_uncertainty(answer),
                        votes: VoteSplit::count(&record, panel.as_ref(), answer),
                    }),
                    (OutcomeKind::Failed | OutcomeKind::Abstained, ..) => population.not_judged += 1,
                    _ => {}
                }
            }
            repeated.push(run);
            ControlFlow::Continue(())
        })?;
        population.digest = digest.to_text();
        let scores: Vec<f64> = record.labels.iter().map(|(_, score)| *score).collect();
        population.flip_rate = measure_repeats(&repeated, &scores, CONFIDENCE).map(|found| found.flip_rate).into();
        Ok(population)
    }

    /// Whether every verdict has several votes, so that their disagreement shows the uncertainty.
    pub fn has_votes(&self) -> bool {
        !self.cases.is_empty() && self.cases.iter().all(|case| case.votes.is_some() && case.uncertainty.is_some())
    }
}

/// Returns the uncertainty of an answer. With two labels it is 1 for a probability of one half and for tied votes.
fn measure_uncertainty(answer: &AnswerHead) -> Option<f64> {
    let by_probability = answer.label_probability.map(|probability| 2.0 * (1.0 - probability));
    // A single answer has no disagreement, so its probability is used.
    let by_votes = answer.disagreement.filter(|_| answer.votes.len() > 1).map(|share| 2.0 * share);
    by_votes.or(by_probability).map(|uncertainty| uncertainty.clamp(0.0, 1.0))
}

/// The labels that each model gave to one question, for the models that were asked several times.
fn group_repeats(evaluator: &EvaluatorRecord, answer: &AnswerHead) -> Vec<Vec<usize>> {
    let mut by_judge: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for vote in &answer.votes {
        let label = evaluator.labels.iter().position(|(known, _)| vote.label.as_ref() == Some(known));
        if let Some(label) = label {
            by_judge.entry(&vote.judge).or_default().push(label);
        }
    }
    by_judge.into_values().filter(|labels| labels.len() > 1).collect()
}

impl LabelDraw {
    pub fn new(population: &CasePopulation, sampling: LabelSampling, seed: u64) -> Result<LabelDraw, LabelDrawError> {
        let cases = &population.cases;
        let number = |case: &JudgedCase| uniform_number(seed, case);
        let mut labels: Vec<&str> = cases.iter().map(|case| &*case.label).collect();
        labels.sort_unstable();
        labels.dedup();
        let stratum = |case: &JudgedCase| labels.binary_search(&&*case.label).unwrap_or_default();
        let mut keys: Vec<(f64, usize)> = cases.iter().enumerate().map(|(at, case)| (number(case), at)).collect();
        let (mut strata, mut sizes) = (vec![0; cases.len()], vec![1.0; cases.len()]);
        match sampling {
            LabelSampling::Uniform | LabelSampling::Given => {}
            LabelSampling::Stratified => {
                strata = cases.iter().map(stratum).collect();
                keys.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
                // The nth cases of all labels come before the next ones, so that every beginning of the order is
                // balanced.
                let mut seen = vec![0.0; labels.len()];
                for (key, at) in &mut keys {
                    *key = seen[strata[*at]];
                    seen[strata[*at]] += 1.0;
                }
            }
            LabelSampling::Active => {
                for (size, case) in sizes.iter_mut().zip(cases) {
                    let uncertainty = case.uncertainty.ok_or(LabelDrawError::NoUncertainty)?;
                    *size = uncertainty.clamp(MIN_UNCERTAINTY, 1.0);
                }
                // Sequential Poisson sampling: the smallest quotients are a draw of fixed size with probabilities in
                // proportion to the sizes.
                for (key, at) in &mut keys {
                    *key /= sizes[*at];
                }
            }
        }
        // Stable, so cases with equal keys keep their order.
        keys.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
        let order = keys.into_iter().map(|(_, at)| at).collect();
        Ok(LabelDraw { sampling, order, strata, sizes })
    }

    /// Indices into the cases of the population, the first to label first.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The probability of each of the first `count` cases to be among them.
    pub fn probabilities(&self, count: usize) -> Vec<f64> {
        let drawn = &self.order[..count.min(self.order.len())];
        match self.sampling {
            LabelSampling::Uniform => vec![drawn.len() as f64 / self.order.len() as f64; drawn.len()],
            LabelSampling::Given => vec![1.0; drawn.len()],
            LabelSampling::Stratified => {
                let strata_count = self.strata.iter().max().map_or(0, |last| last + 1);
                let (mut all, mut chosen) = (vec![0.0; strata_count], vec![0.0; strata_count]);
                self.strata.iter().for_each(|stratum| all[*stratum] += 1.0);
                drawn.iter().for_each(|at| chosen[self.strata[*at]] += 1.0);
                drawn.iter().map(|at| chosen[self.strata[*at]] / all[self.strata[*at]]).collect()
            }
            LabelSampling::Active => {
                let factor = inclusion_factor(&self.sizes, drawn.len());
                drawn.iter().map(|at| (factor * self.sizes[*at]).min(1.0)).collect()
            }
        }
    }
}

/// Returns the factor for which the probabilities `min(1, factor * size)` add up to `count`.
fn inclusion_factor(sizes: &[f64], count: usize) -> f64 {
    let mut sorted: Vec<f64> = sizes.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let mut rest: f64 = sorted.iter().sum();
    // Cases whose probability would exceed 1 are certain; the others share what is left.
    for (certain, size) in sorted.iter().enumerate() {
        let factor = (count as f64 - certain as f64) / rest;
        if factor * size <= 1.0 {
            return factor;
        }
        rest -= size;
    }
    f64::INFINITY
}

/// Returns a number from 0 to 1 that depends only on the seed and the case.
fn uniform_number(seed: u64, case: &JudgedCase) -> f64 {
    let step = case.step_index.map_or(String::new(), |step| step.to_string());
    let digest = gradus_core::stable_digest(format!("{seed}\n{}\n{step}", case.trajectory_id).as_bytes());
    // An `f64` holds 53 bits exactly.
    ((digest >> 75) as f64 + 0.5) / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 90 verdicts `correct` and 10 `incorrect`; the judge is unsure of every tenth.
    fn population() -> CasePopulation {
        let case = |at: u32| JudgedCase {
            trajectory_id: format!("t{}", at / 2),
            step_index: Some(at % 2),
            label: if at % 10 == 3 { "incorrect" } else { "correct" }.to_owned(),
            uncertainty: Some(if at.is_multiple_of(10) { 1.0 } else { 0.0 }),
            votes: None,
        };
        CasePopulation { cases: (0..100).map(case).collect(), trajectories: 50, ..CasePopulation::default() }
    }

    #[test]
    fn a_longer_draw_begins_with_the_shorter_one_and_depends_on_the_seed() {
        for sampling in [LabelSampling::Uniform, LabelSampling::Stratified, LabelSampling::Active] {
            let draw = |seed| LabelDraw::new(&population(), sampling, seed).unwrap().order().to_vec();
            let (first, same, other) = (draw(1), draw(1), draw(2));
            assert_eq!(first, same);
            assert_ne!(first, other);
            let mut all = first;
            all.sort_unstable();
            assert_eq!(all, (0..100).collect::<Vec<_>>(), "every case once");
        }
    }

    #[test]
    fn every_beginning_of_a_stratified_draw_is_balanced() {
        let population = population();
        let draw = LabelDraw::new(&population, LabelSampling::Stratified, 7).unwrap();
        let wrong = |count: usize| {
            draw.order()[..count].iter().filter(|at| population.cases[**at].label == "incorrect").count()
        };
        assert_eq!([wrong(2), wrong(8), wrong(20), wrong(50)], [1, 4, 10, 10]);
        let probabilities = draw.probabilities(30);
        let estimate: f64 = probabilities.iter().map(|probability| 1.0 / probability).sum();
        assert!((estimate - 100.0).abs() < 1e-9, "weights add up to the population: {estimate}");
    }

    #[test]
    fn the_probability_of_an_active_draw_is_the_share_of_seeds_that_draw_the_case() {
        let population = population();
        // 10 unsure cases, and as examples of the others the 10 whose number ends with 9.
        let seeds = 400;
        for kind in [0, 9] {
            let (mut hits, mut expected) = (0.0, 0.0);
            for seed in 0..seeds {
                let draw = LabelDraw::new(&population, LabelSampling::Active, seed).unwrap();
                for (at, probability) in draw.order().iter().zip(draw.probabilities(20)) {
                    if at % 10 == kind {
                        (hits, expected) = (hits + 1.0, probability);
                    }
                }
            }
            let share: f64 = hits / (10.0 * seeds as f64);
            assert!((share - expected).abs() < 0.03, "{share} of the seeds, expected {expected}");
        }
        let mut silent = population;
        silent.cases[3].uncertainty = None;
        let refused = LabelDraw::new(&silent, LabelSampling::Active, 1).unwrap_err();
        assert_eq!(refused, LabelDrawError::NoUncertainty);
    }

    #[test]
    fn populations_are_recognized_in_any_order() {
        let digest = |ids: &[&str]| {
            let mut digest = PopulationDigest::default();
            ids.iter().for_each(|id| digest.add(id));
            digest.to_text()
        };
        assert_eq!(digest(&["a", "b"]), digest(&["b", "a"]));
        assert_ne!(digest(&["a", "b"]), digest(&["a", "b", "c"]));
        assert_ne!(digest(&["a"]), digest(&["b"]));
    }
}
