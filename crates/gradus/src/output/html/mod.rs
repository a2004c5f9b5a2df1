//! A run's report as one HTML file that asks for nothing else: no script, no font, no image from elsewhere.
//!
//! [`view`] says what is shown, `templates/` where, `style.css` how; [`charts`] draws. Every string of a trace passes
//! through [`text`] first, and templates escape what they print: the one way around that is [`svg::Svg`], which escapes
//! for itself.

pub(crate) mod charts;
#[cfg(test)]
mod example;
pub(crate) mod number;
pub(crate) mod svg;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod view;

use std::fmt;
use std::io::{self, Write};

use askama::Template;
use askama::filters::HtmlSafe;
use gradus_eval::report::{GateResult, Summary};

use crate::bench::tables::Table;
use svg::Svg;
use view::Report;

/// How the report looks, and the pages of the server with it.
pub(crate) const STYLE: &str = include_str!("style.css");

/// Writes the report; `tables` come before what was judged.
pub(crate) fn write(
    summary: &Summary,
    gates: &[GateResult],
    tables: &[Table],
    out: &mut dyn Write,
) -> io::Result<()> {
    let page = Page {
        report: Report::of(summary, gates),
        tables: tables.iter().map(view::tables::Shown::of).collect(),
        style: Style(STYLE),
        symbols: charts::symbols(),
        version: env!("CARGO_PKG_VERSION"),
    };
    page.write_into(out)
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    report: Report,
    tables: Vec<view::tables::Shown>,
    style: Style,
    /// The patterns and icons that the page's charts and badges refer to.
    symbols: Svg,
    version: &'static str,
}

/// Our own style sheet, which must not be escaped.
struct Style(&'static str);

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl HtmlSafe for Style {}
