//! For servers that want keys: a form that takes one, and a cookie that shows it with each request. A script cannot read
//! the cookie, and no other site can send it.

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
use super::{Frame, form};
use crate::serve::state::Server;

const COOKIE_NAME: &str = "gradus_key";

#[derive(Template)]
#[template(path = "sign_in.html")]
pub(super) struct SignIn {
    frame: Frame,
    /// Where to go from here.
    next: String,
    wrong: Option<String>,
}

impl SignIn {
    pub(super) fn new(next: &str, wrong: Option<String>) -> SignIn {
        let next = own_path(Some(next)).unwrap_or("/").to_owned();
        let mut frame = Frame::of("", None, &HeaderMap::new());
        // Nothing of it can be opened yet.
        frame.places.clear();
        SignIn { frame, next, wrong }
    }
}

#[derive(Deserialize)]
pub(super) struct Next {
    next: Option<String>,
}

pub(super) async fn page(Query(query): Query<Next>) -> Response {
    answer::page(&SignIn::new(query.next.as_deref().unwrap_or("/"), None))
}

#[derive(Deserialize)]
struct Entry {
    key: String,
    next: Option<String>,
}

pub(super) async fn enter(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let entry: Entry = form::read(&server, &headers, body).await?;
    let key = entry.key.trim().to_owned();
    let next = own_path(entry.next.as_deref()).unwrap_or("/").to_owned();
    let (store, wanted) = (Arc::clone(&server.store), key.clone());
    let known = tokio::task::spawn_blocking(move || store.scopes_of(&wanted)).await;
    let failed =
        || PageError::new(StatusCode::SERVICE_UNAVAILABLE, "Keys cannot be looked up at the moment.");
    let known = known.map_err(|_| failed())?.map_err(|_| failed())?;
    if known.is_none() {
        let wrong = "This key is not known, or it was revoked.".to_owned();
        return Ok(answer::with_status(StatusCode::UNAUTHORIZED, &SignIn::new(&next, Some(wrong))));
    }
    Ok(go(&server, &next, &key, 30 * 86_400))
}

/// Forgets the key.
pub(super) async fn leave(State(server): State<Arc<Server>>) -> Response {
    go(&server, "/sign-in", "", 0)
}

fn go(server: &Server, to: &str, key: &str, seconds: u32) -> Response {
    // Behind a proxy with a certificate the cookie never travels without it.
    let secure = if server.settings.public_url.starts_with("https://") { "; Secure" } else { "" };
    let cookie = format!("{COOKIE_NAME}={key}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    let mut response = StatusCode::SEE_OTHER.into_response();
    for (name, value) in [(LOCATION, to), (SET_COOKIE, &cookie)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The key that a browser shows.
pub(in crate::serve) fn cookie_key(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, COOKIE_NAME)
}

/// A cookie's value, if there is one.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, value)| *known == name && !value.is_empty()).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        assert_eq!(cookie_key(&headers), None);
        headers.append(COOKIE, HeaderValue::from_static("a=b; gradus_key_2=no; gradus_key=yes=1; c=d"));
        assert_eq!(cookie_key(&headers), Some("yes=1"));
        headers.clear();
        headers.append(COOKIE, HeaderValue::from_static("gradus_key="));
        assert_eq!(cookie_key(&headers), None);
    }
}
