//! Trajectories, steps and verdicts as three flat tables, which join on `trajectory_id` and `step_index`.
//!
//! Tables are for SQL and data frames, so cells are plain values: what has a structure of its own (arguments, tools) is
//! JSON text.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use crate::graded_runs::{GradedRun, GradedRuns};

/// One of the three tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatTable {
    Trajectories,
    Steps,
    Verdicts,
}

/// What the cells of a column are. Every cell may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Text,
    Integer,
    Number,
    Flag,
    /// An instant, written as RFC 3339 in rows of JSON.
    Time,
}

impl FlatTable {
    pub const ALL: [FlatTable; 3] = [FlatTable::Trajectories, FlatTable::Steps, FlatTable::Verdicts];

    /// Its file name without the extension.
    pub fn name(self) -> &'static str {
        match self {
            FlatTable::Trajectories => "trajectories",
            FlatTable::Steps => "steps",
            FlatTable::Verdicts => "verdicts",
        }
    }

    /// Its columns in order. Names are a promise to the queries that are built on them: columns may be added.
    pub fn columns(self) -> &'static [(&'static str, ColumnKind)] {
        use ColumnKind::{Flag, Integer, Number, Text, Time};
        match self {
            FlatTable::Trajectories => &[
                ("trajectory_id", Text),
                ("trace_id", Text),
                ("session_id", Text),
                ("turn_index", Integer),
                ("previous_trajectory_id", Text),
                ("parent_trajectory_id", Text),
                ("parent_step_index", Integer),
                ("project", Text),
                ("agent", Text),
                ("agent_version", Text),
                ("model", Text),
                ("system_prompt", Text),
                ("query", Text),
                ("final_thought", Text),
                ("final_answer", Text),
                ("reference_answer", Text),
                ("step_count", Integer),
                ("is_error", Flag),
                ("prompt_tokens", Integer),
                ("completion_tokens", Integer),
                ("cost_usd", Number),
                ("start_time", Time),
                ("end_time", Time),
                ("tools", Text),
                ("defects", Text),
                ("annotations", Text),
            ],
            FlatTable::Steps => &[
                ("trajectory_id", Text),
                ("step_index", Integer),
                ("trace_id", Text),
                ("span_id", Text),
                ("agent", Text),
                ("thought", Text),
                ("tool", Text),
                ("arguments", Text),
                ("observation", Text),
                ("is_error", Flag),
                ("is_denied", Flag),
                ("parallel_with_previous", Flag),
                ("prompt_tokens", Integer),
                ("completion_tokens", Integer),
                ("start_time", Time),
                ("end_time", Time),
            ],
            FlatTable::Verdicts => &[
                ("trajectory_id", Text),
                ("step_index", Integer),
                ("evaluator", Text),
                ("label", Text),
                ("score", Number),
                ("explanation", Text),
                ("judge", Text),
                ("rubric_hash", Text),
            ],
        }
    }
}

/// Writes the rows of one table as lines of JSON, and returns their number.
pub fn write_table_rows(runs: &GradedRuns, table: FlatTable, out: &mut dyn Write) -> io::Result<u64> {
    let mut count = 0;
    for run in runs.iter() {
        let rows = match table {
            FlatTable::Trajectories => vec![trajectory_row(run)],
            FlatTable::Steps => step_rows(run),
            FlatTable::Verdicts => verdict_rows(run),
        };
        for row in rows {
            writeln!(out, "{row}")?;
            count += 1;
        }
    }
    Ok(count)
}

fn trajectory_row(run: &GradedRun) -> Json {
    let trajectory = &run.trajectory;
    json!({
        "trajectory_id": trajectory.trajectory_id,
        "trace_id": trajectory.trace_ids.first(),
        "session_id": trajectory.session_id,
        "turn_index": trajectory.turn_index,
        "previous_trajectory_id": trajectory.previous_trajectory_id,
        "parent_trajectory_id": trajectory.parent_trajectory_id,
        "parent_step_index": trajectory.parent_step_index,
        "project": trajectory.project,
        "agent": trajectory.agent,
        "agent_version": trajectory.agent_version,
        "model": trajectory.model,
        "system_prompt": trajectory.system_prompt,
        "query": trajectory.query,
        "final_thought": trajectory.final_thought,
        "final_answer": trajectory.final_answer,
        "reference_answer": trajectory.reference_answer,
        "step_count": trajectory.steps.len(),
        "is_error": trajectory.is_error,
        "prompt_tokens": trajectory.tokens.prompt,
        "completion_tokens": trajectory.tokens.completion,
        "cost_usd": trajectory.cost_usd,
        "start_time": trajectory.start,
        "end_time": trajectory.end,
        "tools": list_as_json_text(&trajectory.tools),
        "defects": list_as_json_text(&trajectory.defects),
        "annotations": list_as_json_text(&trajectory.annotations),
    })
}

fn step_rows(run: &GradedRun) -> Vec<Json> {
    let trajectory = &run.trajectory;
    let rows = trajectory.steps.iter().map(|step| {
        json!({
            "trajectory_id": trajectory.trajectory_id,
            "step_index": step.index,
            "trace_id": step.trace_id.as_ref().or(trajectory.trace_ids.first()),
            // The span of the tool comes last, and verdicts are about the call.
            "span_id": step.span_ids.last(),
            "agent": step.agent,
            "thought": step.thought,
            "tool": step.tool,
            "arguments": step.arguments_text(),
            "observation": step.observation,
            "is_error": step.is_error,
            "is_denied": step.is_denied,
            "parallel_with_previous": step.parallel_with_previous,
            "prompt_tokens": step.tokens.prompt,
            "completion_tokens": step.tokens.completion,
            "start_time": step.start,
            "end_time": step.end,
        })
    });
    rows.collect()
}

fn verdict_rows(run: &GradedRun) -> Vec<Json> {
    let rows = run.verdicts.iter().map(|verdict| {
        json!({
            "trajectory_id": run.trajectory.trajectory_id,
            "step_index": verdict.step_index,
            "evaluator": verdict.evaluator,
            "label": verdict.label,
            "score": verdict.score,
            "explanation": verdict.explanation,
            "judge": verdict.judge,
            "rubric_hash": verdict.rubric_hash,
        })
    });
    rows.collect()
}

/// Returns a list as JSON text; null if it is empty.
fn list_as_json_text<T: serde::Serialize>(items: &[T]) -> Option<String> {
    if items.is_empty() { None } else { serde_json::to_string(items).ok() }
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::{Trajectory, TrajectoryStep};

    use super::*;
    use crate::graded_runs::RunVerdict;

    #[test]
    fn rows_have_exactly_the_columns_of_their_table() {
        let steps = vec![TrajectoryStep { index: 1, tool: "look".to_owned(), ..TrajectoryStep::default() }];
        let trajectory = Trajectory { trajectory_id: "t".to_owned(), steps, ..Trajectory::default() };
        let verdicts = vec![RunVerdict { step_index: Some(1), ..RunVerdict::default() }];
        let runs = GradedRuns::new(vec![GradedRun { trajectory, verdicts }]);
        for table in FlatTable::ALL {
            let mut lines = Vec::new();
            assert_eq!(write_table_rows(&runs, table, &mut lines).unwrap(), 1);
            let row: serde_json::Map<String, Json> = serde_json::from_slice(&lines).unwrap();
            let names: Vec<&str> = row.keys().map(String::as_str).collect();
            let columns: Vec<&str> = table.columns().iter().map(|(name, _)| *name).collect();
            assert_eq!(names, columns);
        }
    }
}
