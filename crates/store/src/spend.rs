//! Spending: what judging cost, by time, rule and project.

use crate::sql::{SqlConnection, params};

use crate::Store;
use crate::buckets::bucket_index;
use crate::error::StoreError;
use crate::query::project_number;
use crate::writer::WriteHandle;

/// What one or several questions to a judge cost.
#[derive(Clone, Debug, Default)]
pub struct JudgeSpend {
    pub rule: String,
    pub calls: u64,
    /// Calls without a known price. They are not in `cost_usd`.
    pub unpriced: u64,
    pub cost_usd: f64,
}

/// What was spent in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpendTotal {
    pub cost_usd: f64,
    /// Calls without a known price, which may have cost something in addition.
    pub unpriced: u64,
}

// Rows are keyed by the bucket in which the server recorded the spend.
impl Store {
    /// Spending since a time: of one rule or of all, in one project or in all. The bucket of `since_ns` counts
    /// completely ([`BUCKET_NS`](crate::BUCKET_NS)).
    pub fn load_spend_since(
        &self,
        since_ns: i64,
        rule: Option<&str>,
        project: Option<&str>,
    ) -> Result<SpendTotal, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader
            .prepare_cached(
                "SELECT coalesce(sum(cost_usd), 0.0), coalesce(sum(unpriced), 0) FROM spend LEFT JOIN project ON project.no = spend.project \
                 WHERE bucket >= ?1 AND (?2 IS NULL OR rule = ?2) AND (?3 IS NULL OR project.name = ?3)",
            )?
            .query_row(params![bucket_index(since_ns), rule, project], |row| {
                Ok(SpendTotal { cost_usd: row.get(0)?, unpriced: row.get(1)? })
            })?)
    }

    /// Adds judge spend to the current bucket of the project.
    pub fn record_spend(&self, spend: JudgeSpend, project: String, now_ns: i64) -> Result<WriteHandle<()>, StoreError> {
        self.writer()?.submit(100, move |writing| {
            let project = project_number(writing.sql, &project)?;
            add_spend(writing.sql, &spend, project, now_ns)
        })
    }
}

/// Upsert clause: adds to an existing row.
const ADD_TO_ROW: &str = "ON CONFLICT (bucket, rule, project) DO UPDATE SET calls = spend.calls + excluded.calls, \
                          unpriced = spend.unpriced + excluded.unpriced, cost_usd = spend.cost_usd + excluded.cost_usd";

/// Adds spend to the current bucket. Calls without a known price are counted without a cost.
pub(crate) fn add_spend(
    sql: &SqlConnection,
    spend: &JudgeSpend,
    project: Option<i64>,
    now_ns: i64,
) -> Result<(), StoreError> {
    if spend.calls == 0 && spend.cost_usd == 0.0 {
        return Ok(());
    }
    sql.prepare_cached(&format!(
        "INSERT INTO spend (bucket, rule, project, calls, unpriced, cost_usd) VALUES (?, ?, ?, ?, ?, ?) {ADD_TO_ROW}"
    ))?
    .execute(params![
        bucket_index(now_ns),
        spend.rule,
        project.unwrap_or(0),
        spend.calls,
        spend.unpriced,
        spend.cost_usd
    ])?;
    Ok(())
}

/// Moves the spending of a project that is being removed to no project. The money is spent, so the daily budget of a rule
/// must go on counting it.
pub(crate) fn keep_spend_of_removed_project(sql: &SqlConnection, project: i64) -> Result<(), StoreError> {
    // A few rows per hour, so a scan without an index is cheap enough.
    sql.prepare(&format!(
        "INSERT INTO spend (bucket, rule, project, calls, unpriced, cost_usd) \
         SELECT bucket, rule, 0, calls, unpriced, cost_usd FROM spend WHERE project = ? {ADD_TO_ROW}"
    ))?
    .execute([project])?;
    sql.prepare("DELETE FROM spend WHERE project = ?")?.execute([project])?;
    Ok(())
}
