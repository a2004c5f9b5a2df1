//! Streams of scores, one per run, and alerts that watch them.

use fastrand::Rng;
use gradus_stats::interval::{ClusterSums, clustered_interval_from_sums};
use gradus_stats::sequential::{MonitorDirection, MonitorSettings, ScoreMonitor};

/// Scores that an alert with a window looks back on, and at least needs.
const WINDOW: usize = 100;
const MIN_SCORES: usize = 30;

/// How an alert decides after every score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlertMethod {
    /// The monitor.
    Monitor,
    /// The mean of the last scores is below the bar.
    WindowMean,
    /// The 95 % interval of the last scores is below the bar.
    WindowInterval,
    /// The 95 % interval of all scores is below the bar.
    WholeInterval,
}

pub(crate) const ALL_METHODS: [AlertMethod; 4] =
    [AlertMethod::Monitor, AlertMethod::WindowMean, AlertMethod::WindowInterval, AlertMethod::WholeInterval];

/// A stream: the probability that a step is right changes once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedStream {
    pub(crate) healthy_share: f64,
    pub(crate) healthy_runs: usize,
    pub(crate) broken_share: f64,
    pub(crate) broken_runs: usize,
    pub(crate) max_steps: usize,
}

/// The share of right steps of a run. With a fifth of probability the whole run goes one way.
fn draw_score(random: &mut Rng, share: f64, max_steps: usize) -> f64 {
    let steps = random.usize(1..=max_steps);
    let goes_one_way = random.f64() < 0.2;
    let fate = random.f64() < share;
    let right = (0..steps).filter(|_| if goes_one_way { fate } else { random.f64() < share }).count();
    right as f64 / steps as f64
}

/// The run after which the alert fires, counted from the first.
pub(crate) fn first_alarm(random: &mut Rng, method: AlertMethod, stream: &SimulatedStream, bar: f64) -> Option<usize> {
    let settings = MonitorSettings { bar, direction: MonitorDirection::Below, alpha: 0.05, window: WINDOW as u64 };
    let mut monitor = ScoreMonitor::new(settings).expect("the settings are good");
    let mut scores: Vec<f64> = Vec::new();
    let (mut recent, mut all) = (ClusterSums::default(), ClusterSums::default());
    for at in 0..stream.healthy_runs + stream.broken_runs {
        let share = if at < stream.healthy_runs { stream.healthy_share } else { stream.broken_share };
        let score = draw_score(random, share, stream.max_steps);
        let fires = match method {
            AlertMethod::Monitor => monitor.add(score).expect("a share"),
            _ => {
                scores.push(score);
                add_score(&mut recent, score, 1.0);
                add_score(&mut all, score, 1.0);
                if scores.len() > WINDOW {
                    add_score(&mut recent, scores[scores.len() - 1 - WINDOW], -1.0);
                }
                let is_below = |sums: &ClusterSums| {
                    clustered_interval_from_sums(sums, 0.0, 1.0).is_some_and(|interval| interval.high < bar)
                };
                scores.len() >= MIN_SCORES
                    && match method {
                        AlertMethod::WindowMean => recent.sum / recent.count < bar,
                        AlertMethod::WindowInterval => is_below(&recent),
                        _ => is_below(&all),
                    }
            }
        };
        if fires {
            return Some(at + 1);
        }
    }
    None
}

fn add_score(sums: &mut ClusterSums, score: f64, sign: f64) {
    sums.count += sign;
    sums.sum += sign * score;
    sums.sum_sum += sign * score * score;
    sums.sum_count += sign * score;
    sums.count_count += sign;
}
