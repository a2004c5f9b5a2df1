//! Which tools were used, how often the choice was right, and how often the call failed.

use gradus_eval::report::ToolUse;

use super::{MAX_ROWS, text};
use crate::html::charts::{Axis, Bar, Chart, Fill, Part, bars};
use crate::html::count_text::count;
use crate::html::number::percent;

/// More tools than this are one bar; the table has them.
const MAX_BARS: usize = 12;

#[derive(Debug)]
pub struct Tools {
    pub chart: Chart,
    pub rows: Vec<Row>,
    pub omitted: Option<String>,
}

#[derive(Debug)]
pub struct Row {
    pub tool: String,
    pub calls: String,
    pub right: String,
    pub wrong: String,
    pub unjudged: String,
    pub share: Option<String>,
    pub errors: String,
}

/// What became of a tool's calls.
#[derive(Clone, Copy, Default)]
struct Calls {
    right: u64,
    wrong: u64,
    unjudged: u64,
    errors: u64,
}

impl Calls {
    fn of(tool: &ToolUse) -> Calls {
        Calls {
            right: tool.right,
            wrong: tool.judged.saturating_sub(tool.right),
            unjudged: tool.uses.saturating_sub(tool.judged),
            errors: tool.errors,
        }
    }

    fn and(self, other: Calls) -> Calls {
        Calls {
            right: self.right + other.right,
            wrong: self.wrong + other.wrong,
            unjudged: self.unjudged + other.unjudged,
            errors: self.errors + other.errors,
        }
    }

    fn bar(self, label: String) -> Bar {
        let part = |fill, value: u64| Part { fill, value: value as f64 };
        Bar {
            label,
            parts: vec![
                part(Fill::Right, self.right),
                part(Fill::Wrong, self.wrong),
                part(Fill::Unjudged, self.unjudged),
            ],
            below: Some(part(Fill::Error, self.errors)),
            note: count(self.right + self.wrong + self.unjudged),
            nothing: None,
        }
    }
}

impl Tools {
    pub fn of(tools: &[ToolUse]) -> Tools {
        // One more bar is no worse than one that says "1 other tool".
        let shown = if tools.len() <= MAX_BARS + 1 { tools.len() } else { MAX_BARS };
        let mut rows: Vec<Bar> =
            tools[..shown].iter().map(|tool| Calls::of(tool).bar(text::line(&tool.tool))).collect();
        if let Some(rest) = tools[shown..].iter().map(Calls::of).reduce(Calls::and) {
            rows.push(rest.bar(format!("{} other tools", count((tools.len() - shown) as u64))));
        }
        let axis = Axis { title: "calls", whole: true, format: |number| count(number as u64) };
        Tools {
            chart: bars(&rows, axis, "Calls of each tool. The table has the same numbers."),
            rows: tools.iter().take(MAX_ROWS).map(Row::of).collect(),
            omitted: tools
                .len()
                .checked_sub(MAX_ROWS)
                .filter(|more| *more > 0)
                .map(|more| count(more as u64)),
        }
    }
}

impl Row {
    fn of(tool: &ToolUse) -> Row {
        let calls = Calls::of(tool);
        Row {
            tool: text::line(&tool.tool),
            calls: count(tool.uses),
            right: count(calls.right),
            wrong: count(calls.wrong),
            unjudged: count(calls.unjudged),
            share: (tool.judged > 0).then(|| percent(tool.right as f64 / tool.judged as f64)),
            errors: count(calls.errors),
        }
    }
}
