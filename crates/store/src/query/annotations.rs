//! Annotations by target, and the matching of annotations that arrived before their target.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::sql::{KeyStart, OptionalRow, SqlConnection, SqlParam, SqlRow, params};
use gradus_core::span::{SpanId, TraceId};

use crate::Store;
use crate::annotations::{AnnotationRecord, COLUMNS, annotation_from_row};
use crate::error::StoreError;
use crate::writer::WriteHandle;

/// Selects annotations of a project, as Phoenix's REST API does. Empty lists do not restrict.
#[derive(Clone, Debug, Default)]
pub struct AnnotationQuery {
    pub project: i64,
    /// Prefix of their targets: `span:`, `trace:` or `session:`.
    pub kind: &'static str,
    pub targets: Vec<String>,
    pub identifiers: Vec<String>,
    pub names: Vec<String>,
    pub other_names: Vec<String>,
    /// The number to begin with. The latest come first.
    pub up_to: Option<i64>,
    pub limit: usize,
}

impl AnnotationQuery {
    /// The conditions that are not part of the statement. Lists of values would need a statement for each length.
    fn matches(&self, row: &AnnotationRecord) -> bool {
        let is_in = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        // Targets are texts with a prefix, see `NewAnnotation::target`.
        row.target.starts_with(self.kind)
            && self.up_to.is_none_or(|up_to| row.no <= up_to)
            && is_in(&self.identifiers, &row.identifier)
            && is_in(&self.names, &row.name)
            && !self.other_names.contains(&row.name)
    }
}

/// The trace of an annotation's target.
struct AnnotatedTrace {
    trace: i64,
    project: i64,
}

/// Maximum number of annotations that one step reads.
const ANNOTATIONS_PER_STEP: i64 = 500;

impl Store {
    /// Annotations, the latest first. Also finds those that arrived before their target.
    pub fn query_annotations(&self, query: &AnnotationQuery) -> Result<Vec<AnnotationRecord>, StoreError> {
        let reader = self.readers.take_reader()?;
        let sql: &SqlConnection = &*reader.snapshot()?;
        let mut found = Vec::new();
        if query.targets.is_empty() {
            if sql.sqlite().is_none() {
                // Only with the project at hand can PostgreSQL choose between the latest annotations and the index.
                sql.execute_batch("SET LOCAL plan_cache_mode = force_custom_plan")?;
            }
            let statement = format!(
                "SELECT {COLUMNS}, project FROM annotation INDEXED BY annotation_by_project \
                 WHERE project = ? AND no <= ? ORDER BY no DESC LIMIT ?"
            );
            let start = KeyStart::AtMost(query.up_to.unwrap_or(i64::MAX));
            sql.visit_rows(&statement, &[SqlParam::Integer(query.project)], start, |row| -> Result<_, StoreError> {
                let row = annotation_from_row(row)?;
                if query.matches(&row) {
                    found.push(row);
                    if found.len() >= query.limit {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
            return Ok(found);
        }
        let mut statement =
            sql.prepare_cached(&format!("SELECT {COLUMNS}, project FROM annotation WHERE target = ?"))?;
        let targets: HashSet<&String> = query.targets.iter().collect();
        for target in targets {
            let mut rows = statement.query([target])?;
            while let Some(row) = rows.next()? {
                let mut project: Option<i64> = row.get(12)?;
                let row = annotation_from_row(&row)?;
                if !query.matches(&row) {
                    continue;
                }
                if project.is_none() {
                    // It arrived before its target, so its row has no project yet.
                    project = find_annotated_trace(sql, &row.target)?.map(|home| home.project);
                }
                if project == Some(query.project) {
                    found.push(row);
                }
            }
        }
        found.sort_unstable_by_key(|row| std::cmp::Reverse(row.no));
        found.truncate(query.limit);
        Ok(found)
    }

    /// Returns the number of annotations whose target has not arrived yet.
    pub fn count_waiting_annotations(&self) -> Result<u64, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement = reader
            .prepare_cached("SELECT count(*) FROM annotation INDEXED BY annotation_waiting WHERE trace IS NULL")?;
        Ok(statement.query_row((), |row| row.get(0))?)
    }

    /// Connects annotations that arrived too early with their targets, some at a time, and removes those that have
    /// waited since before `forget_before_ns`. Returns where to continue; `None` at the end.
    pub fn resolve_waiting_annotations(
        &self,
        after: i64,
        forget_before_ns: Option<i64>,
    ) -> Result<WriteHandle<Option<i64>>, StoreError> {
        self.writer()?.submit(0, move |writing| {
            let sql = writing.sql;
            let waiting: Vec<(i64, String, i64)> = sql
                .prepare_cached(
                    "SELECT no, target, updated_ns FROM annotation INDEXED BY annotation_waiting \
                     WHERE trace IS NULL AND no > ? ORDER BY no LIMIT ?",
                )?
                .query_map([after, ANNOTATIONS_PER_STEP], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<Result<_, _>>()?;
            for (no, target, updated_ns) in &waiting {
                if let Some(home) = find_annotated_trace(sql, target)? {
                    sql.prepare_cached("UPDATE annotation SET trace = ?2, project = ?3 WHERE no = ?1")?
                        .execute(params![no, home.trace, home.project])?;
                } else if forget_before_ns.is_some_and(|before_ns| *updated_ns < before_ns) {
                    sql.prepare_cached("DELETE FROM annotation WHERE no = ?")?.execute([no])?;
                }
            }
            Ok(waiting.last().filter(|_| waiting.len() as i64 == ANNOTATIONS_PER_STEP).map(|(no, _, _)| *no))
        })
    }
}

/// The trace that a target belongs to; `None` if it has not arrived.
fn find_annotated_trace(sql: &SqlConnection, target: &str) -> Result<Option<AnnotatedTrace>, StoreError> {
    let Some((kind, id)) = target.split_once(':') else { return Ok(None) };
    let read = |row: &SqlRow<'_>| Ok(AnnotatedTrace { trace: row.get(0)?, project: row.get(1)? });
    Ok(match kind {
        "span" | "document" => {
            let id = id.split_once('#').map_or(id, |(id, _)| id);
            let SpanId(id) = SpanId::parse(id);
            sql.prepare_cached(
                "SELECT trace.no, trace.project FROM span JOIN trace ON trace.no = span.trace WHERE span.span_id = ? LIMIT 1",
            )?
            .query_row([id as i64], read)
            .optional()?
        }
        "trace" => {
            let TraceId(id) = TraceId::parse(id);
            sql.prepare_cached("SELECT no, project FROM trace WHERE trace_id = ?")?
                .query_row([&id.to_be_bytes()[..]], read)
                .optional()?
        }
        "session" => sql
            .prepare_cached(
                "SELECT trace, project FROM trajectory INDEXED BY trajectory_by_session \
                 WHERE session = ? AND session <> '' LIMIT 1",
            )?
            .query_row([id], read)
            .optional()?,
        _ => None,
    })
}
