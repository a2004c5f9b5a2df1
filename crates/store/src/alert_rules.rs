//! Alert rules that people made, and muted alerts.

use crate::sql::{SqlConnection, params};

use crate::Store;
use crate::error::StoreError;
use crate::writer::WriteHandle;

/// A rule as the server serialised it; the store does not interpret it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRuleRow {
    pub name: String,
    pub body: String,
    /// Name of the key that changed it last.
    pub author: String,
    pub changed_ns: i64,
}

/// A muted rule. `until_ns` is absent if somebody has to end it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMuteRow {
    pub rule: String,
    pub until_ns: Option<i64>,
    pub author: String,
}

impl Store {
    /// All rules by name. There are few: people create them by hand.
    pub fn alert_rules(&self) -> Result<Vec<AlertRuleRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement =
            reader.prepare_cached("SELECT name, body, author, changed_ns FROM alert_rule ORDER BY name LIMIT 1000")?;
        let rows = statement.query_map((), |row| {
            Ok(AlertRuleRow { name: row.get(0)?, body: row.get(1)?, author: row.get(2)?, changed_ns: row.get(3)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Stores a rule in place of the one with its name. `forgotten_states` are keys of `alert_state` that are deleted
    /// in the same transaction: those of a rule that now watches something else.
    pub fn put_alert_rule(
        &self,
        row: AlertRuleRow,
        forgotten_states: Vec<String>,
    ) -> Result<WriteHandle<()>, StoreError> {
        self.writer()?.submit(row.body.len(), move |writing| {
            writing
                .sql
                .prepare_cached(
                    "INSERT INTO alert_rule (name, body, author, changed_ns) VALUES (?, ?, ?, ?) \
                     ON CONFLICT (name) DO UPDATE SET body = excluded.body, author = excluded.author, \
                     changed_ns = excluded.changed_ns",
                )?
                .execute(params![row.name, row.body, row.author, row.changed_ns])?;
            delete_alert_states(writing.sql, &forgotten_states)
        })
    }

    /// Deletes a rule with its mute and its states. Returns whether it existed. Its notices stay in the history.
    pub fn delete_alert_rule(
        &self,
        name: String,
        forgotten_states: Vec<String>,
    ) -> Result<WriteHandle<bool>, StoreError> {
        self.writer()?.submit(name.len(), move |writing| {
            let deleted =
                writing.sql.prepare_cached("DELETE FROM alert_rule WHERE name = ?")?.execute(params![name])?;
            if deleted > 0 {
                writing.sql.prepare_cached("DELETE FROM alert_mute WHERE rule = ?")?.execute(params![name])?;
                delete_alert_states(writing.sql, &forgotten_states)?;
            }
            Ok(deleted > 0)
        })
    }

    /// All muted rules, including expired mutes.
    pub fn alert_mutes(&self) -> Result<Vec<AlertMuteRow>, StoreError> {
        let reader = self.readers.take_reader()?;
        let mut statement =
            reader.prepare_cached("SELECT rule, until_ns, author FROM alert_mute ORDER BY rule LIMIT 1000")?;
        let rows = statement
            .query_map((), |row| Ok(AlertMuteRow { rule: row.get(0)?, until_ns: row.get(1)?, author: row.get(2)? }))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Mutes a rule. Replaces an earlier mute.
    pub fn put_alert_mute(&self, row: AlertMuteRow) -> Result<WriteHandle<()>, StoreError> {
        self.writer()?.submit(row.rule.len(), move |writing| {
            writing
                .sql
                .prepare_cached(
                    "INSERT INTO alert_mute (rule, until_ns, author) VALUES (?, ?, ?) \
                     ON CONFLICT (rule) DO UPDATE SET until_ns = excluded.until_ns, author = excluded.author",
                )?
                .execute(params![row.rule, row.until_ns, row.author])?;
            Ok(())
        })
    }

    /// Unmutes a rule.
    pub fn delete_alert_mute(&self, rule: String) -> Result<WriteHandle<()>, StoreError> {
        self.writer()?.submit(rule.len(), move |writing| {
            writing.sql.prepare_cached("DELETE FROM alert_mute WHERE rule = ?")?.execute(params![rule])?;
            Ok(())
        })
    }
}

fn delete_alert_states(sql: &SqlConnection, states: &[String]) -> Result<(), StoreError> {
    let mut statement = sql.prepare_cached("DELETE FROM alert_state WHERE rule = ?")?;
    states.iter().try_for_each(|state| statement.execute(params![state]).map(drop))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreOptions;

    fn row(body: &str) -> AlertRuleRow {
        AlertRuleRow { name: "calls".to_owned(), body: body.to_owned(), author: "ann".to_owned(), changed_ns: 7 }
    }

    #[test]
    fn a_rule_is_replaced_and_deleted_with_its_state() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
        store.put_alert_rule(row("first"), Vec::new()).unwrap().wait().unwrap();
        store.put_alert_state("calls".to_owned(), "firing".to_owned(), None, 1).unwrap().wait().unwrap();
        store.put_alert_rule(row("second"), Vec::new()).unwrap().wait().unwrap();
        assert_eq!(store.alert_rules().unwrap(), [row("second")]);
        assert_eq!(store.alert_state("calls").unwrap().as_deref(), Some("firing"));
        // A rule that watches something else begins anew.
        store.put_alert_rule(row("third"), vec!["calls".to_owned()]).unwrap().wait().unwrap();
        assert_eq!(store.alert_state("calls").unwrap(), None);
        let mute = |until_ns| AlertMuteRow { rule: "calls".to_owned(), until_ns, author: "ann".to_owned() };
        store.put_alert_mute(mute(Some(9))).unwrap().wait().unwrap();
        store.put_alert_mute(mute(None)).unwrap().wait().unwrap();
        assert_eq!(store.alert_mutes().unwrap(), [mute(None)]);
        let delete = || store.delete_alert_rule("calls".to_owned(), Vec::new()).unwrap().wait().unwrap();
        assert!(delete() && !delete());
        assert!(store.alert_rules().unwrap().is_empty() && store.alert_mutes().unwrap().is_empty());
    }
}
