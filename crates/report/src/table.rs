//! The list of trajectories as a table.

use std::io::{self, Write};

use gradus_core::trajectory::Trajectory;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{BOLD, DIM};
use gradus_core::visible::printable_line;

/// Rows wait until all are known, so that columns fit and ids are cut where they are still unique.
#[derive(Debug, Default)]
pub struct TrajectoryTable {
    rows: Vec<TrajectoryTableRow>,
}

#[derive(Debug)]
struct TrajectoryTableRow {
    id: String,
    start: String,
    steps: String,
    defects: String,
    tools: String,
    query: String,
}

/// The columns that are as wide as what is in them; tools and query share the rest.
const MIN_ID: usize = 8;
const TOOLS: usize = 34;
/// What tools and query need together.
const NARROWEST: usize = 44;
const GAP: &str = "  ";
/// Rows wait for the last one, so they must not keep more than can be shown.
const WIDEST: usize = 200;

impl TrajectoryTable {
    pub fn add(&mut self, trajectory: &Trajectory) {
        let mut tools: Vec<String> = Vec::new();
        for step in &trajectory.steps {
            let name = printable_line(&step.tool);
            if tools.last() != Some(&name) {
                tools.push(name);
            }
        }
        let start = trajectory.start.as_deref().map(|time| time.get(..19).unwrap_or(time).replace('T', " "));
        let errors = trajectory.steps.iter().filter(|step| step.is_error).count();
        let steps = trajectory.steps.len();
        self.rows.push(TrajectoryTableRow {
            id: printable_line(&trajectory.trajectory_id),
            start: start.unwrap_or_default(),
            steps: if errors > 0 { format!("{steps} ({errors} failed)") } else { steps.to_string() },
            defects: if trajectory.defects.is_empty() { String::new() } else { trajectory.defects.len().to_string() },
            tools: truncate_to_width(&tools.join(" → "), WIDEST),
            query: truncate_to_width(&printable_line(trajectory.query.as_deref().unwrap_or("(no query)")), WIDEST),
        });
    }

    pub fn print(&self, width: usize, out: &mut dyn Write) -> io::Result<()> {
        let id = self.unique_prefix();
        let widest = |title: &str, of: fn(&TrajectoryTableRow) -> &str| {
            self.rows.iter().map(|row| of(row).width()).max().unwrap_or(0).max(title.width())
        };
        let (steps, defects) = (widest("STEPS", |row| &row.steps), widest("DEFECTS", |row| &row.defects));
        let mut rest = width.saturating_sub(id + steps + defects + 4 * GAP.len());
        // On a narrow terminal the time is what can be missed.
        let start = widest("START", |row| &row.start) + GAP.len();
        let start = if rest >= start + NARROWEST { start } else { 0 };
        rest -= start;
        let tools = widest("TOOLS", |row| &row.tools).min(TOOLS).min(rest * 2 / 5);
        let query = rest.saturating_sub(tools).max(1);
        let line = |cells: [&str; 6]| {
            let [a, b, c, d, e, f] = cells;
            let b = if start > 0 { fit_to_width(b, start) } else { String::new() };
            let (a, c, d, e) =
                (fit_to_width(a, id), fit_to_width(c, steps), fit_to_width(d, defects), fit_to_width(e, tools));
            format!("{a}{GAP}{b}{c}{GAP}{d}{GAP}{e}{GAP}{}", truncate_to_width(f, query))
        };
        let title = line(["ID", "START", "STEPS", "DEFECTS", "TOOLS", "QUERY"]);
        writeln!(out, "{BOLD}{}{BOLD:#}", title.trim_end())?;
        for row in &self.rows {
            let cells = [&row.id, &row.start, &row.steps, &row.defects, &row.tools, &row.query];
            writeln!(out, "{}", line(cells.map(String::as_str)).trim_end())?;
        }
        let total: usize = self.rows.len();
        let what = if total == 1 { "trajectory" } else { "trajectories" };
        writeln!(out, "{DIM}{total} {what}; `gradus traces show ID SOURCE...` prints one{DIM:#}")
    }

    /// How much of the ids has to be shown to tell them apart.
    fn unique_prefix(&self) -> usize {
        let mut ids: Vec<&str> = self.rows.iter().map(|row| row.id.as_str()).collect();
        ids.sort_unstable();
        let needed = ids.windows(2).map(|pair| {
            let shared = pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
            // An id that begins like all of another must be seen whole.
            if shared == pair[0].len() { pair[1].len() } else { shared + 1 }
        });
        let longest = ids.iter().map(|id| id.len()).max().unwrap_or(0);
        needed.max().unwrap_or(0).max(MIN_ID).min(longest).max("ID".len())
    }
}

/// Cut and padded to a width in columns.
fn fit_to_width(text: &str, width: usize) -> String {
    let text = truncate_to_width(text, width);
    let padding = width.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(padding))
}

fn truncate_to_width(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns + 1 > width {
            break;
        }
        used += columns;
        kept.push(c);
    }
    // Ids are cut without a mark: they are still good to use.
    if text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return text[..width.min(text.len())].to_owned();
    }
    kept.push('…');
    kept
}
