//! Tables of a run supplement (a benchmark) in the form that the template needs.

use super::text::{self, DisplayText};
use crate::report_table::ReportTable;

/// A table, formatted.
#[derive(Debug)]
pub struct ReportTableView {
    pub title: &'static str,
    pub about: &'static str,
    /// Anchor for links: the title in lower case, with `-` for other characters.
    pub id: String,
    /// Name and CSS class.
    pub columns: Vec<(String, &'static str)>,
    pub rows: Vec<Vec<ReportTableCell>>,
    pub note: Option<DisplayText>,
}

/// A cell, formatted.
#[derive(Debug)]
pub struct ReportTableCell {
    pub text: DisplayText,
    /// The interval of a number, on a line of its own: beside the number it would make the table too wide for a page.
    pub interval: Option<DisplayText>,
    /// CSS class: `n` for numbers.
    pub class: &'static str,
}

impl ReportTableCell {
    /// Splits `100.0 % (61.0–100.0)` into number and interval, in columns of numbers only.
    fn from_text(text: &str, class: &'static str) -> ReportTableCell {
        let interval = text.strip_suffix(')').and_then(|text| text.split_once(" (")).filter(|_| class == "n");
        let (number, interval) = interval.map_or((text, None), |(number, ends)| (number, Some(ends)));
        ReportTableCell {
            text: text::format_display_block(number),
            interval: interval.map(text::format_display_block),
            class,
        }
    }
}

impl ReportTableView {
    pub fn from_table(table: &ReportTable) -> ReportTableView {
        let class = |at: usize| table.columns.get(at).map_or("", |column| if column.is_number { "n" } else { "" });
        let cells = |row: &Vec<String>| {
            row.iter().enumerate().map(|(at, cell)| ReportTableCell::from_text(cell, class(at))).collect()
        };
        let letters = table.title.to_lowercase();
        ReportTableView {
            title: table.title,
            about: table.about,
            id: letters.chars().map(|c| if c.is_ascii_lowercase() { c } else { '-' }).collect(),
            columns: (table.columns.iter().enumerate())
                .map(|(at, column)| (text::format_display_line(&column.name), class(at)))
                .collect(),
            rows: table.rows.iter().map(cells).collect(),
            note: table.note.as_deref().map(text::format_display_block),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_its_own_line() {
        let cell = ReportTableCell::from_text("100.0 % (61.0–100.0)", "n");
        let interval = cell.interval.map(|interval| interval.text);
        assert_eq!((cell.text.text.as_str(), interval.as_deref()), ("100.0 %", Some("61.0–100.0")));
        assert!(
            ReportTableCell::from_text("agent.sh (mine)", "").interval.is_none()
                && ReportTableCell::from_text("12", "n").interval.is_none()
        );
    }
}
