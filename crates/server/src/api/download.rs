//! Streams all records of a project, one page of the store after another.

use std::sync::Arc;

use axum::body::Body;
use gradus_store::StoredTraceGroup;

use crate::http_error::ApiError;
use crate::queries::QueryKind;
use crate::state::ServerState;
use crate::stream;

/// Streams `head`, then the output of `write` for each page. At most one page is in memory, however large the project
/// is. A client that stops reading is cut off after the stall timeout, since it occupies a download permit.
pub(super) async fn stream_project_records(
    server: Arc<ServerState>,
    project: String,
    head: Vec<u8>,
    write: impl Fn(&StoredTraceGroup, &mut dyn FnMut(&[u8])) + Send + 'static,
) -> Result<Body, ApiError> {
    let permit = server.queries.admit(QueryKind::Download).await?;
    let (queries, stall_timeout) = (Arc::clone(&server.queries), server.settings.timeouts.stall);
    Ok(stream::stream_query_body(&queries, permit, stall_timeout, move |sink| {
        sink.write(&head);
        // Keyset pagination: the stream stays correct while traces arrive or are deleted.
        let mut after = None;
        while !sink.is_gone()
            && let Some((page, last)) = server.store.read_project_page(&project, after)?
        {
            write(&page, &mut |bytes| sink.write(bytes));
            sink.flush();
            after = Some(last);
        }
        Ok(())
    }))
}
