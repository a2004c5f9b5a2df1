//! The tools that were called, how often the choice was right, and how often the call failed. A failed call can still
//! be the right choice, so errors cut across the other counts.

use gradus_eval::report::ToolUse;

use super::{MAX_ROWS, text};
use crate::html::charts::{BarAxis, BarChartRow, BarFill, BarSegment, ResponsiveChart, draw_bar_chart};
use crate::html::number::format_percent;
use crate::number_text::format_count;

/// Maximum number of bars in the chart; further tools share one bar and are listed in the table.
const MAX_BARS: usize = 12;

/// The section on tools: a chart and a table of the same numbers.
#[derive(Debug)]
pub struct ToolUseView {
    pub chart: ResponsiveChart,
    pub rows: Vec<ToolUseRow>,
    pub omitted: Option<String>,
}

/// A row of the table. `share` is of judged calls; `None` if none was judged.
#[derive(Debug)]
pub struct ToolUseRow {
    pub tool: String,
    pub calls: String,
    pub right: String,
    pub wrong: String,
    pub unjudged: String,
    pub share: Option<String>,
    pub errors: String,
}

/// The calls of one tool. `right`, `wrong` and `unjudged` add up to all calls; `errors` is a part of them.
#[derive(Clone, Copy, Default)]
struct ToolCallCounts {
    right: u64,
    wrong: u64,
    unjudged: u64,
    errors: u64,
}

impl ToolCallCounts {
    /// Saturating, because the numbers come from files that may be inconsistent.
    fn from_tool_use(tool: &ToolUse) -> ToolCallCounts {
        ToolCallCounts {
            right: tool.right,
            wrong: tool.judged.saturating_sub(tool.right),
            unjudged: tool.uses.saturating_sub(tool.judged),
            errors: tool.errors,
        }
    }

    /// The sum, for the bar of other tools.
    fn merge(self, other: ToolCallCounts) -> ToolCallCounts {
        ToolCallCounts {
            right: self.right + other.right,
            wrong: self.wrong + other.wrong,
            unjudged: self.unjudged + other.unjudged,
            errors: self.errors + other.errors,
        }
    }

    /// Verdicts as segments, errors as the thin bar below.
    fn to_chart_row(self, label: String) -> BarChartRow {
        let part = |fill, value: u64| BarSegment { fill, value: value as f64 };
        BarChartRow {
            label,
            segments: vec![
                part(BarFill::Right, self.right),
                part(BarFill::Wrong, self.wrong),
                part(BarFill::Unjudged, self.unjudged),
            ],
            below: Some(part(BarFill::Error, self.errors)),
            note: format_count(self.right + self.wrong + self.unjudged),
            placeholder: None,
        }
    }
}

impl ToolUseView {
    /// `tools` are sorted by number of calls, so the chart has the most used ones.
    pub fn from_tool_uses(tools: &[ToolUse]) -> ToolUseView {
        // One more bar is better than a bar for a single other tool.
        let shown = if tools.len() <= MAX_BARS + 1 { tools.len() } else { MAX_BARS };
        let mut rows: Vec<BarChartRow> = tools[..shown]
            .iter()
            .map(|tool| ToolCallCounts::from_tool_use(tool).to_chart_row(text::format_display_line(&tool.tool)))
            .collect();
        if let Some(rest) = tools[shown..].iter().map(ToolCallCounts::from_tool_use).reduce(ToolCallCounts::merge) {
            rows.push(rest.to_chart_row(format!("{} other tools", format_count((tools.len() - shown) as u64))));
        }
        let axis = BarAxis { title: "calls", whole: true, format: |number| format_count(number as u64) };
        ToolUseView {
            chart: draw_bar_chart(&rows, axis, "Calls of each tool. The table has the same numbers."),
            rows: tools.iter().take(MAX_ROWS).map(ToolUseRow::from_tool_use).collect(),
            omitted: tools.len().checked_sub(MAX_ROWS).filter(|more| *more > 0).map(|more| format_count(more as u64)),
        }
    }
}

impl ToolUseRow {
    fn from_tool_use(tool: &ToolUse) -> ToolUseRow {
        let calls = ToolCallCounts::from_tool_use(tool);
        ToolUseRow {
            tool: text::format_display_line(&tool.tool),
            calls: format_count(tool.uses),
            right: format_count(calls.right),
            wrong: format_count(calls.wrong),
            unjudged: format_count(calls.unjudged),
            share: (tool.judged > 0).then(|| format_percent(tool.right as f64 / tool.judged as f64)),
            errors: format_count(calls.errors),
        }
    }
}
