//! What the judging cost. A price that is not known is said to be so, and is never a 0.

use gradus_eval::outcome::TokenCount;
use gradus_eval::report::{EvaluationSummary, EvaluatorCost};

use super::{text, title};
use crate::html::charts::{BarAxis, BarFill, BarSegment, ChartBar, ResponsiveChart, bars};
use crate::html::count_text::count;
use crate::html::number::{finite, usd};

const NOT_KNOWN: &str = "price not known";

#[derive(Debug)]
pub struct CostView {
    pub total: CostRow,
    pub rows: Vec<CostRow>,
    /// None where no model was asked.
    pub chart: Option<ResponsiveChart>,
}

#[derive(Debug)]
pub struct CostRow {
    pub evaluator: String,
    pub judge: String,
    pub calls: String,
    pub prompt: String,
    pub cached_prompt: String,
    pub completion: String,
    pub tokens: String,
    pub usd: String,
    pub from_cache: String,
}

impl CostView {
    pub fn from_summary(summary: &EvaluationSummary) -> CostView {
        let cost = &summary.cost;
        let total = EvaluatorCost {
            evaluator: String::new(),
            judge: String::new(),
            calls: cost.calls,
            tokens: cost.tokens,
            usd: cost.usd,
            from_cache: cost.from_cache,
        };
        CostView {
            total: CostRow::from_cost(&total, "Total".to_owned()),
            rows: cost
                .by_evaluator
                .iter()
                .map(|part| CostRow::from_cost(part, title(summary, &part.evaluator)))
                .collect(),
            chart: (cost.calls > 0).then(|| chart(summary)),
        }
    }
}

impl CostRow {
    fn from_cost(cost: &EvaluatorCost, evaluator: String) -> CostRow {
        let TokenCount { prompt, completion, cached_prompt } = cost.tokens;
        CostRow {
            evaluator,
            judge: text::line(&cost.judge),
            calls: count(cost.calls),
            prompt: count(prompt),
            cached_prompt: count(cached_prompt),
            completion: count(completion),
            tokens: count(prompt + completion),
            usd: price(cost),
            from_cache: count(cost.from_cache),
        }
    }
}

fn price(cost: &EvaluatorCost) -> String {
    match finite(cost.usd) {
        Some(dollars) => usd(dollars),
        // Whatever the price is, none of it was paid.
        None if cost.calls == 0 => "nothing spent".to_owned(),
        None => NOT_KNOWN.to_owned(),
    }
}

/// Dollars by evaluator; tokens where no price is known.
fn chart(summary: &EvaluationSummary) -> ResponsiveChart {
    let parts = &summary.cost.by_evaluator;
    let is_priced = parts.iter().any(|part| finite(part.usd).is_some_and(|dollars| dollars > 0.0));
    let rows: Vec<ChartBar> = parts
        .iter()
        .map(|part| {
            let tokens = part.tokens.prompt + part.tokens.completion;
            let value = if is_priced { finite(part.usd).unwrap_or(0.0) } else { tokens as f64 };
            let note = if is_priced { price(part) } else { count(tokens) };
            ChartBar {
                label: title(summary, &part.evaluator),
                parts: vec![BarSegment { fill: BarFill::Plain, value }],
                below: None,
                nothing: match (part.calls, value > 0.0) {
                    (0, _) => Some("no model was asked".to_owned()),
                    (_, false) => Some(note.clone()),
                    _ => None,
                },
                note,
            }
        })
        .collect();
    let axis = if is_priced {
        BarAxis { title: "cost (US dollars)", whole: false, format: tick }
    } else {
        BarAxis {
            title: "tokens (prompt and completion)",
            whole: true,
            format: |number| count(number as u64),
        }
    };
    bars(&rows, axis, "Cost by evaluator. The table has the same numbers.")
}

/// A round number of dollars, as short as it can be.
fn tick(dollars: f64) -> String {
    let decimals = (0..6).find(|decimals| {
        let scaled = dollars * 10_f64.powi(*decimals);
        (scaled - scaled.round()).abs() < 1e-6
    });
    match decimals {
        Some(0) => format!("${dollars:.0}"),
        Some(decimals) => format!("${dollars:.*}", decimals.max(2) as usize),
        None => format!("${dollars:.0e}"),
    }
}
