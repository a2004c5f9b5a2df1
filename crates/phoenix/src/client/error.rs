//! Errors of the Phoenix client. Each message is one line: what failed, where, and what to do.

use reqwest::StatusCode;

use crate::client::exchange::RestExchange;
use gradus_http::{HttpFailure, HttpResponse, response_message};

/// Settings with which no client can be made. Values are not shown: they may be secret.
#[derive(Debug, thiserror::Error)]
pub enum PhoenixSettingsError {
    /// Negative, infinite, or longer than a [`std::time::Duration`] can be.
    #[error("[phoenix] {name}: give a number of seconds")]
    NotSeconds { name: &'static str },
    #[error("PHOENIX_API_KEY: it holds characters that no key has, perhaps a line break")]
    MalformedKey,
    #[error("PHOENIX_CLIENT_HEADERS: {0}")]
    MalformedHeaders(String),
    #[error(transparent)]
    HttpClient(reqwest::Error),
}

/// A request that did not get the expected response.
#[derive(Debug, thiserror::Error)]
pub enum PhoenixClientError {
    /// No connection.
    #[error(
        "{base}: nothing answers there ({reason}); is Phoenix running, and is this its HTTP port (6006, not 4317)?"
    )]
    Down { base: String, reason: String },
    /// No byte within the timeout.
    #[error("{base}: Phoenix did not answer within {seconds} s; give it more with timeout_s under [phoenix]")]
    Slow { base: String, seconds: u64 },
    /// Even a page of one entry exceeds the limit.
    #[error(
        "{base}: an answer to the smallest question is over {megabytes} MB, and no more is read; choose other traces with --from, --to or --root-name"
    )]
    TooLong { base: String, megabytes: usize },
    /// The connection ended within a response.
    #[error("{base}: {reason}; the same command tries again")]
    Broken { base: String, reason: String },
    #[error("{base}: Phoenix wants a key: set PHOENIX_API_KEY")]
    KeyMissing { base: String },
    #[error("{base}: Phoenix refused the key in PHOENIX_API_KEY ({said}); make a new one in its settings")]
    KeyRefused { base: String, said: String },
    #[error("{base}: this key may not do that ({said}); {what} needs one that may")]
    Forbidden { base: String, said: String, what: &'static str },
    /// A Phoenix that is too old for the route.
    #[error("{base}: {version} has no {route}; {what} needs a newer one")]
    NoRoute { base: String, route: String, version: String, what: &'static str },
    /// Another 4xx: Phoenix understood the request and rejects its content.
    #[error("{base}: Phoenix refused the request ({status}: {said})")]
    Refused { base: String, status: u16, said: String },
    #[error(
        "{base}: Phoenix wants fewer requests ({status}: {said}); try again later, or wait longer with retry_s under [phoenix]"
    )]
    Busy { base: String, status: u16, said: String },
    /// Usually the gRPC port.
    #[error("{base}: what answers there is no HTTP ({reason}); Phoenix's HTTP port is 6006, and 4317 is for gRPC")]
    NotHttp { base: String, reason: String },
    #[error("{base}: Phoenix fails ({status}: {said}); look into its log, and try again later")]
    Failing { base: String, status: u16, said: String },
    /// Redirects are not followed: the key is not for another host.
    #[error("{base}: it sends us on to {to}; give that address instead")]
    Elsewhere { base: String, to: String },
    /// A web server or a proxy that is no Phoenix.
    #[error("{base}: it answers, but not as Phoenix does ({said}); is this its HTTP port?")]
    NotPhoenix { base: String, said: String },
}

impl PhoenixClientError {
    /// The error for a request without a response.
    pub(super) fn from_http_failure(base: &str, error: HttpFailure, timeout_s: u64) -> PhoenixClientError {
        let base = base.to_owned();
        match error {
            HttpFailure::Connect(reason) => PhoenixClientError::Down { base, reason },
            HttpFailure::NotHttp(reason) => PhoenixClientError::NotHttp { base, reason },
            HttpFailure::Timeout => PhoenixClientError::Slow { base, seconds: timeout_s },
            HttpFailure::TooLong { limit } => PhoenixClientError::TooLong { base, megabytes: limit >> 20 },
            other => PhoenixClientError::Broken { base, reason: other.to_string() },
        }
    }

    /// The error for an unexpected response, by its status. `has_key` decides whether a key is missing or wrong.
    pub(super) fn from_exchange(base: &str, has_key: bool, exchange: &RestExchange<'_>) -> PhoenixClientError {
        let base = base.to_owned();
        let RestExchange { answer, route, what } = exchange;
        let said = response_message(&answer.body);
        match answer.status {
            StatusCode::UNAUTHORIZED if has_key => PhoenixClientError::KeyRefused { base, said },
            StatusCode::UNAUTHORIZED => PhoenixClientError::KeyMissing { base },
            StatusCode::FORBIDDEN => PhoenixClientError::Forbidden { base, said, what },
            _ if exchange.has_no_route() => PhoenixClientError::NoRoute {
                base,
                route: (*route).to_owned(),
                version: exchange.describe_server(),
                what,
            },
            status if status.is_redirection() => {
                let to = answer.headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
                PhoenixClientError::Elsewhere { base, to: gradus_core::visible::printable_line(to) }
            }
            status if status == StatusCode::TOO_MANY_REQUESTS => {
                PhoenixClientError::Busy { base, status: status.as_u16(), said }
            }
            status if status.is_server_error() => PhoenixClientError::Failing { base, status: status.as_u16(), said },
            status if status.is_success() => PhoenixClientError::NotPhoenix { base, said },
            // A 404 without Phoenix's version header comes from a proxy or another server.
            StatusCode::NOT_FOUND if !exchange.is_from_phoenix() => PhoenixClientError::NotPhoenix { base, said },
            status => PhoenixClientError::Refused { base, status: status.as_u16(), said },
        }
    }

    /// The error for a response that says 200 but does not confirm all rows.
    pub(super) fn from_refusal(base: &str, answer: &HttpResponse) -> PhoenixClientError {
        let (base, status) = (base.to_owned(), answer.status.as_u16());
        PhoenixClientError::Refused { base, status, said: response_message(&answer.body) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_settings() {
        let errors = [
            PhoenixSettingsError::NotSeconds { name: "timeout_s" },
            PhoenixSettingsError::MalformedKey,
            PhoenixSettingsError::MalformedHeaders("a header is written as name=value".to_owned()),
        ];
        insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"));
    }

    #[test]
    fn every_message_of_a_request() {
        let base = || "http://localhost:6006".to_owned();
        let said = || "no such project".to_owned();
        let what = "reading spans";
        let errors = [
            PhoenixClientError::from_http_failure(&base(), HttpFailure::Connect("connection refused".to_owned()), 30),
            PhoenixClientError::from_http_failure(&base(), HttpFailure::Timeout, 30),
            PhoenixClientError::from_http_failure(&base(), HttpFailure::TooLong { limit: 64 << 20 }, 30),
            PhoenixClientError::from_http_failure(&base(), HttpFailure::Broken("end of file".to_owned()), 30),
            PhoenixClientError::from_http_failure(&base(), HttpFailure::NotHttp("invalid version".to_owned()), 30),
            PhoenixClientError::KeyMissing { base: base() },
            PhoenixClientError::KeyRefused { base: base(), said: "unknown key".to_owned() },
            PhoenixClientError::Forbidden { base: base(), said: said(), what },
            PhoenixClientError::NoRoute {
                base: base(),
                route: "/v1/projects".to_owned(),
                version: "Phoenix 4.0.0".to_owned(),
                what,
            },
            PhoenixClientError::Refused { base: base(), status: 422, said: said() },
            PhoenixClientError::Busy { base: base(), status: 429, said: said() },
            PhoenixClientError::Failing { base: base(), status: 500, said: said() },
            PhoenixClientError::Elsewhere { base: base(), to: "https://phoenix.example/login".to_owned() },
            PhoenixClientError::NotPhoenix { base: base(), said: "<html>".to_owned() },
        ];
        insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"));
    }
}
