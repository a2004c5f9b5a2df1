//! Responses with pages: headers, conditional requests, and error pages.

use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::PageLayout;
use crate::http_error::{ApiError, ApiQuery, run_large_query, run_short_query};
use crate::queries;
use crate::state::ServerState;

/// Content Security Policy. Scripts, styles and images come only from this server, inline code is forbidden, and forms
/// can only be sent to this server. Recorded text that got past escaping could still not run.
const PAGE_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Renders a page on the calling thread. Pages that read the store use `render_page`.
pub(super) fn respond_with_page(page: &impl Template) -> Response {
    respond_with_status(StatusCode::OK, page)
}

/// Builds and renders a page on the query pool, within the time budget of a query: rendering a large page would hold up
/// the async threads.
pub(super) async fn render_page<P: Template>(
    server: &Arc<ServerState>,
    make: impl FnOnce(&ServerState) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(run_short_query(server, move |server| Ok(respond_with_page(&make(server)?))).await?)
}

/// As `render_page`, for pages that read whole traces or runs. Few of those run at once.
pub(super) async fn render_large_page<P: Template>(
    server: &Arc<ServerState>,
    make: impl FnOnce(&ServerState) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(run_large_query(server, move |server| Ok(respond_with_page(&make(server)?))).await?)
}

/// As `render_large_page`, for slow pages with many readers: cached for some seconds, and rendered once for concurrent
/// requests. `asked` is everything that the page depends on.
pub(super) async fn render_cached_page<P: Template>(
    server: &Arc<ServerState>,
    asked: String,
    make: impl FnOnce(&ServerState) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    let server = Arc::clone(server);
    // A task of its own, so that the page is finished even if the first client disconnects. The caller is passed on for
    // the accounting of queries.
    let rendered = tokio::spawn(queries::with_caller(queries::current_caller(), async move {
        let make = run_large_query(&server, move |server| make(server)?.render().map_err(|_| build_render_error()));
        server.cached_pages.get_or_render(asked, make).await
    }));
    Ok(respond_with_html(rendered.await.unwrap_or_else(|_| Err(build_render_error()))?))
}

/// Builds the error of a failed rendering. It has no details: rendering fails only on a defect in a template.
pub(super) fn build_render_error() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "The page could not be rendered.")
}

/// As `render_large_page`, for a fragment.
pub(super) async fn render_large_fragment<P: Template>(
    server: &Arc<ServerState>,
    headers: HeaderMap,
    make: impl FnOnce(&ServerState) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(run_large_query(server, move |server| Ok(respond_with_fragment(&make(server)?, &headers))).await?)
}

/// Responds with a page that was rendered before, as those of the page cache.
pub(super) fn respond_with_html(text: String) -> Response {
    (build_html_headers(), text).into_response()
}

/// Responds with a page and a status. Rendering fails only on a defect in a template; the details are logged.
pub(super) fn respond_with_status(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, build_html_headers(), text).into_response(),
        Err(error) => {
            tracing::error!(%error, "failed to render a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Responds with a part of a page that the script polls. The entity tag is a digest of the content, so an unchanged
/// fragment is answered with 304 and no body.
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

/// Builds the headers of every page and fragment.
fn build_html_headers() -> [(axum::http::HeaderName, HeaderValue); 4] {
    [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_SECURITY_POLICY)),
        // With `no-referrer` browsers would send `Origin: null` with forms, and `is_own_page_request` could not recognise them.
        (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        // Recorded data must not be stored in shared caches, and a page that is shown again has to be current.
        (CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ]
}

/// The page of an error: a title by status, and one sentence.
#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: PageLayout,
    title: &'static str,
    message: String,
}

/// Query parameters of a page. Unknown parameters, which other sites append to links, are ignored; values that cannot
/// be parsed give an error page instead of JSON.
pub(super) struct PageQuery<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for PageQuery<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PageQuery<T>, PageError> {
        let ApiQuery(value) = ApiQuery::from_request_parts(parts, state).await?;
        Ok(PageQuery(value))
    }
}

/// A status and a sentence for people. Converts into an error page.
#[derive(Clone)]
pub(super) struct PageError(StatusCode, String);

impl From<ApiError> for PageError {
    /// Messages of API errors are also fit for people.
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

    /// Renders the error page. `is_signed_in` shows the button to sign out.
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
        respond_with_status(*status, &ErrorPage { frame, title, message: message.clone() })
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let mut response = self.render_response(false);
        // The error does not know the request. The `add_sign_out_button` layer finds the error here and renders it again for
        // people who are signed in.
        response.extensions_mut().insert(self);
        response
    }
}
