//! Annotations: statements of people and of other programs about a span, a trace, a trajectory or one of its steps.
//! Verdicts of our own judges are not here but in the table of outcomes.

use crate::sql::{OptionalRow, SqlRow, params, params_from_iter};
use crate::sql::{SqlError, SqlValue};

use crate::Store;
use crate::error::StoreError;
use crate::write_queue::WriteLane;
use crate::writer::WriteHandle;

/// An annotation to store. It replaces the one that the target has under the same name and identifier, whoever made it:
/// the key that Phoenix uses.
#[derive(Clone, Debug, Default)]
pub struct NewAnnotation {
    /// `span:ID`, `trace:ID`, `trajectory:ID` or `trajectory:ID#STEP`.
    pub target: String,
    /// The trace that contains the target. An annotation may arrive before its trace; then it belongs to no project
    /// yet.
    pub trace_id: Option<u128>,
    pub name: String,
    /// Distinguishes several annotations with one name; usually empty.
    pub identifier: String,
    /// `HUMAN`, `LLM` or `CODE`.
    pub annotator: String,
    pub label: Option<String>,
    pub score: Option<f64>,
    pub explanation: Option<String>,
    /// An object, as JSON.
    pub metadata: String,
    /// Name of the API key or of the person, as the server knows it.
    pub author: String,
}

impl NewAnnotation {
    /// Approximate memory, for the budget of the write queue.
    fn memory_bytes(&self) -> usize {
        let required = [&self.target, &self.name, &self.identifier, &self.annotator, &self.metadata, &self.author];
        let optional = [&self.label, &self.explanation].into_iter().flatten();
        size_of::<NewAnnotation>() + required.into_iter().chain(optional).map(String::len).sum::<usize>()
    }
}

/// An annotation as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct AnnotationRecord {
    /// Number of the row: the cursor of lists, ascending in the order of creation.
    pub no: i64,
    pub target: String,
    pub name: String,
    pub identifier: String,
    pub annotator: String,
    pub label: Option<String>,
    pub score: Option<f64>,
    pub explanation: Option<String>,
    pub metadata: String,
    pub author: String,
    /// Times in nanoseconds since the Unix epoch, by the clock of the server.
    pub created_ns: i64,
    pub updated_ns: i64,
}

/// Selects annotations. All given conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct AnnotationFilter {
    pub project: Option<String>,
    pub target: Option<String>,
    pub name: Option<String>,
    /// `HUMAN`, `LLM` or `CODE`.
    pub annotator: Option<String>,
    /// Those of one trace, by its 16 bytes.
    pub trace_id: Option<u128>,
    /// The number of the last annotation of the page before; 0 for the first page.
    pub after: i64,
    pub limit: usize,
}

/// Columns in the order that [`annotation_from_row`] reads.
pub(crate) const COLUMNS: &str = "annotation.no, target, annotation.name, identifier, annotator, label, score, explanation, \
                       metadata, author, annotation.created_ns, updated_ns";

impl Store {
    /// Stores annotations, all or none. Returns their numbers; a replaced annotation keeps its number.
    pub fn annotate(&self, new: Vec<NewAnnotation>, now_ns: i64) -> Result<WriteHandle<Vec<i64>>, StoreError> {
        self.annotate_in_lane(WriteLane::INTERNAL, new, now_ns)
    }

    /// As [`Store::annotate`], in the queue of one client.
    pub fn annotate_in_lane(
        &self,
        lane: WriteLane,
        new: Vec<NewAnnotation>,
        now_ns: i64,
    ) -> Result<WriteHandle<Vec<i64>>, StoreError> {
        let bytes = new.iter().map(NewAnnotation::memory_bytes).sum();
        self.writer()?.submit_in_lane(lane, bytes, move |writing| {
            let mut numbers = Vec::with_capacity(new.len());
            for one in &new {
                let id = one.trace_id.map(u128::to_be_bytes);
                let trace: Option<(i64, i64)> = writing
                    .sql
                    .prepare_cached("SELECT no, project FROM trace WHERE trace_id = ?")?
                    .query_row([id.as_ref().map(|id| &id[..])], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()?;
                let number = writing
                    .sql
                    .prepare_cached(
                        "INSERT INTO annotation (target, project, trace, name, identifier, annotator, label, score, \
                         explanation, metadata, author, created_ns, updated_ns) \
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12) \
                         ON CONFLICT (target, name, identifier) DO UPDATE SET annotator = excluded.annotator, \
                         label = excluded.label, score = excluded.score, explanation = excluded.explanation, \
                         metadata = excluded.metadata, author = excluded.author, updated_ns = excluded.updated_ns, \
                         project = coalesce(excluded.project, annotation.project), trace = coalesce(excluded.trace, annotation.trace) \
                         RETURNING no",
                    )?
                    .query_row(
                        params![
                            one.target,
                            trace.map(|(_, project)| project),
                            trace.map(|(trace, _)| trace),
                            one.name,
                            one.identifier,
                            one.annotator,
                            one.label,
                            one.score,
                            one.explanation,
                            one.metadata,
                            one.author,
                            now_ns,
                        ],
                        |row| row.get(0),
                    )?;
                numbers.push(number);
            }
            Ok(numbers)
        })
    }

    /// Removes an annotation. Returns whether it existed.
    pub fn remove_annotation(&self, no: i64) -> Result<WriteHandle<bool>, StoreError> {
        self.writer()?.submit(100, move |writing| {
            Ok(writing.sql.prepare_cached("DELETE FROM annotation WHERE no = ?")?.execute([no])? > 0)
        })
    }

    /// Annotations in the order of their numbers.
    pub fn annotations(&self, filter: &AnnotationFilter) -> Result<Vec<AnnotationRecord>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut terms = vec!["annotation.no > ?"];
        let mut values = vec![SqlValue::Integer(filter.after)];
        let texts = [
            ("target = ?", &filter.target),
            ("annotation.name = ?", &filter.name),
            ("annotator = ?", &filter.annotator),
        ];
        for (term, value) in texts {
            if let Some(value) = value {
                terms.push(term);
                values.push(SqlValue::Text(value.clone()));
            }
        }
        if let Some(project) = &filter.project {
            terms.push("project = (SELECT no FROM project WHERE name = ?)");
            values.push(SqlValue::Text(project.clone()));
        }
        if let Some(id) = filter.trace_id {
            terms.push("trace = (SELECT no FROM trace WHERE trace_id = ?)");
            values.push(SqlValue::Blob(id.to_be_bytes().to_vec()));
        }
        values.push(SqlValue::Integer(filter.limit as i64));
        let mut statement = reader.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM annotation WHERE {} ORDER BY annotation.no LIMIT ?",
            terms.join(" AND ")
        ))?;
        Ok(statement.query_map(params_from_iter(values), annotation_from_row)?.collect::<Result<_, _>>()?)
    }
}

/// Reads a row of [`COLUMNS`].
pub(crate) fn annotation_from_row(row: &SqlRow<'_>) -> Result<AnnotationRecord, SqlError> {
    Ok(AnnotationRecord {
        no: row.get(0)?,
        target: row.get(1)?,
        name: row.get(2)?,
        identifier: row.get(3)?,
        annotator: row.get(4)?,
        label: row.get(5)?,
        score: row.get(6)?,
        explanation: row.get(7)?,
        metadata: row.get(8)?,
        author: row.get(9)?,
        created_ns: row.get(10)?,
        updated_ns: row.get(11)?,
    })
}
