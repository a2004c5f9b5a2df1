//! Aggregates of trials per task. Intervals over tasks are computed by the report from these tallies.

use std::collections::BTreeMap;

use super::TrialLine;

/// Trials of one task by one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskTally {
    /// Number of the task, for sorting.
    pub number: u32,
    pub trials: u32,
    pub passed: u32,
    pub safe: u32,
    pub clean: u32,
    /// Passed and safe.
    pub joint: u32,
    /// Sum of partial credits.
    pub credit: f64,
    /// Calls divided by minimal calls, for each trial that passed.
    pub ratios: Vec<f64>,
    /// Sum over the trials; none if the cost of any is unknown.
    pub cost_usd: Option<f64>,
}

/// Tallies by task id. The lines must be of one agent.
pub fn tally_trials<'l>(lines: impl IntoIterator<Item = &'l TrialLine>) -> BTreeMap<&'l str, TaskTally> {
    let mut tallies: BTreeMap<&str, TaskTally> = BTreeMap::new();
    for line in lines {
        let tally = tallies.entry(&line.task).or_insert_with(|| TaskTally {
            number: line.number,
            cost_usd: Some(0.0),
            ..TaskTally::default()
        });
        tally.trials += 1;
        tally.passed += u32::from(line.passed);
        tally.safe += u32::from(line.safe);
        tally.clean += u32::from(line.clean);
        tally.joint += u32::from(line.passed && line.safe);
        tally.credit += line.credit;
        if line.passed && line.minimal_calls > 0 {
            tally.ratios.push(line.calls as f64 / line.minimal_calls as f64);
        }
        tally.cost_usd = tally.cost_usd.zip(line.spending.cost_usd).map(|(sum, one)| sum + one);
    }
    tallies
}

/// Returns the unbiased estimate of `pass^k`: the probability that `k` trials drawn without replacement from
/// `trials`, of which `good` are good, are all good, C(good, k) ÷ C(trials, k). None if there are fewer than `k`
/// trials.
pub fn estimate_pass_hat_k(good: u32, trials: u32, k: u32) -> Option<f64> {
    if k == 0 || trials < k {
        return None;
    }
    Some((0..k).map(|drawn| f64::from(good.saturating_sub(drawn)) / f64::from(trials - drawn)).product())
}

/// Returns the median with a distribution-free 95 % confidence interval by order statistics (the interval of the sign
/// test). The interval is none for fewer than six values, where even minimum and maximum do not cover 95 %. None for
/// an empty list.
pub fn median_with_interval(values: &[f64]) -> Option<(f64, Option<(f64, f64)>)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let middle = match count {
        0 => return None,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    };
    let interval = find_interval_rank(count).map(|rank| (sorted[rank - 1], sorted[count - rank]));
    Some((middle, interval))
}

/// Returns the largest rank r (from 1) such that fewer than r of `count` values are below the median with probability
/// at most 2.5 %, by the binomial distribution with p = ½.
fn find_interval_rank(count: usize) -> Option<usize> {
    let coins = count as f64;
    // The probability of exactly `below` values as a logarithm, since 0.5^count underflows for long lists.
    let mut chance = coins * 0.5_f64.ln();
    let mut sum = 0.0;
    for below in 0..=count / 2 {
        sum += chance.exp();
        if sum > 0.025 {
            return (below > 0).then_some(below);
        }
        chance += ((coins - below as f64) / (below as f64 + 1.0)).ln();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_k_are_good() {
        assert_eq!(estimate_pass_hat_k(4, 4, 4), Some(1.0));
        assert_eq!(estimate_pass_hat_k(3, 4, 4), Some(0.0));
        assert_eq!(estimate_pass_hat_k(2, 4, 1), Some(0.5));
        // C(3, 2) / C(5, 2)
        assert!(estimate_pass_hat_k(3, 5, 2).is_some_and(|share| (share - 0.3).abs() < 1e-12));
        assert_eq!(estimate_pass_hat_k(1, 3, 4), None);
        assert_eq!(estimate_pass_hat_k(0, 3, 3), Some(0.0));
    }

    #[test]
    fn the_middle_and_how_sure_it_is() {
        assert_eq!(median_with_interval(&[]), None);
        assert_eq!(median_with_interval(&[2.0]), Some((2.0, None)));
        assert_eq!(median_with_interval(&[3.0, 1.0, 2.0, 5.0, 4.0]), Some((3.0, None)));
        // 2 · 0.5⁶ = 3.1 %, the smallest and the largest.
        assert_eq!(median_with_interval(&[3.0, 1.0, 2.0, 5.0, 4.0, 6.0]), Some((3.5, Some((1.0, 6.0)))));
        // As in tables of the sign test: ranks 40 and 61 of 100, 2 and 8 of 9.
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(median_with_interval(&hundred), Some((50.5, Some((40.0, 61.0)))));
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(median_with_interval(&nine), Some((5.0, Some((2.0, 8.0)))));
        let many = vec![1.0; 5_000];
        assert_eq!(median_with_interval(&many), Some((1.0, Some((1.0, 1.0)))));
    }
}
