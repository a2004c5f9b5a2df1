//! For servers that want keys: a form that takes one, and a cookie that shows with each request that there was one. It holds
//! the name of a session, not the key: browsers send cookies to every port of a machine. A script cannot read it, and no
//! other site can send it.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::{COOKIE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::address::own_path;
use super::answer::{self, PageError};
use super::{PageLayout, form};
use crate::clock::now_ns;
use crate::http_error::ApiError;
use crate::state::ServerState;

const COOKIE_NAME: &str = "gradus_session";
/// What a key that only sends gets to hear.
pub(super) const MAY_NOT_LOOK: &str = "This key does not have the scope read. Enter another key.";
const SECONDS: u32 = 30 * 86_400;

#[derive(Template)]
#[template(path = "sign_in.html")]
pub(super) struct SignIn {
    frame: PageLayout,
    /// Where to go from here.
    next: String,
    wrong: Option<String>,
    /// With a key that may not look.
    is_signed_in: bool,
}

impl SignIn {
    pub(super) fn new(next: &str, wrong: Option<String>) -> SignIn {
        let next = own_path(Some(next)).unwrap_or("/").to_owned();
        let mut frame = PageLayout::new("", None, &HeaderMap::new());
        // Nothing of it can be opened yet.
        frame.places.clear();
        SignIn { frame, next, wrong, is_signed_in: false }
    }

    /// For who is signed in, with a key that may not look.
    pub(super) fn for_signed_in(next: &str, wrong: &str) -> SignIn {
        let mut page = SignIn::new(next, Some(wrong.to_owned()));
        page.frame.is_signed_in = true;
        page.is_signed_in = true;
        page
    }
}

#[derive(Deserialize)]
pub(super) struct SignInQuery {
    next: Option<String>,
}

pub(super) async fn render_sign_in_page(Query(query): Query<SignInQuery>) -> Response {
    answer::respond_with_page(&SignIn::new(query.next.as_deref().unwrap_or("/"), None))
}

#[derive(Deserialize)]
struct SignInForm {
    key: String,
    next: Option<String>,
}

pub(super) async fn submit_sign_in(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let entry: SignInForm = form::read_form(&server, &headers, body).await?;
    let key = entry.key.trim().to_owned();
    let next = own_path(entry.next.as_deref()).unwrap_or("/").to_owned();
    let now = now_ns();
    let until = now.saturating_add(i64::from(SECONDS) * 1_000_000_000);
    let failed = |_| PageError::new(StatusCode::SERVICE_UNAVAILABLE, "The server cannot check keys at the moment.");
    let known = server.store.scopes_of(&key).map_err(ApiError::from).map_err(failed)?;
    if known.as_ref().is_some_and(|(_, scopes)| !scopes.read && !scopes.admin) {
        let wrong = MAY_NOT_LOOK.to_owned();
        server.tell_of_refusal("/sign-in", StatusCode::FORBIDDEN.as_u16(), &wrong);
        return Ok(answer::with_status(StatusCode::FORBIDDEN, &SignIn::new(&next, Some(wrong))));
    }
    let session = if known.is_some() {
        let begun = server.store.begin_session(&key, now, until).map_err(ApiError::from).map_err(failed)?;
        begun.wait_async().await.map_err(ApiError::from).map_err(failed)?
    } else {
        None
    };
    let Some(session) = session else {
        let wrong = "This key is unknown or revoked.".to_owned();
        server.tell_of_refusal("/sign-in", StatusCode::UNAUTHORIZED.as_u16(), &wrong);
        return Ok(answer::with_status(StatusCode::UNAUTHORIZED, &SignIn::new(&next, Some(wrong))));
    };
    Ok(redirect_with_session(&server, &next, &session, SECONDS))
}

/// Ends the session.
pub(super) async fn sign_out(State(server): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    if let Some(session) = read_session_cookie(&headers) {
        // If it cannot be ended, the browser forgets it all the same.
        if let Ok(ended) = server.store.end_session(session) {
            let _ = ended.wait_async().await;
        }
    }
    redirect_with_session(&server, "/sign-in", "", 0)
}

fn redirect_with_session(server: &ServerState, to: &str, session: &str, seconds: u32) -> Response {
    // Lax: who follows a link from elsewhere is signed in, and forms of other sites are refused by where they come from.
    // Behind a proxy with a certificate the cookie never travels without it.
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

/// The session that a browser shows.
pub(crate) fn read_session_cookie(headers: &HeaderMap) -> Option<&str> {
    read_cookie(headers, COOKIE_NAME)
}

/// A cookie's value, if there is one.
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
