//! The summary as GitHub-flavoured Markdown, for the summary page of a CI job or a comment on a pull request.

use std::io::{self, Write};

use gradus_eval::evaluator::OFFLINE;
use gradus_eval::report::{EvaluationSummary, GateResult, GateVerdict, MetricResult};

use super::{format_count, format_counted_noun};
use gradus_core::visible::printable_line;

/// Tools and findings that are listed: comments on GitHub are limited to 65,536 characters.
const MAX_LISTED_FINDINGS: usize = 15;

/// Writes the whole report: completeness, gates, metrics, tools, worst steps, cost. Sections without content are left
/// out.
pub fn write_markdown_report(summary: &EvaluationSummary, gates: &[GateResult], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## Gradus evaluation\n")?;
    let rules = if summary.judge == OFFLINE { " (rules, not a model)" } else { "" };
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
    if !gates.is_empty() {
        writeln!(out, "| gate | verdict | value | |\n|---|---|---|---|")?;
        for gate in gates {
            let verdict = match gate.verdict {
                GateVerdict::Pass => "✅ PASS",
                GateVerdict::Fail => "❌ FAIL",
                GateVerdict::Inconclusive => "❔ INCONCLUSIVE",
            };
            let value = gate.value.map_or_else(String::new, |value| format!("{value:.4}"));
            writeln!(out, "| {} | {verdict} | {value} | {} |", escape_markdown_cell(&gate.gate), gate.explanation)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "| | value | 95 % interval | judged | not judged | not applicable |\n|---|--:|---|--:|--:|--:|")?;
    // `combined` and the share of correct trajectories are computed from the metrics before them.
    let others = [&summary.combined, &summary.trajectories_right].into_iter().flatten();
    for metric in summary.metrics.iter().chain(others) {
        write_metric(metric, out)?;
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
        let usd = summary.cost.usd.map_or_else(|| "price not known".to_owned(), |usd| format!("${usd:.4}"));
        writeln!(
            out,
            "\nCost: {usd}; {}, {} in, {} out; {} from the cache.",
            format_counted_noun(summary.cost.calls, "call", "calls"),
            format_counted_noun(summary.cost.tokens.prompt, "token", "tokens"),
            format_count(summary.cost.tokens.completion),
            format_counted_noun(summary.cost.from_cache, "verdict", "verdicts")
        )?;
    }
    Ok(())
}

/// A row of the table of metrics. A metric without a value says `not judged`, which is not a 0.
fn write_metric(metric: &MetricResult, out: &mut dyn Write) -> io::Result<()> {
    let (scale, unit) = if metric.is_share { (100.0, " %") } else { (1.0, "") };
    let value = metric.value.map_or_else(|| "not judged".to_owned(), |value| format!("{:.2}{unit}", value * scale));
    let interval = metric
        .interval
        .map_or_else(String::new, |found| format!("{:.1} to {:.1}{unit}", found.low * scale, found.high * scale));
    let of = super::measured_of(metric).unwrap_or_else(|| format!("{} of {}", metric.numerator, metric.denominator));
    writeln!(
        out,
        "| {} | {value} | {interval} | {of} | {} | {} |",
        escape_markdown_cell(&metric.title),
        metric.failed,
        metric.not_applicable
    )
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
