//! Gates over populations of runs in random order.

use fastrand::Rng;
use gradus_stats::sequential::{GateDecision, GateSettings, GateValues, SequentialGate};

/// Populations that gates are tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimulatedPopulation {
    /// Runs are right or wrong.
    Binary,
    /// Runs are right or wrong, and one in five has no value.
    BinarySkipped,
    /// Runs have several steps that vary on their own.
    Shares,
    /// Runs have several steps that mostly go one way.
    ClusteredShares,
}

/// What came of a gate in many random orders.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GateResult {
    pub(crate) rounds: u32,
    pub(crate) wrong: u32,
    /// Runs that were judged, in all rounds.
    pub(crate) judged: u64,
    /// Runs that could be judged, in all rounds.
    pub(crate) population: u64,
}

impl GateResult {
    pub(crate) fn error_rate(&self) -> f64 {
        f64::from(self.wrong) / f64::from(self.rounds)
    }

    /// How many times fewer runs were judged.
    pub(crate) fn saving(&self) -> f64 {
        self.population as f64 / self.judged as f64
    }
}

/// Values of a population with `share` as its mean, as nearly as its kind allows.
fn simulate_population(random: &mut Rng, kind: SimulatedPopulation, size: usize, share: f64) -> Vec<Option<f64>> {
    let right = (share * size as f64).round() as usize;
    let mut values: Vec<Option<f64>> = match kind {
        SimulatedPopulation::Binary => (0..size).map(|at| Some(f64::from(u8::from(at < right)))).collect(),
        SimulatedPopulation::BinarySkipped => {
            let values = (0..size).map(|at| Some(f64::from(u8::from(at < right))));
            values.chain(std::iter::repeat_n(None, size / 4)).collect()
        }
        SimulatedPopulation::Shares | SimulatedPopulation::ClusteredShares => {
            let is_clustered = kind == SimulatedPopulation::ClusteredShares;
            let run = |random: &mut Rng| {
                let steps = random.u32(2..10);
                let goes_one_way = is_clustered && random.f64() < 0.7;
                let whole = random.f64() < share;
                let right = (0..steps).filter(|_| if goes_one_way { whole } else { random.f64() < share }).count();
                right as f64 / f64::from(steps)
            };
            let mut values: Vec<f64> = (0..size).map(|_| run(random)).collect();
            set_mean(&mut values, share);
            values.into_iter().map(Some).collect()
        }
    };
    random.shuffle(&mut values);
    values
}

/// Moves values towards 0 or 1 until their mean is `mean`.
fn set_mean(values: &mut [f64], mean: f64) {
    let wanted = mean * values.len() as f64;
    let sum: f64 = values.iter().sum();
    let room: f64 = values.iter().map(|value| if sum < wanted { 1.0 - value } else { *value }).sum();
    let part = (wanted - sum).abs() / room;
    for value in values {
        *value = if sum < wanted { *value + part * (1.0 - *value) } else { *value * (1.0 - part) };
    }
}

pub(crate) fn simulate_gate(
    random: &mut Rng,
    rounds: u32,
    kind: SimulatedPopulation,
    size: u64,
    share: f64,
    bar: f64,
    margin: f64,
) -> GateResult {
    let values = match kind {
        SimulatedPopulation::Binary | SimulatedPopulation::BinarySkipped => GateValues::Binary,
        _ => GateValues::Share,
    };
    let mut result = GateResult { rounds, ..GateResult::default() };
    for _ in 0..rounds {
        let runs = simulate_population(random, kind, size as usize, share);
        let settings = GateSettings { population: runs.len() as u64, bar, alpha: 0.05, margin, values };
        let mut gate = SequentialGate::new(settings).expect("the settings are good");
        for run in &runs {
            let decision = match run {
                Some(value) => gate.observe(*value),
                None => gate.skip_run(),
            };
            if decision.expect("values are shares") != GateDecision::Undecided {
                break;
            }
        }
        let mean = runs.iter().flatten().sum::<f64>() / runs.iter().flatten().count() as f64;
        let truth = if mean >= bar - 1e-9 { GateDecision::Above } else { GateDecision::Below };
        // Inside of the zone either decision is accepted.
        let is_in_zone = (mean - bar).abs() < margin;
        result.wrong += u32::from(gate.decision() != truth && !is_in_zone);
        result.judged += gate.observed();
        result.population += size;
    }
    result
}
