//! Servers on one database publish their settings to each other, so that people notice when they differ.

use crate::Store;
use crate::error::StoreError;
use crate::ready_queue::LEASE_INTERVAL;
use crate::sql::{SqlRow, params};

/// A server that uses the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Unique among all servers that ever used the database.
    pub name: String,
    /// Where it runs, as the database sees it.
    pub address: String,
    /// The version of the program.
    pub version: String,
    /// The published settings of the server; empty if it published none.
    pub settings: String,
}

impl Store {
    /// The name of this server among those on the database.
    pub fn node_name(&self) -> &str {
        self.node.name()
    }

    /// Publishes the settings of this server, as text that servers compare, and returns the other live servers. Of two
    /// that start at once, at least one sees the other. Blocks the thread.
    pub fn announce_settings(&self, settings: &str) -> Result<Vec<NodeRow>, StoreError> {
        self.node.set_settings(settings);
        if !self.is_shared() {
            return Ok(Vec::new());
        }
        let (name, settings) = (self.node.name().to_owned(), settings.to_owned());
        self.run_short_transaction(move |sql| {
            sql.execute("UPDATE node SET settings = ? WHERE name = ?", params![settings, name])?;
            Ok(())
        })?;
        let mut nodes = self.live_nodes()?;
        nodes.retain(|node| node.name != self.node.name());
        Ok(nodes)
    }

    /// The servers that use the database at present, oldest first; none for an embedded store.
    pub fn live_nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        if !self.is_shared() {
            return Ok(Vec::new());
        }
        let reader = self.readers.take_reader()?;
        let mut statement = reader.prepare(&format!(
            "SELECT name, address, program, settings FROM node WHERE seen_at > now() - {LEASE_INTERVAL} \
             ORDER BY started_at, name"
        ))?;
        let read = |row: &SqlRow<'_>| {
            Ok(NodeRow { name: row.get(0)?, address: row.get(1)?, version: row.get(2)?, settings: row.get(3)? })
        };
        Ok(statement.query_map((), read)?.collect::<Result<_, _>>()?)
    }
}
