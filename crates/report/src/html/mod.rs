//! A run's report as one self-contained HTML file: no script, and no external font or image.
//!
//! [`view`] prepares the content, `templates/` the layout, `style.css` the style, and [`charts`] the drawings. Every
//! string of a trace passes through [`text`] first, and templates escape what they print, except [`svg::Svg`], which
//! escapes by itself.

pub mod charts;
#[cfg(test)]
pub(crate) mod example;
pub mod number;
pub mod svg;
#[cfg(test)]
mod tests;
pub mod text;
pub mod view;

use std::fmt;
use std::io::{self, Write};

use askama::Template;
use askama::filters::HtmlSafe;
use gradus_eval::report::{EvaluationSummary, GateResult};

use crate::panel_text::build_panel_tables;
use crate::report_table::ReportTable;
use svg::Svg;
use view::ReportView;

/// The style sheet of the report, which the pages of the server use as well. It has the colours and patterns of charts.
pub const STYLE: &str = include_str!("style.css");

/// Writes the report; `tables` come after the judged metrics. The output is a complete document.
pub fn write_html_report(
    summary: &EvaluationSummary,
    gates: &[GateResult],
    tables: &[ReportTable],
    out: &mut dyn Write,
) -> io::Result<()> {
    let page = ReportPage {
        report: ReportView::from_summary(summary, gates),
        tables: tables
            .iter()
            .chain(&build_panel_tables(summary))
            .map(view::tables::ReportTableView::from_table)
            .collect(),
        style: StyleSheet(STYLE),
        symbols: charts::load_chart_symbols(),
        version: env!("CARGO_PKG_VERSION"),
    };
    page.write_into(out)
}

/// The context of `templates/page.html`. All strings in it are final: the template only escapes and places them.
#[derive(Template)]
#[template(path = "page.html")]
struct ReportPage {
    report: ReportView,
    tables: Vec<view::tables::ReportTableView>,
    style: StyleSheet,
    /// The patterns and icons that the page's charts and badges refer to.
    symbols: Svg,
    version: &'static str,
}

/// The static style sheet, which is not escaped: it contains no text of a trace.
pub(crate) struct StyleSheet(pub(crate) &'static str);

impl fmt::Display for StyleSheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl HtmlSafe for StyleSheet {}
