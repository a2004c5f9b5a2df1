//! The answer of `find_runs`.

use gradus_report::{format_count, format_counted_noun};
use jiff::Timestamp;

use crate::archive::{ArchiveError, FoundRun, RunArchive, RunFlag};
use crate::arguments::{FindRunsArguments, check_limit, non_empty_text};
use crate::bounded_response::BoundedResponse;
use crate::recorded_text::{TextWindow, quote_id, quote_inline, quote_name, quote_text};

const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;
/// Maximum characters of a request in the list.
const MAX_REQUEST_CHARS: usize = 200;
/// Maximum number of flags listed for one run.
const MAX_FLAGS: usize = 6;

pub(crate) fn render_found_runs(
    archive: &dyn RunArchive,
    arguments: &FindRunsArguments,
    now: Timestamp,
) -> Result<String, ArchiveError> {
    let limit = check_limit(arguments.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let filter = arguments.to_filter(now)?;
    let page = archive.find_runs(&filter, non_empty_text(&arguments.cursor).as_deref(), limit)?;
    let mut response = BoundedResponse::new();
    let count = format_counted_noun(page.total, "run", "runs");
    let least = if page.is_total_partial { "at least " } else { "" };
    response.add_line(&format!("{least}{count} of {}", page.scope));
    let mut next = page.next_cursor;
    let mut cursor_before: Option<&str> = None;
    for run in &page.runs {
        if !response.try_add_item(&render_found_run(run)) {
            next = cursor_before.map(str::to_owned);
            break;
        }
        cursor_before = Some(&run.cursor_after);
    }
    if let Some(cursor) = next {
        let cursor = quote_inline(&cursor, 200);
        response.add_line(&format!("\nmore: find_runs with cursor {cursor} and the other arguments as they were"));
    }
    Ok(response.finish())
}

fn render_found_run(run: &FoundRun) -> String {
    let mut facts = Vec::new();
    facts.extend(run.start.as_deref().map(quote_name));
    facts.extend(run.project.as_deref().map(|project| format!("project {}", quote_name(project))));
    facts.extend(run.agent.as_deref().map(|agent| format!("agent {}", quote_name(agent))));
    facts.extend(run.agent_version.as_deref().map(|version| format!("version {}", quote_name(version))));
    facts.extend(run.model.as_deref().map(|model| format!("model {}", quote_name(model))));
    facts.push(format_counted_noun(run.step_count, "step", "steps"));
    if run.is_error {
        facts.push("ended in an error".to_owned());
    }
    let mut text = format!("\nrun {}\n{}\n", quote_id(&run.run_id), facts.join(", "));
    if !run.flags.is_empty() {
        let mut flags: Vec<String> = run.flags.iter().take(MAX_FLAGS).map(describe_flag).collect();
        if run.flags.len() > MAX_FLAGS {
            flags.push(format!("{} more", run.flags.len() - MAX_FLAGS));
        }
        text.push_str(&format!("WRONG {}\n", flags.join(", ")));
    }
    if let Some(query) = &run.query {
        text.push_str(&quote_text(query, TextWindow::first(MAX_REQUEST_CHARS)).lines);
    }
    text
}

/// `call_validity=incorrect at step 2 (3 in all)`.
fn describe_flag(flag: &RunFlag) -> String {
    let mut text = quote_name(&flag.evaluator);
    if let Some(label) = &flag.label {
        text.push_str(&format!("={}", quote_name(label)));
    }
    if let Some(step) = flag.first_step {
        text.push_str(&format!(" at step {step}"));
    }
    if flag.count > 1 {
        text.push_str(&format!(" ({} in all)", format_count(flag.count)));
    }
    text
}
