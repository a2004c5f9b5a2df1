//! The summary of a run on a terminal: completeness, how runs ended, what was flagged, metrics with 95 % intervals,
//! tools, reasons of questions without a verdict, worst steps, cost, gates. Long lists are cut; the other outputs have all of them.

use std::io::{self, Write};

use gradus_eval::evaluator::{GAVE_UP, OUTCOME};
use gradus_eval::evaluator::{OFFLINE_JUDGE, SIMULATOR_JUDGE};
use gradus_eval::outcome::OutcomeKind;
use gradus_eval::report::{EvaluationSummary, GateResult, GateVerdict, MetricResult};

use super::cost_text::{describe_unknown_cost, format_agent_cost};
use super::failure_list::list_failure_rows;
use super::panel_text::print_panel;
use super::{BOLD, DIM, GREEN, RED, YELLOW, format_count, format_counted_noun};
use crate::metric_text::{
    find_outcome, format_calibration, format_coverage, format_flagged_counts, format_gate_value, format_outcome_counts,
    format_rule_flags, format_unjudged_counts,
};
use gradus_core::visible::printable_line;

/// Maximum rows of a list of tools or reasons on the terminal; the other outputs have all.
const MAX_LISTED_ROWS: usize = 12;

/// Prints the summary. An incomplete run says so before its numbers, since they are about a part of the trajectories.
pub fn print_summary(summary: &EvaluationSummary, gates: &[GateResult], out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{}, {}; judge {BOLD}{}{BOLD:#}{}; run {}",
        format_counted_noun(summary.trajectories, "trajectory", "trajectories"),
        format_counted_noun(summary.steps, "step", "steps"),
        printable_line(&summary.judge),
        if summary.judge == OFFLINE_JUDGE { " (rules, not a model)" } else { "" },
        summary.run_id
    )?;
    if let Some(reason) = &summary.stopped_because {
        let reason = printable_line(reason);
        writeln!(out, "{YELLOW}This run is incomplete: {reason}. The numbers cover what was judged.{YELLOW:#}")?;
    }
    writeln!(out)?;
    print_endings(summary, out)?;
    for metric in summary.metrics.iter().filter(|metric| metric.name != OUTCOME) {
        // Metrics of the simulator are measured and not judged, so they have no accuracy.
        let suffix = if metric.judge == SIMULATOR_JUDGE { "" } else { " accuracy" };
        print_metric(metric, suffix, out)?;
    }
    for metric in [&summary.combined, &summary.trajectories_right].into_iter().flatten() {
        print_metric(metric, "", out)?;
    }
    print_panel(summary, out)?;
    print_tools(summary, out)?;
    print_unjudged(summary, out)?;
    print_failure_groups(summary, out)?;
    print_findings(summary, out)?;
    print_agent_cost(summary, out)?;
    print_cost(summary, out)?;
    print_gates(gates, out)
}

/// Prints how runs ended and what was flagged, above all other numbers.
fn print_endings(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    if let Some(outcome) = find_outcome(summary) {
        let share = outcome.value.map_or_else(String::new, |value| {
            let interval = outcome.interval.map_or_else(String::new, |found| {
                format!(" (95 % interval {:.1} to {:.1} %)", found.low * 100.0, found.high * 100.0)
            });
            let scored = if outcome.labels.contains_key(GAVE_UP) { " of those with a score" } else { "" };
            format!("; {:.2} %{scored} ended well{interval}", value * 100.0)
        });
        let counts = format_outcome_counts(outcome);
        writeln!(out, "{:<32} {BOLD}{counts}{BOLD:#}{share}", format!("{}:", printable_line(&outcome.title)))?;
    }
    if let Some(flagged) = format_flagged_counts(summary) {
        writeln!(out, "{:<32} {flagged}", "Flagged:")?;
    }
    Ok(())
}

/// Prints one line: value, count, 95 % interval, and how much was judged. A metric without a value is `not judged`,
/// not 0.
fn print_metric(metric: &MetricResult, suffix: &str, out: &mut dyn Write) -> io::Result<()> {
    let dim = |text: Option<String>| text.map_or_else(String::new, |text| format!("{DIM}; {text}{DIM:#}"));
    // Flags of rules are not an accuracy: such rules notice mistakes and cannot confirm most cases.
    if let Some(flags) = format_rule_flags(metric) {
        let title = format!("{}:", printable_line(&metric.title));
        return writeln!(out, "{title:<32} {flags}{}", dim(format_unjudged_counts(metric)));
    }
    let coverage = dim(format_coverage(metric));
    let title = format!("{}{suffix}:", printable_line(&metric.title));
    let Some(value) = metric.value else {
        return writeln!(out, "{title:<32} not judged{coverage}");
    };
    let (scale, unit) = if metric.is_share { (100.0, " %") } else { (1.0, "") };
    let interval = metric.interval.map_or_else(String::new, |found| {
        format!(", 95 % interval {:.1} to {:.1}{unit}", found.low * scale, found.high * scale)
    });
    // Labels can have fractional scores; then the numerator is a sum and not a count.
    let of = if let Some(of) = super::measured_population(metric) {
        of
    } else if metric.numerator.fract() == 0.0 && metric.is_share {
        format!("{} of {}", metric.numerator, metric.denominator)
    } else {
        format!("mean of {}", metric.denominator)
    };
    let calibration = format_calibration(metric);
    // A correction is a number of its own and gets a line; its absence is a word.
    let (mark, corrected) = match metric.corrected() {
        Some(_) => (String::new(), calibration),
        None => (dim(calibration), None),
    };
    writeln!(out, "{title:<32} {BOLD}{:6.2}{unit}{BOLD:#}  ({of}{interval}){mark}{coverage}", value * scale)?;
    corrected.map_or(Ok(()), |text| writeln!(out, "{:<32} {text}", ""))
}

/// Calls by tool, most used first; `chosen rightly` is about calls that were judged.
fn print_tools(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    if summary.tools.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{BOLD}Tool usage{BOLD:#}")?;
    for tool in summary.tools.iter().take(MAX_LISTED_ROWS) {
        let name = printable_line(&tool.tool);
        let mut notes = Vec::new();
        if tool.judged > 0 {
            notes.push(format!("{} of {} choices correct", tool.right, tool.judged));
        }
        if tool.errors > 0 {
            notes.push(format!("{} failed", tool.errors));
        }
        let uses = if tool.uses == 1 { "use " } else { "uses" };
        writeln!(out, "  {name:<28} {:>6} {uses}  {DIM}{}{DIM:#}", tool.uses, notes.join(", "))?;
    }
    print_more_rows(summary.tools.len(), "more tool", "more tools", out)
}

/// Why questions have no verdict: one list for each kind, most frequent first.
fn print_unjudged(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    for (kind, heading) in [
        (OutcomeKind::Failed, "Could not be judged"),
        (OutcomeKind::Abstained, "Cannot judge"),
        (OutcomeKind::NotApplicable, "Does not apply"),
    ] {
        let reasons: Vec<_> = summary.reasons.iter().filter(|reason| reason.outcome == kind).collect();
        if reasons.is_empty() {
            continue;
        }
        writeln!(out, "\n{BOLD}{heading}{BOLD:#}")?;
        for reason in reasons.iter().take(MAX_LISTED_ROWS) {
            writeln!(out, "  {:>6} {}: {}", reason.count, reason.evaluator, shorten_line(&reason.reason, 160))?;
        }
        print_more_rows(reasons.len(), "more reason", "more reasons", out)?;
    }
    Ok(())
}

/// Prints the most frequent errors, with one example each.
fn print_failure_groups(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    // Each takes two lines.
    const SHOWN: usize = 5;
    let rows = list_failure_rows(summary);
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{BOLD}Failure groups{BOLD:#}")?;
    for row in rows.iter().take(SHOWN) {
        let tool = row.tool.as_deref().map_or_else(String::new, |tool| format!(" {}", shorten_line(tool, 60)));
        let rule =
            row.rule.as_deref().map_or_else(String::new, |rule| format!(" {DIM}[{}]{DIM:#}", printable_line(rule)));
        let evaluator = printable_line(&row.evaluator);
        writeln!(out, "  {:>6} {evaluator}{tool}: {}{rule}", format_count(row.count), shorten_line(&row.reason, 160))?;
        let request = row.examples.first().and_then(|example| example.request.as_deref());
        let request = request.map_or_else(String::new, |request| format!("; e.g. {}", shorten_line(request, 80)));
        writeln!(out, "         {DIM}{}{request}{DIM:#}", row.format_count())?;
    }
    let more = rows.len().saturating_sub(SHOWN) as u64 + summary.omitted_failure_groups;
    if more > 0 {
        writeln!(
            out,
            "  {DIM}and {} in --html and --json{DIM:#}",
            format_counted_noun(more, "more group", "more groups")
        )?;
    }
    Ok(())
}

/// Prints the cost of the agent itself, as far as the traces record it.
fn print_agent_cost(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    match format_agent_cost(&summary.agent_cost) {
        Some(text) => writeln!(out, "\n{BOLD}Agent cost{BOLD:#}  {text}"),
        None => Ok(()),
    }
}

/// The worst steps with their verdicts.
fn print_findings(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    // A finding takes several lines; more than a few would push the gates off the screen.
    const SHOWN: usize = 5;
    if summary.findings.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{BOLD}Worst steps{BOLD:#}")?;
    for finding in summary.findings.iter().take(SHOWN) {
        let id = printable_line(&finding.trajectory_id);
        let place = match (finding.step_index, &finding.tool) {
            (Some(step), Some(tool)) => format!("{id} step {step} {}", printable_line(tool)),
            _ => id,
        };
        writeln!(out, "  {place}")?;
        for verdict in &finding.verdicts {
            let label = printable_line(&verdict.label);
            writeln!(
                out,
                "    {RED}{label}{RED:#} {}: {}",
                verdict.evaluator,
                shorten_line(&verdict.explanation, 200)
            )?;
        }
    }
    if summary.findings.len() > SHOWN {
        writeln!(out, "  {DIM}more in --html and --jsonl{DIM:#}")?;
    }
    Ok(())
}

/// Dollars, calls and tokens; nothing if no model was asked. An unknown price is stated and never shown as 0.
fn print_cost(summary: &EvaluationSummary, out: &mut dyn Write) -> io::Result<()> {
    let cost = &summary.cost;
    if cost.calls == 0 && cost.from_cache == 0 {
        return Ok(());
    }
    let format_cost =
        |usd: Option<f64>| usd.map_or_else(|| describe_unknown_cost(cost).to_owned(), |usd| format!("${usd:.4}"));
    let usd = format_cost(cost.usd);
    writeln!(
        out,
        "\n{BOLD}Judge cost{BOLD:#}  {usd}; {}, {} in ({} cached), {} out; {} from the cache",
        format_counted_noun(cost.calls, "call", "calls"),
        format_counted_noun(cost.tokens.prompt, "token", "tokens"),
        format_count(cost.tokens.cached_prompt),
        format_count(cost.tokens.completion),
        format_counted_noun(cost.from_cache, "verdict", "verdicts")
    )?;
    let asked = cost.by_evaluator.iter().filter(|part| part.calls > 0 || part.from_cache > 0);
    for part in asked {
        let usd = format_cost(part.usd);
        let (evaluator, judge) = (printable_line(&part.evaluator), printable_line(&part.judge));
        writeln!(
            out,
            "  {evaluator:<28} {usd}  {DIM}{judge}; {}, {} in, {} out{DIM:#}",
            format_counted_noun(part.calls, "call", "calls"),
            format_counted_noun(part.tokens.prompt, "token", "tokens"),
            format_count(part.tokens.completion)
        )?;
    }
    if summary.shortened > 0 {
        writeln!(
            out,
            "For {} the judge saw shortened data (see `shortened` in --jsonl).",
            format_counted_noun(summary.shortened, "verdict", "verdicts")
        )?;
    }
    Ok(())
}

/// Prints the gates with verdict and value at the end, where they are seen first on a terminal.
fn print_gates(gates: &[GateResult], out: &mut dyn Write) -> io::Result<()> {
    if gates.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{BOLD}Gates{BOLD:#}")?;
    for gate in gates {
        let (style, verdict) = match gate.verdict {
            GateVerdict::Pass => (GREEN, "PASS"),
            GateVerdict::Fail => (RED, "FAIL"),
            GateVerdict::Incomplete => (YELLOW, "INCOMPLETE"),
        };
        let value = match gate.value {
            Some(_) => format!(": {}", format_gate_value(gate)),
            None => String::new(),
        };
        writeln!(
            out,
            "  {style}{verdict:<10}{style:#} {}{value}; {}",
            printable_line(&gate.gate),
            printable_line(&gate.explanation)
        )?;
    }
    Ok(())
}

/// A line with the number of rows that were left out, if any.
fn print_more_rows(count: usize, one: &str, many: &str, out: &mut dyn Write) -> io::Result<()> {
    if count > MAX_LISTED_ROWS {
        writeln!(out, "  {DIM}and {}{DIM:#}", format_counted_noun((count - MAX_LISTED_ROWS) as u64, one, many))?;
    }
    Ok(())
}

/// The first `most` characters of a text, on one printable line.
fn shorten_line(text: &str, most: usize) -> String {
    let line = printable_line(text);
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use gradus_eval::report::ToolUse;

    use super::*;
    use crate::example::show_styles;
    use crate::html::example;

    fn print_to_text(summary: &EvaluationSummary, gates: &[GateResult]) -> String {
        let mut printed = Vec::new();
        print_summary(summary, gates, &mut printed).expect("a summary is printed");
        show_styles(&printed)
    }

    #[test]
    fn a_run_with_gates_of_every_verdict() {
        let (summary, gates) = example::ordinary();
        for verdict in [GateVerdict::Pass, GateVerdict::Fail, GateVerdict::Incomplete] {
            assert!(gates.iter().any(|gate| gate.verdict == verdict), "{verdict:?}");
        }
        insta::assert_snapshot!(print_to_text(&summary, &gates));
    }

    #[test]
    fn a_run_that_stopped_before_anything_was_judged() {
        insta::assert_snapshot!(print_to_text(&example::empty(), &[]));
    }

    #[test]
    fn measured_and_unjudged_metrics_are_told_apart() {
        let (mut summary, _) = example::ordinary();
        let measured = |name: &str, title: &str, value| MetricResult {
            name: name.to_owned(),
            title: title.to_owned(),
            judge: SIMULATOR_JUDGE.to_owned(),
            value: Some(value),
            numerator: value,
            denominator: 12,
            ..MetricResult::default()
        };
        summary.metrics = vec![
            measured("calls_ratio", "Calls per needed call", 1.25),
            measured("usd_per_solved", "Dollars per solved task", 0.031),
            MetricResult { numerator: 180.5, ..summary.metrics[0].clone() },
            MetricResult { is_share: false, value: Some(3.25), numerator: 728.0, ..summary.metrics[1].clone() },
            MetricResult { value: None, interval: None, failed: 39, ..summary.metrics[2].clone() },
        ];
        summary.combined = None;
        summary.trajectories_right = None;
        summary.tools.clear();
        summary.reasons.clear();
        summary.findings.clear();
        summary.cost.usd = None;
        summary.cost.by_evaluator.clear();
        insta::assert_snapshot!(print_to_text(&summary, &[]));
    }

    #[test]
    fn a_run_that_rules_judged() {
        insta::assert_snapshot!(print_to_text(&example::by_rules(), &[]));
    }

    #[test]
    fn long_lists_and_texts_are_cut() {
        let mut summary = example::empty();
        let (ordinary, _) = example::ordinary();
        summary.stopped_because = None;
        summary.tools = (0..15).map(|at| ToolUse { tool: format!("tool_{at}"), ..ordinary.tools[0].clone() }).collect();
        summary.reasons = (0..14).map(|_| ordinary.reasons[0].clone()).collect();
        summary.findings = (0..7).map(|_| ordinary.findings[1].clone()).collect();
        summary.findings[0].verdicts[0].explanation = "x".repeat(300);
        insta::assert_snapshot!(print_to_text(&summary, &[]));
    }

    #[test]
    fn hostile_text_cannot_control_the_terminal() {
        let mut summary = example::ordinary().0;
        let hostile = "a\u{1b}[31mb\r\nc\u{202e}d\u{9b}e\0f";
        summary.judge = hostile.to_owned();
        summary.stopped_because = Some(hostile.to_owned());
        summary.metrics[0].title = hostile.to_owned();
        summary.tools[0].tool = hostile.to_owned();
        summary.reasons[0].reason = hostile.to_owned();
        summary.findings[0].trajectory_id = hostile.to_owned();
        summary.findings[0].tool = Some(hostile.to_owned());
        summary.findings[0].verdicts[0].label = hostile.to_owned();
        summary.findings[0].verdicts[0].explanation = hostile.to_owned();
        let group = &mut summary.failure_groups[0];
        (group.reason, group.tool) = (hostile.to_owned(), Some(hostile.to_owned()));
        group.examples[0].request = Some(hostile.to_owned());
        summary.agent_cost.unpriced_models[0].model = hostile.to_owned();
        let printed = print_to_text(&summary, &[]);
        assert!(!printed.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{printed:?}");
    }
}
