//! A response together with the request that it answers, to find out what an error means.

use gradus_http::HttpResponse;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;

/// One request and its response.
pub(super) struct RestExchange<'a> {
    /// Complete, with headers; the body is bounded by the limit of the request.
    pub(super) answer: &'a HttpResponse,
    /// The path without its query.
    pub(super) route: &'a str,
    /// The purpose of the request, for messages.
    pub(super) what: &'static str,
}

impl RestExchange<'_> {
    /// Whether the server does not know the route, as opposed to a missing object. FastAPI answers unknown routes with
    /// the text "Not Found"; old versions answer with their web page.
    pub(super) fn has_no_route(&self) -> bool {
        match self.answer.status {
            StatusCode::METHOD_NOT_ALLOWED => true,
            StatusCode::NOT_FOUND => {
                is_page(self.answer) || gradus_http::response_message(&self.answer.body) == "Not Found"
            }
            StatusCode::OK => is_page(self.answer) && self.is_from_phoenix(),
            _ => false,
        }
    }

    /// Whether the response carries Phoenix's version header.
    pub(super) fn is_from_phoenix(&self) -> bool {
        self.answer.headers.contains_key(SERVER_VERSION_HEADER)
    }

    /// "Phoenix 12.3", or "this server" without a version header.
    pub(super) fn describe_server(&self) -> String {
        let version = self.answer.headers.get(SERVER_VERSION_HEADER).and_then(|text| text.to_str().ok());
        version.map_or_else(
            || "this server".to_owned(),
            |version| format!("Phoenix {}", gradus_core::visible::printable_line(version)),
        )
    }
}

/// A header that every response of a Phoenix has.
pub(super) const SERVER_VERSION_HEADER: &str = "x-phoenix-server-version";

/// Whether the response is HTML.
pub(super) fn is_page(answer: &HttpResponse) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/html"))
}
