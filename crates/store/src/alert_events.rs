//! State of alerts: the state of each rule, and the notices that were sent.

use crate::sql::{OptionalRow, params};

use crate::Store;
use crate::error::StoreError;
use crate::writer::WriteHandle;

/// A notice in the history of alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertEvent {
    /// The cursor of the list.
    pub no: i64,
    pub at_ns: i64,
    pub rule: String,
    /// Whether the alert fired or was resolved: the server's name for it.
    pub kind: String,
    /// The notice as JSON.
    pub body: String,
}

impl Store {
    /// Returns the state of a rule as the server serialised it; the store does not interpret it.
    pub fn alert_state(&self, rule: &str) -> Result<Option<String>, StoreError> {
        let reader = self.readers.take_reader()?;
        Ok(reader
            .prepare_cached("SELECT state FROM alert_state WHERE rule = ?")?
            .query_row([rule], |row| row.get(0))
            .optional()?)
    }

    /// Stores the state of a rule together with its notice, if there is one, so that no notice is sent twice or lost.
    pub fn put_alert_state(
        &self,
        rule: String,
        state: String,
        event: Option<(String, String)>,
        now_ns: i64,
    ) -> Result<WriteHandle<()>, StoreError> {
        self.writer()?.submit(state.len(), move |writing| {
            writing
                .sql
                .prepare_cached(
                    "INSERT INTO alert_state (rule, state) VALUES (?, ?) ON CONFLICT (rule) DO UPDATE SET state = excluded.state",
                )?
                .execute(params![rule, state])?;
            // In the transaction of the state: both are stored or neither.
            if let Some((kind, body)) = &event {
                writing
                    .sql
                    .prepare_cached("INSERT INTO alert_event (at_ns, rule, kind, body) VALUES (?, ?, ?, ?)")?
                    .execute(params![now_ns, rule, kind, body])?;
            }
            Ok(())
        })
    }

    /// Returns the events with smaller numbers than `before`, the latest first.
    pub fn alert_events(&self, before: i64, limit: usize) -> Result<Vec<AlertEvent>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement = reader.prepare_cached(
            "SELECT no, at_ns, rule, kind, body FROM alert_event WHERE no < ? ORDER BY no DESC LIMIT ?",
        )?;
        let rows = statement.query_map(params![before, limit as i64], |row| {
            Ok(AlertEvent {
                no: row.get(0)?,
                at_ns: row.get(1)?,
                rule: row.get(2)?,
                kind: row.get(3)?,
                body: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
