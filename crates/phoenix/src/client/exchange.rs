//! One question and its answer.

use gradus_http::HttpResponse;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;

/// One answer, and what was asked for.
pub(super) struct RestExchange<'a> {
    pub(super) answer: &'a HttpResponse,
    pub(super) route: &'a str,
    /// What it was good for, for messages.
    pub(super) what: &'static str,
}

impl RestExchange<'_> {
    /// Whether it is the route that is missing, and not what was asked for by it.
    pub(super) fn has_no_route(&self) -> bool {
        match self.answer.status {
            StatusCode::METHOD_NOT_ALLOWED => true,
            StatusCode::NOT_FOUND => {
                is_page(self.answer) || gradus_http::response_message(&self.answer.body) == "Not Found"
            }
            StatusCode::OK => is_page(self.answer) && self.is_of_phoenix(),
            _ => false,
        }
    }

    pub(super) fn is_of_phoenix(&self) -> bool {
        self.answer.headers.contains_key(VERSION)
    }

    pub(super) fn describe_server(&self) -> String {
        let version = self.answer.headers.get(VERSION).and_then(|text| text.to_str().ok());
        version.map_or_else(
            || "this server".to_owned(),
            |version| format!("Phoenix {}", gradus_core::visible::printable_line(version)),
        )
    }
}

/// In every answer of a Phoenix.
pub(super) const VERSION: &str = "x-phoenix-server-version";

pub(super) fn is_page(answer: &HttpResponse) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/html"))
}
