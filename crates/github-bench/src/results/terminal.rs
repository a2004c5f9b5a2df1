//! The report of a benchmark on a terminal.

use std::io::{self, Write};

use super::confusion::JudgeAccuracy;
use super::report::BenchReport;
use super::tables::{MAX_SHOWN_FAILURES, list_failure_reasons};
use gradus_core::visible::printable_line;
use gradus_report::ReportTable;
use gradus_report::{BOLD, DIM, GREEN, RED};

/// Maximum width of a column in characters; longer cells are cut.
const MAX_COLUMN_CHARS: usize = 40;

impl BenchReport {
    /// Prints metrics per agent, then failures, then the comparison with the truth if scripted policies ran.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let agents = self.agents_table(false);
        print_table(&agents, "", out)?;
        if let Some(note) = &agents.note {
            writeln!(out, "{DIM}{note}{DIM:#}")?;
        }
        self.print_failures(out)?;
        if let Some(scores) = self.scores.as_ref().filter(|scores| !scores.policies.is_empty()) {
            self.print_truth(scores, out)?;
        }
        writeln!(out)
    }

    /// Prints failed trials of agents that were meant to succeed. Names and reasons come from agents, so they are
    /// made printable.
    fn print_failures(&self, out: &mut dyn Write) -> io::Result<()> {
        let all = self.unexpected_failures().count();
        if all == 0 {
            return Ok(());
        }
        writeln!(out, "\n{BOLD}What went wrong{BOLD:#}")?;
        for line in self.unexpected_failures().take(MAX_SHOWN_FAILURES) {
            let name = printable_line(&line.name());
            writeln!(out, "  {RED}{name}{RED:#} {DIM}{}{DIM:#}", printable_line(&line.agent))?;
            for reason in list_failure_reasons(line) {
                writeln!(out, "    {reason}")?;
            }
        }
        if all > MAX_SHOWN_FAILURES {
            writeln!(out, "  {DIM}{} more in {}/trials.jsonl{DIM:#}", all - MAX_SHOWN_FAILURES, self.folder)?;
        }
        Ok(())
    }

    /// Prints planted mistakes and which instrument noticed them, and the accuracy of the judge.
    pub fn print_truth(&self, scores: &JudgeAccuracy, out: &mut dyn Write) -> io::Result<()> {
        let planted = self.planted_table(scores);
        writeln!(out, "\n{BOLD}{}{BOLD:#}", planted.title)?;
        print_table(&planted, "  ", out)?;
        let style = if self.unexpected.is_empty() { GREEN } else { RED };
        writeln!(out, "  {style}{}{style:#}", self.describe_scripted_outcomes(scores))?;
        for text in self.unexpected.iter().take(MAX_SHOWN_FAILURES) {
            writeln!(out, "    {}", printable_line(text))?;
        }
        let judge = self.judge_table(scores);
        writeln!(out, "\n{BOLD}{}{BOLD:#}", judge.title)?;
        print_table(&judge, "  ", out)?;
        if let Some(beside) = self.describe_replay_agreement() {
            writeln!(out, "  {DIM}{beside}{DIM:#}")?;
        }
        if let Some(note) = &judge.note {
            writeln!(out, "  {RED}{note}{RED:#}")?;
        }
        Ok(())
    }
}

/// Prints a table. Numbers are right-aligned. Widths are counted in characters.
fn print_table(table: &ReportTable, indent: &str, out: &mut dyn Write) -> io::Result<()> {
    let width = |at: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([table.columns[at].name.chars().count()]).max().unwrap_or(0).min(MAX_COLUMN_CHARS)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let mut print = |cells: &mut dyn Iterator<Item = &str>, style: anstyle::Style| -> io::Result<()> {
        write!(out, "{style}{indent}")?;
        for (at, (cell, width)) in cells.zip(&widths).enumerate() {
            let cell: String = cell.chars().take(*width).collect();
            let gap = if at == 0 { "" } else { "  " };
            match table.columns[at].is_number {
                true => write!(out, "{gap}{cell:>width$}")?,
                false => write!(out, "{gap}{cell:<width$}")?,
            }
        }
        writeln!(out, "{style:#}")
    };
    print(&mut table.columns.iter().map(|column| column.name.as_str()), BOLD)?;
    for row in &table.rows {
        print(&mut row.iter().map(String::as_str), anstyle::Style::new())?;
    }
    Ok(())
}
