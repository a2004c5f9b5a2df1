//! `--stop-early`: trajectories are judged in random order, and judging stops as soon as every gate is decided.
//!
//! A decision comes from a confidence sequence, which is valid at every moment; see `gradus_stats::sequential`. A run is
//! one observation, so a gate on steps is here about the mean of the shares of runs.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::report::{EvaluationSummary, GateMetric, GateOperator, GateResult, GateVerdict, QualityGate};
use gradus_eval::runner::{ProgressWatcher, RunProgress};
use gradus_eval::scale::ScoreScale;
use gradus_stats::sequential::{
    GateDecision, GateSettings, GateValues, SequentialError, SequentialGate, sampling_order,
};
use tokio::sync::mpsc;

use super::super::sources::SourceReadReport;
use super::judge_source::SampledSource;

/// Probability that any gate is decided wrongly.
const ALPHA: f64 = 0.05;
/// Trajectories of the first round.
const FIRST_ROUND: usize = 8;
/// A round has this part of what was judged before, so that few runs are judged beyond a decision.
const ROUND_DIVISOR: usize = 8;
/// How often a round that waits for its answers looks whether the run was stopped.
const STOP_CHECK: Duration = Duration::from_millis(500);

/// Why gates cannot be decided early.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum StopEarlyError {
    #[error("--stop-early needs a gate\nhint: add --gate 'thought_to_tool >= 0.85'")]
    NoGate,
    #[error(
        "--stop-early: gate {gate:?} is no mean of scores of runs\nhint: judge everything, or gate on an evaluator"
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
    /// Whether the gate wants a small mean; values and bar are then mirrored.
    is_mirrored: bool,
    /// On the scale from 0 to 1, mirrored if the gate is.
    bar: f64,
    scale: ScoreScale,
    /// Whether a run has scores of several steps, of which the mean counts.
    of_steps: bool,
    values: GateValues,
    margin: f64,
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
        };
        early.begin(1, 1)?;
        Ok(early)
    }

    fn begin(&self, population: u64, gates: usize) -> Result<SequentialGate, StopEarlyError> {
        let settings = GateSettings {
            population,
            bar: self.bar,
            alpha: ALPHA / gates.max(1) as f64,
            margin: self.margin,
            values: self.values,
        };
        SequentialGate::new(settings).map_err(|source| StopEarlyError::Sequential { gate: self.text.clone(), source })
    }

    fn value(&self, sum: f64, count: u32) -> f64 {
        let mean = sum / f64::from(count.max(1));
        let share = ((mean - self.scale.worst) / (self.scale.best - self.scale.worst)).clamp(0.0, 1.0);
        if self.is_mirrored { 1.0 - share } else { share }
    }

    /// The mean that the decision is about, on the scale of the evaluator.
    fn describe_decision(&self, gate: &SequentialGate) -> EarlyDecision {
        let share = gate.estimate().map(|mean| if self.is_mirrored { 1.0 - mean } else { mean });
        EarlyDecision {
            decision: gate.decision(),
            value: share.map(|share| self.scale.worst + share * (self.scale.best - self.scale.worst)),
            runs: gate.observed(),
            of_steps: self.of_steps,
        }
    }
}

/// How one gate was decided.
#[derive(Clone, Copy, Debug)]
struct EarlyDecision {
    decision: GateDecision,
    /// The mean over the runs with a score.
    value: Option<f64>,
    runs: u64,
    of_steps: bool,
}

/// What the rounds came to.
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

    /// Why the run is not complete; `None` if the last trajectory decided.
    pub(super) fn stop_reason(&self) -> Option<String> {
        (self.judged < self.population).then(|| {
            format!(
                "--stop-early: every gate was decided after {} of {} runs",
                gradus_report::format_count(self.judged),
                gradus_report::format_count(self.population)
            )
        })
    }

    /// `decided after 104 of 1,000 runs; 896 not judged, $12.40 saved`
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

    /// The decisions replace what a check of the judged part alone would say, and the value is the one that they are
    /// about. An interval that holds for one moment only would not belong to it.
    pub(super) fn apply(&self, gates: &mut [GateResult], summary: &EvaluationSummary) {
        for (gate, one) in gates.iter_mut().zip(&self.decisions) {
            gate.verdict = match one.decision {
                GateDecision::Above => GateVerdict::Pass,
                GateDecision::Below => GateVerdict::Fail,
                GateDecision::Undecided => continue,
            };
            gate.is_certain = true;
            gate.more_runs = None;
            (gate.value, gate.interval, gate.count) = (one.value, None, one.runs);
            let runs = gradus_report::format_counted_noun(one.runs, "run", "runs");
            let of = if one.of_steps { " (of each the mean of its steps)" } else { "" };
            gate.explanation = format!("mean of {runs}{of}; {}", self.describe(summary));
        }
    }
}

/// Scores of gated evaluators by trajectory, shared by the thread that feeds trajectories and the runner.
#[derive(Default)]
struct RoundState {
    /// By trajectory and position of the gate: sum and count.
    scores: HashMap<String, Vec<(f64, u32)>>,
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
    fn outcome(&mut self, line: &OutcomeLine) {
        if let Some(score) = line.score {
            let mut state = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_gated = |(_, gate): &(usize, &EarlyGate)| gate.evaluator == *line.evaluator;
            for (at, _) in self.gates.iter().enumerate().filter(is_gated) {
                let scores = state.scores.entry(line.trajectory_id.to_string()).or_default();
                scores.resize(self.gates.len(), (0.0, 0));
                scores[at].0 += score;
                scores[at].1 += 1;
            }
        }
        self.inner.outcome(line);
    }

    fn tick(&mut self, progress: &RunProgress) {
        if progress.finished >= progress.planned {
            let (state, changed) = &*self.shared;
            state.lock().unwrap_or_else(PoisonError::into_inner).settled = progress.trajectories;
            changed.notify_all();
        }
        self.inner.tick(progress);
    }
}

/// The thread that feeds trajectories round by round.
pub(super) type EarlyFeederThread = JoinHandle<anyhow::Result<(SourceReadReport, EarlyDecisions)>>;

/// Starts the feeding thread, and wraps the watcher that tells it when a round is judged.
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
    let mut sequential =
        gates.iter().map(|gate| gate.begin(population.max(1), gates.len())).collect::<Result<Vec<_>, _>>()?;
    let mut judged = 0;
    while judged < order.len() && sequential.iter().any(|gate| gate.decision() == GateDecision::Undecided) {
        let size = FIRST_ROUND.max(judged / ROUND_DIVISOR).min(order.len() - judged);
        let round = &order[judged..judged + size];
        let batch: Vec<Trajectory> = round.iter().filter_map(|at| all[*at].take()).collect();
        if sender.blocking_send(batch).is_err() || !wait_until_settled(shared, (judged + size) as u64, sender) {
            // The run was stopped: what is judged by then decides nothing.
            return Ok((read, EarlyDecisions { population, judged: judged as u64, decisions: undecided(gates) }));
        }
        let state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        for at in round {
            let scores = state.scores.get(&ids[*at]);
            for (number, (gate, observer)) in gates.iter().zip(&mut sequential).enumerate() {
                match scores.and_then(|scores| scores.get(number)).filter(|(_, count)| *count > 0) {
                    Some((sum, count)) => observer.observe(gate.value(*sum, *count))?,
                    None => observer.skip_run()?,
                };
            }
        }
        judged += size;
    }
    let decisions = gates.iter().zip(&sequential).map(|(gate, observer)| gate.describe_decision(observer)).collect();
    Ok((read, EarlyDecisions { population, judged: judged as u64, decisions }))
}

fn undecided(gates: &[EarlyGate]) -> Vec<EarlyDecision> {
    let undecided = |gate: &EarlyGate| EarlyDecision {
        decision: GateDecision::Undecided,
        value: None,
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
        let (next, _) = changed.wait_timeout(state, STOP_CHECK).unwrap_or_else(PoisonError::into_inner);
        state = next;
    }
    true
}
