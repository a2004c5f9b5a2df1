//! Verdicts and labels in words: wrong ones with their reason, the others by name.

use gradus_eval::outcome::OutcomeKind;

use crate::archived_run::{ArchivedVerdict, RunLabel};
use crate::recorded_text::{TextWindow, quote_name, quote_text};

/// Maximum pieces of evidence shown for a wrong verdict.
const MAX_EVIDENCE: usize = 2;
/// Maximum characters of one piece.
const MAX_EVIDENCE_CHARS: usize = 200;
/// Maximum number of wrong verdicts on one step or run that are shown; the rest is counted.
const MAX_WRONG: usize = 12;
/// Maximum number of labels shown on one step or run.
const MAX_LABELS: usize = 6;

/// Renders the verdicts on a step, or on the whole run for `None`. Empty without verdicts.
pub(crate) fn render_verdicts(verdicts: &[ArchivedVerdict], step: Option<u32>, reason_chars: usize) -> String {
    let own: Vec<&ArchivedVerdict> = verdicts.iter().filter(|verdict| verdict.line.step_index == step).collect();
    let mut text = String::new();
    let wrong: Vec<&&ArchivedVerdict> = own.iter().filter(|verdict| verdict.is_wrong).collect();
    for verdict in wrong.iter().take(MAX_WRONG) {
        text.push_str(&render_wrong_verdict(verdict, reason_chars));
    }
    if wrong.len() > MAX_WRONG {
        text.push_str(&format!("and {} more wrong verdicts\n", wrong.len() - MAX_WRONG));
    }
    let names = |kinds: &[OutcomeKind]| -> Vec<String> {
        let is_listed = |verdict: &&&ArchivedVerdict| !verdict.is_wrong && kinds.contains(&verdict.line.outcome);
        own.iter().filter(is_listed).map(|verdict| describe_label(verdict)).collect()
    };
    let lists = [
        ("right", names(&[OutcomeKind::Scored])),
        ("not judged", names(&[OutcomeKind::Abstained, OutcomeKind::NotApplicable])),
        ("judge failed", names(&[OutcomeKind::Failed])),
    ];
    for (word, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        text.push_str(&format!("{word}: {}\n", names.join(", ")));
    }
    text
}

fn render_wrong_verdict(verdict: &ArchivedVerdict, reason_chars: usize) -> String {
    let line = &verdict.line;
    let by = match &line.rule {
        Some(rule) => format!("rule {}", quote_name(rule)),
        None => format!("judge {}", quote_name(&line.judge)),
    };
    let mut text = format!("WRONG {} ({by})\n", describe_label(verdict));
    let explanation = line.explanation.as_deref().filter(|text| !text.trim().is_empty());
    if let Some(explanation) = explanation {
        text.push_str(&quote_text(explanation, TextWindow::first(reason_chars)).lines);
    }
    for evidence in line.evidence.iter().take(MAX_EVIDENCE) {
        let is_repeated = explanation.is_some_and(|text| text.contains(evidence.as_str()));
        if !is_repeated {
            let quoted = quote_text(&format!("evidence: {evidence}"), TextWindow::first(MAX_EVIDENCE_CHARS));
            text.push_str(&quoted.lines);
        }
    }
    text
}

/// `thought_to_tool=incorrect`, or the name alone without a label.
pub(crate) fn describe_label(verdict: &ArchivedVerdict) -> String {
    let evaluator = quote_name(&verdict.line.evaluator);
    match &verdict.line.label {
        Some(label) => format!("{evaluator}={}", quote_name(label)),
        None => evaluator,
    }
}

/// Renders the labels of people and assistants on a step, or on the whole run for `None`.
pub(crate) fn render_labels(labels: &[RunLabel], step: Option<u32>) -> String {
    let own: Vec<&RunLabel> = labels.iter().filter(|label| label.step_index == step).collect();
    let mut text = String::new();
    for label in own.iter().take(MAX_LABELS) {
        let (evaluator, value) = (quote_name(&label.evaluator), quote_name(&label.label));
        text.push_str(&format!("label of {}: {evaluator}={value}\n", quote_name(&label.labeller)));
        if let Some(explanation) = label.explanation.as_deref().filter(|text| !text.trim().is_empty()) {
            text.push_str(&quote_text(explanation, TextWindow::first(MAX_EVIDENCE_CHARS)).lines);
        }
    }
    if own.len() > MAX_LABELS {
        text.push_str(&format!("and {} more labels\n", own.len() - MAX_LABELS));
    }
    text
}
