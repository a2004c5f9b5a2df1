//! Loads the traces of `gradus demo` into a running server, so that people without an agent can explore the pages.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::runtime::Handle;

use crate::client_address::ClientAddress;
use crate::http_error::ApiError;
use crate::memory::MemoryUse;
use crate::receive::{ReceiveRefusal, prepare_spans, store_spans};
use crate::server_config::{DemoLoadError, DemoPlayer};
use crate::state::ServerState;

/// The project of the demo's traces.
pub(crate) const DEMO_PROJECT: &str = "gradus-demo";

/// Starts to load the demo and returns at once. A second request while it is being loaded changes nothing.
pub(crate) fn start_demo(server: &Arc<ServerState>) -> Result<(), ApiError> {
    let Some(player) = server.settings.demo else {
        return Err(ApiError::new(StatusCode::NOT_FOUND, "this server has no demo; run `gradus demo`"));
    };
    if !server.demo.begin() {
        return Ok(());
    }
    // Charged to the client that asked for it, as if it had sent the spans.
    let (server, client, runtime) = (Arc::clone(server), ClientAddress::current(), Handle::current());
    tokio::task::spawn_blocking(move || {
        let played = play_demo(&server, player, client, &runtime);
        match &played {
            Ok(()) => tracing::info!(project = DEMO_PROJECT, "loaded the demo"),
            Err(error) => tracing::warn!(%error, "failed to load the demo"),
        }
        server.demo.end(played);
    });
    Ok(())
}

fn play_demo(
    server: &Arc<ServerState>,
    player: DemoPlayer,
    client: ClientAddress,
    runtime: &Handle,
) -> Result<(), DemoLoadError> {
    player(&mut |export| {
        if server.is_stopping.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(DemoLoadError("the server is stopping".to_owned()));
        }
        let refused = |refusal: ReceiveRefusal| DemoLoadError(refusal.to_string());
        let mut lease = server.memory.open_lease(client, MemoryUse::Request);
        lease.grow(export.len()).map_err(|refusal| refused(refusal.into()))?;
        let prepared = prepare_spans(server, export, DEMO_PROJECT.into(), &mut lease).map_err(refused)?;
        runtime.block_on(client.scope(store_spans(server, prepared, lease))).map(drop).map_err(refused)
    })
}
