//! Numbers of projects.

use crate::error::StoreError;
use crate::sql::{OptionalRow, SqlConnection, params};
use std::collections::HashMap;
use std::sync::Arc;

/// A cache of the table of projects, which belongs to the writer. Read anew after a rollback, which may have undone a new
/// project.
#[derive(Debug, Default)]
pub(crate) struct ProjectNumberCache(HashMap<Arc<str>, i64>);

impl ProjectNumberCache {
    /// Removes a project that was deleted.
    pub(crate) fn forget(&mut self, number: i64) {
        self.0.retain(|_, known| *known != number);
    }

    pub(crate) fn read(connection: &SqlConnection) -> Result<ProjectNumberCache, StoreError> {
        let mut statement = connection.prepare("SELECT name, no FROM project")?;
        let rows = statement.query_map((), |row| Ok((row.get::<String>(0)?.into(), row.get(1)?)))?;
        Ok(ProjectNumberCache(rows.collect::<Result<_, _>>()?))
    }

    /// The number of a project, which is created if necessary and if there are not too many. `now_ns` is its time of
    /// creation.
    pub(crate) fn get_or_create(
        &mut self,
        name: &Arc<str>,
        sql: &SqlConnection,
        now_ns: i64,
    ) -> Result<i64, StoreError> {
        if let Some(number) = self.0.get(name) {
            return Ok(*number);
        }
        let known: Option<i64> = sql
            .prepare_cached("SELECT no FROM project WHERE name = ?")?
            .query_row([&**name], |row| row.get(0))
            .optional()?;
        let number = match known {
            Some(number) => number,
            // A sender that names a project for each of its processes would otherwise create projects without end.
            None if self.0.len() >= MAX_PROJECTS && &**name != OTHER_PROJECTS => {
                return self.get_or_create(&OTHER_PROJECTS.into(), sql, now_ns);
            }
            None => {
                // Another server may create it at the same time.
                sql.prepare_cached(
                    "INSERT INTO project (name, created_ns) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
                )?
                .execute(params![&**name, now_ns])?;
                sql.prepare_cached("SELECT no FROM project WHERE name = ?")?.query_row([&**name], |row| row.get(0))?
            }
        };
        self.0.insert(Arc::clone(name), number);
        Ok(number)
    }
}

/// Maximum number of projects. Spans of further projects go into one common project.
pub(super) const MAX_PROJECTS: usize = 10_000;

/// Unlikely to be the name of a service.
pub(super) const OTHER_PROJECTS: &str = "(other projects)";
