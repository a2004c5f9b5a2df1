//! Anchor sets: questions that the server asks a judge repeatedly, to notice when its answers change.

use crate::sql::params;

use crate::Store;
use crate::error::StoreError;
use crate::writer::WriteHandle;

/// The anchors of one evaluator of a rule. A changed judge or rubric has a set of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnchorSetRow {
    pub rule: String,
    pub evaluator: String,
    pub judge: String,
    pub rubric_hash: String,
    /// As the server serialised it; the store does not interpret it.
    pub state: String,
}

impl Store {
    /// All anchor sets, in the order of their keys. There are as many as judges and rubrics that were ever configured.
    pub fn anchor_sets(&self) -> Result<Vec<AnchorSetRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement = reader.prepare_cached(
            "SELECT rule, evaluator, judge, rubric_hash, state FROM anchor_set \
             ORDER BY rule, evaluator, judge, rubric_hash LIMIT 1000",
        )?;
        let rows = statement.query_map((), |row| {
            Ok(AnchorSetRow {
                rule: row.get(0)?,
                evaluator: row.get(1)?,
                judge: row.get(2)?,
                rubric_hash: row.get(3)?,
                state: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Stores an anchor set in place of the one with the same key.
    pub fn put_anchor_set(&self, row: AnchorSetRow) -> Result<WriteHandle<()>, StoreError> {
        self.writer()?.submit(row.state.len(), move |writing| {
            writing
                .sql
                .prepare_cached(
                    "INSERT INTO anchor_set (rule, evaluator, judge, rubric_hash, state) VALUES (?, ?, ?, ?, ?) \
                     ON CONFLICT (rule, evaluator, judge, rubric_hash) DO UPDATE SET state = excluded.state",
                )?
                .execute(params![row.rule, row.evaluator, row.judge, row.rubric_hash, row.state])?;
            Ok(())
        })
    }
}
