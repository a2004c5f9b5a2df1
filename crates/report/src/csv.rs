//! Tables for spreadsheets (RFC 4180): `steps.csv`, one table for each evaluator, and `combined.csv`. No cell can run
//! as a formula (CSV injection), and none has control characters. The columns are an interface: scripts of users read
//! them by name.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use gradus_core::visible::reveal_invisible;
use gradus_eval::evaluator::{QUERY_TO_THOUGHT, THOUGHT_TO_TOOL};
use gradus_eval::outcome::{OutcomeKind, OutcomeLine, OutcomeSpans};
use gradus_eval::report::RunReader;
use gradus_eval::run::EvaluatorRecord;

/// Columns of `steps.csv`; the first eight are also those of `combined.csv`.
const STEP_COLUMNS: [&str; 13] = [
    "trajectory_id",
    "step_index",
    "session_id",
    "project",
    "question_text",
    "thought",
    "tool_call",
    "action_input",
    "observation",
    "is_error",
    "start",
    "trace_id",
    "span_ids",
];
/// Columns of the table of one evaluator. A row is one outcome; cells of a trajectory-level outcome that are about a
/// step are empty.
const EVALUATION_COLUMNS: [&str; 20] = [
    "trajectory_id",
    "step_index",
    "question_text",
    "thought",
    "tool_call",
    "action_input",
    "outcome",
    "label",
    "score",
    "explanation",
    "evidence",
    "rule",
    "remarks",
    "reason",
    "judge",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
    "trace_id",
    "span_ids",
];

/// Writes all tables into a folder, which must exist. The run is streamed: memory holds one trajectory at a time.
pub fn write_csv_tables(reader: &mut RunReader, folder: &Path) -> anyhow::Result<()> {
    let evaluators = reader.record.evaluators.clone();
    let open = |name: &str| csv::Writer::from_path(folder.join(format!("{name}.csv")));
    let mut steps = open("steps")?;
    steps.write_record(STEP_COLUMNS)?;
    let mut tables: BTreeMap<String, csv::Writer<File>> = BTreeMap::new();
    for known in &evaluators {
        let mut table = open(&known.name)?;
        table.write_record(EVALUATION_COLUMNS)?;
        tables.insert(known.name.clone(), table);
    }
    let mut combined = open("combined")?;
    let mut header: Vec<String> = STEP_COLUMNS[..8].iter().map(|&name| name.to_owned()).collect();
    for known in &evaluators {
        header.extend([format!("{}_label", known.name), format!("{}_score", known.name)]);
    }
    header.extend(["both_correct", "trace_id", "span_ids"].map(str::to_owned));
    combined.write_record(header.iter().map(|cell| sanitize_csv_cell(cell)))?;
    reader.visit_trajectories(|trajectory, outcomes| -> anyhow::Result<()> {
        for step in &trajectory.steps {
            steps.write_record(step_row(trajectory, step).iter().map(|cell| sanitize_csv_cell(cell)))?;
        }
        for line in outcomes {
            if let Some(table) = tables.get_mut(&*line.evaluator) {
                table.write_record(evaluation_row(trajectory, line).iter().map(|cell| sanitize_csv_cell(cell)))?;
            }
        }
        // Outcomes are ordered by step, those of the whole trajectory last, so one pass pairs them with the steps.
        let mut rest = outcomes;
        for step in &trajectory.steps {
            let count = rest.iter().take_while(|line| line.step_index == Some(step.index)).count();
            let (of_step, later) = rest.split_at(count);
            rest = later;
            let row = combined_row(trajectory, step, of_step, outcomes, &evaluators);
            combined.write_record(row.iter().map(|cell| sanitize_csv_cell(cell)))?;
        }
        Ok(())
    })?;
    steps.flush()?;
    combined.flush()?;
    tables.values_mut().try_for_each(csv::Writer::flush)?;
    Ok(())
}

/// One step; missing values are empty cells.
fn step_row(trajectory: &Trajectory, step: &TrajectoryStep) -> [String; 13] {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let [trace_id, span_ids] = span_cells(trajectory, Some(step.index));
    [
        trajectory.trajectory_id.clone(),
        step.index.to_string(),
        text(&trajectory.session_id),
        text(&trajectory.project),
        text(&trajectory.query),
        text(&step.thought),
        step.tool.clone(),
        format_step_arguments(step),
        text(&step.observation),
        step.is_error.to_string(),
        text(&step.start),
        trace_id,
        span_ids,
    ]
}

/// One outcome with the step that it is about.
fn evaluation_row(trajectory: &Trajectory, line: &OutcomeLine) -> [String; 20] {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let at = trajectory.steps.binary_search_by_key(&line.step_index, |step| Some(step.index));
    let step = at.ok().map(|at| &trajectory.steps[at]);
    let final_thought = trajectory.final_thought.as_ref().filter(|_| step.is_none() && line.step_index.is_some());
    let outcome = match line.outcome {
        OutcomeKind::Scored => "scored",
        OutcomeKind::NotApplicable => "not_applicable",
        OutcomeKind::Abstained => "abstained",
        OutcomeKind::Failed => "failed",
    };
    let [trace_id, span_ids] = span_cells(trajectory, line.step_index);
    [
        line.trajectory_id.to_string(),
        line.step_index.map(|index| index.to_string()).unwrap_or_default(),
        text(&trajectory.query),
        step.and_then(|step| step.thought.as_ref()).or(final_thought).cloned().unwrap_or_default(),
        step.map(|step| step.tool.clone()).unwrap_or_default(),
        step.map(format_step_arguments).unwrap_or_default(),
        outcome.to_owned(),
        text(&line.label),
        line.score.map(|score| score.to_string()).unwrap_or_default(),
        text(&line.explanation),
        line.evidence.join("; "),
        line.rule.as_deref().unwrap_or_default().to_owned(),
        join_remarks(line),
        text(&line.reason),
        line.judge.to_string(),
        line.tokens.map(|tokens| tokens.prompt.to_string()).unwrap_or_default(),
        line.tokens.map(|tokens| tokens.completion.to_string()).unwrap_or_default(),
        line.cost_usd.map(|cost| cost.to_string()).unwrap_or_default(),
        trace_id,
        span_ids,
    ]
}

/// The trace and the spans of a step or a trajectory, for joining tables with traces. Span ids are separated by spaces.
fn span_cells(trajectory: &Trajectory, step_index: Option<u32>) -> [String; 2] {
    let OutcomeSpans { trace_id, span_ids } = OutcomeSpans::new(trajectory, step_index);
    [trace_id.unwrap_or_default(), span_ids.join(" ")]
}

/// The remarks of rules in one cell, each after the id of its rule.
fn join_remarks(line: &OutcomeLine) -> String {
    let remarks: Vec<String> = line.remarks.iter().map(|remark| format!("{}: {}", remark.rule, remark.text)).collect();
    remarks.join("; ")
}

/// A step with the label and score of every evaluator; outcomes of the whole trajectory are repeated in each of its
/// rows. `both_correct` is empty unless both of its evaluators gave a verdict.
fn combined_row(
    trajectory: &Trajectory,
    step: &TrajectoryStep,
    of_step: &[OutcomeLine],
    all: &[OutcomeLine],
    evaluators: &[EvaluatorRecord],
) -> Vec<String> {
    let mut row: Vec<String> = step_row(trajectory, step)[..8].to_vec();
    let find = |name: &str| {
        // Outcomes of the whole trajectory are at the end.
        let whole = all.iter().rev().take_while(|line| line.step_index.is_none());
        of_step.iter().chain(whole).find(|line| &*line.evaluator == name)
    };
    for known in evaluators {
        let line = find(&known.name);
        row.push(line.and_then(|line| line.label.clone()).unwrap_or_default());
        row.push(line.and_then(|line| line.score).map(|score| score.to_string()).unwrap_or_default());
    }
    let is_right = |name: &str| {
        let known = evaluators.iter().find(|known| known.name == name)?;
        find(name).filter(|line| line.is_scored()).map(|line| known.is_right(line.score))
    };
    row.push(match (is_right(THOUGHT_TO_TOOL), is_right(QUERY_TO_THOUGHT)) {
        (Some(one), Some(other)) => (one && other).to_string(),
        _ => String::new(),
    });
    row.extend(span_cells(trajectory, Some(step.index)));
    row
}

/// The arguments as JSON, or the malformed text of the model.
fn format_step_arguments(step: &TrajectoryStep) -> String {
    step.arguments_text().unwrap_or_default().into_owned()
}

/// A cell that is inert in a spreadsheet and on a terminal. Control characters and those that reorder text are spelled
/// out (`\u{1b}`), line ends become `\n`, and a cell that would be taken for a formula gets an apostrophe in front, as
/// OWASP recommends. Numbers stay numbers, also negative ones. Full-width forms of `=`, `+`, `-` and `@` count as well:
/// some spreadsheets normalise them.
pub fn sanitize_csv_cell(cell: &str) -> String {
    let cell = reveal_invisible(&cell.replace("\r\n", "\n")).into_owned();
    // Spreadsheets ignore leading white space when they look for a formula.
    let first = cell.trim_start().chars().next();
    let risky = matches!(first, Some('=' | '+' | '-' | '@' | '\u{ff1d}' | '\u{ff0b}' | '\u{ff0d}' | '\u{ff20}'))
        || cell.starts_with(['\t', '\n']);
    // Rust also reads `-infinity` as a number; a spreadsheet does not.
    let is_number = cell.parse::<f64>().is_ok_and(f64::is_finite);
    if risky && !is_number { format!("'{cell}") } else { cell }
}

#[cfg(test)]
mod tests {
    use gradus_core::visible::is_hidden;

    use super::*;
    use crate::example::open_example_run;

    #[test]
    fn every_table_of_a_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut reader = open_example_run(&folder.path().join("state"));
        write_csv_tables(&mut reader, folder.path()).expect("tables are written");
        for table in ["steps", "combined", "thought_to_tool", "query_to_thought", "sequence_optimality"] {
            let text = std::fs::read_to_string(folder.path().join(format!("{table}.csv"))).expect("a table");
            insta::assert_snapshot!(table, text);
        }
    }

    #[test]
    fn no_cell_is_a_formula() {
        for cell in [
            "=1+1",
            "+cmd|' /C calc'!A0",
            "-2+3",
            "@SUM(A1)",
            "\t=1",
            "\n=1",
            "\r\n=1",
            "  =1",
            "\u{a0}\t =1",
            "\u{ff1d}1",
            "-infinity",
            "+NaN",
        ] {
            assert!(sanitize_csv_cell(cell).starts_with('\''), "{cell:?}");
        }
        // What was before it is visible now, and so is no formula.
        assert_eq!(sanitize_csv_cell("\r=1"), "\\r=1");
        assert_eq!(sanitize_csv_cell("\u{1}=1"), "\\u{1}=1");
        assert_eq!(sanitize_csv_cell("\u{200b}=1"), "\\u{200b}=1");
        for cell in ["", "-1.5", "a=1", "{\"a\": 1}", "1e3", "two\nlines", "a\tb"] {
            assert_eq!(sanitize_csv_cell(cell), cell);
        }
    }

    #[test]
    fn no_cell_has_control_characters() {
        for c in '\0'..=char::MAX {
            let written = sanitize_csv_cell(&format!("a{c}b"));
            assert!(!written.chars().any(|c| is_hidden(Some('a'), c, Some('b'))), "{c:?}");
        }
        assert_eq!(sanitize_csv_cell("a\u{1b}[31m\u{9b}b\0\u{202e}c"), "a\\u{1b}[31m\\u{9b}b\\u{0}\\u{202e}c");
        assert_eq!(sanitize_csv_cell("one\r\ntwo\rthree"), "one\ntwo\\rthree");
    }
}
