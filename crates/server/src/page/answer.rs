//! Pages as answers: their headers, and what is shown when something is not there or not allowed.

use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::PageLayout;
use crate::http_error::{ApiError, ApiQuery, blocking_large, run_store_query};
use crate::state::ServerState;

/// Scripts, styles and pictures are files of this server; nothing stands in the page itself, and forms go nowhere else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(super) fn respond_with_page(page: &impl Template) -> Response {
    with_status(StatusCode::OK, page)
}

/// A page that is made where it may take its time: what it shows is looked up, summed and written out there.
pub(super) async fn render_page<P: Template>(
    server: &Arc<ServerState>,
    make: impl FnOnce(&ServerState) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(run_store_query(server, move |server| Ok(respond_with_page(&make(server)?))).await?)
}

/// The same for what takes much, a few at once.
pub(super) async fn of_large<P: Template>(
    server: &Arc<ServerState>,
    make: impl FnOnce(&ServerState) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(blocking_large(server, move |server| Ok(respond_with_page(&make(server)?))).await?)
}

/// The same for a part of a page.
pub(super) async fn part_of_large<P: Template>(
    server: &Arc<ServerState>,
    headers: HeaderMap,
    make: impl FnOnce(&ServerState) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(blocking_large(server, move |server| Ok(respond_with_fragment(&make(server)?, &headers))).await?)
}

/// A page that is there already.
pub(super) fn respond_with_html(text: String) -> Response {
    (build_html_headers(), text).into_response()
}

pub(super) fn with_status(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, build_html_headers(), text).into_response(),
        Err(error) => {
            tracing::error!(%error, "failed to render a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A part of a page that is asked for again and again: nothing is sent while it stays the same.
pub(super) fn respond_with_fragment(part: &impl Template, asked: &HeaderMap) -> Response {
    let Ok(text) = part.render() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let tag = format!("\"{:032x}\"", gradus_core::stable_digest(text.as_bytes()));
    let mut response = if asked.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        (build_html_headers(), text).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn build_html_headers() -> [(axum::http::HeaderName, HeaderValue); 4] {
    [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        // Without it a browser does not say where a form comes from, not even to ourselves.
        (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        // What was recorded is not to lie around in shared caches, and a page is to be true when it is seen again.
        (CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ]
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: PageLayout,
    title: &'static str,
    message: String,
}

/// The parameters of a page. Those that it does not know, as others put into links, are passed over; what it cannot read
/// is told to people.
pub(super) struct PageQuery<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for PageQuery<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PageQuery<T>, PageError> {
        let ApiQuery(value) = ApiQuery::from_request_parts(parts, state).await?;
        Ok(PageQuery(value))
    }
}

/// What went wrong, for people.
#[derive(Clone)]
pub(super) struct PageError(StatusCode, String);

impl From<ApiError> for PageError {
    fn from(error: ApiError) -> PageError {
        PageError(error.status(), error.message().to_owned())
    }
}

impl PageError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> PageError {
        PageError(status, message.into())
    }

    pub(super) fn not_found(message: impl Into<String>) -> PageError {
        PageError(StatusCode::NOT_FOUND, message.into())
    }

    pub(super) fn render_response(&self, is_signed_in: bool) -> Response {
        let PageError(status, message) = self;
        let title = match *status {
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => "Not allowed",
            StatusCode::BAD_REQUEST => "Bad request",
            StatusCode::UNPROCESSABLE_ENTITY => "Query timed out",
            StatusCode::CONFLICT => "Conflict",
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "Try again later",
            _ => "Something went wrong",
        };
        let frame = PageLayout { is_signed_in, ..PageLayout::new("", None, &HeaderMap::new()) };
        with_status(*status, &ErrorPage { frame, title, message: message.clone() })
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let mut response = self.render_response(false);
        response.extensions_mut().insert(self);
        response
    }
}
