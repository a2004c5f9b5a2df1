//! The answer of `explain_gate`.

use gradus_core::whitespace::collapse_whitespace;
use gradus_eval::report::{FailureGroup, GateResult, GateVerdict};
use gradus_report::format_counted_noun;
use gradus_report::metric_text::format_gate_value;

use crate::archive::{ArchiveError, GateReport, RunArchive};
use crate::arguments::{ExplainGateArguments, non_empty_text};
use crate::bounded_response::BoundedResponse;
use crate::failure_text::render_group;
use crate::recorded_text::{quote_inline, quote_name};

/// Maximum number of failure groups shown for a gate that does not pass.
const MAX_GROUPS: usize = 3;
/// Maximum number of metrics listed if the evaluation has no gates.
const MAX_METRICS: usize = 40;
const MAX_EXPLANATION_CHARS: usize = 600;

pub(crate) fn render_gates(archive: &dyn RunArchive, arguments: &ExplainGateArguments) -> Result<String, ArchiveError> {
    let gate = non_empty_text(&arguments.gate);
    let (evaluation, baseline) = (non_empty_text(&arguments.evaluation), non_empty_text(&arguments.baseline));
    let report = archive.check_gates(evaluation.as_deref(), gate.as_deref(), baseline.as_deref())?;
    let mut response = BoundedResponse::new();
    let evaluation = quote_name(&report.manifest.run_id);
    let name = report.manifest.name.as_deref().map(|name| format!(" ({})", quote_name(name))).unwrap_or_default();
    let gates = format_counted_noun(report.results.len() as u64, "gate", "gates");
    let missed = report.results.iter().filter(|result| result.verdict != GateVerdict::Pass).count();
    response.add_line(&format!("evaluation {evaluation}{name}: {gates}, {missed} not passed"));
    if report.results.is_empty() {
        response.add_line("it was made without gates; give `gate`, as in \"call_validity >= 0.95\"");
    }
    let is_unknown = |result: &&GateResult| result.value.is_none() && result.metric.is_empty();
    if report.results.is_empty() || report.results.iter().any(|result| is_unknown(&result)) {
        let metrics = report.metrics.iter().take(MAX_METRICS);
        let metrics: Vec<String> = metrics.map(|(name, value)| format!("{} {value}", quote_name(name))).collect();
        response.add_line(&format!("metrics: {}", metrics.join(", ")));
    }
    let is_relative = |result: &GateResult| result.metric.is_empty() && result.gate.contains("baseline");
    if baseline.is_none() && report.results.iter().any(is_relative) {
        response.add_line(
            "an evaluation does not keep its baseline; give `baseline`, the id of an evaluation, to check gates that are \
             relative to one",
        );
    }
    // What failed comes first: a long list of gates may not fit.
    let (passed, others): (Vec<&GateResult>, Vec<&GateResult>) =
        report.results.iter().partition(|result| result.verdict == GateVerdict::Pass);
    let mut left_out = 0;
    for result in others.into_iter().chain(passed) {
        if !response.try_add_item(&render_gate(&report, result)) {
            left_out += 1;
        }
    }
    if left_out > 0 {
        response.add_line(&format!("\nmore: {left_out} gates are left out; name one with `gate`"));
    }
    Ok(response.finish())
}

fn render_gate(report: &GateReport, result: &GateResult) -> String {
    let word = match result.verdict {
        GateVerdict::Pass => "PASS",
        GateVerdict::Fail => "FAIL",
        GateVerdict::Incomplete => "INCOMPLETE",
    };
    let mut text = format!("\n{word} {}\n", quote_inline(&result.gate, 160));
    let value = format_gate_value(result);
    if !value.is_empty() {
        text.push_str(&format!("{value}: "));
    }
    text.push_str(&describe_explanation(result));
    text.push('\n');
    if result.verdict == GateVerdict::Pass {
        return text;
    }
    let groups = find_groups(report, &result.metric);
    if groups.is_empty() {
        return text;
    }
    text.push_str("what goes wrong there, largest first:\n");
    for group in groups.iter().take(MAX_GROUPS) {
        text.push_str(&format!("- {}", render_group(group)));
    }
    if groups.len() > MAX_GROUPS {
        let evaluator = quote_name(&groups[0].evaluator);
        let rest = groups.len() - MAX_GROUPS;
        text.push_str(&format!("{rest} more groups: failure_groups with evaluator {evaluator}\n"));
    }
    text
}

/// Returns the explanation of a gate. It is quoted if the gate cannot be parsed: it then repeats text from the files
/// of an evaluation.
fn describe_explanation(result: &GateResult) -> String {
    let line = collapse_whitespace(&result.explanation);
    let is_own = !result.metric.is_empty() && line.is_ascii() && line.len() <= MAX_EXPLANATION_CHARS;
    if is_own { line } else { quote_inline(&line, MAX_EXPLANATION_CHARS) }
}

/// Returns the failure groups of the evaluator that a metric is about: `outcome.crashed` and
/// `call_validity{tool=search}` name one.
fn find_groups<'r>(report: &'r GateReport, metric: &str) -> Vec<&'r FailureGroup> {
    let evaluator = metric.split(['.', '{']).next().unwrap_or_default();
    let tool = metric.split_once("{tool=").and_then(|(_, rest)| rest.strip_suffix('}'));
    let is_about = |group: &&FailureGroup| {
        // Combined metrics cover the groups of all evaluators.
        let is_combined = matches!(evaluator, "combined" | "trajectories_right");
        (is_combined || group.evaluator == evaluator) && tool.is_none_or(|tool| group.tool.as_deref() == Some(tool))
    };
    report.failure_groups.iter().filter(is_about).collect()
}
