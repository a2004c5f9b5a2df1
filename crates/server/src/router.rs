//! The router of the server: API, OTLP, Phoenix's routes and pages, and the responses for unknown paths and wrong
//! methods.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use crate::auth::is_grpc;
use crate::http_error::ApiError;
use crate::receive::grpc_error;
use crate::state::ServerState;
use crate::{api, mcp, page, phoenix, receive};

/// Builds the router without access control, which the caller adds as a layer around all routes, the fallbacks
/// included.
pub(super) fn build_router(server: Arc<ServerState>) -> Router {
    api::build_api_routes()
        .merge(receive::build_otlp_routes())
        .merge(phoenix::build_phoenix_routes())
        .merge(mcp::build_mcp_routes())
        .merge(page::build_page_routes(&server))
        .fallback(respond_not_found)
        .method_not_allowed_fallback(respond_wrong_method)
        .with_state(server)
}

/// Responds with 404 in the protocol of the request: gRPC status 12 (unimplemented), Phoenix's 501, a page, or JSON.
async fn respond_not_found(uri: Uri, headers: HeaderMap) -> Response {
    if is_grpc(&headers) {
        return grpc_error(12, "there is no such service here; traces and logs can be exported", None);
    }
    if let Some(answer) = phoenix::respond_unimplemented(uri.path()) {
        return answer;
    }
    if page::wants_error_page(&uri, &headers) {
        return page::render_not_found(&headers);
    }
    let advice = match uri.path() {
        "/v1/metrics" => "metrics are not kept here; /v1/traces and /v1/logs are",
        _ => "see /openapi.json for what there is",
    };
    ApiError::not_found(format!("there is nothing at this address; {advice}")).into_response()
}

/// Responds with 405 for paths that exist with another method.
async fn respond_wrong_method(method: Method) -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not for this address; see /openapi.json"))
}
