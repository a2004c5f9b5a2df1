//! Facets: the values by which traces are filtered. Derived from trajectories and outcomes, and written in the same
//! transaction.

use crate::records::FacetKind;
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::sql::{OptionalRow, SqlConnection, params};
use foldhash::fast::RandomState;

use crate::error::StoreError;
use crate::records::TrajectoryRecord;

/// A row of the table of facets. Fields are in the order of its primary key, so sorting gives the order of the key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FacetRow {
    project: i64,
    kind: i64,
    value: String,
    start_ns: i64,
    trace: i64,
}

/// Facets of many traces that are still to be written. Inserting in the order of the key costs a fraction.
#[derive(Debug, Default)]
pub(crate) struct NewFacets {
    rows: Vec<FacetRow>,
    traces: HashSet<i64>,
}

impl NewFacets {
    /// Writes the collected rows in the order of their key.
    pub(crate) fn write(&mut self, sql: &SqlConnection) -> Result<(), StoreError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.traces.clear();
        self.rows.sort_unstable();
        let mut insert =
            sql.bulk_insert("INSERT INTO facet (project, kind, value, start_ns, trace) VALUES (?, ?, ?, ?, ?)")?;
        for row in self.rows.drain(..) {
            insert.push(params![row.project, row.kind, row.value, row.start_ns, row.trace])?;
        }
        Ok(insert.finish()?)
    }
}

/// Trajectories that were just stored, by number, so that they need not be read back from the database.
pub(crate) type KnownRecords<'r> = HashMap<i64, &'r TrajectoryRecord, RandomState>;

/// Brings the facets of a trace up to date.
pub(crate) fn update_facets(sql: &SqlConnection, trace: i64) -> Result<(), StoreError> {
    let mut new = NewFacets::default();
    update_facets_batched(sql, trace, &KnownRecords::default(), &mut new)?;
    new.write(sql)
}

/// As [`update_facets`], but new rows are only collected. Most facets do not change, and unchanged ones are not
/// written.
pub(crate) fn update_facets_batched(
    sql: &SqlConnection,
    trace: i64,
    records: &KnownRecords<'_>,
    new: &mut NewFacets,
) -> Result<(), StoreError> {
    if !new.traces.insert(trace) {
        // Rows that were collected for this trace before may be outdated, so they are written first and compared then.
        new.write(sql)?;
        new.traces.insert(trace);
    }
    let known: Option<(i64, i64, i64)> = sql
        .prepare_cached("SELECT project, start_ns, errors FROM trace WHERE no = ?")?
        .query_row([trace], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((project, start_ns, errors)) = known else { return Ok(()) };
    let mut wanted = collect_trace_facets(sql, trace, errors > 0, records)?;
    let written: Vec<(i64, i64, String, i64)> = sql
        .prepare_cached("SELECT project, kind, value, start_ns FROM facet WHERE trace = ?")?
        .query_map([trace], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
        .collect::<Result<_, _>>()?;
    for (old_project, kind, value, old_start_ns) in written {
        let key = (kind, value);
        // The key contains project and start, so a row with other ones must be written anew.
        if (old_project, old_start_ns) == (project, start_ns) && wanted.remove(&key) {
            continue;
        }
        sql.prepare_cached(
            "DELETE FROM facet WHERE project = ? AND kind = ? AND value = ? AND start_ns = ? AND trace = ?",
        )?
        .execute(params![old_project, key.0, key.1, old_start_ns, trace])?;
    }
    let rows = wanted.into_iter().map(|(kind, value)| FacetRow { project, kind, value, start_ns, trace });
    new.rows.extend(rows);
    Ok(())
}

/// The facets that a trace should have, from its trajectories and their outcomes.
fn collect_trace_facets(
    sql: &SqlConnection,
    trace: i64,
    has_errors: bool,
    records: &KnownRecords<'_>,
) -> Result<BTreeSet<(i64, String)>, StoreError> {
    let mut found = TraceFacets::default();
    if has_errors {
        found.put(FacetKind::Error, "");
    }
    let mut statement = sql.prepare_cached("SELECT no FROM trajectory WHERE trace = ?")?;
    let numbers = statement.query_map([trace], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    for no in numbers {
        match records.get(&no) {
            Some(record) => found.put_trajectory(record),
            None => found.put_stored_trajectory(sql, no)?,
        }
        let is_known_right = |record: &&TrajectoryRecord| !record.outcomes.iter().any(|outcome| outcome.is_wrong);
        if records.get(&no).is_none_or(|record| !is_known_right(record)) {
            found.put_failure_groups(sql, no)?;
        }
    }
    Ok(found.0)
}

/// Kinds and values of one trace, each once.
#[derive(Default)]
struct TraceFacets(BTreeSet<(i64, String)>);

impl TraceFacets {
    fn put(&mut self, kind: FacetKind, value: &str) {
        self.0.insert((kind as i64, value.to_owned()));
    }

    /// Names of a trajectory. Empty names are no facets.
    fn put_names(&mut self, agent: &str, model: &str, version: &str, is_error: bool) {
        for (kind, name) in [(FacetKind::Agent, agent), (FacetKind::Model, model), (FacetKind::Version, version)] {
            if !name.is_empty() {
                self.put(kind, name);
            }
        }
        if is_error {
            self.put(FacetKind::Error, "");
        }
    }

    /// Adds a label with and without the name of its evaluator.
    fn put_verdict(&mut self, evaluator: &str, label: Option<&str>, is_wrong: bool) {
        self.put(FacetKind::Evaluator, evaluator);
        if is_wrong {
            self.put(FacetKind::Wrong, evaluator);
        }
        if let Some(label) = label {
            self.put(FacetKind::Label, label);
            self.put(FacetKind::Label, &format!("{evaluator}={label}"));
        }
    }

    /// Facets of a trajectory that was just assembled.
    fn put_trajectory(&mut self, record: &TrajectoryRecord) {
        self.put_names(&record.agent, &record.model, &record.version, record.is_error);
        // Names of tools are one per line in the column, so a name with a line feed must be read as it would be from
        // there.
        for tool in record.tools.iter().flat_map(|tool| tool.lines()).filter(|tool| !tool.is_empty()) {
            self.put(FacetKind::Tool, tool);
        }
        // Steps of a run mostly get the same few labels, so each is added once.
        let mut told: HashSet<(&str, Option<&str>, bool), RandomState> = HashSet::default();
        for outcome in &record.outcomes {
            if told.insert((&outcome.evaluator, outcome.label.as_deref(), outcome.is_wrong)) {
                self.put_verdict(&outcome.evaluator, outcome.label.as_deref(), outcome.is_wrong);
            }
        }
    }

    /// Adds the failure groups of a trajectory. Its own reasons may have been merged into a similar group, which only
    /// the store knows.
    fn put_failure_groups(&mut self, sql: &SqlConnection, no: i64) -> Result<(), StoreError> {
        let mut groups = sql.prepare_cached(
            "SELECT key FROM failure CROSS JOIN failure_group ON failure_group.no = failure.failure_group \
             WHERE failure.trajectory = ?",
        )?;
        for key in groups.query_map([no], |row| row.get::<String>(0))? {
            self.put(FacetKind::FailureGroup, &key?);
        }
        Ok(())
    }

    /// As `put_trajectory`, for a trajectory that was stored before.
    fn put_stored_trajectory(&mut self, sql: &SqlConnection, no: i64) -> Result<(), StoreError> {
        let mut statement =
            sql.prepare_cached("SELECT agent, model, version, tools, is_error FROM trajectory WHERE no = ?")?;
        let mut rows = statement.query([no])?;
        while let Some(row) = rows.next()? {
            let (agent, model, version): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            self.put_names(&agent, &model, &version, row.get(4)?);
            let tools: String = row.get(3)?;
            for tool in tools.lines().filter(|tool| !tool.is_empty()) {
                self.put(FacetKind::Tool, tool);
            }
        }
        let mut labels = sql.prepare_cached("SELECT evaluator, label, is_wrong FROM outcome WHERE trajectory = ?")?;
        let labels = labels
            .query_map([no], |row| Ok((row.get::<String>(0)?, row.get::<Option<String>>(1)?, row.get::<bool>(2)?)))?;
        for label in labels {
            let (evaluator, label, is_wrong) = label?;
            self.put_verdict(&evaluator, label.as_deref(), is_wrong);
        }
        Ok(())
    }
}
