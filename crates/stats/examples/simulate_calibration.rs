//! Measures corrected shares on simulated judges and writes `benches/results/calibration_coverage.json`: how often the
//! 95 % interval covers the true share, and how wide it is beside that of the labels alone. Run from the root of the
//! repository: `cargo run --release -p gradus-stats --example simulate_calibration`. An argument sets the rounds.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use simulation::judges::{CoverageResult, JudgedSetting, simulate_correction};

const ROUNDS: u32 = 5_000;
const FIRST_SEED: u64 = 70_000;
const COLUMNS: [&str; 11] = [
    "seed",
    "share",
    "true_positive_rate",
    "true_negative_rate",
    "labelled_runs",
    "max_steps",
    "alikeness",
    "coverage",
    "mean_width",
    "mean_width_of_labels_alone",
    "share_of_labels_alone_or_refused",
];

/// One judge, single steps.
const BASE: JudgedSetting = JudgedSetting {
    share: 0.9,
    true_positive_rate: 0.9,
    true_negative_rate: 0.9,
    judges: 1,
    population_runs: 1_000,
    labelled_runs: 50,
    max_steps: 1,
    alikeness: 0.0,
    is_active: false,
    other_share: None,
};

const ALL_RATES: [[f64; 2]; 8] =
    [[0.6, 0.6], [0.6, 0.98], [0.98, 0.6], [0.8, 0.8], [0.9, 0.7], [0.7, 0.9], [0.9, 0.9], [0.98, 0.98]];
const SHAPES: [(usize, f64); 3] = [(1, 0.0), (10, 0.2), (10, 0.5)];

/// A part of the results: settings that differ from `base` in share, rates, labelled runs and steps.
struct SettingGrid {
    name: &'static str,
    base: JudgedSetting,
    rates: &'static [[f64; 2]],
    labelled_runs: &'static [usize],
}

const GRIDS: [SettingGrid; 4] = [
    SettingGrid {
        name: "labels_of_the_same_population",
        base: BASE,
        rates: &ALL_RATES,
        labelled_runs: &[20, 50, 200, 500],
    },
    SettingGrid {
        name: "labels_of_another_balanced_population",
        base: JudgedSetting { other_share: Some(0.5), ..BASE },
        rates: &ALL_RATES,
        labelled_runs: &[20, 50, 200, 500],
    },
    SettingGrid {
        name: "votes_of_five_judges",
        base: JudgedSetting { judges: 5, ..BASE },
        rates: &[[0.7, 0.7], [0.9, 0.7]],
        labelled_runs: &[20, 100],
    },
    SettingGrid {
        name: "active_sampling",
        base: JudgedSetting { is_active: true, ..BASE },
        rates: &[[0.9, 0.7], [0.9, 0.9]],
        labelled_runs: &[50, 200],
    },
];

impl SettingGrid {
    fn settings(&self) -> Vec<JudgedSetting> {
        let mut settings = Vec::new();
        for share in [0.5, 0.7, 0.9, 0.95, 0.98] {
            for [true_positive_rate, true_negative_rate] in self.rates.iter().copied() {
                for labelled_runs in self.labelled_runs.iter().copied() {
                    for (max_steps, alikeness) in SHAPES {
                        settings.push(JudgedSetting {
                            share,
                            true_positive_rate,
                            true_negative_rate,
                            labelled_runs,
                            max_steps,
                            alikeness,
                            ..self.base
                        });
                    }
                }
            }
        }
        settings
    }
}

fn main() -> std::io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(ROUNDS);
    let mut parts = Vec::new();
    let mut seed = FIRST_SEED;
    for grid in GRIDS {
        let settings = grid.settings();
        let results = simulate_settings(seed, rounds, &settings);
        parts.push(format_part(&grid, seed, &settings, &results));
        seed += settings.len() as u64;
    }
    let head = json!({
        "command": "cargo run --release -p gradus-stats --example simulate_calibration",
        "confidence": 0.95, "rounds": rounds, "population_runs": BASE.population_runs, "columns": COLUMNS,
    });
    let head = serde_json::to_string(&head)?;
    let text = format!("{},\n{}\n}}\n", head.trim_end_matches('}'), parts.join(",\n"));
    std::fs::write("benches/results/calibration_coverage.json", text)
}

fn simulate_settings(seed: u64, rounds: u32, settings: &[JudgedSetting]) -> Vec<CoverageResult> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![CoverageResult::default(); settings.len()]);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(setting) = settings.get(at) else { break };
                    let result = simulate_correction(seed + at as u64, rounds, setting);
                    results.lock().expect("no thread panicked")[at] = result;
                }
            });
        }
    });
    results.into_inner().expect("no thread panicked")
}

/// A summary and one line per setting.
fn format_part(grid: &SettingGrid, seed: u64, settings: &[JudgedSetting], results: &[CoverageResult]) -> String {
    let coverages: Vec<f64> = results.iter().filter_map(CoverageResult::coverage).collect();
    let is_same_population = grid.base.other_share.is_none();
    // Where the judge is good enough for the bar of the comparison with the labels alone.
    let ratios: Vec<f64> = settings
        .iter()
        .zip(results)
        .filter(|(setting, _)| {
            is_same_population && setting.true_positive_rate + setting.true_negative_rate - 1.0 >= 0.5 - 1e-9
        })
        .map(|(_, result)| result.mean_width() / result.mean_alone_width())
        .collect();
    let mean = |values: &[f64]| round(values.iter().sum::<f64>() / values.len() as f64);
    let summary = json!({
        "settings": settings.len(),
        "lowest_coverage": coverages.iter().copied().reduce(f64::min).map(round),
        "mean_coverage": mean(&coverages),
        "settings_below_0.93": coverages.iter().filter(|coverage| **coverage < 0.93).count(),
        "highest_width_ratio_of_good_judges": ratios.iter().copied().reduce(f64::max).map(round),
        "mean_width_ratio_of_good_judges": (!ratios.is_empty()).then(|| mean(&ratios)),
    });
    let rows: Vec<String> = (seed..)
        .zip(settings.iter().zip(results))
        .map(|(seed, (setting, result))| format!("    {}", format_row(seed, setting, result)))
        .collect();
    format!("  \"{}\": {{\"summary\": {summary}, \"rows\": [\n{}\n  ]}}", grid.name, rows.join(",\n"))
}

fn format_row(seed: u64, setting: &JudgedSetting, result: &CoverageResult) -> Value {
    let other = if setting.other_share.is_some() { result.refused } else { result.labels_alone };
    json!([
        seed,
        setting.share,
        setting.true_positive_rate,
        setting.true_negative_rate,
        setting.labelled_runs,
        setting.max_steps,
        setting.alikeness,
        result.coverage().map(round),
        round(result.mean_width()),
        setting.other_share.is_none().then(|| round(result.mean_alone_width())),
        round(f64::from(other) / f64::from(result.rounds)),
    ])
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
