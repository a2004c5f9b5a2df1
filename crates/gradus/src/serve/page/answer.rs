//! Pages as answers: their headers, and what is shown when something is not there or not allowed.

use std::sync::Arc;

use askama::Template;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::Frame;
use super::sign_in::SignIn;
use crate::serve::api::{ApiError, blocking};
use crate::serve::state::Server;

/// Scripts, styles and pictures are files of this server; nothing stands in the page itself, and forms go nowhere else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(super) fn page(page: &impl Template) -> Response {
    with_status(StatusCode::OK, page)
}

/// A page that is made where it may take its time: what it shows is looked up, summed and written out there.
pub(super) async fn of<P: Template>(
    server: &Arc<Server>,
    make: impl FnOnce(&Server) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(blocking(server, move |server| Ok(page(&make(server)?))).await?)
}

/// A page that is there already.
pub(super) fn made(text: String) -> Response {
    (headers(), text).into_response()
}

pub(super) fn with_status(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, headers(), text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A part of a page that is asked for again and again: nothing is sent while it stays the same.
pub(super) fn part(part: &impl Template, asked: &HeaderMap) -> Response {
    let Ok(text) = part.render() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let tag = format!("\"{:032x}\"", gradus_core::digest(text.as_bytes()));
    let mut response = if asked.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        (headers(), text).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn headers() -> [(axum::http::HeaderName, HeaderValue); 4] {
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
    frame: Frame,
    title: &'static str,
    message: String,
}

/// What went wrong, for people.
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

    pub(super) fn missing(message: impl Into<String>) -> PageError {
        PageError(StatusCode::NOT_FOUND, message.into())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let PageError(status, message) = self;
        let title = match status {
            StatusCode::NOT_FOUND => "Not here",
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => "Not allowed",
            StatusCode::BAD_REQUEST => "Not understood",
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "Not now",
            _ => "Something went wrong",
        };
        let page = ErrorPage { frame: Frame::of("", None, &HeaderMap::new()), title, message };
        with_status(status, &page)
    }
}

/// The answer to a person whom the guard does not let in.
pub(in crate::serve) fn refused(
    status: StatusCode,
    message: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Response {
    if status == StatusCode::UNAUTHORIZED {
        let here = uri.path_and_query().map_or("/", |path| path.as_str());
        // A key that is not known any more is told apart from none.
        let has_key = super::cookie_key(headers).is_some();
        return with_status(status, &SignIn::new(here, has_key.then(|| message.to_owned())));
    }
    PageError::new(status, message).into_response()
}

/// The answer to a person who asks for what is not there.
pub(in crate::serve) fn missing() -> Response {
    PageError::missing("There is no page at this address.").into_response()
}
