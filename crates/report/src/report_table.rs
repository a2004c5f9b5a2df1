//! A table that every output can show.

/// A table for the HTML report, with text that is formatted but not escaped: each output escapes for itself. All rows
/// have as many cells as there are columns.
#[derive(Debug)]
pub struct ReportTable {
    pub title: &'static str,
    /// What the table shows, in a sentence above it. Empty if the title says it all.
    pub about: &'static str,
    /// A sentence below the table, such as how an interval was computed.
    pub note: Option<String>,
    pub columns: Vec<TableColumn>,
    pub rows: Vec<Vec<String>>,
}

/// A column; numbers are right-aligned, and an interval in parentheses after a number gets a line of its own.
#[derive(Clone, Debug)]
pub struct TableColumn {
    pub name: String,
    pub is_number: bool,
}
