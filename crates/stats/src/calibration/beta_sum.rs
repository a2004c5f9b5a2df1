//! Quantiles of a weighted sum of independent Beta variables, plus a normal one.
//!
//! There is no closed form, and random draws would leave noise in the third digit. So the density is computed on a
//! lattice: each variable is split over lattice points in a way that keeps its total and its mean, the masses are
//! convolved, and the effect of the variance that the lattice adds is taken out. Quantiles are accurate to 1e-6, or to
//! 5e-5 close to an end of the range where the density jumps.

use crate::distributions::{ln_beta, normal_quantile, normal_tail, regularized_beta};

/// Number of lattice points per standard deviation of the sum.
const RESOLUTION: f64 = 48.0;
/// Minimum points per standard deviation for splitting by the density. Variables with fewer are split exactly.
const MIN_SMOOTH_POINTS: f64 = 8.0;
/// Number of points from an end of the range within which the density can be rough.
const ROUGH_POINTS: f64 = 24.0;
/// Probability beyond each end of the lattice that is ignored.
const NEGLIGIBLE_TAIL: f64 = 1e-10;
/// Lattice points at the ends with less mass are dropped.
const NEGLIGIBLE_MASS: f64 = 1e-12;

/// A Beta(`a`, `b`) variable times `weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WeightedBeta {
    pub(super) weight: f64,
    pub(super) a: f64,
    pub(super) b: f64,
}

/// The sum of all `terms` and of a normal variable with mean 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BetaNormalSum {
    pub(super) terms: Vec<WeightedBeta>,
    pub(super) normal_variance: f64,
}

/// Masses at the points `(first + index) * step`.
#[derive(Clone, Debug)]
struct LatticeMasses {
    first: i64,
    masses: Vec<f64>,
}

impl WeightedBeta {
    pub(super) fn mean(&self) -> f64 {
        self.weight * self.a / (self.a + self.b)
    }

    fn variance(&self) -> f64 {
        let total = self.a + self.b;
        self.weight * self.weight * self.a * self.b / (total * total * (total + 1.0))
    }

    /// The integral of the cumulative distribution from 0 to `x`. Its second differences are masses of lattice points.
    fn integrated_cdf(&self, x: f64, ln_scale: f64) -> f64 {
        let WeightedBeta { weight, a, b } = *self;
        let share = x / weight;
        if share <= 0.0 {
            return 0.0;
        }
        if share >= 1.0 {
            return x - self.mean();
        }
        let cdf = regularized_beta(share, a, b);
        // The expectation up to `share` is the mean times the distribution with `a + 1`.
        let shifted = cdf - (a * share.ln() + b * (-share).ln_1p() - ln_scale).exp() / a;
        weight * (share * cdf - a / (a + b) * shifted)
    }

    /// Whether a parameter is 0, so that all probability is at one end of the range.
    fn is_degenerate(&self) -> bool {
        self.a <= 0.0 || self.b <= 0.0
    }

    fn to_lattice(self, step: f64) -> LatticeMasses {
        if self.is_degenerate() {
            let position = self.mean() / step;
            let part = position - position.floor();
            return LatticeMasses { first: position.floor() as i64, masses: vec![1.0 - part, part] };
        }
        // Quantiles and not multiples of the standard deviation: a tail can be exponential.
        let low = (self.weight * beta_quantile(NEGLIGIBLE_TAIL, self.a, self.b) / step).floor() as i64;
        let high = (self.weight * beta_quantile(1.0 - NEGLIGIBLE_TAIL, self.a, self.b) / step).ceil() as i64;
        let ln_scale = ln_beta(self.a, self.b);
        let density = |x: f64| {
            let share = x / self.weight;
            ln_beta_density(share, self.a, self.b, ln_scale).exp() / self.weight
        };
        let is_narrow = self.variance().sqrt() < MIN_SMOOTH_POINTS * step;
        let is_rough = |at: i64| {
            let point = at as f64;
            is_narrow || point < ROUGH_POINTS || self.weight / step - point < ROUGH_POINTS
        };
        split_over_lattice(low..=high, step, is_rough, density, |x| self.integrated_cdf(x, ln_scale))
    }
}

/// Splits a variable over lattice points: by second differences of its integrated distribution where the density is
/// rough, which is exact, and elsewhere by the density, which is much faster.
fn split_over_lattice(
    points: std::ops::RangeInclusive<i64>,
    step: f64,
    is_rough: impl Fn(i64) -> bool,
    density: impl Fn(f64) -> f64,
    integrated_cdf: impl Fn(f64) -> f64,
) -> LatticeMasses {
    let first = *points.start();
    let mut masses = Vec::new();
    // Values at the last two points, and the point that they belong to.
    let (mut densities, mut heights) = ((i64::MIN, [0.0; 2]), (i64::MIN, [0.0; 2]));
    for at in points {
        let is_rough = is_rough(at);
        let (function, known): (&dyn Fn(f64) -> f64, _) =
            if is_rough { (&integrated_cdf, &mut heights) } else { (&density, &mut densities) };
        let value = |at: i64| function(at as f64 * step);
        let [below, middle] = if known.0 == at - 1 { known.1 } else { [value(at - 1), value(at)] };
        let above = value(at + 1);
        *known = (at, [middle, above]);
        masses.push(if is_rough {
            ((above - 2.0 * middle + below) / step).max(0.0)
        } else {
            // Numerov's rule, with an error of the order of the sixth power of the step.
            step * (below + 10.0 * middle + above) / 12.0
        });
    }
    LatticeMasses { first, masses }.trim()
}

fn normal_lattice(deviation: f64, step: f64) -> LatticeMasses {
    let reach = (normal_quantile(2.0 * NEGLIGIBLE_TAIL) * deviation / step).ceil() as i64;
    let unit_density = |z: f64| (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let integrated_cdf = |x: f64| x * normal_tail(-x / deviation) + deviation * unit_density(x / deviation);
    let is_narrow = deviation < MIN_SMOOTH_POINTS * step;
    let density = |x: f64| unit_density(x / deviation) / deviation;
    split_over_lattice(-reach..=reach, step, |_| is_narrow, density, integrated_cdf)
}

impl LatticeMasses {
    fn trim(mut self) -> LatticeMasses {
        let is_relevant = |mass: &f64| *mass > NEGLIGIBLE_MASS;
        let Some(begin) = self.masses.iter().position(is_relevant) else {
            return self;
        };
        let end = self.masses.iter().rposition(is_relevant).unwrap_or(begin);
        self.masses.truncate(end + 1);
        self.masses.drain(..begin);
        self.first += begin as i64;
        self
    }

    fn convolve(&self, other: &LatticeMasses) -> LatticeMasses {
        let mut masses = vec![0.0; self.masses.len() + other.masses.len() - 1];
        for (at, own) in self.masses.iter().enumerate() {
            for (sum, factor) in masses[at..].iter_mut().zip(&other.masses) {
                *sum += own * factor;
            }
        }
        LatticeMasses { first: self.first + other.first, masses }.trim()
    }

    fn variance(&self, step: f64) -> f64 {
        let total: f64 = self.masses.iter().sum();
        let moment = |power: i32, around: f64| {
            self.masses.iter().zip(0..).map(|(mass, at)| mass * (f64::from(at) - around).powi(power)).sum::<f64>()
                / total
        };
        let mean = moment(1, 0.0);
        moment(2, mean) * step * step
    }
}

/// The sum of two variables on a lattice. Its distribution is computed only at the points that a quantile needs: all
/// points would dominate the run time.
#[derive(Debug)]
struct LatticeSum<'m> {
    first: &'m LatticeMasses,
    second: &'m LatticeMasses,
    /// Cumulative masses of `second`, beginning with 0.
    cumulative: Vec<f64>,
    total: f64,
}

impl<'m> LatticeSum<'m> {
    fn new(first: &'m LatticeMasses, second: &'m LatticeMasses) -> LatticeSum<'m> {
        let mut below = 0.0;
        let add = |mass: &f64| {
            below += mass;
            below
        };
        let cumulative: Vec<f64> = std::iter::once(0.0).chain(second.masses.iter().map(add)).collect();
        let total = first.masses.iter().sum::<f64>() * cumulative.last().copied().unwrap_or(0.0);
        LatticeSum { first, second, cumulative, total }
    }

    /// Returns the probability of all lattice points before the one at `end`, counted from the first.
    fn probability_before(&self, end: usize) -> f64 {
        let last = self.cumulative.len() - 1;
        let terms = self.first.masses.iter().take(end).enumerate();
        terms.map(|(at, mass)| mass * self.cumulative[(end - at).min(last)]).sum::<f64>() / self.total
    }

    /// Returns the quantile, interpolated from the four nearest midpoints of the lattice. The lattice adds noise with
    /// the variance `added`, whose effect is removed.
    fn quantile(&self, probability: f64, added: f64, step: f64) -> f64 {
        let count = self.first.masses.len() + self.second.masses.len() - 1;
        let (mut low, mut high) = (0, count);
        while low + 1 < high {
            let middle = usize::midpoint(low, high);
            if self.probability_before(middle) < probability { low = middle } else { high = middle }
        }
        // Half a step before the lattice point at `end`.
        let position = |end: usize| (self.first.first as f64 + self.second.first as f64 + end as f64 - 0.5) * step;
        let nodes: Vec<(f64, f64)> = (high.saturating_sub(2)..=(high + 1).min(count))
            .map(|end| (position(end), self.probability_before(end)))
            .collect();
        // Equal probabilities would divide by 0.
        if nodes.windows(2).any(|pair| pair[1].1 - pair[0].1 < NEGLIGIBLE_MASS) {
            return position(high);
        }
        let lagrange = |at: &(f64, f64)| {
            let others = nodes.iter().filter(|other| other.1 != at.1);
            at.0 * others.map(|other| (probability - other.1) / (at.1 - other.1)).product::<f64>()
        };
        let found: f64 = nodes.iter().map(lagrange).sum();
        // A small noise moves a quantile by half of its variance times the slope of the logarithmic density.
        let masses: Vec<f64> = nodes.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        let slope = match masses.as_slice() {
            [below, middle, above] => (above - below) / (2.0 * step * middle),
            _ => 0.0,
        };
        found + 0.5 * added * slope
    }
}

impl BetaNormalSum {
    pub(super) fn mean(&self) -> f64 {
        self.terms.iter().map(WeightedBeta::mean).sum()
    }

    pub(super) fn variance(&self) -> f64 {
        self.terms.iter().map(WeightedBeta::variance).sum::<f64>() + self.normal_variance
    }

    /// Returns the point with `probability` below it.
    pub(super) fn lower_quantile(&self, probability: f64) -> f64 {
        let (mean, variance) = (self.mean(), self.variance());
        if variance <= 0.0 {
            return mean;
        }
        let terms: Vec<&WeightedBeta> = self.terms.iter().filter(|term| term.weight > 0.0).collect();
        if let ([term], true) = (terms.as_slice(), self.normal_variance < 1e-9 * variance) {
            return term.weight * beta_quantile(probability, term.a, term.b);
        }
        let step = variance.sqrt() / RESOLUTION;
        let terms = terms.into_iter().map(|term| term.to_lattice(step));
        let normal = (self.normal_variance > 0.0).then(|| normal_lattice(self.normal_variance.sqrt(), step));
        let mut parts: Vec<LatticeMasses> = terms.chain(normal).collect();
        let lattice_variance: f64 = parts.iter().map(|part| part.variance(step)).sum();
        // The longest is added last, where no full convolution is needed.
        parts.sort_by_key(|part| part.masses.len());
        let longest = parts.pop();
        let others = parts.into_iter().reduce(|sum, part| sum.convolve(&part));
        let (Some(longest), Some(others)) = (longest, others) else {
            return mean;
        };
        // Splitting over points adds some variance, and reading between points takes that of a uniform variable away.
        let added = lattice_variance - variance - step * step / 12.0;
        LatticeSum::new(&others, &longest).quantile(probability, added, step)
    }

    /// Returns the point with `probability` above it.
    pub(super) fn upper_quantile(&self, probability: f64) -> f64 {
        self.lower_quantile(1.0 - probability)
    }
}

/// Logarithm of the density of Beta(`a`, `b`). `ln_scale` is `ln_beta(a, b)`, which callers compute once.
fn ln_beta_density(share: f64, a: f64, b: f64, ln_scale: f64) -> f64 {
    (a - 1.0) * share.ln() + (b - 1.0) * (-share).ln_1p() - ln_scale
}

/// The quantile of a Beta distribution, by Newton's method inside of a bracket.
pub(super) fn beta_quantile(probability: f64, a: f64, b: f64) -> f64 {
    let ln_scale = ln_beta(a, b);
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    let mean = a / (a + b);
    let deviation = (mean * (1.0 - mean) / (a + b + 1.0)).sqrt();
    let distance = normal_quantile(2.0 * probability.min(1.0 - probability)) * deviation;
    let mut guess =
        (if probability < 0.5 { mean - distance } else { mean + distance }).clamp(0.01 * mean, 0.5 + 0.5 * mean);
    for _ in 0..200 {
        let excess = regularized_beta(guess, a, b) - probability;
        if excess > 0.0 {
            high = guess
        } else {
            low = guess
        }
        let density = ln_beta_density(guess, a, b, ln_scale).exp();
        let step = guess - excess / density;
        let next = if step > low && step < high { step } else { f64::midpoint(low, high) };
        if (next - guess).abs() <= 1e-14 || high - low <= 1e-15 {
            return next;
        }
        guess = next;
    }
    guess
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: u32 = 4_000;

    /// Points and weights of an integral over a Beta variable. The substitution `s² (3 - 2 s)` smooths the ends.
    fn beta_points(beta: WeightedBeta) -> Vec<(f64, f64)> {
        let ln_scale = ln_beta(beta.a, beta.b);
        let point = |at: u32| {
            let s = (f64::from(at) + 0.5) / f64::from(PIECES);
            let share = s * s * (3.0 - 2.0 * s);
            let density = ln_beta_density(share, beta.a, beta.b, ln_scale).exp();
            (beta.weight * share, 6.0 * s * (1.0 - s) * density / f64::from(PIECES))
        };
        (0..PIECES).map(point).collect()
    }

    /// P(sum <= x): integrals over the first variable and the normal one, with the second one exact.
    fn brute_force_cdf(points: &[(f64, f64)], second: WeightedBeta, deviation: f64, x: f64) -> f64 {
        let noise: Vec<(f64, f64)> = if deviation == 0.0 {
            vec![(0.0, 1.0)]
        } else {
            let density = |z: f64| (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
            (-35..=35).map(|at| f64::from(at) * 0.2).map(|z| (z * deviation, 0.2 * density(z))).collect()
        };
        let inner = |x: f64| {
            let share = |(first, weight): &(f64, f64)| {
                weight * regularized_beta((x - first) / second.weight, second.a, second.b)
            };
            points.iter().map(share).sum::<f64>()
        };
        noise.iter().map(|(shift, weight)| weight * inner(x - shift)).sum()
    }

    fn largest_error(weight: f64, [a, b]: [f64; 2], [c, d]: [f64; 2], deviation: f64) -> f64 {
        let first = WeightedBeta { weight, a, b };
        let second = WeightedBeta { weight: 1.0 - weight, a: c, b: d };
        let sum = BetaNormalSum { terms: vec![first, second], normal_variance: deviation * deviation };
        let points = beta_points(first);
        let mut largest = 0.0_f64;
        for probability in [0.005, 0.025, 0.975] {
            let found = sum.lower_quantile(probability);
            // The error of the quantile from that of the probability: fewer integrals than bisection.
            let slope = 1e-4;
            let [below, at, above] =
                [-slope, 0.0, slope].map(|shift| brute_force_cdf(&points, second, deviation, found + shift));
            let error = (at - probability) / ((above - below) / (2.0 * slope));
            largest = largest.max(error.abs());
        }
        largest
    }

    #[test]
    fn quantiles_of_two_variables_are_those_of_integration() {
        for (weight, first, second) in [
            (0.3, [5.0, 17.0], [77.0, 5.5]),
            (0.5, [11.0, 11.0], [11.0, 4.0]),
            (0.2, [3.0, 9.0], [40.0, 3.0]),
            (0.25, [40.0, 90.0], [300.0, 20.0]),
        ] {
            let error = largest_error(weight, first, second, 0.0);
            assert!(error < 1e-6, "{weight} {first:?} {second:?}: {error:e}");
        }
    }

    #[test]
    fn quantiles_with_a_normal_variable_are_those_of_integration() {
        for (weight, first, second, deviation) in [
            (0.3, [5.0, 17.0], [77.0, 5.5], 0.01),
            (0.1, [1.0, 3.0], [19.0, 1.0], 0.01),
            (0.05, [1.0, 1.0], [400.0, 9.0], 0.004),
        ] {
            let error = largest_error(weight, first, second, deviation);
            assert!(error < 1e-6, "{weight} {first:?} {second:?}: {error:e}");
        }
    }

    #[test]
    fn ends_of_the_range_cost_little_accuracy() {
        for (weight, first, second) in
            [(0.1, [1.0, 3.0], [19.0, 1.0]), (0.7, [1.5, 30.0], [1.0, 12.5]), (0.42, [10.0, 1.0], [13.0, 1.0])]
        {
            let error = largest_error(weight, first, second, 0.0);
            assert!(error < 5e-5, "{weight} {first:?} {second:?}: {error:e}");
        }
    }

    #[test]
    fn beta_quantiles_invert_the_distribution() {
        for (a, b) in [(1.0, 1.0), (0.5, 1.0), (21.0, 0.5), (1.0, 300.0), (7.3, 2.2), (4_000.0, 90.0)] {
            for probability in [1e-10, 0.001, 0.025, 0.5, 0.975, 1.0 - 1e-10] {
                let found = regularized_beta(beta_quantile(probability, a, b), a, b);
                // Close to 0 the density of the second one has no bound.
                let tolerance = if a < 1.0 || b < 1.0 { 1e-6 } else { 1e-9 };
                assert!((found - probability).abs() < tolerance, "{a} {b} {probability}: {found}");
            }
        }
        assert!((beta_quantile(0.025, 21.0, 1.0) - 0.025_f64.powf(1.0 / 21.0)).abs() < 1e-12);
    }

    #[test]
    fn without_one_parameter_a_variable_is_a_point() {
        let terms = vec![WeightedBeta { weight: 0.4, a: 3.0, b: 0.0 }, WeightedBeta { weight: 0.6, a: 8.0, b: 3.0 }];
        let found = BetaNormalSum { terms, normal_variance: 0.0 }.lower_quantile(0.3);
        assert!((found - 0.4 - 0.6 * beta_quantile(0.3, 8.0, 3.0)).abs() < 1e-6, "{found}");
    }
}
