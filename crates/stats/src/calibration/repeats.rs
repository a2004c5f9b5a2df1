//! Repeatability of a judge that is asked the same question several times: how often its answer flips, and its share
//! of the variance of scores.
//!
//! The score of an answer is the sum of what the run, the step and the answer add. The variance of the answers of one
//! step is the judge's; what is left is the agent's, between steps and between runs (nested analysis of variance). For
//! `n` steps with `K` answers each the variance of the mean is `(agent + judge / K) / n`, if steps are independent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::distributions::normal_quantile;
use crate::interval::wilson_interval;

use super::confusion::JudgeMeasure;
use super::design_effect::{RunTotals, clustered_share};

/// The labels that the judge gave to the cases of one run: by case, the index of the label of each answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepeatedRun {
    pub cases: Vec<Vec<usize>>,
}

/// The repeatability of a judge.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeRepeatability {
    /// Probability that two answers to the same question differ.
    pub flip_rate: JudgeMeasure,
    /// Cases with different answers.
    pub changed_cases: usize,
    pub variance: VarianceComponents,
}

/// Variances of the score of one answer, by source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VarianceComponents {
    /// Between runs. Includes the variance between steps if no run has several.
    pub run: f64,
    /// Between steps of a run.
    pub step: f64,
    /// Between answers to the same question.
    pub judge: f64,
    /// Share of the variance that is not the judge's (intraclass correlation); `None` if all scores are equal.
    pub reliability: Option<f64>,
    /// Parts of the variance of the mean score, which more runs and more answers would reduce.
    pub mean_agent: f64,
    pub mean_judge: f64,
}

/// Measures repeats. Cases with fewer than two answers are left out; `None` if nothing is left, if the score of a label
/// is missing, or if the confidence is not between 0 and 1.
pub fn measure_repeats(runs: &[RepeatedRun], label_scores: &[f64], confidence: f64) -> Option<JudgeRepeatability> {
    let repeated = |run: &RepeatedRun| -> Vec<Vec<usize>> {
        run.cases.iter().filter(|answers| answers.len() >= 2).cloned().collect()
    };
    let runs: Vec<Vec<Vec<usize>>> = runs.iter().map(repeated).filter(|cases| !cases.is_empty()).collect();
    let is_known = |label: &usize| *label < label_scores.len();
    if runs.is_empty() || !runs.iter().flatten().flatten().all(is_known) || !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let alpha = 1.0 - confidence;
    let sum_run = |cases: &Vec<Vec<usize>>| RunTotals {
        weight: cases.len() as f64,
        squares: cases.len() as f64,
        counted: cases.iter().map(|answers| flip_probability(answers)).sum(),
        cases: cases.len(),
    };
    let totals: Vec<RunTotals> = runs.iter().map(sum_run).collect();
    let share = clustered_share(&totals, alpha)?;
    let interval = wilson_interval(share.share, share.count, normal_quantile(alpha));
    let flip_rate = JudgeMeasure { value: share.share, lower: interval.low, upper: interval.high, cases: share.cases };
    let is_changed = |answers: &&Vec<usize>| answers.iter().any(|label| *label != answers[0]);
    Some(JudgeRepeatability {
        flip_rate,
        changed_cases: runs.iter().flatten().filter(is_changed).count(),
        variance: split_variance(&runs, label_scores)?,
    })
}

/// The share of pairs of answers that differ.
fn flip_probability(answers: &[usize]) -> f64 {
    let count = answers.len() as f64;
    let equal_pairs: usize = answers
        .iter()
        .enumerate()
        .map(|(at, label)| answers[..at].iter().filter(|other| *other == label).count())
        .sum();
    1.0 - 2.0 * equal_pairs as f64 / (count * (count - 1.0))
}

/// Splits the variance of the answers of all runs.
fn split_variance(runs: &[Vec<Vec<usize>>], label_scores: &[f64]) -> Option<VarianceComponents> {
    let mut tally = VarianceTally::default();
    for cases in runs {
        for answers in cases {
            tally.add_case(answers.iter().map(|label| label_scores[*label]));
        }
        tally.end_run();
    }
    tally.components()
}

/// Nested analysis of variance with unequal numbers: moments of answers within cases, of cases within runs, and of
/// runs. Runs are added one by one, so its memory does not grow with their number.
#[derive(Clone, Debug, Default)]
pub struct VarianceTally {
    /// Squared deviations of answers from the mean of their case, degrees of freedom, and the sum of 1 / answers.
    answer_squares: f64,
    answer_freedom: f64,
    inverse_answers: f64,
    /// Means of the cases of the run that is being counted.
    case_means: Vec<f64>,
    /// Of all runs: their number, cases, squared numbers of cases, squared deviations of cases from their run.
    run_count: f64,
    case_count: f64,
    size_squares: f64,
    within: f64,
    /// Mean of all cases, and the squared deviations of runs from it, weighted by their cases (Welford).
    grand_mean: f64,
    between: f64,
}

impl VarianceTally {
    /// Adds the scores of the answers to one question. A single answer shows nothing about the judge and is left out.
    pub fn add_case(&mut self, scores: impl Iterator<Item = f64>) {
        let scores: Vec<f64> = scores.collect();
        if scores.len() < 2 {
            return;
        }
        let mean = mean(&scores);
        self.answer_squares += sum_of_squares(&scores, mean);
        self.answer_freedom += scores.len() as f64 - 1.0;
        self.inverse_answers += 1.0 / scores.len() as f64;
        self.case_means.push(mean);
    }

    /// Ends a run. A run without cases does not count.
    pub fn end_run(&mut self) {
        let means = std::mem::take(&mut self.case_means);
        if means.is_empty() {
            return;
        }
        let (size, run_mean) = (means.len() as f64, mean(&means));
        self.run_count += 1.0;
        self.case_count += size;
        self.size_squares += size * size;
        self.within += sum_of_squares(&means, run_mean);
        let deviation = run_mean - self.grand_mean;
        self.grand_mean += deviation * size / self.case_count;
        self.between += size * deviation * (run_mean - self.grand_mean);
    }

    /// Runs with at least one case.
    pub fn run_count(&self) -> usize {
        self.run_count as usize
    }

    /// The components over all runs that have ended; `None` without any.
    pub fn components(&self) -> Option<VarianceComponents> {
        let VarianceTally { case_count, run_count, size_squares, within, between, .. } = *self;
        if case_count == 0.0 {
            return None;
        }
        let judge = self.answer_squares / self.answer_freedom;
        let judge_part = judge * self.inverse_answers / case_count;
        let (mut run, mut step) = (0.0, 0.0);
        if case_count > run_count {
            let within_mean = within / (case_count - run_count);
            // An estimate of a variance can be negative; the variance cannot.
            step = (within_mean - judge_part).max(0.0);
            if run_count > 1.0 {
                let typical_size = (case_count - size_squares / case_count) / (run_count - 1.0);
                run = ((between / (run_count - 1.0) - within_mean) / typical_size).max(0.0);
            }
        } else if run_count > 1.0 {
            run = (between / (run_count - 1.0) - judge_part).max(0.0);
        }
        let total = run + step + judge;
        Some(VarianceComponents {
            run,
            step,
            judge,
            reliability: (total > 0.0).then(|| (run + step) / total),
            mean_agent: run * size_squares / (case_count * case_count) + step / case_count,
            mean_judge: judge_part / case_count,
        })
    }
}

impl VarianceComponents {
    /// The judge's share of the variance of the mean; `None` if there is no variance.
    pub fn judge_share(&self) -> Option<f64> {
        let total = self.mean_agent + self.mean_judge;
        (total > 0.0).then(|| self.mean_judge / total)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn sum_of_squares(values: &[f64], mean: f64) -> f64 {
    values.iter().map(|value| (value - mean).powi(2)).sum()
}
