//! The answer of `list_evaluations`.

use gradus_report::format_counted_noun;

use crate::archive::{ArchiveError, EvaluationEntry, EvaluationScores, RunArchive};
use crate::arguments::{ListEvaluationsArguments, check_limit, parse_offset};
use crate::bounded_response::BoundedResponse;
use crate::recorded_text::{quote_inline, quote_name};

const DEFAULT_LIMIT: usize = 10;
const MAX_LIMIT: usize = 50;
/// Maximum number of scores, gates and sources listed for one evaluation.
const MAX_SCORES: usize = 24;
const MAX_GATES: usize = 8;
const MAX_SOURCES: usize = 3;

pub(crate) fn render_evaluations(
    archive: &dyn RunArchive,
    arguments: &ListEvaluationsArguments,
) -> Result<String, ArchiveError> {
    let limit = check_limit(arguments.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let skip = parse_offset(&arguments.cursor)?;
    let list = archive.list_evaluations(skip, limit)?;
    let mut response = BoundedResponse::new();
    let count = format_counted_noun(list.total as u64, "evaluation", "evaluations");
    response
        .add_line(&format!("{count}, latest first; without an evaluation, tools answer about {}", list.default_scope));
    let read = list.entries.len() + list.skipped.0;
    let mut shown = 0;
    for entry in &list.entries {
        if !response.try_add_item(&render_entry(entry)) {
            break;
        }
        shown += 1;
    }
    if list.skipped.0 > 0 {
        response.add_line(&format!("\n{} cannot be read and are left out", list.skipped.0));
    }
    // The cursor also skips unreadable evaluations once all readable ones of the page are shown.
    let next = skip + if shown == list.entries.len() { read } else { shown };
    if next < list.total {
        response.add_line(&format!("\nmore: list_evaluations with cursor \"{next}\""));
    }
    Ok(response.finish())
}

fn render_entry(entry: &EvaluationEntry) -> String {
    let manifest = &entry.manifest;
    let mut facts = vec![quote_name(&manifest.started), entry.state.to_owned()];
    facts.push(format!("judge {}", quote_name(&manifest.judge)));
    facts.extend(manifest.branch.as_deref().map(|branch| format!("branch {}", quote_name(branch))));
    facts.extend(manifest.commit.as_deref().map(|commit| format!("commit {}", quote_name(&short_commit(commit)))));
    let runs = entry.scores.as_ref().map(|scores| format_counted_noun(scores.run_count as u64, "run", "runs"));
    facts.extend(runs);
    let sources: Vec<String> = manifest.sources.iter().take(MAX_SOURCES).map(|source| quote_name(source)).collect();
    if !sources.is_empty() {
        facts.push(format!("from {}", sources.join(" and ")));
    }
    let name = manifest.name.as_deref().map(|name| format!(", name {}", quote_name(name))).unwrap_or_default();
    let mut text = format!("\nevaluation {}{name}\n{}\n", quote_name(&manifest.run_id), facts.join(", "));
    if let Some(reason) = &manifest.stopped_because {
        text.push_str(&format!("stopped: {}\n", quote_inline(reason, 200)));
    }
    match &entry.scores {
        Some(scores) => text.push_str(&format!("scores: {}\n", describe_scores(scores))),
        None => text.push_str("too large to be summarised in a list\n"),
    }
    let mut gates: Vec<String> = manifest.gates.iter().take(MAX_GATES).map(|gate| quote_inline(gate, 120)).collect();
    if manifest.gates.len() > MAX_GATES {
        gates.push(format!("{} more", manifest.gates.len() - MAX_GATES));
    }
    if !gates.is_empty() {
        text.push_str(&format!("gates: {}\n", gates.join(", ")));
    }
    text
}

/// Shortens a commit, which is a hash or any text from a variable of a CI job.
fn short_commit(commit: &str) -> String {
    commit.chars().take(12).collect()
}

fn describe_scores(scores: &EvaluationScores) -> String {
    // Rules that only notice mistakes rarely score anything else, so the share that they did not flag is shown
    // instead.
    let is_telling = |name: &str| !scores.metrics.contains_key(&format!("unflagged.{name}"));
    let telling = scores.metrics.iter().filter(|(name, _)| is_telling(name));
    let known = telling.take(MAX_SCORES).map(|(name, value)| match scores.shares.contains(name) {
        true => format!("{} {:.1} %", quote_name(name), 100.0 * value),
        false => format!("{} {value:.2}", quote_name(name)),
    });
    let known: Vec<String> = known.collect();
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}
