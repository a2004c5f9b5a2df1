//! Tables of a bench, ready to print.

use super::text::{self, Block};
use crate::report_table::ReportTable;

#[derive(Debug)]
pub struct Shown {
    pub title: &'static str,
    /// For links.
    pub id: String,
    pub columns: Vec<(String, &'static str)>,
    pub rows: Vec<Vec<Cell>>,
    pub note: Option<Block>,
}

#[derive(Debug)]
pub struct Cell {
    pub text: Block,
    /// A number's interval, which has a line of its own: side by side they are too wide for a page.
    pub interval: Option<Block>,
    /// How it is set.
    pub class: &'static str,
}

impl Cell {
    fn of(text: &str, class: &'static str) -> Cell {
        let interval = text.strip_suffix(')').and_then(|text| text.split_once(" (")).filter(|_| class == "n");
        let (number, interval) = interval.map_or((text, None), |(number, ends)| (number, Some(ends)));
        Cell { text: text::block(number), interval: interval.map(text::block), class }
    }
}

impl Shown {
    pub fn of(table: &ReportTable) -> Shown {
        let class =
            |at: usize| table.columns.get(at).map_or("", |column| if column.is_number { "n" } else { "" });
        let cells =
            |row: &Vec<String>| row.iter().enumerate().map(|(at, cell)| Cell::of(cell, class(at))).collect();
        let letters = table.title.to_lowercase();
        Shown {
            title: table.title,
            id: letters.chars().map(|c| if c.is_ascii_lowercase() { c } else { '-' }).collect(),
            columns: (table.columns.iter().enumerate())
                .map(|(at, column)| (text::line(&column.name), class(at)))
                .collect(),
            rows: table.rows.iter().map(cells).collect(),
            note: table.note.as_deref().map(text::block),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_its_own_line() {
        let cell = Cell::of("100.0 % (61.0–100.0)", "n");
        let interval = cell.interval.map(|interval| interval.text);
        assert_eq!((cell.text.text.as_str(), interval.as_deref()), ("100.0 %", Some("61.0–100.0")));
        assert!(Cell::of("agent.sh (mine)", "").interval.is_none() && Cell::of("12", "n").interval.is_none());
    }
}
