//! The answer of `compare`.

use gradus_report::compare::{
    FailureGroupChange, TaskFlip, VersionComparison, build_comparison_tables, summarize_verdicts,
};
use gradus_report::{format_count, format_counted_noun};

use crate::archive::{ArchiveError, RunArchive};
use crate::arguments::{CompareToolArguments, non_empty_text};
use crate::bounded_response::BoundedResponse;
use crate::recorded_text::{TextWindow, quote_id, quote_name, quote_text};

/// Maximum number of changed tasks in each direction, and of failure groups.
const MAX_FLIPS: usize = 5;
const MAX_GROUPS: usize = 8;
/// Maximum number of notes before the numbers.
const MAX_NOTES: usize = 8;
const MAX_NOTE_CHARS: usize = 300;
const MAX_REQUEST_CHARS: usize = 160;
const MAX_PATH_CHARS: usize = 200;
const MAX_REASON_CHARS: usize = 200;

pub(crate) fn render_comparison(
    archive: &dyn RunArchive,
    arguments: &CompareToolArguments,
) -> Result<String, ArchiveError> {
    let (first, second) = (arguments.a.trim(), arguments.b.trim());
    let project = non_empty_text(&arguments.project);
    let comparison = match (arguments.by, &project) {
        (Some(by), project) => archive.compare_traffic(by, [first, second], project.as_deref())?,
        (None, None) => archive.compare_evaluations(first, second)?,
        (None, Some(_)) => {
            let reason = "it goes with `by`; evaluations have no project".to_owned();
            return Err(ArchiveError::BadArgument { argument: "project", reason });
        }
    };
    let mut response = BoundedResponse::new();
    for version in &comparison.versions {
        let tasks = format_counted_noun(version.tasks, "task", "tasks");
        let runs = format_counted_noun(version.runs, "run", "runs");
        let part = if version.is_complete { "" } else { ", ended early" };
        // Live traffic has no run.
        let name = match version.run_id.is_empty() || version.name == version.run_id {
            true => quote_name(&version.name),
            false => format!("{} ({})", quote_name(&version.name), quote_name(&version.run_id)),
        };
        let judge = quote_name(&version.judge);
        response.add_line(&format!("{}: {name}, judge {judge}, {tasks}, {runs}{part}", version.letter));
    }
    response.add_line(comparison.pairing.describe());
    response.add_lines(&quote_text(&summarize_verdicts(&comparison), TextWindow::first(MAX_NOTE_CHARS)).lines);
    // Notes name evaluators and judges, which come from files.
    for note in comparison.notes().take(MAX_NOTES) {
        response.add_lines(&quote_text(&note, TextWindow::first(MAX_NOTE_CHARS)).lines);
    }
    response.add_lines(&render_verdicts_table(&comparison));
    for flips in &comparison.flips {
        for (title, count, flips) in
            [("worse", flips.worse_count, &flips.worse), ("better", flips.better_count, &flips.better)]
        {
            if count > 0 {
                response.add_line(&format!("\ntasks that got {title}: {}", format_count(count)));
            }
            for flip in flips.iter().take(MAX_FLIPS) {
                response.try_add_item(&render_flip(&comparison, flip));
            }
        }
    }
    if !comparison.failure_groups.is_empty() {
        let count = format_count(comparison.failure_groups.len() as u64);
        response.add_line(&format!("\nreasons of wrong verdicts that occur more or less often: {count}"));
    }
    for group in comparison.failure_groups.iter().take(MAX_GROUPS) {
        response.try_add_item(&render_group_change(group));
    }
    if arguments.by.is_none() {
        response.add_line("\n`gradus compare A B --json -` prints all of it");
    }
    Ok(response.finish())
}

/// The same numbers and words as `gradus compare` prints.
fn render_verdicts_table(comparison: &VersionComparison) -> String {
    let mut text = String::from("\n");
    let Some(table) = build_comparison_tables(comparison).into_iter().next() else { return text };
    for row in table.rows {
        let mut cells = row.into_iter();
        let title = cells.next().map(|title| quote_name(&title)).unwrap_or_default();
        let cells: Vec<String> = cells
            .zip(table.columns.iter().skip(1))
            .map(|(cell, column)| match column.name.as_str() {
                "A" | "B" => format!("{} {cell}", column.name),
                _ => cell,
            })
            .collect();
        text.push_str(&format!("{title}: {}\n", cells.join(", ")));
    }
    text.push_str(&table.note.map(|note| format!("{note}\n")).unwrap_or_default());
    text
}

fn render_flip(comparison: &VersionComparison, flip: &TaskFlip) -> String {
    let run = |id: &str| if id.is_empty() { "not named".to_owned() } else { format!("run {}", quote_id(id)) };
    let mut text = format!(
        "- {} from {:.2} ({}) to {:.2} ({})\n",
        quote_name(comparison.title(&flip.dimension)),
        flip.before,
        run(&flip.before_trajectory),
        flip.after,
        run(&flip.after_trajectory)
    );
    let task = flip.request.as_deref().unwrap_or(&flip.task);
    text.push_str(&quote_text(&format!("task: {task}"), TextWindow::first(MAX_REQUEST_CHARS)).lines);
    for (letter, path) in [("A", &flip.before_path), ("B", &flip.after_path)] {
        if let Some(path) = path {
            text.push_str(&quote_text(&format!("path of {letter}: {path}"), TextWindow::first(MAX_PATH_CHARS)).lines);
        }
    }
    text
}

fn render_group_change(group: &FailureGroupChange) -> String {
    let tool = group.tool.as_deref().map(|tool| format!(" on {}", quote_name(tool))).unwrap_or_default();
    let runs: Vec<String> = group
        .runs
        .iter()
        .zip(&group.shares)
        .zip(["A", "B"])
        .map(|((runs, share), letter)| format!("{letter} {} ({:.1} %)", format_count(*runs), 100.0 * share))
        .collect();
    let reason = quote_text(&group.reason, TextWindow::first(MAX_REASON_CHARS)).lines;
    format!("- {}{tool}: runs of {}\n{reason}", quote_name(&group.evaluator), runs.join(", "))
}
