//! Projects as objects of their own: created before any trace, described, and deleted with everything in them.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::sql::{KeyStart, OptionalRow, SqlConnection, SqlRow, params, params_from_iter};
use crate::sql::{SqlError, SqlValue};
use gradus_core::span::TraceId;

use crate::Store;
use crate::error::StoreError;
use crate::failures::forget_empty_groups;
use crate::retention::{RemovalCounts, remove_trace};
use crate::rollup;
use crate::spend;
use crate::usage;
use crate::writer::WriteHandle;

/// A project with its number, which does not change while the project exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectInfo {
    pub no: i64,
    pub name: String,
    pub description: Option<String>,
}

/// Maximum number of traces that one step of a deletion removes.
const TRACES_PER_STEP: i64 = 50;

impl Store {
    /// Looks a project up by name.
    pub fn project_named(&self, name: &str) -> Result<Option<ProjectInfo>, StoreError> {
        let reader = self.readers.take_reader()?;
        find_project(
            &reader,
            "SELECT no, name, description FROM project WHERE name = ?",
            &SqlValue::Text(name.to_owned()),
        )
    }

    /// Looks a project up by number, as Phoenix's ids contain it.
    pub fn project_numbered(&self, no: i64) -> Result<Option<ProjectInfo>, StoreError> {
        let reader = self.readers.take_reader()?;
        find_project(&reader, "SELECT no, name, description FROM project WHERE no = ?", &SqlValue::Integer(no))
    }

    /// Projects up to a number, the latest first. `name_part` is searched in their names, ignoring case.
    pub fn project_list(
        &self,
        up_to: i64,
        name_part: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ProjectInfo>, StoreError> {
        let reader = self.readers.take_reader()?;
        let statement = "SELECT no, name, description FROM project WHERE no <= ? ORDER BY no DESC LIMIT ?";
        let wanted = name_part.map(str::to_lowercase);
        let mut found = Vec::new();
        reader.visit_rows(statement, &[], KeyStart::AtMost(up_to), |row| -> Result<_, StoreError> {
            let project = project_from_row(row)?;
            if wanted.as_ref().is_none_or(|wanted| project.name.to_lowercase().contains(wanted)) {
                found.push(project);
                if found.len() >= limit {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Creates a project; `None` if the name is taken.
    pub fn add_project(
        &self,
        name: String,
        description: Option<String>,
        now_ns: i64,
    ) -> Result<WriteHandle<Option<ProjectInfo>>, StoreError> {
        self.writer()?.submit(name.len(), move |writing| {
            let name: Arc<str> = name.as_str().into();
            let known = "SELECT no, name, description FROM project WHERE name = ?";
            if find_project(writing.sql, known, &SqlValue::Text(name.to_string()))?.is_some() {
                return Ok(None);
            }
            let no = writing.projects.get_or_create(&name, writing.sql, now_ns)?;
            writing
                .sql
                .prepare_cached("UPDATE project SET description = ?2 WHERE no = ?1")?
                .execute(params![no, description])?;
            Ok(Some(ProjectInfo { no, name: name.to_string(), description: description.clone() }))
        })
    }

    /// Sets the description of a project; false if it does not exist.
    pub fn describe_project(&self, no: i64, description: String) -> Result<WriteHandle<bool>, StoreError> {
        self.writer()?.submit(description.len(), move |writing| {
            let mut statement = writing.sql.prepare_cached("UPDATE project SET description = ?2 WHERE no = ?1")?;
            Ok(statement.execute(params![no, description])? > 0)
        })
    }

    /// Removes a trace with everything derived from it, except its share in metrics. Returns false if it does not
    /// exist.
    pub fn remove_trace(&self, id: TraceId) -> Result<WriteHandle<bool>, StoreError> {
        self.writer()?.submit(0, move |writing| {
            let known: Option<i64> = writing
                .sql
                .prepare_cached("SELECT no FROM trace WHERE trace_id = ?")?
                .query_row([&id.0.to_be_bytes()[..]], |row| row.get(0))
                .optional()?;
            match known {
                Some(trace) => remove_trace(writing.sql, trace).map(|()| true),
                None => Ok(false),
            }
        })
    }

    /// Removes some traces of a project, and the project itself with the last of them. Small steps, so that no other
    /// writer waits long. The caller repeats it until nothing is left.
    pub fn remove_project_step(&self, no: i64) -> Result<WriteHandle<RemovalCounts>, StoreError> {
        self.writer()?.submit(0, move |writing| {
            let sql = writing.sql;
            let traces: Vec<(i64, u64)> = sql
                .prepare_cached(
                    "SELECT no, spans FROM trace INDEXED BY trace_by_project WHERE project = ? \
                     ORDER BY start_ns LIMIT ?",
                )?
                .query_map([no, TRACES_PER_STEP], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            let mut removed = RemovalCounts { has_more: !traces.is_empty(), ..RemovalCounts::default() };
            for (trace, spans) in traces {
                remove_trace(sql, trace)?;
                removed.traces += 1;
                removed.spans += spans;
            }
            // No trace is left, so the project itself can go.
            if !removed.has_more {
                remove_project_row(sql, no)?;
                // What a group says about the texts of a removed project goes with its last trajectory.
                forget_empty_groups(sql)?;
                writing.projects.forget(no);
            }
            Ok(removed)
        })
    }
}

/// Removes a project without traces, and its rollups: its number may be assigned again.
fn remove_project_row(sql: &SqlConnection, no: i64) -> Result<(), StoreError> {
    rollup::delete_project_rollups(sql, no)?;
    usage::delete_project_usage(sql, no)?;
    for statement in [
        "DELETE FROM facet WHERE project = ?",
        "DELETE FROM annotation WHERE project = ?",
        "DELETE FROM judge_call WHERE project = ? AND answer IS NOT NULL",
        // Calls under way are still paid for.
        "UPDATE judge_call SET project = 0 WHERE project = ?",
        "DELETE FROM project WHERE no = ?",
    ] {
        sql.prepare_cached(statement)?.execute([no])?;
    }
    if sql.sqlite().is_none() {
        sql.prepare_cached("DELETE FROM project_count WHERE project = ?")?.execute([no])?;
    }
    spend::keep_spend_of_removed_project(sql, no)
}

/// Runs a statement that selects at most one project.
fn find_project(sql: &SqlConnection, statement: &str, value: &SqlValue) -> Result<Option<ProjectInfo>, StoreError> {
    Ok(sql.prepare_cached(statement)?.query_row(params_from_iter([value]), project_from_row).optional()?)
}

fn project_from_row(row: &SqlRow<'_>) -> Result<ProjectInfo, SqlError> {
    Ok(ProjectInfo { no: row.get(0)?, name: row.get(1)?, description: row.get(2)? })
}
