//! The answers of `failure_groups` and `worst_steps`.

use gradus_core::trajectory::Trajectory;
use gradus_eval::report::{FailureExample, FailureGroup, FailureGroupBuilder};
use gradus_report::format_counted_noun;
use jiff::Timestamp;

use crate::archive::{ArchiveError, FlaggedScope, RunArchive, StoredFailureGroups};
use crate::arguments::{FlaggedArguments, check_limit, non_empty_text, parse_offset};
use crate::bounded_response::BoundedResponse;
use crate::flagged_steps::{FlaggedStep, FlaggedStepList, VerdictSelection};
use crate::recorded_text::{TextWindow, quote_id, quote_name, quote_text};
use crate::verdict_text::render_verdicts;

const DEFAULT_GROUPS: usize = 10;
const DEFAULT_STEPS: usize = 5;
const MAX_LIMIT: usize = 50;
/// Maximum number of ranked steps on all pages: later ones are no longer among the worst.
const MAX_RANKED_STEPS: usize = 500;
/// Maximum characters of texts in both lists.
const MAX_REASON_CHARS: usize = 300;
const MAX_REQUEST_CHARS: usize = 160;
const MAX_CALL_CHARS: usize = 250;

pub(crate) fn render_failure_groups(
    archive: &dyn RunArchive,
    arguments: &FlaggedArguments,
    now: Timestamp,
) -> Result<String, ArchiveError> {
    let limit = check_limit(arguments.limit, DEFAULT_GROUPS, MAX_LIMIT)?;
    let skip = parse_offset(&arguments.cursor)?;
    let StoredFailureGroups { scope, groups } = collect_groups(archive, arguments, now)?;
    let mut response = BoundedResponse::new();
    let count = format_counted_noun(groups.len() as u64, "group", "groups");
    response.add_line(&format!("{count} of wrong verdicts in {}", describe_scope(&scope)));
    let shown = add_items(&mut response, groups.iter().skip(skip).take(limit), skip, render_group);
    add_continuation(&mut response, "failure_groups", skip + shown, groups.len());
    Ok(response.finish())
}

/// Returns the stored groups of the archive if it has them, otherwise groups the wrong verdicts of the matching runs.
fn collect_groups(
    archive: &dyn RunArchive,
    arguments: &FlaggedArguments,
    now: Timestamp,
) -> Result<StoredFailureGroups, ArchiveError> {
    let (filter, selection) = (arguments.to_filter(now)?, select_verdicts(arguments));
    if let Some(mut stored) = archive.load_failure_groups(&filter)? {
        stored.groups.retain(|group| selection.selects_group(group));
        return Ok(stored);
    }
    let mut builder = FailureGroupBuilder::default();
    let mut flagged_count = 0;
    let scope = archive.visit_flagged(&filter, &mut |run| {
        builder.add(&run.trajectory, selection.select(run).map(|verdict| &verdict.line));
        flagged_count += 1;
    })?;
    // Shares refer to all runs, so those without a wrong verdict count as well.
    let without = Trajectory::default();
    (flagged_count..scope.run_count).for_each(|_| builder.add(&without, []));
    Ok(StoredFailureGroups { scope, groups: builder.finish() })
}

pub(crate) fn render_worst_steps(
    archive: &dyn RunArchive,
    arguments: &FlaggedArguments,
    now: Timestamp,
) -> Result<String, ArchiveError> {
    let limit = check_limit(arguments.limit, DEFAULT_STEPS, MAX_LIMIT)?;
    let skip = parse_offset(&arguments.cursor)?.min(MAX_RANKED_STEPS);
    let selection = select_verdicts(arguments);
    let mut list = FlaggedStepList::new((skip + limit).min(MAX_RANKED_STEPS));
    let scope = archive.visit_flagged(&arguments.to_filter(now)?, &mut |run| list.add_run(run, &selection))?;
    let total = list.total;
    let steps = list.into_steps();
    let mut response = BoundedResponse::new();
    let count = format_counted_noun(total, "step", "steps");
    response.add_line(&format!("{count} with a wrong verdict in {}, worst first", describe_scope(&scope)));
    let shown = add_items(&mut response, steps.iter().skip(skip).take(limit), skip, render_step);
    let listed = usize::try_from(total).unwrap_or(usize::MAX).min(MAX_RANKED_STEPS);
    add_continuation(&mut response, "worst_steps", skip + shown, listed);
    Ok(response.finish())
}

fn select_verdicts(arguments: &FlaggedArguments) -> VerdictSelection {
    VerdictSelection { evaluator: non_empty_text(&arguments.evaluator), tool: non_empty_text(&arguments.tool) }
}

fn describe_scope(scope: &FlaggedScope) -> String {
    let runs = format_counted_noun(scope.run_count, "run", "runs");
    let more = if scope.is_partial { " (the latest; there are more: narrow it with `since`)" } else { "" };
    format!("{runs} of {}{more}", scope.description)
}

/// Adds numbered items until the answer is full. Returns how many were added.
fn add_items<'i, T: 'i>(
    response: &mut BoundedResponse,
    items: impl Iterator<Item = &'i T>,
    skip: usize,
    render: impl Fn(&T) -> String,
) -> usize {
    let mut shown = 0;
    for (item, number) in items.zip(skip + 1..) {
        if !response.try_add_item(&format!("\n{number}. {}", render(item))) {
            break;
        }
        shown += 1;
    }
    shown
}

fn add_continuation(response: &mut BoundedResponse, tool: &str, next: usize, total: usize) {
    if next < total {
        response.add_line(&format!("\nmore: {tool} with cursor \"{next}\" and the other arguments as they were"));
    }
}

/// A group with its reason and where to look.
pub(crate) fn render_group(group: &FailureGroup) -> String {
    let mut text = format!("{}={}", quote_name(&group.evaluator), quote_name(&group.label));
    if let Some(tool) = &group.tool {
        text.push_str(&format!(" on {}", quote_name(tool)));
    }
    if let Some(rule) = &group.rule {
        text.push_str(&format!(" (rule {})", quote_name(rule)));
    }
    let verdicts = format_counted_noun(group.count, "verdict", "verdicts");
    let runs = format_counted_noun(group.trajectories, "run", "runs");
    text.push_str(&format!(": {verdicts} in {runs} ({:.1} % of all)\n", 100.0 * group.share));
    text.push_str(&quote_text(&group.reason, TextWindow::first(MAX_REASON_CHARS)).lines);
    let examples: Vec<String> = group.examples.iter().map(describe_example).collect();
    if !examples.is_empty() {
        text.push_str(&format!("examples: {}\n", examples.join("; ")));
    }
    let request = group.examples.iter().find_map(|example| example.request.as_deref());
    if let Some(request) = request {
        let quoted = quote_text(&format!("request of the first: {request}"), TextWindow::first(MAX_REQUEST_CHARS));
        text.push_str(&quoted.lines);
    }
    text
}

fn describe_example(example: &FailureExample) -> String {
    let run = quote_id(&example.trajectory_id);
    match example.step_index {
        Some(step) => format!("run {run} step {step}"),
        None => format!("run {run}"),
    }
}

fn render_step(step: &FlaggedStep) -> String {
    let tool = step.tool.as_deref().map_or_else(|| "the thought before the answer".to_owned(), quote_name);
    let failed = if step.is_error { " (failed)" } else { "" };
    let mut text = format!("run {} step {}: {tool}{failed}\n", quote_id(&step.run_id), step.step_index);
    let parts = [
        ("request", &step.request, MAX_REQUEST_CHARS),
        ("thought", &step.thought, MAX_CALL_CHARS),
        ("arguments", &step.arguments, MAX_CALL_CHARS),
        ("observation", &step.observation, MAX_CALL_CHARS),
    ];
    for (title, recorded, max_chars) in parts {
        if let Some(recorded) = recorded.as_deref().filter(|recorded| !recorded.trim().is_empty()) {
            text.push_str(&quote_text(&format!("{title}: {recorded}"), TextWindow::first(max_chars)).lines);
        }
    }
    text.push_str(&render_verdicts(&step.verdicts, Some(step.step_index), MAX_REASON_CHARS));
    text
}
