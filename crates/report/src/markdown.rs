//! The summary as GitHub-flavoured Markdown, for the summary page of a CI job or a comment on a pull request.

use std::io::{self, Write};

use gradus_eval::evaluator::OFFLINE_JUDGE;
use gradus_eval::report::{EvaluationSummary, GateResult, GateVerdict, MetricCalibration, MetricResult};

use super::cost_text::{describe_unknown_cost, format_agent_cost};
use super::failure_list::list_failure_rows;
use super::panel_text::build_panel_tables;
use super::report_table::ReportTable;
use super::{format_count, format_counted_noun};
use crate::metric_text::{
    find_outcome, format_calibration, format_flagged_counts, format_gate_value, format_outcome_counts,
    format_rule_flags,
};
use gradus_core::visible::printable_line;

/// Maximum number of listed tools and of findings: comments on GitHub are limited to 65,536 characters.
const MAX_LISTED_FINDINGS: usize = 15;
/// Maximum number of listed failure groups, for the same reason.
const MAX_LISTED_GROUPS: usize = 20;

/// Writes the whole report: completeness, how runs ended, gates, metrics, tools, worst steps, cost. Sections without content are left
/// out.
pub fn write_markdown_report(summary: &EvaluationSummary, gates: &[GateResult], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## Gradus evaluation\n")?;
    let rules = if summary.judge == OFFLINE_JUDGE { " (rules, not a model)" } else { "" };
    writeln!(
        out,
        "{}, {}; judge **{}**{rules}; run `{}`\n",
        format_counted_noun(summary.trajectories, "trajectory", "trajectories"),
        format_counted_noun(summary.steps, "step", "steps"),
        escape_markdown_cell(&summary.judge),
        summary.run_id
    )?;
    if let Some(reason) = &summary.stopped_because {
        writeln!(out, "> **Incomplete run:** {}. The numbers cover what was judged.\n", escape_markdown_cell(reason))?;
    }
    if let Some(outcome) = find_outcome(summary) {
        writeln!(out, "**Outcome:** {}\n", escape_markdown_cell(&format_outcome_counts(outcome)))?;
    }
    if let Some(flagged) = format_flagged_counts(summary) {
        writeln!(out, "**Flagged:** {flagged}\n")?;
    }
    if !gates.is_empty() {
        writeln!(out, "| gate | verdict | value | |\n|---|---|---|---|")?;
        for gate in gates {
            let verdict = match gate.verdict {
                GateVerdict::Pass => "✅ PASS",
                GateVerdict::Fail => "❌ FAIL",
                GateVerdict::Incomplete => "❔ INCOMPLETE",
            };
            let value = format_gate_value(gate);
            writeln!(
                out,
                "| {} | {verdict} | {value} | {} |",
                escape_markdown_cell(&gate.gate),
                escape_markdown_cell(&gate.explanation)
            )?;
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "| | value | 95 % interval | right | judged | cannot judge | failed | do not apply |\n\
         |---|--:|---|--:|--:|--:|--:|--:|"
    )?;
    // `combined` and the share of correct trajectories are computed from the metrics before them.
    let others = [&summary.combined, &summary.trajectories_right].into_iter().flatten();
    for metric in summary.metrics.iter().chain(others) {
        write_metric(metric, out)?;
    }
    write_calibrations(summary, out)?;
    for table in build_panel_tables(summary) {
        write_table(&table, out)?;
    }
    if !summary.tools.is_empty() {
        writeln!(out, "\n| tool | uses | correct choices | failed |\n|---|--:|--:|--:|")?;
        for tool in summary.tools.iter().take(MAX_LISTED_FINDINGS) {
            writeln!(
                out,
                "| {} | {} | {} of {} | {} |",
                escape_markdown_cell(&tool.tool),
                tool.uses,
                tool.right,
                tool.judged,
                tool.errors
            )?;
        }
    }
    write_failure_groups(summary, out)?;
    if !summary.findings.is_empty() {
        // Folded: explanations are long, and the page of a CI job is read from the top.
        writeln!(out, "\n<details><summary>Worst steps</summary>\n")?;
        for finding in summary.findings.iter().take(MAX_LISTED_FINDINGS) {
            let step = finding.step_index.map_or_else(String::new, |step| format!(" step {step}"));
            let tool =
                finding.tool.as_deref().map_or_else(String::new, |tool| format!(", {}", escape_markdown_cell(tool)));
            for verdict in &finding.verdicts {
                writeln!(
                    out,
                    "- {}{step}{tool}: **{}** ({}): {}",
                    escape_markdown_cell(&finding.trajectory_id),
                    escape_markdown_cell(&verdict.label),
                    escape_markdown_cell(&verdict.evaluator),
                    escape_markdown_cell(&verdict.explanation)
                )?;
            }
        }
        writeln!(out, "\n</details>")?;
    }
    if summary.cost.calls > 0 || summary.cost.from_cache > 0 {
        let cost = &summary.cost;
        let usd = cost.usd.map_or_else(|| describe_unknown_cost(cost).to_owned(), |usd| format!("${usd:.4}"));
        writeln!(
            out,
            "\nJudge cost: {usd}; {}, {} in, {} out; {} from the cache.",
            format_counted_noun(summary.cost.calls, "call", "calls"),
            format_counted_noun(summary.cost.tokens.prompt, "token", "tokens"),
            format_count(summary.cost.tokens.completion),
            format_counted_noun(summary.cost.from_cache, "verdict", "verdicts")
        )?;
    }
    if let Some(cost) = format_agent_cost(&summary.agent_cost) {
        writeln!(out, "\nAgent cost: {}", escape_markdown_cell(&cost))?;
    }
    Ok(())
}

fn write_table(table: &ReportTable, out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<String> = table.columns.iter().map(|column| escape_markdown_cell(&column.name)).collect();
    let rules: Vec<&str> = table.columns.iter().map(|column| if column.is_number { "--:" } else { "---" }).collect();
    writeln!(out, "\n**{}**\n\n| {} |\n|{}|", table.title, names.join(" | "), rules.join("|"))?;
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|cell| escape_markdown_cell(cell)).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    match &table.note {
        Some(note) => writeln!(out, "\n{}", escape_markdown_cell(note)),
        None => Ok(()),
    }
}

/// The largest groups of wrong verdicts, with one example each.
fn write_failure_groups(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    let rows = list_failure_rows(summary);
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n| failure group | reason | verdicts | runs | example |\n|---|---|--:|--:|---|")?;
    for row in rows.iter().take(MAX_LISTED_GROUPS) {
        let tool = row.tool.as_deref().map_or_else(String::new, |tool| format!(", {}", escape_markdown_cell(tool)));
        let rule = row.rule.as_deref().map_or_else(String::new, |rule| format!(" ({})", escape_markdown_cell(rule)));
        let request = row.examples.first().and_then(|example| example.request.as_deref()).unwrap_or_default();
        writeln!(
            out,
            "| {}{tool} | {}{rule} | {} | {:.1} % | {} |",
            escape_markdown_cell(&row.evaluator),
            escape_markdown_cell(&row.reason),
            row.count,
            row.share * 100.0,
            escape_markdown_cell(request)
        )?;
    }
    let more = rows.len().saturating_sub(MAX_LISTED_GROUPS) as u64 + summary.omitted_failure_groups;
    if more > 0 {
        writeln!(out, "\nAnd {}.", format_counted_noun(more, "more group", "more groups"))?;
    }
    Ok(())
}

/// Writes a row of the table of metrics. A metric without a value is `not judged`, not 0, and flags of rules are not
/// shown as a share.
fn write_metric(metric: &MetricResult, out: &mut dyn Write) -> io::Result<()> {
    let (scale, unit) = if metric.is_share { (100.0, " %") } else { (1.0, "") };
    let flags = format_rule_flags(metric);
    let is_flags = flags.is_some();
    let value = flags.or_else(|| metric.value.map(|value| format!("{:.2}{unit}", value * scale)));
    let interval = metric
        .interval
        .filter(|_| !is_flags)
        .map_or_else(String::new, |found| format!("{:.1} to {:.1}{unit}", found.low * scale, found.high * scale));
    let right = if is_flags {
        String::new()
    } else {
        super::measured_population(metric).unwrap_or_else(|| format!("{} of {}", metric.numerator, metric.denominator))
    };
    writeln!(
        out,
        "| {} | {} | {interval} | {right} | {} of {} | {} | {} | {} |",
        escape_markdown_cell(&metric.title),
        value.as_deref().unwrap_or("not judged"),
        metric.denominator,
        metric.asked_count(),
        metric.abstained,
        metric.failed,
        metric.not_applicable
    )
}

/// Writes the corrected numbers, and lists uncalibrated ones.
fn write_calibrations(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    let judged: Vec<&MetricResult> = summary.metrics.iter().filter(|metric| metric.calibration.is_some()).collect();
    if judged.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let is_plain = |metric: &&MetricResult| metric.calibration == Some(MetricCalibration::Uncalibrated);
    for metric in judged.iter().filter(|metric| !is_plain(metric)) {
        let text = format_calibration(metric).unwrap_or_default();
        writeln!(out, "- **{}**: {}", escape_markdown_cell(&metric.title), escape_markdown_cell(&text))?;
    }
    let plain: Vec<String> =
        judged.into_iter().filter(is_plain).map(|metric| escape_markdown_cell(&metric.title)).collect();
    match plain.is_empty() {
        true => Ok(()),
        false => writeln!(out, "- Uncalibrated: {}", plain.join(", ")),
    }
}

/// Untrusted text as one line of plain text: no markup, no HTML, no mention, no link, at most 300 characters. It is
/// safe in table cells and list items.
pub fn escape_markdown_cell(text: &str) -> String {
    const MAX_CHARACTERS: usize = 300;
    let line = printable_line(text);
    let mut safe = String::with_capacity(line.len() + 8);
    for (number, c) in line.chars().enumerate() {
        if number >= MAX_CHARACTERS {
            safe.push_str("...");
            break;
        }
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            // A zero-width joiner after `@` keeps GitHub from notifying a user or a team.
            '@' => safe.push_str("@\u{200d}"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' | '!' | '(' | ')' => {
                safe.push('\\');
                safe.push(c);
            }
            c => safe.push(c),
        }
    }
    // GitHub turns bare addresses into links; a joiner inside prevents it.
    safe.replace("://", ":\u{200d}//").replace("www.", "www\u{200d}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::example;

    fn write_to_text(summary: &EvaluationSummary, gates: &[GateResult]) -> String {
        let mut written = Vec::new();
        write_markdown_report(summary, gates, &mut written).expect("a report is written");
        String::from_utf8(written).expect("Markdown is UTF-8")
    }

    #[test]
    fn a_report_of_an_ordinary_run() {
        let (summary, gates) = example::ordinary();
        insta::assert_snapshot!(write_to_text(&summary, &gates));
    }

    #[test]
    fn a_report_of_a_run_that_rules_judged() {
        insta::assert_snapshot!(write_to_text(&example::by_rules(), &[]));
    }

    #[test]
    fn a_report_of_a_run_without_anything() {
        insta::assert_snapshot!(write_to_text(&example::empty(), &[]));
    }

    #[test]
    fn text_of_a_trace_is_no_markup_in_a_report() {
        let mut summary = example::empty();
        let (ordinary, _) = example::ordinary();
        let hostile = "a|b\n<img src=x> **x** [l](u) https://evil.example @team\u{202e}";
        summary.stopped_because = Some(hostile.to_owned());
        summary.tools = ordinary.tools[..1].to_vec();
        summary.tools[0].tool = hostile.to_owned();
        summary.findings = ordinary.findings[..1].to_vec();
        summary.findings[0].trajectory_id = hostile.to_owned();
        summary.findings[0].tool = Some(hostile.to_owned());
        summary.findings[0].verdicts[0].label = hostile.to_owned();
        summary.findings[0].verdicts[0].explanation = hostile.to_owned();
        summary.failure_groups = ordinary.failure_groups[..1].to_vec();
        let group = &mut summary.failure_groups[0];
        (group.reason, group.tool, group.rule) =
            (hostile.to_owned(), Some(hostile.to_owned()), Some(hostile.to_owned()));
        group.examples[0].request = Some(hostile.to_owned());
        summary.agent_cost = ordinary.agent_cost;
        summary.agent_cost.unpriced_models[0].model = hostile.to_owned();
        let written = write_to_text(&summary, &[]);
        assert!(!written.contains("<img") && !written.contains("https://") && !written.contains("@team"), "{written}");
        assert!(!written.contains('\u{202e}') && !written.contains("[l]("), "{written}");
        insta::assert_snapshot!(written);
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(
            escape_markdown_cell("a|b\n<img src=x> **x** [l](u)"),
            "a\\|b &lt;img src=x&gt; \\*\\*x\\*\\* \\[l\\]\\(u\\)"
        );
        assert!(!escape_markdown_cell("https://evil.example @team").contains("https://"));
        assert!(escape_markdown_cell(&"x".repeat(1_000)).len() < 310);
    }
}
