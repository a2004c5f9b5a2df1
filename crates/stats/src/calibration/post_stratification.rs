//! Post-stratification on the judge's label.
//!
//! Within each label of the judge, people's labels estimate the share `p_g` of right cases; the frequency `w_g` of
//! the label is known from the whole population. The share of right cases is the sum of `w_g p_g`. Each `p_g` has a
//! Beta(1, 1) prior, so a label with few labelled cases widens the interval and never looks certain. The estimate is
//! the mean of the posterior. The bounds are its quantiles, each with half a prior case less on its own side
//! (`NEAR_PRIOR`).
//!
//! Cases of one run are alike, also across labels of the judge. So the variance of the whole sum is estimated by
//! runs, and the number of cases of the posterior is reduced until it has this variance.

use crate::interval::ConfidenceInterval;

use super::beta_sum::{BetaNormalSum, WeightedBeta};
use super::design_effect::{IndependentVariance, RunInfluence, case_weight, effective_part};
use super::labelled::{JudgedRun, LabelledCase, LabelledRun};
use super::labels_alone::posterior_bounds;
use super::stratum_merging::merge_sparse_strata;

/// Labels of people on the cases with one label of the judge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct StratumSample {
    /// Share of this label in the population.
    population_share: f64,
    weight: f64,
    right: f64,
    squares: f64,
}

impl StratumSample {
    /// Share of right cases among the labelled ones; one half without any.
    fn share(&self) -> f64 {
        if self.weight > 0.0 { self.right / self.weight } else { 0.5 }
    }

    /// Returns the number of cases with equal weights that have the same variance (Kish).
    fn count(&self) -> f64 {
        if self.weight > 0.0 { self.weight * self.weight / self.squares } else { 0.0 }
    }

    /// The share with one right and one wrong case added: the mean of the posterior.
    fn smoothed_share(&self) -> f64 {
        let count = self.count();
        (self.share() * count + 1.0) / (count + 2.0)
    }

    /// The posterior of the share, if each case counts for `part` of one. The prior is a number of right and of wrong
    /// cases.
    fn posterior(&self, part: f64, prior: (f64, f64)) -> WeightedBeta {
        let (share, count) = (self.share(), part * self.count());
        WeightedBeta { weight: self.population_share, a: share * count + prior.0, b: (1.0 - share) * count + prior.1 }
    }
}

/// Labelled cases by label of the judge.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StratifiedSample {
    strata: Vec<StratumSample>,
    /// The stratum of each label of the judge.
    stratum_of_label: Vec<usize>,
}

/// The estimate and its interval. The input was checked, and the population is not empty.
pub(super) fn post_stratify(
    population: &[JudgedRun],
    labelled: &[LabelledRun],
    strata_scores: &[f64],
    alpha: f64,
) -> (f64, ConfidenceInterval) {
    let sample = StratifiedSample::new(population, labelled, merge_sparse_strata(labelled, strata_scores));
    let part = sample.labelled_part(labelled, alpha);
    let normal_variance = sample.population_variance(population, labelled);
    let posterior = |part: f64, prior| {
        let seen = sample.strata.iter().filter(|stratum| stratum.population_share > 0.0);
        BetaNormalSum { terms: seen.map(|stratum| stratum.posterior(part, prior)).collect(), normal_variance }
    };
    let estimate = posterior(1.0, (1.0, 1.0)).mean();
    (estimate, posterior_bounds(estimate, alpha, |prior| posterior(part, prior)))
}

impl StratifiedSample {
    pub(super) fn new(
        population: &[JudgedRun],
        labelled: &[LabelledRun],
        stratum_of_label: Vec<usize>,
    ) -> StratifiedSample {
        let stratum_count = stratum_of_label.iter().max().map_or(0, |last| last + 1);
        let mut strata = vec![StratumSample::default(); stratum_count];
        for run in population {
            for (count, stratum) in run.stratum_counts.iter().zip(&stratum_of_label) {
                strata[*stratum].population_share += f64::from(*count);
            }
        }
        let all: f64 = strata.iter().map(|stratum| stratum.population_share).sum();
        for stratum in &mut strata {
            stratum.population_share /= all;
        }
        for case in labelled.iter().flat_map(|run| &run.cases) {
            let weight = case_weight(case);
            let stratum = &mut strata[stratum_of_label[case.stratum]];
            stratum.weight += weight;
            stratum.right += weight * case.truth;
            stratum.squares += weight * weight;
        }
        StratifiedSample { strata, stratum_of_label }
    }

    /// Shares of the strata in the population.
    pub(super) fn population_shares(&self) -> Vec<f64> {
        self.strata.iter().map(|stratum| stratum.population_share).collect()
    }

    /// Shares of right cases with one right and one wrong case added.
    pub(super) fn smoothed_shares(&self) -> Vec<f64> {
        self.strata.iter().map(StratumSample::smoothed_share).collect()
    }

    /// Returns how many independent cases one labelled case counts as.
    pub(super) fn labelled_part(&self, labelled: &[LabelledRun], alpha: f64) -> f64 {
        if labelled.iter().all(|run| run.cases.len() <= 1) {
            return 1.0;
        }
        let mut independent = IndependentVariance { estimate: 0.0, unit: 0.0 };
        for stratum in self.strata.iter().filter(|stratum| stratum.weight > 0.0) {
            let unit = stratum.population_share.powi(2) / stratum.count();
            independent.unit += unit;
            independent.estimate += unit * stratum.share() * (1.0 - stratum.share());
        }
        effective_part(labelled.iter().map(|run| self.run_influence(run)), independent, alpha)
    }

    fn run_influence(&self, run: &LabelledRun) -> RunInfluence {
        let mut influence = RunInfluence::default();
        for case in &run.cases {
            let stratum = &self.strata[self.stratum_of_label[case.stratum]];
            let part = stratum.population_share * case_weight(case) / stratum.weight;
            influence.deviation += part * (case.truth - stratum.share());
            influence.exposure += part;
        }
        influence
    }

    /// Returns the variance from the population: other runs would have other frequencies of the judge's labels.
    fn population_variance(&self, population: &[JudgedRun], labelled: &[LabelledRun]) -> f64 {
        let means = self.smoothed_shares();
        let estimate: f64 = self.strata.iter().zip(&means).map(|(stratum, mean)| stratum.population_share * mean).sum();
        let (mut squares, mut cases, mut case_squares) = (0.0, 0.0, 0.0);
        for run in population {
            let (mut deviation, mut size) = (0.0, 0.0);
            for (count, stratum) in run.stratum_counts.iter().zip(&self.stratum_of_label) {
                deviation += f64::from(*count) * (means[*stratum] - estimate);
                size += f64::from(*count);
            }
            squares += deviation * deviation;
            cases += size;
            case_squares += size * size;
        }
        let groups: f64 = cases * cases / case_squares;
        let variance = groups / (groups - 1.0).max(0.5) * squares / (cases * cases);
        // Labelled runs are part of the population. If runs that the judge often rejects are also worse than the
        // judge says, both deviations add up.
        let shared: f64 = labelled
            .iter()
            .map(|run| {
                let deviation = |case: &LabelledCase| means[self.stratum_of_label[case.stratum]] - estimate;
                self.run_influence(run).deviation * run.cases.iter().map(deviation).sum::<f64>() / cases
            })
            .sum();
        variance + 2.0 * shared.max(0.0)
    }
}
