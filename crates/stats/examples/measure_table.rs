//! Measures judges as JSON lines, for the comparison with other packages (`tests/peers/statistics_packages.py`). Each line
//! of standard input has `table`: how many labelled cases are accepted and right, accepted and wrong, rejected and right,
//! rejected and wrong; and `population`: how many cases the judge accepts and rejects.

use std::io::{BufRead, Write, stdin, stdout};

use gradus_stats::calibration::{
    LabelledCase, LabelledRun, RoganGladenCounts, UnjudgedCases, measure_judge, rogan_gladen_estimate,
    rogan_gladen_interval,
};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct MeasuredTable {
    table: [usize; 4],
    population: [f64; 2],
}

const CONFIDENCE: f64 = 0.95;
/// The judge rejects a case of the first stratum and accepts one of the second.
const STRATA_SCORES: [f64; 2] = [0.0, 1.0];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in stdin().lock().lines() {
        let MeasuredTable { table, population } = serde_json::from_str(&line?)?;
        let cells = [(1, 1.0), (1, 0.0), (0, 1.0), (0, 0.0)];
        let cases = cells.into_iter().zip(table).flat_map(|(cell, count)| std::iter::repeat_n(cell, count));
        let labelled: Vec<LabelledRun> = cases
            .map(|(stratum, truth)| LabelledRun { cases: vec![LabelledCase { stratum, truth, probability: 1.0 }] })
            .collect();
        let measures = measure_judge(&labelled, &STRATA_SCORES, UnjudgedCases::default(), CONFIDENCE)?;
        let [accepted_right, accepted_wrong, rejected_right, rejected_wrong] = table.map(|count| count as f64);
        let judged: f64 = population.iter().sum();
        let counts = RoganGladenCounts {
            accepted_share: population[0] / judged,
            population: judged,
            true_positive_rate: accepted_right / (accepted_right + rejected_right),
            right_cases: accepted_right + rejected_right,
            true_negative_rate: rejected_wrong / (accepted_wrong + rejected_wrong),
            wrong_cases: accepted_wrong + rejected_wrong,
        };
        let interval = rogan_gladen_interval(&counts, 1.0 - CONFIDENCE).map(|interval| [interval.low, interval.high]);
        let result = json!({
            "measures": measures,
            "rogan_gladen": rogan_gladen_estimate(&counts),
            "rogan_gladen_interval": interval,
        });
        writeln!(stdout(), "{result}")?;
    }
    Ok(())
}
