//! Pages as answers: their headers, and what is shown when something is not there or not allowed.

use std::sync::Arc;

use askama::Template;
use axum::extract::{FromRequestParts, Request};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERER, REFERRER_POLICY,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::Frame;
use super::address::own_path;
use super::sign_in::{MAY_NOT_LOOK, SignIn};
use crate::serve::api::{ApiError, Params, blocking, blocking_large};
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

/// The same for what takes much, a few at once.
pub(super) async fn of_large<P: Template>(
    server: &Arc<Server>,
    make: impl FnOnce(&Server) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(blocking_large(server, move |server| Ok(page(&make(server)?))).await?)
}

/// The same for a part of a page.
pub(super) async fn part_of_large<P: Template>(
    server: &Arc<Server>,
    headers: HeaderMap,
    make: impl FnOnce(&Server) -> Result<P, ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    Ok(blocking_large(server, move |server| Ok(part(&make(server)?, &headers))).await?)
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

/// The parameters of a page. Those that it does not know, as others put into links, are passed over; what it cannot read
/// is told to people.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Asked<T>, PageError> {
        let Params(value) = Params::from_request_parts(parts, state).await?;
        Ok(Asked(value))
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

    pub(super) fn missing(message: impl Into<String>) -> PageError {
        PageError(StatusCode::NOT_FOUND, message.into())
    }

    fn shown(&self, is_signed_in: bool) -> Response {
        let PageError(status, message) = self;
        let title = match *status {
            StatusCode::NOT_FOUND => "Not here",
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => "Not allowed",
            StatusCode::BAD_REQUEST => "Not understood",
            StatusCode::UNPROCESSABLE_ENTITY => "Too much work",
            StatusCode::CONFLICT => "Changed meanwhile",
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "Not now",
            _ => "Something went wrong",
        };
        let frame = Frame { is_signed_in, ..Frame::of("", None, &HeaderMap::new()) };
        with_status(*status, &ErrorPage { frame, title, message: message.clone() })
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let mut response = self.shown(false);
        response.extensions_mut().insert(self);
        response
    }
}

/// Where something goes wrong, nobody knows who asks: whoever is signed in finds the way out on that page, too.
pub(super) async fn with_way_out(request: Request, next: Next) -> Response {
    let is_signed_in = super::session(request.headers()).is_some();
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<PageError>() {
        Some(error) if is_signed_in => error.shown(true),
        _ => response,
    }
}

/// The answer to a person whom the guard does not let in; `lacks_scope` where that is for what the key may do.
pub(in crate::serve) fn refused(
    status: StatusCode,
    message: &str,
    lacks_scope: bool,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Response {
    if status == StatusCode::UNAUTHORIZED {
        // A session that is not known any more is told apart from none.
        let was_in = super::session(headers).is_some();
        let next = next(method, uri, headers);
        return with_status(status, &SignIn::new(&next, was_in.then(|| message.to_owned())));
    }
    // Whoever is signed in with a key that may not look finds no page at all: here is the way to another key, and out.
    let is_look = matches!(*method, Method::GET | Method::HEAD);
    if status == StatusCode::FORBIDDEN && lacks_scope && is_look && super::session(headers).is_some() {
        return with_status(status, &SignIn::again(&next(method, uri, headers), MAY_NOT_LOOK));
    }
    PageError::new(status, message).shown(super::session(headers).is_some())
}

/// Where somebody wants to go who has to sign in first. What was sent is not sent again, so whoever sent something goes back
/// to where it was written.
fn next(method: &Method, uri: &Uri, headers: &HeaderMap) -> String {
    let path = |uri: &Uri| uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    if matches!(*method, Method::GET | Method::HEAD) {
        return path(uri);
    }
    let from = headers.get(REFERER).and_then(|from| from.to_str().ok()?.parse::<Uri>().ok());
    let from = from.map(|from| path(&from)).unwrap_or_default();
    own_path(Some(&from)).unwrap_or("/").to_owned()
}

/// The answer to a person who asks for what is not there.
pub(in crate::serve) fn missing(headers: &HeaderMap) -> Response {
    PageError::missing("There is no page at this address.").shown(super::session(headers).is_some())
}

#[cfg(test)]
mod tests {
    use axum::http::header::COOKIE;

    use super::*;

    /// Those who signed in before such keys were refused.
    #[tokio::test]
    async fn whoever_is_in_with_a_key_that_may_not_look_finds_the_way_out() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_static("gradus_session=x"));
        let shown = async |method: Method, lacks_scope: bool, headers: &HeaderMap| {
            let uri = Uri::from_static("/traces?q=x");
            let response = refused(StatusCode::FORBIDDEN, "no", lacks_scope, &method, &uri, headers);
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
            let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
            String::from_utf8(body.to_vec()).unwrap()
        };
        let page = shown(Method::GET, true, &headers).await;
        assert!(page.contains("name=\"key\"") && page.contains(MAY_NOT_LOOK), "{page}");
        assert!(page.contains("action=\"/sign-out\"") && page.contains("value=\"/traces?q=x\""), "{page}");
        for (method, lacks_scope) in [(Method::POST, true), (Method::GET, false)] {
            assert!(shown(method, lacks_scope, &headers).await.contains("<h1>Not allowed</h1>"));
        }
        assert!(shown(Method::GET, true, &HeaderMap::new()).await.contains("<h1>Not allowed</h1>"));
    }

    #[test]
    fn whoever_sent_something_goes_back_to_where_it_was_written() {
        let next = |method: Method, path: &'static str, from: &'static str| {
            let mut headers = HeaderMap::new();
            if !from.is_empty() {
                headers.insert(REFERER, HeaderValue::from_static(from));
            }
            super::next(&method, &Uri::from_static(path), &headers)
        };
        assert_eq!(next(Method::GET, "/traces?q=x", "http://localhost/review"), "/traces?q=x");
        let review = "http://localhost:4318/review?project=shop";
        assert_eq!(next(Method::POST, "/labels", review), "/review?project=shop");
        for from in ["", "nonsense", "http://localhost:4318//evil.example"] {
            assert_eq!(next(Method::POST, "/labels", from), "/", "{from}");
        }
    }
}
