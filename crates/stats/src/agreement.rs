//! Agreement of a judge with people: Cohen's kappa and Gwet's AC1, which count only agreement beyond chance, with
//! their intervals.
//!
//! Labels of one trajectory are correlated, and a few labels prove little. So the variance is the cluster-robust
//! variance of the influence values, summed by trajectory. For independent labels it equals the one of Fleiss,
//! Cohen and Everitt (1969). The interval is Wilson's for the share of agreement, with the effective number of
//! observations that has this variance, mapped to kappa or AC1. So it has a positive width even if all labels agree.
//!
//! If one side used a single label, kappa is 0 whatever the other side's labels are. It is then omitted, and only the
//! plain share of agreement is reported, with its own interval.

use std::collections::BTreeMap;

use crate::distributions::student_quantile;
use crate::interval::{ConfidenceInterval, ScoreCluster, clustered_interval, wilson_interval};

/// Significance level of the 95 % intervals.
const ALPHA: f64 = 0.05;

/// The labels that the judge and a person gave to the same step or trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelPair<'l> {
    pub judge: &'l str,
    pub person: &'l str,
    /// The cluster: any number that is unique to the trajectory within one call.
    pub trajectory: i64,
}

/// The agreement of one judge with people on one evaluator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgeAgreement {
    /// Pairs that were compared.
    pub count: u64,
    /// Pairs with equal labels.
    pub agreed: u64,
    /// Clusters, which decide the width of both intervals.
    pub trajectories: u64,
    /// `agreed / count`; `None` without pairs.
    pub share: Option<f64>,
    /// The cluster-robust interval of `share`.
    pub share_interval: Option<ConfidenceInterval>,
    /// `None` without pairs, or if a side used a single label: all agreement is then explained by chance.
    pub kappa: Option<f64>,
    /// The interval of `kappa`; present exactly where `kappa` is.
    pub interval: Option<ConfidenceInterval>,
    /// Gwet's AC1. Unlike kappa it stays high where nearly all labels are the same and both sides agree. `None` without
    /// pairs, or if all labels of both sides are the same.
    pub ac1: Option<f64>,
    /// The interval of `ac1`; present exactly where `ac1` is.
    pub ac1_interval: Option<ConfidenceInterval>,
    /// Which side used a single label, if any.
    pub one_sided: Option<ConstantRater>,
}

/// The side that gave the same label to everything, for the message that explains why there is no kappa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstantRater {
    Judge,
    People,
    Both,
}

/// Compares labels. Pairs may come in any order; pairs with the same `trajectory` form a cluster. Labels are compared
/// as they are, so the caller normalizes them.
pub fn compute_agreement(pairs: &[LabelPair<'_>]) -> JudgeAgreement {
    let mut names: Vec<&str> = pairs.iter().flat_map(|pair| [pair.judge, pair.person]).collect();
    names.sort_unstable();
    names.dedup();
    let find = |name: &str| names.binary_search(&name).unwrap_or(0);
    let indexed: Vec<WeightedPair> = pairs
        .iter()
        .map(|pair| WeightedPair {
            judge: find(pair.judge),
            person: find(pair.person),
            weight: 1.0,
            cluster: pair.trajectory,
        })
        .collect();
    let agreed = pairs.iter().filter(|pair| pair.judge == pair.person).count();
    // BTreeMap, so that sums do not depend on the order of a hash map.
    let mut hits: BTreeMap<i64, ScoreCluster> = BTreeMap::new();
    for pair in pairs {
        let cluster = hits.entry(pair.trajectory).or_default();
        cluster.sum += f64::from(u8::from(pair.judge == pair.person));
        cluster.count += 1.0;
    }
    let is_constant = |label: fn(&WeightedPair) -> usize| {
        indexed.first().is_some_and(|first| indexed.iter().all(|pair| label(pair) == label(first)))
    };
    let one_sided = match (is_constant(|pair| pair.judge), is_constant(|pair| pair.person)) {
        (true, true) => Some(ConstantRater::Both),
        (true, false) => Some(ConstantRater::Judge),
        (false, true) => Some(ConstantRater::People),
        _ => None,
    };
    let kappa = correct_for_chance(&indexed, names.len(), ChanceModel::Cohen, ALPHA).filter(|_| one_sided.is_none());
    let ac1 = correct_for_chance(&indexed, names.len(), ChanceModel::Gwet, ALPHA);
    JudgeAgreement {
        count: pairs.len() as u64,
        agreed: agreed as u64,
        trajectories: hits.len() as u64,
        share: (!pairs.is_empty()).then(|| agreed as f64 / pairs.len() as f64),
        share_interval: clustered_interval(&hits.into_values().collect::<Vec<_>>(), 0.0, 1.0),
        kappa: kappa.map(|(kappa, _)| kappa),
        interval: kappa.map(|(_, interval)| interval),
        ac1: ac1.map(|(ac1, _)| ac1),
        ac1_interval: ac1.map(|(_, interval)| interval),
        one_sided,
    }
}

/// The labels of one case, as indexes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WeightedPair {
    pub(crate) judge: usize,
    pub(crate) person: usize,
    /// 1 for uniform sampling, else the inverse of the probability that the case was chosen.
    pub(crate) weight: f64,
    pub(crate) cluster: i64,
}

/// The model of agreement by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChanceModel {
    /// Both sides draw from their own labels: kappa.
    Cohen,
    /// Only cases that are hard to judge are labelled by chance: AC1.
    Gwet,
}

/// Agreement beyond chance with its interval at the two-sided level `alpha`. `None` without pairs, and where chance
/// explains everything.
pub(crate) fn correct_for_chance(
    pairs: &[WeightedPair],
    labels: usize,
    model: ChanceModel,
    alpha: f64,
) -> Option<(f64, ConfidenceInterval)> {
    let total: f64 = pairs.iter().map(|pair| pair.weight).sum();
    if pairs.is_empty() || labels < 2 {
        return None;
    }
    let (mut by_judge, mut by_person) = (vec![0.0; labels], vec![0.0; labels]);
    let (mut observed, mut squares) = (0.0, 0.0);
    for pair in pairs {
        let part = pair.weight / total;
        by_judge[pair.judge] += part;
        by_person[pair.person] += part;
        observed += if pair.judge == pair.person { part } else { 0.0 };
        squares += part * part;
    }
    // Rounding can put a sum of parts slightly above 1.
    let observed = if pairs.iter().all(|pair| pair.judge == pair.person) { 1.0 } else { observed.min(1.0) };
    let shares = || by_judge.iter().zip(&by_person);
    // Agreement by chance, and its derivatives by the label of the judge and that of a person, up to a constant.
    let (chance, judge_moves, person_moves, constant): (f64, Vec<f64>, Vec<f64>, f64) = match model {
        ChanceModel::Cohen => {
            let chance = shares().map(|(judge, person)| judge * person).sum();
            (chance, by_person.clone(), by_judge.clone(), 2.0 * chance)
        }
        ChanceModel::Gwet => {
            let scale = 1.0 / (labels as f64 - 1.0);
            let means: Vec<f64> = shares().map(|(judge, person)| f64::midpoint(*judge, *person)).collect();
            let chance = scale * means.iter().map(|mean| mean * (1.0 - mean)).sum::<f64>();
            let constant = scale * means.iter().map(|mean| mean * (1.0 - 2.0 * mean)).sum::<f64>();
            let moves: Vec<f64> = means.iter().map(|mean| scale * (0.5 - mean)).collect();
            (chance, moves.clone(), moves, constant)
        }
    };
    if 1.0 - chance < 1e-12 {
        return None;
    }
    // The influence of each trajectory on the result, summed over its labels, and the weight of the trajectory.
    let mut clusters: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for pair in pairs {
        let (influence, size) = clusters.entry(pair.cluster).or_default();
        let hit = f64::from(u8::from(pair.judge == pair.person));
        let part = pair.weight / total;
        let moved = judge_moves[pair.judge] + person_moves[pair.person] - constant;
        *influence += part * ((hit - observed) * (1.0 - chance) - (1.0 - observed) * moved) / (1.0 - chance).powi(2);
        *size += part;
    }
    let groups = 1.0 / clusters.values().map(|(_, size)| size * size).sum::<f64>();
    let spread = observed * (1.0 - observed);
    let (effective, quantile) = if spread <= f64::EPSILON {
        // All agree, or none: the difference between trajectories cannot be estimated, so each counts once.
        (groups, student_quantile(alpha, (groups - 1.0).max(1.0)))
    } else if groups < 1.5 {
        (1.0, student_quantile(alpha, 1.0))
    } else {
        let variance =
            groups / (groups - 1.0) * clusters.values().map(|(influence, _)| influence * influence).sum::<f64>();
        // A variance below that of chance is itself chance.
        let effective = spread / ((1.0 - chance).powi(2) * variance.max(f64::MIN_POSITIVE));
        (effective.clamp(1.0, 1.0 / squares), student_quantile(alpha, groups - 1.0))
    };
    let unit = wilson_interval(observed, effective, quantile);
    let beyond_chance = |share: f64| (share - chance) / (1.0 - chance);
    let interval = ConfidenceInterval { low: beyond_chance(unit.low).max(-1.0), high: beyond_chance(unit.high) };
    Some((beyond_chance(observed), interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of so many pairs, each of its own trajectory: yes and yes, yes and no, no and yes, no and no.
    fn table(counts: [usize; 4]) -> Vec<LabelPair<'static>> {
        let cells = [("yes", "yes"), ("yes", "no"), ("no", "yes"), ("no", "no")];
        let all = cells.into_iter().zip(counts).flat_map(|(cell, count)| std::iter::repeat_n(cell, count));
        all.zip(0..).map(|((judge, person), trajectory)| LabelPair { judge, person, trajectory }).collect()
    }

    #[test]
    fn kappa_is_what_goes_beyond_chance() {
        let known = compute_agreement(&table([20, 5, 10, 15]));
        assert!((known.kappa.unwrap() - 0.4).abs() < 1e-12, "{known:?}");
        assert_eq!((known.count, known.agreed, known.trajectories), (50, 35, 50));
        let worse = compute_agreement(&table([5, 20, 20, 5]));
        assert!(worse.kappa.unwrap() < 0.0 && worse.interval.unwrap().high < 0.0, "{worse:?}");
        let none = compute_agreement(&table([10, 10, 10, 10]));
        let ConfidenceInterval { low, high } = none.interval.unwrap();
        assert!(none.kappa.unwrap().abs() < 1e-12 && low < -0.2 && high > 0.2, "{none:?}");
    }

    #[test]
    fn independent_labels_have_the_variance_of_fleiss_cohen_and_everitt() {
        for counts in [[20, 5, 10, 15], [40, 9, 6, 45], [88, 10, 14, 10]] {
            let n: f64 = counts.iter().sum::<usize>() as f64;
            let p = counts.map(|count| count as f64 / n);
            let (rows, columns) = ([p[0] + p[1], p[2] + p[3]], [p[0] + p[2], p[1] + p[3]]);
            let (po, pe) = (p[0] + p[3], rows[0] * columns[0] + rows[1] * columns[1]);
            let diagonal: f64 = [(p[0], 0), (p[3], 1)]
                .iter()
                .map(|(share, at)| share * ((1.0 - pe) - (rows[*at] + columns[*at]) * (1.0 - po)).powi(2))
                .sum();
            let others = p[1] * (columns[0] + rows[1]).powi(2) + p[2] * (columns[1] + rows[0]).powi(2);
            let variance =
                (diagonal + (1.0 - po).powi(2) * others - (po * pe - 2.0 * pe + po).powi(2)) / (n * (1.0 - pe).powi(4));
            let wanted = po * (1.0 - po) / ((1.0 - pe).powi(2) * variance * n / (n - 1.0));
            let unit = wilson_interval(po, wanted.clamp(1.0, n), student_quantile(ALPHA, n - 1.0));
            let found = compute_agreement(&table(counts)).interval.unwrap();
            assert!((found.low - (unit.low - pe) / (1.0 - pe)).abs() < 1e-9, "{counts:?}");
            assert!((found.high - (unit.high - pe) / (1.0 - pe)).abs() < 1e-9, "{counts:?}");
        }
    }

    #[test]
    fn ac1_stays_high_where_kappa_collapses() {
        // po = 0.91; pe = 2 * 0.945 * 0.055 for AC1 and 0.945² + 0.055² for equal margins.
        let skewed = compute_agreement(&table([90, 4, 5, 1]));
        let pi: f64 = (94.0 + 95.0) / 200.0;
        let chance = 2.0 * pi * (1.0 - pi);
        let ac1 = skewed.ac1.unwrap();
        assert!((ac1 - (0.91 - chance) / (1.0 - chance)).abs() < 1e-12 && ac1 > 0.89, "{skewed:?}");
        assert!(skewed.kappa.unwrap() < 0.2, "{skewed:?}");
        let ConfidenceInterval { low, high } = skewed.ac1_interval.unwrap();
        assert!(low > 0.78 && low < ac1 && high > ac1 && high < 0.97, "{skewed:?}");
        assert_eq!(compute_agreement(&table([9, 0, 0, 0])).ac1, None);
        // One side with a single label has an AC1 and no kappa.
        assert!(compute_agreement(&table([0, 0, 5, 95])).ac1.unwrap() > 0.9);
    }

    /// The variance of AC1 by numerical derivatives in the shares of cells.
    #[test]
    fn influence_values_of_ac1_are_its_derivatives() {
        let counts = [40_usize, 9, 6, 45];
        let n = counts.iter().sum::<usize>() as f64;
        let ac1 = |p: [f64; 4]| {
            let sum: f64 = p.iter().sum();
            let pi = (2.0 * p[0] + p[1] + p[2]) / (2.0 * sum);
            let chance = 2.0 * pi * (1.0 - pi);
            ((p[0] + p[3]) / sum - chance) / (1.0 - chance)
        };
        let p = counts.map(|count| count as f64 / n);
        let mut variance = 0.0;
        for cell in 0..4 {
            let mut moved = p;
            moved[cell] += 1e-6;
            // The derivative towards a case in this cell, with all shares scaled to 1.
            variance += p[cell] * ((ac1(moved) - ac1(p)) / 1e-6).powi(2);
        }
        let known = compute_agreement(&table(counts));
        let pi = (2.0 * p[0] + p[1] + p[2]) / 2.0;
        let (po, pe) = (p[0] + p[3], 2.0 * pi * (1.0 - pi));
        let effective = po * (1.0 - po) / ((1.0 - pe).powi(2) * variance / (n - 1.0));
        let unit = wilson_interval(po, effective.clamp(1.0, n), student_quantile(ALPHA, n - 1.0));
        let found = known.ac1_interval.unwrap();
        assert!((found.low - (unit.low - pe) / (1.0 - pe)).abs() < 1e-5, "{found:?} {unit:?}");
    }

    #[test]
    fn steps_of_one_trajectory_say_less_than_as_many_trajectories() {
        let single = table([20, 5, 10, 15]);
        let mut together = Vec::new();
        for pair in &single {
            together.extend(std::iter::repeat_n(*pair, 4));
        }
        let (one, four) = (compute_agreement(&single), compute_agreement(&together));
        assert!((one.kappa.unwrap() - four.kappa.unwrap()).abs() < 1e-12);
        let width = |known: &JudgeAgreement| known.interval.map(|interval| interval.high - interval.low).unwrap();
        assert!((width(&one) / width(&four) - 1.0).abs() < 0.05, "{} {}", width(&one), width(&four));
    }

    #[test]
    fn few_labels_prove_little_and_one_label_nothing() {
        let few = compute_agreement(&table([2, 0, 0, 2]));
        assert_eq!(few.kappa, Some(1.0));
        assert!(few.interval.unwrap().low < 0.5, "{few:?}");
        let many = compute_agreement(&table([200, 0, 0, 200]));
        assert!(many.interval.unwrap().low > 0.9, "{many:?}");
        assert_eq!(compute_agreement(&table([9, 0, 0, 0])).kappa, None);
        assert_eq!(compute_agreement(&[]), JudgeAgreement::default());
        let alone = compute_agreement(&[LabelPair { judge: "a", person: "b", trajectory: 1 }]);
        assert_eq!((alone.kappa, alone.interval, alone.share), (None, None, Some(0.0)));
        assert!(alone.share_interval.unwrap().high > 0.5, "{alone:?}");
    }

    #[test]
    fn a_side_with_one_label_has_a_share_and_no_kappa() {
        // 95 of 100 verdicts that something is wrong were confirmed: kappa would be 0, whatever people say.
        let judge = compute_agreement(&table([0, 0, 5, 95]));
        assert_eq!((judge.kappa, judge.interval, judge.one_sided), (None, None, Some(ConstantRater::Judge)));
        let ConfidenceInterval { low, high } = judge.share_interval.unwrap();
        assert!(judge.share == Some(0.95) && (0.88..0.9).contains(&low) && (0.97..0.99).contains(&high), "{judge:?}");
        let people = compute_agreement(&table([0, 5, 0, 95]));
        assert_eq!((people.kappa, people.one_sided), (None, Some(ConstantRater::People)));
        let both = compute_agreement(&table([0, 0, 0, 100]));
        assert_eq!((both.kappa, both.one_sided, both.share), (None, Some(ConstantRater::Both), Some(1.0)));
        assert!(both.share_interval.unwrap().low < 0.97, "{both:?}");
        // One label on the other side is enough.
        assert!(compute_agreement(&table([1, 0, 5, 94])).kappa.is_some());
    }

    #[test]
    fn the_interval_holds_the_truth_about_as_often_as_it_says() {
        // Judge and person agree with the truth independently of each other, in clusters of up to three labels.
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut draw = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (is_yes, right) = (0.7, 0.9);
        // The same for both: how often they say yes, and how often they agree.
        let yes = is_yes * right + (1.0 - is_yes) * (1.0 - right);
        let agree = right * right + (1.0 - right) * (1.0 - right);
        let chance = yes * yes + (1.0 - yes) * (1.0 - yes);
        let truth = (agree - chance) / (1.0 - chance);
        for trajectories in [15, 60] {
            let mut held = 0;
            let rounds = 2_000;
            for _ in 0..rounds {
                let mut pairs = Vec::new();
                for trajectory in 0..trajectories {
                    for _ in 0..1 + trajectory % 3 {
                        let fact = draw() < is_yes;
                        let mut say = || if (draw() < right) == fact { "yes" } else { "no" };
                        pairs.push(LabelPair { judge: say(), person: say(), trajectory });
                    }
                }
                let ConfidenceInterval { low, high } = compute_agreement(&pairs).interval.unwrap();
                held += i32::from((low..=high).contains(&truth));
            }
            let share = f64::from(held) / f64::from(rounds);
            assert!((0.92..=0.99).contains(&share), "{trajectories} trajectories: {share}");
        }
    }
}
