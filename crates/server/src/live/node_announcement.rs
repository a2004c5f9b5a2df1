//! Announces this server to the others on one database when it starts or reloads its settings.

use std::sync::Arc;

use crate::node_settings::{describe_differing_nodes, describe_settings};
use crate::state::ServerState;

/// Stores the settings of this server for the others, and logs servers with different settings.
pub(super) async fn announce_settings(server: &Arc<ServerState>) {
    if !server.store.is_shared() {
        return;
    }
    let own = describe_settings(&server.reloadable().rules);
    let (store, announced) = (Arc::clone(&server.store), own.clone());
    match tokio::task::spawn_blocking(move || store.announce_settings(&announced)).await {
        Ok(Ok(others)) => {
            tracing::info!(
                node = server.store.node_name(),
                others = others.len(),
                "joined the servers of the database"
            );
            if let Some(different) = describe_differing_nodes(&own, &others) {
                tracing::warn!("settings differ: {different}");
            }
        }
        Ok(Err(error)) => tracing::warn!(%error, "failed to compare settings with the other servers"),
        Err(error) => tracing::warn!(%error, "failed to compare settings with the other servers"),
    }
}
