//! A table that every output can show.

/// Cells are texts that are ready to be shown, but not escaped.
#[derive(Debug)]
pub struct ReportTable {
    pub title: &'static str,
    /// What is to be known about it.
    pub note: Option<String>,
    pub columns: Vec<TableColumn>,
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
pub struct TableColumn {
    pub name: String,
    pub is_number: bool,
}
