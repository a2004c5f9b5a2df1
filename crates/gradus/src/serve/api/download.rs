//! Sends all that a project holds, page by page.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use gradus_store::Story;

use super::error::ApiError;
use crate::serve::state::Server;
use crate::serve::stream;

/// Sends `head`, and then what `write` makes of each page.
pub(super) fn of_project(
    server: Arc<Server>,
    project: String,
    head: Vec<u8>,
    write: impl Fn(&Story, &mut dyn FnMut(&[u8])) + Send + 'static,
) -> Result<Body, ApiError> {
    // A download keeps one of the threads that all readers share.
    let turn = Arc::clone(&server.downloads).try_acquire_owned().map_err(|_| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many downloads are under way; try again later")
    })?;
    Ok(stream::body(server.settings.timeouts.stall, move |sink| {
        let _turn = turn;
        sink.write(&head);
        let mut after = None;
        while !sink.is_gone()
            && let Some((page, last)) = server.store.project_page(&project, after)?
        {
            write(&page, &mut |bytes| sink.write(bytes));
            sink.flush();
            after = Some(last);
        }
        Ok(())
    }))
}
