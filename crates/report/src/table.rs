//! The list of trajectories as a table that fits the terminal. Widths are in terminal columns (Unicode East Asian
//! Width), not in characters.

use std::io::{self, Write};

use gradus_core::trajectory::Trajectory;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{BOLD, DIM};
use gradus_core::visible::printable_line;

/// Rows are collected and printed at the end, so that columns fit and ids are cut to the shortest unique prefix.
#[derive(Debug, Default)]
pub struct TrajectoryTable {
    rows: Vec<TrajectoryTableRow>,
}

/// The cells of one trajectory, printable and already cut.
#[derive(Debug)]
struct TrajectoryTableRow {
    id: String,
    start: String,
    steps: String,
    defects: String,
    tools: String,
    query: String,
}

/// Minimum characters of the shown prefix of an id.
const MIN_ID_CHARS: usize = 8;
/// Maximum width of the column of tools. Tools and query share the width that the other columns leave.
const MAX_TOOLS_WIDTH: usize = 34;
/// Minimum width of tools and query together. Below it, the start time is dropped.
const MIN_TOOLS_AND_QUERY_WIDTH: usize = 44;
const GAP: &str = "  ";
/// Maximum stored width of a text in a row. It bounds the memory of a table of many trajectories.
const MAX_STORED_WIDTH: usize = 200;

impl TrajectoryTable {
    /// Adds a trajectory. Repeated calls of one tool in a row are shown once.
    pub fn add(&mut self, trajectory: &Trajectory) {
        let mut tools: Vec<String> = Vec::new();
        for step in &trajectory.steps {
            let name = printable_line(&step.tool);
            if tools.last() != Some(&name) {
                tools.push(name);
            }
        }
        let start =
            trajectory.start.as_deref().map(|time| printable_line(time.get(..19).unwrap_or(time)).replace('T', " "));
        let errors = trajectory.steps.iter().filter(|step| step.is_error).count();
        let steps = trajectory.steps.len();
        self.rows.push(TrajectoryTableRow {
            id: printable_line(&trajectory.trajectory_id),
            start: start.unwrap_or_default(),
            steps: if errors > 0 { format!("{steps} ({errors} failed)") } else { steps.to_string() },
            defects: if trajectory.defects.is_empty() { String::new() } else { trajectory.defects.len().to_string() },
            tools: truncate_to_width(&tools.join(" → "), MAX_STORED_WIDTH),
            query: truncate_to_width(
                &printable_line(trajectory.query.as_deref().unwrap_or("(no query)")),
                MAX_STORED_WIDTH,
            ),
        });
    }

    /// Prints the table for a terminal of `width` columns, and a line with the total.
    pub fn print(&self, width: usize, out: &mut dyn Write) -> io::Result<()> {
        let id = self.unique_prefix_length();
        let widest = |title: &str, of: fn(&TrajectoryTableRow) -> &str| {
            self.rows.iter().map(|row| of(row).width()).max().unwrap_or(0).max(title.width())
        };
        let (steps, defects) = (widest("STEPS", |row| &row.steps), widest("DEFECTS", |row| &row.defects));
        let mut rest = width.saturating_sub(id + steps + defects + 4 * GAP.len());
        // On a narrow terminal the start time is dropped.
        let start = widest("START", |row| &row.start) + GAP.len();
        let start = if rest >= start + MIN_TOOLS_AND_QUERY_WIDTH { start } else { 0 };
        rest -= start;
        let tools = widest("TOOLS", |row| &row.tools).min(MAX_TOOLS_WIDTH).min(rest * 2 / 5);
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

    /// Returns the length of the shortest prefix that distinguishes all ids. In sorted order only neighbours must be
    /// compared.
    fn unique_prefix_length(&self) -> usize {
        let mut ids: Vec<&str> = self.rows.iter().map(|row| row.id.as_str()).collect();
        ids.sort_unstable();
        let needed = ids.windows(2).map(|pair| {
            let shared = pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
            // An id that is a prefix of another one must be shown whole.
            if shared == pair[0].len() { pair[1].len() } else { shared + 1 }
        });
        let longest = ids.iter().map(|id| id.len()).max().unwrap_or(0);
        needed.max().unwrap_or(0).max(MIN_ID_CHARS).min(longest).max("ID".len())
    }
}

/// Cuts and pads a text to a width in columns.
fn fit_to_width(text: &str, width: usize) -> String {
    let text = truncate_to_width(text, width);
    let padding = width.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(padding))
}

/// Cuts a text to a width in columns, with an ellipsis. Hexadecimal ids are cut without one, so that they can be copied
/// and used as a prefix.
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
    if text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return text[..width.min(text.len())].to_owned();
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{booking_trajectory, show_styles, sparse_trajectory, trajectory_filled_with};

    fn print_table(trajectories: &[Trajectory], width: usize) -> String {
        let mut table = TrajectoryTable::default();
        for trajectory in trajectories {
            table.add(trajectory);
        }
        let mut printed = Vec::new();
        table.print(width, &mut printed).expect("a table is printed");
        show_styles(&printed)
    }

    #[test]
    fn a_wide_terminal_shows_every_column() {
        insta::assert_snapshot!(print_table(&[booking_trajectory(), sparse_trajectory()], 140));
    }

    #[test]
    fn a_narrow_terminal_has_no_start_time() {
        let printed = print_table(&[booking_trajectory(), sparse_trajectory()], 72);
        assert!(printed.lines().take(3).all(|line| line.replace("<bold>", "").replace("</>", "").width() <= 72));
        insta::assert_snapshot!(printed);
    }

    #[test]
    fn a_table_without_rows_has_a_head_and_a_total() {
        insta::assert_snapshot!(print_table(&[], 80));
    }

    #[test]
    fn hostile_text_stays_on_its_line() {
        let hostile = trajectory_filled_with("a\u{1b}[31mb\r\nc\u{202e}d\u{9b}e\0f");
        let printed = print_table(&[hostile], 140);
        assert!(!printed.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{printed:?}");
        insta::assert_snapshot!(printed);
    }
}
