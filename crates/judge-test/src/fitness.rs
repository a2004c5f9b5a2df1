//! The pass mark: whether a judge is fit to decide a gate with one rubric.
//!
//! A gate compares a share with a bar. A judge that misses every fifth flaw, or raises an alarm on every fifth right
//! step, moves that share by more than the differences that gates are about. So both rates must be at least 80 %, and
//! 90 % is what practice recommends. They must be so with 95 % confidence: the lower ends of the intervals count, not
//! the estimates, so that a few lucky cases prove nothing.

use gradus_stats::interval::ConfidenceInterval;
use serde::{Deserialize, Serialize};

/// Minimum detection rate, and minimum share of originals that are not flagged. Lower ends of intervals are compared.
pub const MIN_RATE: f64 = 0.8;
/// Recommended value of both rates.
pub const RECOMMENDED_RATE: f64 = 0.9;
/// Maximum share of cases without a verdict.
pub const MAX_NOT_JUDGED: f64 = 0.1;
/// Maximum probability that a repeated question gets another verdict.
pub const MAX_FLIP_RATE: f64 = 0.05;

/// Minimum number of flawed cases and of originals for a decision.
pub const MIN_CASES: u64 = 10;

/// The result for one rubric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatingFitness {
    /// A criterion is certainly missed.
    Unfit,
    /// Too few cases to tell.
    Undecided,
    /// Every criterion holds.
    Fit,
    /// Every criterion holds, and both rates are at least 90 %.
    Recommended,
}

impl GatingFitness {
    /// The text for reports.
    pub fn text(self) -> &'static str {
        match self {
            GatingFitness::Unfit => "not fit for gating",
            GatingFitness::Undecided => "undecided: too few cases",
            GatingFitness::Fit => "fit for gating",
            GatingFitness::Recommended => "fit for gating, recommended",
        }
    }

    /// Whether gates may use the judge.
    pub fn is_fit(self) -> bool {
        self >= GatingFitness::Fit
    }
}

/// The figures that decide the pass mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitnessEvidence {
    /// Cases that were asked: flawed ones or originals, whichever are fewer.
    pub cases: u64,
    /// Share of flawed cases that were flagged.
    pub detection: Option<ConfidenceInterval>,
    /// Share of originals that were not flagged.
    pub acceptance: Option<ConfidenceInterval>,
    /// Share of cases without a verdict.
    pub not_judged: f64,
    /// `None` if nothing was asked twice.
    pub flip_rate: Option<f64>,
}

/// Decides the pass mark. Also returns the reasons against it.
pub fn decide_fitness(evidence: &FitnessEvidence) -> (GatingFitness, Vec<String>) {
    if evidence.cases < MIN_CASES {
        let reason = format!("fewer than {MIN_CASES} flawed cases or originals decide nothing");
        return (GatingFitness::Undecided, vec![reason]);
    }
    let mut reasons = Vec::new();
    let mut fitness = GatingFitness::Recommended;
    for (rate, name) in
        [(evidence.detection, "detection rate"), (evidence.acceptance, "share of originals not flagged")]
    {
        let level = match rate {
            None => {
                reasons.push(format!("{name}: no verdict"));
                GatingFitness::Undecided
            }
            Some(rate) if rate.high < MIN_RATE => {
                reasons.push(format!("{name}: at most {:.0} %, below {:.0} %", rate.high * 100.0, MIN_RATE * 100.0));
                GatingFitness::Unfit
            }
            Some(rate) if rate.low < MIN_RATE => {
                let text =
                    format!("{name}: {:.0} % or more is not shown, only {:.0} %", MIN_RATE * 100.0, rate.low * 100.0);
                reasons.push(text);
                GatingFitness::Undecided
            }
            Some(rate) if rate.low < RECOMMENDED_RATE => GatingFitness::Fit,
            Some(_) => GatingFitness::Recommended,
        };
        fitness = fitness.min(level);
    }
    if evidence.not_judged > MAX_NOT_JUDGED {
        let (share, most) = (evidence.not_judged * 100.0, MAX_NOT_JUDGED * 100.0);
        reasons.push(format!("could not judge {share:.0} % of the cases, more than {most:.0} %"));
        fitness = GatingFitness::Unfit;
    }
    if let Some(flips) = evidence.flip_rate.filter(|flips| *flips > MAX_FLIP_RATE) {
        let (share, most) = (flips * 100.0, MAX_FLIP_RATE * 100.0);
        reasons.push(format!("{share:.1} % of verdicts change when asked again, more than {most:.0} %"));
        fitness = GatingFitness::Unfit;
    }
    (fitness, reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(detection: (f64, f64), acceptance: (f64, f64)) -> FitnessEvidence {
        let interval = |(low, high)| Some(ConfidenceInterval { low, high });
        FitnessEvidence {
            cases: 30,
            detection: interval(detection),
            acceptance: interval(acceptance),
            not_judged: 0.0,
            flip_rate: None,
        }
    }

    #[test]
    fn the_lower_ends_decide() {
        let decide = |one: FitnessEvidence| decide_fitness(&one).0;
        assert_eq!(decide(evidence((0.92, 1.0), (0.91, 0.99))), GatingFitness::Recommended);
        assert_eq!(decide(evidence((0.85, 1.0), (0.91, 0.99))), GatingFitness::Fit);
        assert_eq!(decide(evidence((0.2, 1.0), (0.91, 0.99))), GatingFitness::Undecided);
        assert_eq!(decide(evidence((0.2, 0.7), (0.3, 1.0))), GatingFitness::Unfit);
        let good = evidence((0.92, 1.0), (0.91, 0.99));
        assert_eq!(decide(FitnessEvidence { not_judged: 0.2, ..good }), GatingFitness::Unfit);
        assert_eq!(decide(FitnessEvidence { flip_rate: Some(0.06), ..good }), GatingFitness::Unfit);
        assert_eq!(decide(FitnessEvidence { flip_rate: Some(0.05), ..good }), GatingFitness::Recommended);
        assert_eq!(decide(FitnessEvidence { detection: None, ..good }), GatingFitness::Undecided);
        let bad = evidence((0.0, 0.7), (0.0, 0.7));
        let few = FitnessEvidence { cases: 9, not_judged: 1.0, ..bad };
        assert_eq!(decide(few), GatingFitness::Undecided, "a few cases condemn nobody");
        assert!(!GatingFitness::Undecided.is_fit() && GatingFitness::Fit.is_fit());
    }
}
