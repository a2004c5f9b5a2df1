//! `/mcp`: the tools of `gradus-mcp` over streamable HTTP, for assistants. Access control, limits and the query pool
//! are those of every other route; nothing is held between requests.

mod live_archive;
mod live_groups;
mod live_labels;
mod live_runs;
mod store_failure;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use axum::routing::post;
use gradus_mcp::{McpToolCall, ToolError, ToolRunner, answer_http_request};
use gradus_store::WriteLane;
use http_body_util::Full;

use self::live_archive::ServerArchive;
use crate::caller::{RequestCaller, RequiredScope};
use crate::client_address::ClientAddress;
use crate::http_error::ApiError;
use crate::json_size::estimate_parsed_size;
use crate::queries::{self, QueryKind};
use crate::receive;
use crate::state::{ServerState, client_write_lane};

/// The path of the endpoint. Its route is written out, where a test finds all routes.
pub(super) const MCP_PATH: &str = "/mcp";
/// Maximum size of a request. Calls are small. A body of this size is parsed in well under a millisecond, so that,
/// unlike larger ones, it may be parsed on an async thread.
const MAX_REQUEST_BYTES: usize = 64 << 10;

pub(super) fn build_mcp_routes() -> Router<Arc<ServerState>> {
    Router::new().route("/mcp", post(answer_mcp))
}

/// `POST /mcp`. Labels need `?labels=true` in the address in addition to the scope, so that an assistant with a
/// powerful key writes only if it was set up to.
async fn answer_mcp(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let (bytes, mut lease) = receive::read_small_body(&server, &parts.headers, body, MAX_REQUEST_BYTES).await?;
    let parsed_size = lease.grow(estimate_parsed_size(&bytes));
    parsed_size.map_err(|refusal| {
        let refusal = receive::ReceiveRefusal::from(refusal);
        ApiError::new(refusal.status(), refusal.to_string())
    })?;
    let asks_for_labels = parts.uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "labels=true"));
    let runner = StoreToolRunner {
        allows_labels: asks_for_labels && caller.has_scope(RequiredScope::Ingest),
        caller,
        caller_name: queries::current_caller(),
        client: ClientAddress::current(),
        lane: client_write_lane(),
        server,
    };
    let request = Request::from_parts(parts, Full::new(Bytes::from(bytes)));
    let response = answer_http_request(runner, request).await;
    drop(lease);
    Ok(response.map(Body::new))
}

/// Runs calls in the query pool, in the turn of the caller. The protocol runs handlers in tasks of its own, so values
/// that are task-local elsewhere are fields here.
struct StoreToolRunner {
    server: Arc<ServerState>,
    caller: RequestCaller,
    caller_name: Arc<str>,
    client: ClientAddress,
    lane: WriteLane,
    allows_labels: bool,
}

impl ToolRunner for StoreToolRunner {
    fn allows_labels(&self) -> bool {
        self.allows_labels
    }

    async fn run_call(&self, call: McpToolCall) -> Result<String, ToolError> {
        let archive = ServerArchive::new(Arc::clone(&self.server), self.caller.clone(), self.lane);
        let server = Arc::clone(&self.server);
        let working = async move {
            if call.is_write() {
                // Like other annotations, labels do not wait for queries.
                let done = tokio::task::spawn_blocking(move || call.perform(&archive)).await;
                return done.unwrap_or_else(|_| Err(not_performed("the label could not be stored".to_owned())));
            }
            let answered = server.queries.run(QueryKind::Large, move || call.perform(&archive)).await;
            answered.unwrap_or_else(|refusal| Err(not_performed(refusal.to_string())))
        };
        self.client.scope(queries::with_caller(Arc::clone(&self.caller_name), working)).await
    }
}

fn not_performed(reason: String) -> ToolError {
    ToolError::NotPerformed { reason }
}
