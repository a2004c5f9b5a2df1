//! Pages for requests that are refused or match no route.

use super::render::{PageError, respond_with_status};
use axum::extract::Request;
use axum::http::header::REFERER;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;

use super::address::parse_own_path;
use super::sign_in::{MISSING_READ_SCOPE, SignInPage};

/// Middleware that renders error pages again for signed-in people, with the button to sign out. The code that creates
/// an error does not know the request.
pub(super) async fn add_sign_out_button(request: Request, next: Next) -> Response {
    let is_signed_in = super::read_session_cookie(request.headers()).is_some();
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<PageError>() {
        Some(error) if is_signed_in => error.render_response(true),
        _ => response,
    }
}

/// Renders the page for a request that authentication refused. `lacks_scope` says that the key is valid but may not
/// do this.
pub(crate) fn render_refusal(
    status: StatusCode,
    message: &str,
    lacks_scope: bool,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Response {
    if status == StatusCode::UNAUTHORIZED {
        // Only an expired session gets a message. A first visit shows the plain form.
        let was_in = super::read_session_cookie(headers).is_some();
        let next = find_return_path(method, uri, headers);
        return respond_with_status(status, &SignInPage::new(&next, was_in.then(|| message.to_owned())));
    }
    // A key without the scope `read` can open no page, so this one offers to use another key or to sign out.
    let is_look = matches!(*method, Method::GET | Method::HEAD);
    if status == StatusCode::FORBIDDEN && lacks_scope && is_look && super::read_session_cookie(headers).is_some() {
        return respond_with_status(
            status,
            &SignInPage::for_signed_in(&find_return_path(method, uri, headers), MISSING_READ_SCOPE),
        );
    }
    PageError::new(status, message).render_response(super::read_session_cookie(headers).is_some())
}

/// Returns where to continue after signing in. A form is not sent again, so for other methods than GET it is the page
/// with the form.
pub(super) fn find_return_path(method: &Method, uri: &Uri, headers: &HeaderMap) -> String {
    let path = |uri: &Uri| uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    if matches!(*method, Method::GET | Method::HEAD) {
        return path(uri);
    }
    let from = headers.get(REFERER).and_then(|from| from.to_str().ok()?.parse::<Uri>().ok());
    let from = from.map(|from| path(&from)).unwrap_or_default();
    parse_own_path(Some(&from)).unwrap_or("/").to_owned()
}

/// Renders the page for a path that does not exist.
pub(crate) fn render_not_found(headers: &HeaderMap) -> Response {
    PageError::not_found("No page exists at this address.")
        .render_response(super::read_session_cookie(headers).is_some())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::COOKIE;

    use super::*;

    /// Those who signed in before such keys were refused.
    #[tokio::test]
    async fn whoever_is_in_with_a_key_that_may_not_look_finds_the_way_out() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_static("gradus_session=x"));
        let shown = async |method: Method, lacks_scope: bool, headers: &HeaderMap| {
            let uri = Uri::from_static("/traces?q=x");
            let response = render_refusal(StatusCode::FORBIDDEN, "no", lacks_scope, &method, &uri, headers);
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
            let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
            String::from_utf8(body.to_vec()).unwrap()
        };
        let page = shown(Method::GET, true, &headers).await;
        assert!(page.contains("name=\"key\"") && page.contains(MISSING_READ_SCOPE), "{page}");
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
            super::find_return_path(&method, &Uri::from_static(path), &headers)
        };
        assert_eq!(next(Method::GET, "/traces?q=x", "http://localhost/review"), "/traces?q=x");
        let review = "http://localhost:4318/review?project=shop";
        assert_eq!(next(Method::POST, "/labels", review), "/review?project=shop");
        for from in ["", "nonsense", "http://localhost:4318//evil.example"] {
            assert_eq!(next(Method::POST, "/labels", from), "/", "{from}");
        }
    }
}
