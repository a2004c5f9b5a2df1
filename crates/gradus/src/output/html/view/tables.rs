//! Tables of a bench, ready to print.

use super::text::{self, Block};
use crate::bench::tables::Table;

pub(crate) struct Shown {
    pub(crate) title: &'static str,
    /// For links.
    pub(crate) id: String,
    pub(crate) columns: Vec<(String, &'static str)>,
    /// Each cell with how it is set.
    pub(crate) rows: Vec<Vec<(Block, &'static str)>>,
    pub(crate) note: Option<Block>,
}

impl Shown {
    pub(crate) fn of(table: &Table) -> Shown {
        let class =
            |at: usize| table.columns.get(at).map_or("", |column| if column.is_number { "n" } else { "" });
        let cells = |row: &Vec<String>| {
            row.iter().enumerate().map(|(at, cell)| (text::block(cell), class(at))).collect()
        };
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
