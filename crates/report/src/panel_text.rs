//! Tables about several judges or repeats, for every format: the judges, their agreement, the savings of an
//! escalation, and the questions that people should label first.

use std::io::{self, Write};

use gradus_core::visible::printable_line;
use gradus_eval::report::{DisputedQuestion, EscalationSummary, EvaluationSummary, PanelAgreement, PanelJudgeSummary};
use gradus_stats::calibration::VarianceComponents;
use gradus_stats::interval::ConfidenceInterval;

use crate::number_text::{filter_finite, format_count, format_usd};
use crate::report_table::{ReportTable, TableColumn};
use crate::{BOLD, DIM};

/// Maximum number of disputed questions in a report; `--json` has more.
const MAX_LISTED_DISPUTES: usize = 10;

/// Maximum terminal width of a cell: ids of trajectories can have any length.
const MAX_CELL_WIDTH: usize = 60;

/// The tables of a run with votes; none for other runs.
pub fn build_panel_tables(summary: &EvaluationSummary) -> Vec<ReportTable> {
    let Some(panel) = &summary.panel else { return Vec::new() };
    let mut tables = vec![build_judges_table(&panel.judges)];
    if !panel.evaluators.is_empty() {
        tables.push(build_agreement_table(&panel.evaluators));
    }
    tables.extend(panel.escalation.as_ref().map(build_escalation_table));
    if !panel.disputed.is_empty() {
        tables.push(build_disputed_table(&panel.disputed));
    }
    tables
}

/// Prints the tables on a terminal.
pub(crate) fn print_panel(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    for table in build_panel_tables(summary) {
        writeln!(out, "\n{BOLD}{}{BOLD:#}", table.title)?;
        let mut rows: Vec<Vec<String>> = vec![table.columns.iter().map(|column| column.name.clone()).collect()];
        rows.extend(table.rows.iter().map(|row| row.iter().map(|cell| shorten_cell(cell)).collect()));
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
        for (number, row) in rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).zip(&table.columns).map(|((cell, width), column)| {
                if column.is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            let line = line.trim_end();
            match number {
                0 => writeln!(out, "  {DIM}{line}{DIM:#}")?,
                _ => writeln!(out, "  {line}")?,
            }
        }
        if let Some(note) = &table.note {
            writeln!(out, "  {DIM}{}{DIM:#}", printable_line(note))?;
        }
    }
    Ok(())
}

fn shorten_cell(cell: &str) -> String {
    printable_line(cell).chars().take(MAX_CELL_WIDTH).collect()
}

fn build_judges_table(judges: &[PanelJudgeSummary]) -> ReportTable {
    let row = |judge: &PanelJudgeSummary| {
        vec![
            judge.judge.clone(),
            format_count(judge.votes),
            format_count(judge.missing),
            format_share(judge.agreeing, judge.decided),
            format_count(judge.calls),
            filter_finite(judge.usd).map_or_else(|| "not known".to_owned(), format_usd),
        ]
    };
    let silent = judges.iter().filter_map(|judge| Some((judge, judge.missing_reason.as_ref()?)));
    let silent: Vec<String> = silent.map(|(judge, reason)| format!("{}: {reason}", judge.judge)).collect();
    ReportTable {
        title: "Judges",
        about: "The votes of each judge, and how often its vote was the decision.",
        note: (!silent.is_empty()).then(|| format!("Missing votes: {}", silent.join("; "))),
        columns: vec![
            text_column("judge"),
            number_column("votes"),
            number_column("missing"),
            number_column("as decided"),
            number_column("calls"),
            number_column("cost"),
        ],
        rows: judges.iter().map(row).collect(),
    }
}

fn build_agreement_table(evaluators: &[PanelAgreement]) -> ReportTable {
    let row = |agreement: &PanelAgreement| {
        vec![
            agreement.evaluator.clone(),
            format_count(agreement.questions),
            format_share(agreement.unanimous, agreement.questions),
            format_count(agreement.tied),
            format_rate(agreement.flip_rate, agreement.flip_interval),
            format_rate(agreement.judges_differ, agreement.differ_interval),
            format_judge_share(agreement.variance.as_ref()),
        ]
    };
    let note = "Flip rate: how often two answers of one judge to the same question differ. Judge variance: the part of the \
                variance of the mean that comes from the votes; more votes reduce it, more runs reduce both parts.";
    ReportTable {
        title: "Agreement of votes",
        about: "How often the votes on one question are the same.",
        note: Some(note.to_owned()),
        columns: vec![
            text_column("evaluation"),
            number_column("questions"),
            number_column("all agree"),
            number_column("tied"),
            number_column("flip rate"),
            number_column("judges differ"),
            number_column("judge variance"),
        ],
        rows: evaluators.iter().map(row).collect(),
    }
}

fn build_escalation_table(escalation: &EscalationSummary) -> ReportTable {
    let saved = filter_finite(escalation.usd_saved).map_or_else(
        || "not known".to_owned(),
        |usd| if usd < 0.0 { format!("-{}", format_usd(-usd)) } else { format_usd(usd) },
    );
    let note = match filter_finite(escalation.audited_error) {
        Some(_) => format!(
            "Where the first judges were sure, {} gave another label in {} of {} audited questions.",
            escalation.judge,
            format_count(escalation.audit_errors),
            format_count(escalation.audited)
        ),
        None => "No question was audited, so the errors of the first judges are not known.".to_owned(),
    };
    ReportTable {
        title: "Escalation",
        about: "Questions that were passed on because the first judges were not sure, and what that saved.",
        note: Some(note),
        columns: vec![
            text_column("to"),
            number_column("questions"),
            number_column("unsure"),
            number_column("overturned"),
            number_column("audited"),
            number_column("audited error"),
            number_column("not asked"),
            number_column("saved"),
        ],
        rows: vec![vec![
            escalation.judge.clone(),
            format_count(escalation.questions),
            format_share(escalation.unsure, escalation.questions),
            format_count(escalation.overturned),
            format_count(escalation.audited),
            format_rate(escalation.audited_error, escalation.audited_interval),
            format_count(escalation.questions_saved),
            saved,
        ]],
    }
}

fn build_disputed_table(disputed: &[DisputedQuestion]) -> ReportTable {
    let row = |question: &DisputedQuestion| {
        let votes: Vec<String> = question.votes.iter().map(|(label, count)| format!("{count} {label}")).collect();
        vec![
            question.trajectory_id.clone(),
            question.step_index.map_or_else(String::new, |step| step.to_string()),
            question.evaluator.clone(),
            votes.join(", "),
            question.label.clone().unwrap_or_else(|| "none".to_owned()),
        ]
    };
    let omitted = disputed.len().saturating_sub(MAX_LISTED_DISPUTES);
    ReportTable {
        title: "Disputed questions",
        about: "Questions on which the judges disagree most.",
        note: Some(match omitted {
            0 => "Label these first.".to_owned(),
            more => format!("Label these first; {more} more are in --json."),
        }),
        columns: vec![
            text_column("trajectory"),
            number_column("step"),
            text_column("evaluation"),
            text_column("votes"),
            text_column("verdict"),
        ],
        rows: disputed.iter().take(MAX_LISTED_DISPUTES).map(row).collect(),
    }
}

fn text_column(name: &str) -> TableColumn {
    TableColumn { name: name.to_owned(), is_number: false }
}

fn number_column(name: &str) -> TableColumn {
    TableColumn { name: name.to_owned(), is_number: true }
}

fn format_share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 / whole as f64 * 100.0) }
}

/// `3.1 % (1.2–7.9)`
fn format_rate(rate: Option<f64>, interval: Option<ConfidenceInterval>) -> String {
    let Some(rate) = filter_finite(rate) else { return "-".to_owned() };
    let interval =
        interval.map_or_else(String::new, |ends| format!(" ({:.1}–{:.1})", ends.low * 100.0, ends.high * 100.0));
    format!("{:.1} %{interval}", rate * 100.0)
}

fn format_judge_share(variance: Option<&VarianceComponents>) -> String {
    match variance.map(|found| filter_finite(found.judge_share())) {
        None => "-".to_owned(),
        Some(None) => "no variance".to_owned(),
        Some(Some(share)) => format!("{:.1} %", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::show_styles;
    use crate::html::example;
    use crate::html::write_html_report;
    use crate::markdown::write_markdown_report;

    /// A panel of two that is asked twice, with an escalation and a judge that did not always answer.
    fn panel_run(text: &str) -> EvaluationSummary {
        let panel = serde_json::json!({
            "repeats": 2,
            "judges": [
                {"judge": format!("openai:small{text}"), "votes": 80, "missing": 0, "decided": 76, "agreeing": 72,
                 "calls": 81, "from_cache": 0, "usd": 0.0067},
                {"judge": "anthropic:other", "votes": 78, "missing": 2, "missing_reason": format!("status 529{text}"),
                 "decided": 75, "agreeing": 61, "calls": 90, "from_cache": 4, "usd": null},
                {"judge": "openai:large", "votes": 9, "missing": 0, "decided": 9, "agreeing": 9, "calls": 9,
                 "from_cache": 0, "usd": 0.0126},
            ],
            "evaluators": [
                {"evaluator": "thought_to_tool", "questions": 40, "unanimous": 31, "tied": 2, "flip_rate": 0.0625,
                 "flip_interval": {"low": 0.021, "high": 0.168}, "judges_differ": 0.225,
                 "differ_interval": {"low": 0.12, "high": 0.38},
                 "variance": {"run": 0.02, "step": 0.01, "judge": 0.06, "reliability": 0.33, "mean_agent": 0.0009,
                              "mean_judge": 0.0003}},
                {"evaluator": format!("tone{text}"), "questions": 40, "unanimous": 40, "tied": 0, "flip_rate": 0.0,
                 "flip_interval": {"low": 0.0, "high": 0.088}, "judges_differ": null, "differ_interval": null,
                 "variance": {"run": 0.0, "step": 0.0, "judge": 0.0, "reliability": null, "mean_agent": 0.0,
                              "mean_judge": 0.0}},
            ],
            "escalation": {"judge": "openai:large", "questions": 80, "unsure": 7, "overturned": 3, "audited": 2,
                "audit_errors": 1, "audited_error": 0.5, "audited_interval": {"low": 0.09, "high": 0.91},
                "questions_saved": 71, "usd_saved": -0.0031},
            "disputed": (0..12).map(|number| serde_json::json!({
                "trajectory_id": format!("case-{number}{text}"), "step_index": (number % 2 == 0).then_some(number),
                "evaluator": "thought_to_tool", "disagreement": 0.5,
                "label": (number > 1).then(|| format!("correct{text}")),
                "votes": {format!("correct{text}"): 2, "incorrect": 2},
            })).collect::<Vec<_>>(),
        });
        let (mut summary, _) = example::ordinary();
        summary.panel = Some(serde_json::from_value(panel).expect("a panel"));
        summary
    }

    #[test]
    fn a_panel_on_a_terminal_and_in_markdown() {
        let summary = panel_run("");
        let mut printed = Vec::new();
        print_panel(&summary, &mut printed).expect("printed");
        insta::assert_snapshot!(show_styles(&printed));
        let mut written = Vec::new();
        write_markdown_report(&summary, &[], &mut written).expect("written");
        let text = String::from_utf8(written).expect("text");
        assert!(text.contains("| openai:small | 80 | 0 | 94.7 % | 81 | $0.0067 |"), "{text}");
        assert!(text.contains("| thought\\_to\\_tool | 40 | 77.5 % | 2 | 6.2 % \\(2.1–16.8\\) |"), "{text}");
    }

    #[test]
    fn names_in_a_panel_are_escaped() {
        let summary = panel_run("<xss>\u{1b}[31m|\u{202e}");
        let mut printed = Vec::new();
        print_panel(&summary, &mut printed).expect("printed");
        let printed = show_styles(&printed);
        assert!(!printed.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{printed:?}");
        let mut written = Vec::new();
        write_markdown_report(&summary, &[], &mut written).expect("written");
        write_html_report(&summary, &[], &[], &mut written).expect("written");
        let text = String::from_utf8(written).expect("text");
        assert!(!text.contains("<xss>") && !text.contains(['\u{1b}', '\u{202e}']));
    }
}
