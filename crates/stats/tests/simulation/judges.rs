//! Judges that err, people that label some runs, and how often corrected shares cover the truth.
//!
//! Each step of a run shares the fate of the run with a probability that is the square root of `alikeness`, so that is
//! the correlation of two steps. The judge's errors are alike in the same way.

use fastrand::Rng;
use gradus_stats::calibration::{
    CorrectedShare, CorrectionRefusal, JudgedRun, LabelOrigin, LabelledCase, LabelledRun, ShareEstimator,
    correct_share, share_from_labels,
};

/// Probability of a label under active sampling, for steps that look safe; all others are labelled.
const SAFE_PROBABILITY: f64 = 0.3;

/// An agent, a judge and a labelled sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JudgedSetting {
    /// The true share of right steps.
    pub(crate) share: f64,
    pub(crate) true_positive_rate: f64,
    pub(crate) true_negative_rate: f64,
    /// Judges of a panel, whose number of votes is the stratum.
    pub(crate) judges: usize,
    pub(crate) population_runs: usize,
    pub(crate) labelled_runs: usize,
    /// Runs have 1 to this many steps.
    pub(crate) max_steps: usize,
    /// Correlation of two steps of a run.
    pub(crate) alikeness: f64,
    /// Whether steps on which the judge seems unsure are labelled more often.
    pub(crate) is_active: bool,
    /// The share of right steps among labelled ones, if they come from another population.
    pub(crate) other_share: Option<f64>,
}

/// What came of many rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoverageResult {
    pub(crate) rounds: u32,
    pub(crate) covered: u32,
    pub(crate) refused: u32,
    pub(crate) labels_alone: u32,
    /// Sum of the widths in rounds with an interval.
    pub(crate) width: f64,
    /// Sum of the widths of intervals from the labels alone.
    pub(crate) alone_width: f64,
}

impl CoverageResult {
    pub(crate) fn answered(&self) -> u32 {
        self.rounds - self.refused
    }

    /// `None` if all rounds were refused.
    pub(crate) fn coverage(&self) -> Option<f64> {
        (self.answered() > 0).then(|| f64::from(self.covered) / f64::from(self.answered()))
    }

    pub(crate) fn mean_width(&self) -> f64 {
        self.width / f64::from(self.answered())
    }

    pub(crate) fn mean_alone_width(&self) -> f64 {
        self.alone_width / f64::from(self.answered())
    }
}

/// A judged population and labelled runs. They are reused from round to round.
#[derive(Clone, Debug, Default)]
pub(crate) struct JudgedRound {
    pub(crate) population: Vec<JudgedRun>,
    pub(crate) labelled: Vec<LabelledRun>,
}

impl JudgedRound {
    fn draw(&mut self, random: &mut Rng, setting: &JudgedSetting) {
        self.population.resize(setting.population_runs, JudgedRun { stratum_counts: vec![0; setting.judges + 1] });
        self.labelled.resize(setting.labelled_runs, LabelledRun::default());
        for run in &mut self.labelled {
            run.cases.clear();
        }
        for (at, run) in self.population.iter_mut().enumerate() {
            run.stratum_counts.fill(0);
            let mut sample = self.labelled.get_mut(at).filter(|_| setting.other_share.is_none());
            draw_run(random, setting, setting.share, |case, is_chosen| {
                run.stratum_counts[case.stratum] += 1;
                if let Some(sample) = sample.as_mut().filter(|_| is_chosen) {
                    sample.cases.push(case);
                }
            });
        }
        if let Some(share) = setting.other_share {
            for run in &mut self.labelled {
                draw_run(random, setting, share, |case, _| run.cases.push(case));
            }
        }
    }
}

/// Draws the steps of a run, and whether each would be labelled.
fn draw_run(random: &mut Rng, setting: &JudgedSetting, share: f64, mut visit: impl FnMut(LabelledCase, bool)) {
    let steps = random.usize(1..=setting.max_steps);
    let together = setting.alikeness.sqrt();
    let run_fate = random.f64();
    let mut run_luck = [0.0; 8];
    for luck in &mut run_luck[..setting.judges] {
        *luck = random.f64();
    }
    for _ in 0..steps {
        let mut share_luck = |run_luck: f64| if random.f64() < together { run_luck } else { random.f64() };
        let is_right = share_luck(run_fate) < share;
        let mut is_judge_right = |luck: f64| {
            share_luck(luck) < if is_right { setting.true_positive_rate } else { setting.true_negative_rate }
        };
        let votes = run_luck[..setting.judges].iter().filter(|luck| is_judge_right(**luck) == is_right).count();
        let mut case = LabelledCase { stratum: votes, truth: f64::from(u8::from(is_right)), probability: 1.0 };
        let mut is_chosen = true;
        if setting.is_active {
            // Wrong verdicts look unsure more often.
            let is_accepted = 2 * votes >= setting.judges;
            let is_unsure = random.f64() < if is_accepted == is_right { 0.2 } else { 0.6 };
            case.probability = if is_unsure { 1.0 } else { SAFE_PROBABILITY };
            is_chosen = random.f64() < case.probability;
        }
        visit(case, is_chosen);
    }
}

/// How often the interval of [`correct_share`] covers the true share.
pub(crate) fn simulate_correction(seed: u64, rounds: u32, setting: &JudgedSetting) -> CoverageResult {
    let scores: Vec<f64> = (0..=setting.judges).map(|votes| votes as f64 / setting.judges as f64).collect();
    let origin = if setting.other_share.is_some() { LabelOrigin::OtherPopulation } else { LabelOrigin::SamePopulation };
    simulate_coverage(seed, rounds, setting, |round| {
        correct_share(&round.population, &round.labelled, &scores, origin, 0.95)
    })
}

/// The same for any estimator.
pub(crate) fn simulate_coverage(
    seed: u64,
    rounds: u32,
    setting: &JudgedSetting,
    correct: impl Fn(&JudgedRound) -> Result<CorrectedShare, CorrectionRefusal>,
) -> CoverageResult {
    let mut random = Rng::with_seed(seed);
    let mut round = JudgedRound::default();
    let mut result = CoverageResult { rounds, ..CoverageResult::default() };
    for _ in 0..rounds {
        round.draw(&mut random, setting);
        let Ok(found) = correct(&round) else {
            result.refused += 1;
            continue;
        };
        result.covered += u32::from((found.lower..=found.upper).contains(&setting.share));
        result.width += found.upper - found.lower;
        result.labels_alone += u32::from(found.estimator == ShareEstimator::LabelsAlone);
        if let Ok(alone) = share_from_labels(&round.labelled, 0.95) {
            result.alone_width += alone.upper - alone.lower;
        }
    }
    result
}
