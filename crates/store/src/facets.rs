//! What traces are found by: written beside the trajectories and verdicts it is made of.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::StoreError;

/// What traces can be filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FacetKind {
    Agent = 0,
    Model = 1,
    Tool = 2,
    /// A label that was given, with and without the evaluator's name.
    Label = 3,
    Evaluator = 4,
    Error = 5,
    Version = 6,
    /// An evaluator that found something below its best.
    Wrong = 7,
}

/// Brings up to date what a trace is found by. Mostly little of it changes, and only that is written.
pub(crate) fn write_facets(sql: &Connection, trace: i64) -> Result<(), StoreError> {
    let known: Option<(i64, i64, i64)> = sql
        .prepare_cached("SELECT project, start_ns, errors FROM trace WHERE no = ?")?
        .query_row([trace], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((project, start_ns, errors)) = known else { return Ok(()) };
    let mut wanted = facets(sql, trace, errors > 0)?;
    let written: Vec<(i64, i64, String, i64)> = sql
        .prepare_cached("SELECT project, kind, value, start_ns FROM facet WHERE trace = ?")?
        .query_map([trace], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
        .collect::<Result<_, _>>()?;
    for (old_project, kind, value, old_start_ns) in written {
        let key = (kind, value);
        if (old_project, old_start_ns) == (project, start_ns) && wanted.remove(&key) {
            continue;
        }
        sql.prepare_cached(
            "DELETE FROM facet WHERE project = ? AND kind = ? AND value = ? AND start_ns = ? AND trace = ?",
        )?
        .execute(params![old_project, key.0, key.1, old_start_ns, trace])?;
    }
    let mut insert = sql
        .prepare_cached("INSERT INTO facet (project, kind, value, start_ns, trace) VALUES (?, ?, ?, ?, ?)")?;
    for (kind, value) in wanted {
        insert.execute(params![project, kind, value, start_ns, trace])?;
    }
    Ok(())
}

/// What a trace is to be found by.
fn facets(sql: &Connection, trace: i64, has_errors: bool) -> Result<BTreeSet<(i64, String)>, StoreError> {
    let mut facets = BTreeSet::new();
    let mut put = |kind: FacetKind, value: &str| {
        facets.insert((kind as i64, value.to_owned()));
    };
    if has_errors {
        put(FacetKind::Error, "");
    }
    let mut statement = sql.prepare_cached(
        "SELECT no, agent, model, tools, is_error, version FROM trajectory WHERE trace = ?",
    )?;
    let mut rows = statement.query([trace])?;
    while let Some(row) = rows.next()? {
        let (agent, model, tools): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
        if !agent.is_empty() {
            put(FacetKind::Agent, &agent);
        }
        if !model.is_empty() {
            put(FacetKind::Model, &model);
        }
        let version: String = row.get(5)?;
        if !version.is_empty() {
            put(FacetKind::Version, &version);
        }
        for tool in tools.lines().filter(|tool| !tool.is_empty()) {
            put(FacetKind::Tool, tool);
        }
        if row.get(4)? {
            put(FacetKind::Error, "");
        }
        let mut labels =
            sql.prepare_cached("SELECT evaluator, label, is_wrong FROM outcome WHERE trajectory = ?")?;
        let labels = labels.query_map([row.get::<_, i64>(0)?], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, bool>(2)?))
        })?;
        for label in labels {
            let (evaluator, label, is_wrong) = label?;
            put(FacetKind::Evaluator, &evaluator);
            if is_wrong {
                put(FacetKind::Wrong, &evaluator);
            }
            if let Some(label) = label {
                put(FacetKind::Label, &label);
                put(FacetKind::Label, &format!("{evaluator}={label}"));
            }
        }
    }
    Ok(facets)
}
