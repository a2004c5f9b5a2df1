//! Sign-in for servers that require API keys. A form takes a key and sets a session cookie. The cookie holds a session
//! id and not the key, because browsers send cookies to every port of a host. Scripts cannot read it (`HttpOnly`), and
//! other sites cannot send it with forms (`SameSite=Lax`).

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::{COOKIE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::address::parse_own_path;
use super::render::{self, PageError};
use super::{PageLayout, form};
use crate::clock::now_ns;
use crate::http_error::ApiError;
use crate::state::ServerState;

/// Not prefixed with `__Host-`, which plain HTTP on a local network could not set.
const COOKIE_NAME: &str = "gradus_session";
/// Message for a valid key without the scope `read`, such as the key of a sender.
pub(super) const MISSING_READ_SCOPE: &str = "This key does not have the scope read. Enter another key.";
/// Lifetime of a session: 30 days.
const SESSION_SECONDS: u32 = 30 * 86_400;

/// The page with the sign-in form.
#[derive(Template)]
#[template(path = "sign_in.html")]
pub(super) struct SignInPage {
    frame: PageLayout,
    /// Path to continue with; always one of this server.
    next: String,
    /// Why the last attempt failed.
    wrong: Option<String>,
    /// Whether there is a session, with a key that may not read.
    is_signed_in: bool,
}

impl SignInPage {
    /// `next` comes from the URL and is replaced by `/` if it leads elsewhere.
    pub(super) fn new(next: &str, wrong: Option<String>) -> SignInPage {
        let next = parse_own_path(Some(next)).unwrap_or("/").to_owned();
        let mut frame = PageLayout::new("", None, &HeaderMap::new());
        // The pages of the navigation cannot be opened before signing in.
        frame.navigation.clear();
        SignInPage { frame, next, wrong, is_signed_in: false }
    }

    /// Builds the page for a session whose key may not read. Offers to sign out.
    pub(super) fn for_signed_in(next: &str, wrong: &str) -> SignInPage {
        let mut page = SignInPage::new(next, Some(wrong.to_owned()));
        page.frame.is_signed_in = true;
        page.is_signed_in = true;
        page
    }
}

/// Parameters of `/sign-in`.
#[derive(Deserialize)]
pub(super) struct SignInQuery {
    next: Option<String>,
}

/// `GET /sign-in`
pub(super) async fn render_sign_in_page(Query(query): Query<SignInQuery>) -> Response {
    render::respond_with_page(&SignInPage::new(query.next.as_deref().unwrap_or("/"), None))
}

/// Body of `POST /sign-in`.
#[derive(Deserialize)]
struct SignInForm {
    key: String,
    next: Option<String>,
}

/// `POST /sign-in`: checks the key and starts a session. Unknown and revoked keys get the same message. Refusals are
/// logged, so that guessing is visible.
pub(super) async fn submit_sign_in(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let entry: SignInForm = form::read_form(&server, &headers, body).await?;
    let key = entry.key.trim().to_owned();
    let next = parse_own_path(entry.next.as_deref()).unwrap_or("/").to_owned();
    let now = now_ns();
    let until = now.saturating_add(i64::from(SESSION_SECONDS) * 1_000_000_000);
    // Details of store errors are not shown to people without a key.
    let failed = |_| PageError::new(StatusCode::SERVICE_UNAVAILABLE, "The server cannot check keys at the moment.");
    let known = server.store.find_key_scopes(&key).map_err(ApiError::from).map_err(failed)?;
    if known.as_ref().is_some_and(|(_, scopes)| !scopes.read && !scopes.admin) {
        let wrong = MISSING_READ_SCOPE.to_owned();
        server.log_refusal("/sign-in", StatusCode::FORBIDDEN.as_u16(), &wrong);
        return Ok(render::respond_with_status(StatusCode::FORBIDDEN, &SignInPage::new(&next, Some(wrong))));
    }
    let session = if known.is_some() {
        let begun = server.store.begin_session(&key, now, until).map_err(ApiError::from).map_err(failed)?;
        // The session has to be on disk before the browser gets it: the next request reads it from the store.
        begun.wait_async().await.map_err(ApiError::from).map_err(failed)?
    } else {
        None
    };
    let Some(session) = session else {
        let wrong = "This key is unknown or revoked.".to_owned();
        server.log_refusal("/sign-in", StatusCode::UNAUTHORIZED.as_u16(), &wrong);
        return Ok(render::respond_with_status(StatusCode::UNAUTHORIZED, &SignInPage::new(&next, Some(wrong))));
    };
    Ok(redirect_with_session(&server, &next, &session, SESSION_SECONDS))
}

/// `POST /sign-out`: ends the session and deletes the cookie.
pub(super) async fn sign_out(State(server): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    if let Some(session) = read_session_cookie(&headers) {
        // If the store cannot be written, at least the cookie is deleted.
        if let Ok(ended) = server.store.end_session(session) {
            let _ = ended.wait_async().await;
        }
    }
    redirect_with_session(&server, "/sign-in", "", 0)
}

/// Redirects with 303 and sets the cookie. An empty session with 0 seconds deletes it.
fn redirect_with_session(server: &ServerState, to: &str, session: &str, seconds: u32) -> Response {
    // `Lax` lets links from other sites open pages signed in; forms of other sites are refused by `is_own_page_request`. Behind a
    // TLS proxy the cookie must not travel over plain HTTP.
    let secure = if server.settings.public_url.starts_with("https://") { "; Secure" } else { "" };
    let cookie = format!("{COOKIE_NAME}={session}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    let mut response = StatusCode::SEE_OTHER.into_response();
    for (name, value) in [(LOCATION, to), (SET_COOKIE, &cookie)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Reads the session id that the browser sent. It is not checked here.
pub(crate) fn read_session_cookie(headers: &HeaderMap) -> Option<&str> {
    read_cookie(headers, COOKIE_NAME)
}

/// Returns the first non-empty value of a cookie (RFC 6265).
pub(super) fn read_cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, value)| *known == name && !value.is_empty()).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        assert_eq!(read_session_cookie(&headers), None);
        headers.append(COOKIE, HeaderValue::from_static("a=b; gradus_session_2=no; gradus_session=yes=1; c=d"));
        assert_eq!(read_session_cookie(&headers), Some("yes=1"));
        headers.clear();
        headers.append(COOKIE, HeaderValue::from_static("gradus_session="));
        assert_eq!(read_session_cookie(&headers), None);
    }
}
