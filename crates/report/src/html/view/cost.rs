//! The cost of judging. An unknown price is stated and never shown as 0.

use gradus_eval::outcome::TokenCount;
use gradus_eval::report::{EvaluationSummary, EvaluatorCost};

use super::{format_evaluator_title, text};
use crate::cost_text::{describe_unknown_cost, format_agent_cost};
use crate::html::charts::{BarAxis, BarChartRow, BarFill, BarSegment, ResponsiveChart, draw_bar_chart};
use crate::html::number::{filter_finite, format_usd};
use crate::number_text::format_count;

/// The section on cost: a table and a chart of the same numbers.
#[derive(Debug)]
pub struct CostView {
    pub total: CostRow,
    pub rows: Vec<CostRow>,
    /// The cost of the agent itself, in words. `None` if no trace records it.
    pub agent: Option<String>,
    /// `None` if no model was asked.
    pub chart: Option<ResponsiveChart>,
}

/// A row of the table, formatted. `tokens` is the sum of prompt and completion; `cached_prompt` is a part of `prompt`,
/// and `from_cache` counts verdicts that needed no call.
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
    /// Builds the section. The total is computed by `eval`, not by adding rounded numbers.
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
            agent: format_agent_cost(&summary.agent_cost).map(|cost| text::format_display_line(&cost)),
            total: CostRow::from_cost(&total, "Total".to_owned(), describe_unknown_cost(cost)),
            rows: cost
                .by_evaluator
                .iter()
                .map(|part| {
                    let title = format_evaluator_title(summary, &part.evaluator);
                    CostRow::from_cost(part, title, describe_unknown_cost(cost))
                })
                .collect(),
            chart: (cost.calls > 0).then(|| draw_cost_chart(summary)),
        }
    }
}

impl CostRow {
    /// `evaluator` is the title of the row; `unknown` is shown for an unknown cost.
    fn from_cost(cost: &EvaluatorCost, evaluator: String, unknown: &str) -> CostRow {
        let TokenCount { prompt, completion, cached_prompt } = cost.tokens;
        CostRow {
            evaluator,
            judge: text::format_display_line(&cost.judge),
            calls: format_count(cost.calls),
            prompt: format_count(prompt),
            cached_prompt: format_count(cached_prompt),
            completion: format_count(completion),
            tokens: format_count(prompt + completion),
            usd: format_evaluator_cost(cost, unknown),
            from_cache: format_count(cost.from_cache),
        }
    }
}

/// Dollars, or why there are none.
fn format_evaluator_cost(cost: &EvaluatorCost, unknown: &str) -> String {
    match filter_finite(cost.usd) {
        Some(dollars) => format_usd(dollars),
        // Without calls the cost is zero at any price.
        None if cost.calls == 0 => "nothing spent".to_owned(),
        None => unknown.to_owned(),
    }
}

/// A bar per evaluator, in dollars, or in tokens if no price is known: the two cannot share an axis.
fn draw_cost_chart(summary: &EvaluationSummary) -> ResponsiveChart {
    let parts = &summary.cost.by_evaluator;
    // One price is enough: evaluators without one get a text instead of a bar.
    let is_priced = parts.iter().any(|part| filter_finite(part.usd).is_some_and(|dollars| dollars > 0.0));
    let rows: Vec<BarChartRow> = parts
        .iter()
        .map(|part| {
            let tokens = part.tokens.prompt + part.tokens.completion;
            let value = if is_priced { filter_finite(part.usd).unwrap_or(0.0) } else { tokens as f64 };
            let unknown = describe_unknown_cost(&summary.cost);
            let note = if is_priced { format_evaluator_cost(part, unknown) } else { format_count(tokens) };
            BarChartRow {
                label: format_evaluator_title(summary, &part.evaluator),
                segments: vec![BarSegment { fill: BarFill::Plain, value }],
                below: None,
                placeholder: match (part.calls, value > 0.0) {
                    (0, _) => Some("no model called".to_owned()),
                    (_, false) => Some(note.clone()),
                    _ => None,
                },
                note,
            }
        })
        .collect();
    let axis = if is_priced {
        BarAxis { title: "cost (US dollars)", whole: false, format: format_dollar_tick }
    } else {
        BarAxis { title: "tokens (prompt and completion)", whole: true, format: |number| format_count(number as u64) }
    };
    draw_bar_chart(&rows, axis, "Cost by evaluator. The table has the same numbers.")
}

/// A label of the axis: as few decimals as the number needs, but cents if it has any.
fn format_dollar_tick(dollars: f64) -> String {
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
