//! `--stop-early`: trajectories are judged in random order, and judging stops as soon as every gate is decided.
//!
//! A decision comes from a confidence sequence, which is valid at every moment; see `gradus_stats::sequential`. A run
//! is one observation, because steps of one run are alike. A gate on steps is about the share of all steps, with and
//! without `--stop-early`, so a run with many steps weighs more: the share of steps is at least `b` exactly if the
//! runs' excesses `right - b * steps` have a mean of at least 0, and these are what is observed
//! ([`EarlyGate::observation`]).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::report::{EvaluationSummary, GateMetric, GateOperator, QualityGate};
use gradus_eval::run::EarlyGateRecord;
use gradus_eval::runner::{ProgressWatcher, RunProgress};
use gradus_eval::scale::ScoreScale;
use gradus_stats::sequential::{
    GateDecision, GateSettings, GateValues, SequentialError, SequentialGate, sampling_order,
};
use tokio::sync::mpsc;

use super::super::sources::SourceReadReport;
use super::sampled_source::SampledSource;

/// Probability that any gate is decided wrongly.
const ALPHA: f64 = 0.05;
/// Number of trajectories of the first round.
const FIRST_ROUND_TRAJECTORIES: usize = 8;
/// Size of a round as a part of what was judged before: few runs are judged beyond a decision.
const ROUND_DIVISOR: usize = 8;
/// Interval at which a waiting round checks whether the run was stopped.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Why gates cannot be decided early.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum StopEarlyError {
    #[error("--stop-early needs a gate\nhint: add --gate 'thought_to_tool >= 0.85'")]
    NoGate,
    #[error(
        "--stop-early: gate {gate:?} is not about the verdicts of an evaluator\nhint: judge everything, or gate on an \
         evaluator"
    )]
    Unsupported { gate: String },
    #[error("--stop-early: gate {gate:?}: {source}")]
    Sequential { gate: String, source: SequentialError },
    #[error("--stop-early decides by a confidence sequence of its own\nhint: leave out --gate-on")]
    GateBasis,
}

/// A gate as a condition on the mean of values from 0 to 1.
#[derive(Clone, Debug)]
pub(super) struct EarlyGate {
    text: String,
    evaluator: String,
    /// Whether the gate requires a small mean; values and bar are then mirrored.
    is_mirrored: bool,
    /// On the scale from 0 to 1, mirrored if the gate is.
    bar: f64,
    scale: ScoreScale,
    /// Whether a run has scores of several steps.
    of_steps: bool,
    values: GateValues,
    margin: f64,
    /// The largest number of scores that a run can have.
    max_scores: f64,
}

/// Scores of one run, or of several.
#[derive(Clone, Copy, Debug, Default)]
struct ScoreSum {
    sum: f64,
    count: u32,
}

impl ScoreSum {
    fn add(&mut self, other: ScoreSum) {
        self.sum += other.sum;
        self.count += other.count;
    }
}

impl EarlyGate {
    /// Checks before the run that every gate can be decided early. `baseline` has values by the name of the metric.
    pub(super) fn from_gates(
        gates: &[QualityGate],
        evaluators: &[Evaluator],
        baseline: &BTreeMap<String, f64>,
        margin: f64,
    ) -> Result<Vec<EarlyGate>, StopEarlyError> {
        if gates.is_empty() {
            return Err(StopEarlyError::NoGate);
        }
        gates.iter().map(|gate| EarlyGate::from_gate(gate, evaluators, baseline, margin)).collect()
    }

    fn from_gate(
        gate: &QualityGate,
        evaluators: &[Evaluator],
        baseline: &BTreeMap<String, f64>,
        margin: f64,
    ) -> Result<EarlyGate, StopEarlyError> {
        let unsupported = || StopEarlyError::Unsupported { gate: gate.to_string() };
        let GateMetric::Named(name) = &gate.metric else { return Err(unsupported()) };
        let evaluator = evaluators.iter().find(|known| *known.name == **name).ok_or_else(unsupported)?.to_record();
        let scale = evaluator.scale();
        let bar = gate.bar.resolve(baseline.get(name).copied()).ok_or_else(unsupported)?;
        let is_mirrored = matches!(gate.comparison, GateOperator::AtMost | GateOperator::Less);
        let share = (bar - scale.worst) / (scale.best - scale.worst);
        // A mean that is only above the bar must not be equal to it: nothing that can be measured lies between.
        let strictly = if matches!(gate.comparison, GateOperator::More | GateOperator::Less) { 1e-6 } else { 0.0 };
        let is_binary =
            !evaluator.of_steps && evaluator.labels.iter().all(|(_, score)| [scale.worst, scale.best].contains(score));
        let early = EarlyGate {
            text: gate.to_string(),
            evaluator: name.clone(),
            is_mirrored,
            bar: if is_mirrored { 1.0 - share } else { share } + strictly,
            scale,
            of_steps: evaluator.of_steps,
            values: if is_binary { GateValues::Binary } else { GateValues::Share },
            margin,
            max_scores: 1.0,
        };
        early.start_sequential_gate(1, 1)?;
        Ok(early)
    }

    /// Returns the gate for runs with at most this many judged steps.
    fn with_max_scores(mut self, steps: usize) -> EarlyGate {
        if self.of_steps {
            self.max_scores = steps.max(1) as f64;
        }
        self
    }

    fn start_sequential_gate(&self, population: u64, gates: usize) -> Result<SequentialGate, StopEarlyError> {
        let settings = GateSettings {
            population,
            bar: self.bar,
            alpha: ALPHA / gates.max(1) as f64,
            // Of the observations, whose distance from the bar is that of the share times the scores of a run; at
            // least one.
            margin: self.margin / self.max_scores,
            values: self.values,
        };
        SequentialGate::new(settings).map_err(|source| StopEarlyError::Sequential { gate: self.text.clone(), source })
    }

    /// Returns the observation of a run: its excess over the bar, moved and scaled so that it is between 0 and 1, and
    /// at the bar if there is no excess. With one score a run it is the score.
    fn observation(&self, scores: ScoreSum) -> f64 {
        let count = f64::from(scores.count);
        let good = (scores.sum - count * self.scale.worst) / (self.scale.best - self.scale.worst);
        let good = if self.is_mirrored { count - good } else { good };
        (self.bar + (good - self.bar * count) / self.max_scores).clamp(0.0, 1.0)
    }

    fn describe_decision(&self, gate: &SequentialGate, all: ScoreSum) -> EarlyDecision {
        EarlyDecision {
            decision: gate.decision(),
            value: (all.count > 0).then(|| all.sum / f64::from(all.count)),
            count: u64::from(all.count),
            runs: gate.observed(),
            of_steps: self.of_steps,
        }
    }
}

/// How one gate was decided.
#[derive(Clone, Copy, Debug)]
struct EarlyDecision {
    decision: GateDecision,
    /// The mean of all scores that were given.
    value: Option<f64>,
    count: u64,
    /// Runs with a score.
    runs: u64,
    of_steps: bool,
}

/// The decisions after all rounds.
#[derive(Clone, Debug)]
pub(super) struct EarlyDecisions {
    pub(super) population: u64,
    pub(super) judged: u64,
    decisions: Vec<EarlyDecision>,
}

impl EarlyDecisions {
    pub(super) fn is_decided(&self) -> bool {
        self.decisions.iter().all(|one| one.decision != GateDecision::Undecided)
    }

    /// Returns why the run is not complete; `None` if the last trajectory decided.
    pub(super) fn stop_reason(&self) -> Option<String> {
        (self.judged < self.population).then(|| {
            format!(
                "--stop-early: every gate was decided after {} of {} runs",
                gradus_report::format_count(self.judged),
                gradus_report::format_count(self.population)
            )
        })
    }

    /// Describes the decision: `decided after 104 of 1,000 runs; 896 not judged, $12.40 saved`.
    pub(super) fn describe(&self, summary: &EvaluationSummary) -> String {
        let left = self.population - self.judged;
        let saved = summary.cost.usd.filter(|usd| *usd > 0.0).map(|usd| usd / self.judged.max(1) as f64 * left as f64);
        let saved = saved.map(|usd| format!(", about ${usd:.2} saved")).unwrap_or_default();
        format!(
            "decided after {} of {} runs; {} not judged{saved}",
            gradus_report::format_count(self.judged),
            gradus_report::format_count(self.population),
            gradus_report::format_count(left)
        )
    }

    /// Returns the decisions, which replace an ordinary check of the judged part. Empty if everything was judged:
    /// then the ordinary check is exact.
    pub(super) fn to_records(&self, gates: &[QualityGate], summary: &EvaluationSummary) -> Vec<EarlyGateRecord> {
        if self.judged >= self.population {
            return Vec::new();
        }
        let record = |(gate, one): (&QualityGate, &EarlyDecision)| {
            let runs = gradus_report::format_counted_noun(one.runs, "run", "runs");
            let of = if one.of_steps { format!("steps of {runs}; ") } else { String::new() };
            EarlyGateRecord {
                gate: gate.to_string(),
                // Mirrored gates as well: above the mirrored bar is where they are met.
                passes: one.decision == GateDecision::Above,
                value: one.value,
                count: one.count,
                explanation: format!("{of}{}", self.describe(summary)),
            }
        };
        gates.iter().zip(&self.decisions).map(record).collect()
    }
}

/// Scores of gated evaluators by trajectory, shared by the thread that feeds trajectories and the runner.
#[derive(Default)]
struct RoundState {
    /// By trajectory and position of the gate.
    scores: HashMap<String, Vec<ScoreSum>>,
    /// Trajectories whose questions are all finished.
    settled: u64,
}

/// Passes progress on, and collects the scores that gates need.
pub(super) struct EarlyWatcher<'w> {
    gates: Vec<EarlyGate>,
    shared: Arc<(Mutex<RoundState>, Condvar)>,
    inner: &'w mut (dyn ProgressWatcher + Send),
}

impl ProgressWatcher for EarlyWatcher<'_> {
    fn on_outcome(&mut self, line: &OutcomeLine) {
        if let Some(score) = line.score {
            let mut state = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_gated = |(_, gate): &(usize, &EarlyGate)| gate.evaluator == *line.evaluator;
            for (at, _) in self.gates.iter().enumerate().filter(is_gated) {
                let scores = state.scores.entry(line.trajectory_id.to_string()).or_default();
                scores.resize(self.gates.len(), ScoreSum::default());
                scores[at].add(ScoreSum { sum: score, count: 1 });
            }
        }
        self.inner.on_outcome(line);
    }

    fn on_progress(&mut self, progress: &RunProgress) {
        if progress.finished >= progress.planned {
            let (state, changed) = &*self.shared;
            state.lock().unwrap_or_else(PoisonError::into_inner).settled = progress.trajectories;
            changed.notify_all();
        }
        self.inner.on_progress(progress);
    }
}

/// The thread that feeds trajectories round by round.
pub(super) type EarlyFeederThread = JoinHandle<anyhow::Result<(SourceReadReport, EarlyDecisions)>>;

/// Starts the feeding thread, and wraps the watcher so that it notifies the thread when a round is judged.
pub(super) fn start_early_feeder<'w>(
    source: SampledSource,
    gates: Vec<EarlyGate>,
    inner: &'w mut (dyn ProgressWatcher + Send),
) -> io::Result<(mpsc::Receiver<Vec<Trajectory>>, EarlyFeederThread, EarlyWatcher<'w>)> {
    let (sender, receiver) = mpsc::channel(1);
    let shared = Arc::new((Mutex::new(RoundState::default()), Condvar::new()));
    let watcher = EarlyWatcher { gates: gates.clone(), shared: Arc::clone(&shared), inner };
    let thread = std::thread::Builder::new()
        .name("sources".to_owned())
        .spawn(move || feed_rounds(&source, &gates, &shared, &sender))?;
    Ok((receiver, thread, watcher))
}

fn feed_rounds(
    source: &SampledSource,
    gates: &[EarlyGate],
    shared: &(Mutex<RoundState>, Condvar),
    sender: &mpsc::Sender<Vec<Trajectory>>,
) -> anyhow::Result<(SourceReadReport, EarlyDecisions)> {
    let mut all = Vec::new();
    let read = source.read(&mut |trajectory| {
        all.push(Some(trajectory));
        Ok(())
    })?;
    let ids: Vec<String> = all.iter().flatten().map(|trajectory| trajectory.trajectory_id.clone()).collect();
    let order = sampling_order(source.seed, &ids);
    let population = order.len() as u64;
    // The thought before the answer is judged like a step.
    let judged_places = |run: &Trajectory| run.steps.len() + usize::from(run.final_thought.is_some());
    let longest = all.iter().flatten().map(judged_places).max().unwrap_or_default();
    let gates: Vec<EarlyGate> = gates.iter().map(|gate| gate.clone().with_max_scores(longest)).collect();
    let mut sums = vec![ScoreSum::default(); gates.len()];
    let mut sequential = gates
        .iter()
        .map(|gate| gate.start_sequential_gate(population.max(1), gates.len()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut judged = 0;
    while judged < order.len() && sequential.iter().any(|gate| gate.decision() == GateDecision::Undecided) {
        let size = FIRST_ROUND_TRAJECTORIES.max(judged / ROUND_DIVISOR).min(order.len() - judged);
        let round = &order[judged..judged + size];
        let batch: Vec<Trajectory> = round.iter().filter_map(|at| all[*at].take()).collect();
        if sender.blocking_send(batch).is_err() || !wait_until_settled(shared, (judged + size) as u64, sender) {
            // The run was stopped: what is judged by then decides nothing.
            return Ok((
                read,
                EarlyDecisions { population, judged: judged as u64, decisions: undecided_gates(&gates) },
            ));
        }
        let state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        for at in round {
            let scores = state.scores.get(&ids[*at]);
            for (number, (gate, observer)) in gates.iter().zip(&mut sequential).enumerate() {
                match scores.and_then(|scores| scores.get(number)).filter(|scores| scores.count > 0) {
                    Some(scores) => {
                        sums[number].add(*scores);
                        observer.observe(gate.observation(*scores))?
                    }
                    None => observer.skip_run()?,
                };
            }
        }
        judged += size;
    }
    let described = gates.iter().zip(&sequential).zip(sums);
    let decisions = described.map(|((gate, observer), sum)| gate.describe_decision(observer, sum)).collect();
    Ok((read, EarlyDecisions { population, judged: judged as u64, decisions }))
}

fn undecided_gates(gates: &[EarlyGate]) -> Vec<EarlyDecision> {
    let undecided = |gate: &EarlyGate| EarlyDecision {
        decision: GateDecision::Undecided,
        value: None,
        count: 0,
        runs: 0,
        of_steps: gate.of_steps,
    };
    gates.iter().map(undecided).collect()
}

/// Waits until all questions about `fed` trajectories are finished. `false` if the run was stopped.
fn wait_until_settled(
    (state, changed): &(Mutex<RoundState>, Condvar),
    fed: u64,
    sender: &mpsc::Sender<Vec<Trajectory>>,
) -> bool {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    while state.settled < fed {
        if sender.is_closed() {
            return false;
        }
        let (next, _) = changed.wait_timeout(state, STOP_CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner);
        state = next;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(bar: f64, is_mirrored: bool, longest: usize) -> EarlyGate {
        let scale = ScoreScale { worst: 0.0, best: 1.0 };
        let (text, evaluator) = (String::new(), String::new());
        let bar = if is_mirrored { 1.0 - bar } else { bar };
        let values = GateValues::Share;
        EarlyGate { text, evaluator, is_mirrored, bar, scale, of_steps: true, values, margin: 0.0, max_scores: 1.0 }
            .with_max_scores(longest)
    }

    /// Decides over all runs, given as right steps and steps.
    fn decide(gate: &EarlyGate, runs: &[(u32, u32)]) -> GateDecision {
        let mut observer = gate.start_sequential_gate(runs.len() as u64, 1).expect("good settings");
        for (right, steps) in runs {
            let scores = ScoreSum { sum: f64::from(*right), count: *steps };
            observer.observe(gate.observation(scores)).expect("a value from 0 to 1");
        }
        observer.decision()
    }

    #[test]
    fn runs_of_any_length_are_decided_by_the_share_of_all_steps() {
        // Half of the runs have one step, which is wrong; the others have nine right ones: 90 % of the steps, half of
        // the runs.
        let runs: Vec<(u32, u32)> = (0..60).map(|at| if at % 2 == 0 { (0, 1) } else { (9, 9) }).collect();
        for (bar, expected) in [(0.85, GateDecision::Above), (0.9, GateDecision::Above), (0.95, GateDecision::Below)] {
            assert_eq!(decide(&gate(bar, false, 9), &runs), expected, "{bar}");
        }
        // `<= 0.95` is met and `<= 0.85` is not.
        assert_eq!(decide(&gate(0.95, true, 9), &runs), GateDecision::Above);
        assert_eq!(decide(&gate(0.85, true, 9), &runs), GateDecision::Below);
    }

    #[test]
    fn one_score_a_run_is_observed_as_it_is() {
        for share in [0.0, 0.3, 1.0] {
            let scores = ScoreSum { sum: share, count: 1 };
            assert!((gate(0.8, false, 1).observation(scores) - share).abs() < 1e-12);
            assert!((gate(0.8, true, 1).observation(scores) - (1.0 - share)).abs() < 1e-12);
        }
    }
}
