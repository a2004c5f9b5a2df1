//! A comparison on the terminal, as Markdown and as an HTML page.

use std::io::{self, Write};

use askama::Template;
use gradus_core::visible::printable_line;
use unicode_width::UnicodeWidthStr;

use super::comparison_tables::{build_comparison_tables, summarize_verdicts};
use super::version_comparison::{ComparedVersion, VersionComparison};
use crate::html::charts::load_chart_symbols;
use crate::html::svg::Svg;
use crate::html::text::{self, DisplayText};
use crate::html::view::tables::ReportTableView;
use crate::html::{STYLE, StyleSheet};
use crate::markdown::escape_markdown_cell;
use crate::report_table::ReportTable;
use crate::{BOLD, DIM, GREEN, RED, YELLOW, format_counted_noun};

/// Maximum terminal columns of a cell; longer cells are cut.
const MAX_CELL_WIDTH: usize = 60;

/// `200 runs of 40 tasks, judged by offline`.
fn describe_version(version: &ComparedVersion) -> String {
    let agent = match version.agent_versions.as_slice() {
        [] => String::new(),
        versions => format!(", agent version {}", versions.join(", ")),
    };
    format!(
        "{} of {}, judged by {}{agent}",
        format_counted_noun(version.runs, "run", "runs"),
        format_counted_noun(version.tasks, "task", "tasks"),
        version.judge
    )
}

/// Prints a comparison on a terminal.
pub fn print_comparison(comparison: &VersionComparison, out: &mut dyn Write) -> io::Result<()> {
    for version in &comparison.versions {
        writeln!(
            out,
            "{BOLD}{}{BOLD:#}  {}  {DIM}{}{DIM:#}",
            version.letter,
            printable_line(&version.name),
            printable_line(&describe_version(version))
        )?;
    }
    writeln!(out, "{DIM}{}{DIM:#}", comparison.pairing.describe())?;
    writeln!(out, "{BOLD}{}{BOLD:#}", printable_line(&summarize_verdicts(comparison)))?;
    for note in comparison.notes() {
        writeln!(out, "{YELLOW}note:{YELLOW:#} {}", printable_line(&note))?;
    }
    for table in build_comparison_tables(comparison) {
        print_table(&table, out)?;
    }
    Ok(())
}

fn print_table(table: &ReportTable, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{BOLD}{}{BOLD:#}", table.title)?;
    let last = table.columns.len().saturating_sub(1);
    let cell = |text: &str, at: usize| {
        let line = printable_line(text);
        // The last column ends the line, so it need not be cut.
        if at == last { line } else { cut_to_width(&line, MAX_CELL_WIDTH) }
    };
    let rows: Vec<Vec<String>> =
        table.rows.iter().map(|row| row.iter().enumerate().map(|(at, text)| cell(text, at)).collect()).collect();
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].width());
        cells.chain([table.columns[at].name.width()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let pad = |text: &str, at: usize| {
        let gap = " ".repeat(widths[at].saturating_sub(text.width()));
        match table.columns[at].is_number {
            true => format!("{gap}{text}"),
            false if at == last => text.to_owned(),
            false => format!("{text}{gap}"),
        }
    };
    let head: Vec<String> = table.columns.iter().enumerate().map(|(at, column)| pad(&column.name, at)).collect();
    writeln!(out, "  {DIM}{}{DIM:#}", head.join("  ").trim_end())?;
    for row in &rows {
        let cells = row.iter().enumerate().map(|(at, text)| match text.as_str() {
            "WORSE" => format!("{RED}{}{RED:#}", pad(text, at)),
            "BETTER" => format!("{GREEN}{}{GREEN:#}", pad(text, at)),
            "INCONCLUSIVE" => format!("{YELLOW}{}{YELLOW:#}", pad(text, at)),
            _ => pad(text, at),
        });
        writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    if let Some(note) = &table.note {
        writeln!(out, "  {DIM}{}{DIM:#}", printable_line(note))?;
    }
    Ok(())
}

fn cut_to_width(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let mut cut = String::new();
    for letter in line.chars() {
        if cut.width() + 2 > width {
            break;
        }
        cut.push(letter);
    }
    cut.push('…');
    cut
}

/// Writes a comparison as Markdown, for the summary page of a CI job.
pub fn write_comparison_markdown(comparison: &VersionComparison, out: &mut dyn Write) -> io::Result<()> {
    for version in &comparison.versions {
        let name = escape_markdown_cell(&version.name);
        writeln!(out, "- **{}**: {name}, {}", version.letter, escape_markdown_cell(&describe_version(version)))?;
    }
    writeln!(out, "\n**{}**\n", escape_markdown_cell(&summarize_verdicts(comparison)))?;
    for note in comparison.notes() {
        writeln!(out, "> {}\n", escape_markdown_cell(&note))?;
    }
    for table in build_comparison_tables(comparison) {
        writeln!(out, "### {}\n", table.title)?;
        let names: Vec<String> = table.columns.iter().map(|column| escape_markdown_cell(&column.name)).collect();
        let rules: Vec<&str> =
            table.columns.iter().map(|column| if column.is_number { "--:" } else { "---" }).collect();
        writeln!(out, "| {} |\n|{}|", names.join(" | "), rules.join("|"))?;
        for row in &table.rows {
            let cells: Vec<String> = row.iter().map(|cell| mark_verdict(cell)).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        writeln!(out)?;
        if let Some(note) = &table.note {
            writeln!(out, "{}\n", escape_markdown_cell(note))?;
        }
    }
    Ok(())
}

fn mark_verdict(cell: &str) -> String {
    match cell {
        "WORSE" => "❌ WORSE".to_owned(),
        "BETTER" => "✅ BETTER".to_owned(),
        "INCONCLUSIVE" => "❔ INCONCLUSIVE".to_owned(),
        other => escape_markdown_cell(other),
    }
}

/// Writes a comparison as one self-contained HTML file.
pub fn write_comparison_html(comparison: &VersionComparison, out: &mut dyn Write) -> io::Result<()> {
    let versions = comparison.versions.iter().map(|version| VersionLine {
        letter: version.letter.clone(),
        name: text::format_display_line(&version.name),
        about: text::format_display_line(&describe_version(version)),
    });
    let page = ComparisonPage {
        versions: versions.collect(),
        summary: text::format_display_line(&summarize_verdicts(comparison)),
        notes: comparison.notes().map(|note| text::format_display_block(&note)).collect(),
        tables: build_comparison_tables(comparison).iter().map(ReportTableView::from_table).collect(),
        style: StyleSheet(STYLE),
        symbols: load_chart_symbols(),
        version: env!("CARGO_PKG_VERSION"),
    };
    page.write_into(out)
}

struct VersionLine {
    letter: String,
    name: String,
    about: String,
}

/// The context of `templates/comparison.html`.
#[derive(Template)]
#[template(path = "comparison.html")]
struct ComparisonPage {
    versions: Vec<VersionLine>,
    summary: String,
    notes: Vec<DisplayText>,
    tables: Vec<ReportTableView>,
    style: StyleSheet,
    symbols: Svg,
    version: &'static str,
}
