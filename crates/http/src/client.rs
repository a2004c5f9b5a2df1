//! The HTTP client for other servers: one configuration for all of Gradus, and retries while a server fails for a
//! while.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, InvalidHeaderName, InvalidHeaderValue};
use reqwest::{RequestBuilder, StatusCode};

use crate::percent_code::percent_decode;
use crate::proxy::with_environment_proxies;
use crate::retry_after::retry_after;
use crate::secret::{SecretString, mask_secrets, register_secret};

/// Returns a client builder with our user agent and one cryptography provider. Redirects are not followed, because a
/// key would go to another host. Requests to this machine bypass the proxy.
pub fn http_client_builder() -> reqwest::ClientBuilder {
    // One provider for the whole process. A second installation fails without harm.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = with_environment_proxies(reqwest::Client::builder())
        .user_agent(concat!("gradus/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none());
    if *HAS_SYSTEM_ROOTS { builder } else { builder.tls_certs_only([]) }
}

/// Whether this system has root certificates. Slim containers have none, and a client that requires them cannot be
/// built there. A client without any still reaches HTTP; HTTPS fails when it connects.
static HAS_SYSTEM_ROOTS: LazyLock<bool> = LazyLock::new(|| reqwest::Client::builder().no_proxy().build().is_ok());

/// A complete response. The size of the body was bounded while it was read.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Why there is no response. Texts contain no addresses and no registered secrets.
#[derive(Debug, thiserror::Error)]
pub enum HttpFailure {
    #[error("nothing answers there ({0})")]
    Connect(String),
    #[error("no answer in time")]
    Timeout,
    #[error("the connection broke off ({0})")]
    Broken(String),
    #[error("what answers there is no HTTP ({0})")]
    NotHttp(String),
    #[error("the answer is longer than {limit} bytes")]
    TooLong { limit: usize },
}

/// How long a request is retried while its server cannot be reached, is too busy or fails.
#[derive(Clone, Copy, Debug)]
pub struct RetryBudget {
    /// Counted from the first attempt.
    pub give_up_after: Duration,
    pub first_pause: Duration,
    pub max_pause: Duration,
}

impl RetryBudget {
    pub fn new(give_up_after: Duration) -> RetryBudget {
        RetryBudget { give_up_after, first_pause: Duration::from_millis(500), max_pause: Duration::from_secs(15) }
    }

    fn backoff_delay(&self, failures: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << (failures.clamp(1, 20) - 1));
        let ceiling = doubled.min(self.max_pause);
        // Half fixed, half random, so that clients that lost a server together do not return together.
        let own = ceiling.mul_f64(0.5 + 0.5 * fastrand::f64());
        // The pause that the server asks for takes precedence.
        asked.unwrap_or(own)
    }

    /// Sends until the response would not change by a retry, or the budget is used up. Returns the last response
    /// whatever its status. `request` is called once per attempt.
    pub async fn send_with_retries(
        &self,
        limit: usize,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<HttpResponse, HttpFailure> {
        let began = Instant::now();
        let mut failures = 0;
        loop {
            let found = send_once(request(), limit).await;
            let asked = match &found {
                Ok(answer) if !is_retryable_status(answer.status) => return found,
                Ok(answer) => retry_after(&answer.headers),
                Err(HttpFailure::TooLong { .. } | HttpFailure::NotHttp(_)) => return found,
                Err(_) => None,
            };
            failures += 1;
            let pause = self.backoff_delay(failures, asked);
            if began.elapsed() + pause > self.give_up_after {
                return found;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Whether the same request may get another response later: 5xx (except 501), 429, 408 and 425.
fn is_retryable_status(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY)
}

/// Maximum number of bytes that are reserved before the body arrives.
const MAX_RESERVED_BYTES: usize = 16 << 20;

async fn send_once(request: RequestBuilder, limit: usize) -> Result<HttpResponse, HttpFailure> {
    let mut response = request.send().await.map_err(classify_failure)?;
    let (status, headers) = (response.status(), response.headers().clone());
    // Reserving the stated length avoids growing. The server may state anything, so the reservation is bounded.
    let told = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
    let mut body = Vec::with_capacity(told.min(limit).min(MAX_RESERVED_BYTES));
    while let Some(piece) = response.chunk().await.map_err(classify_failure)? {
        if body.len() + piece.len() > limit {
            return Err(HttpFailure::TooLong { limit });
        }
        body.extend_from_slice(&piece);
    }
    Ok(HttpResponse { status, headers, body })
}

fn classify_failure(error: reqwest::Error) -> HttpFailure {
    // Addresses may contain secrets.
    let error = error.without_url();
    if error.is_timeout() {
        HttpFailure::Timeout
    } else if error.is_connect() {
        HttpFailure::Connect(root_cause(&error))
    } else {
        let reason = root_cause(&error);
        // Texts of the HTTP library for bytes that are not HTTP, and for a server that speaks first. It does not expose
        // the kind of the error.
        let is_no_http = ["invalid HTTP", "unexpected message"].iter().any(|words| reason.contains(words));
        if is_no_http { HttpFailure::NotHttp(reason) } else { HttpFailure::Broken(reason) }
    }
}

/// Returns the innermost cause, which is the most specific; the layers above it only repeat that something failed.
/// Secrets are masked.
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    mask_secrets(&cause.to_string())
}

/// Returns the message in an error response for output: one printable line of limited length.
pub fn response_message(body: &[u8]) -> String {
    const MAX_MESSAGE_CHARS: usize = 300;
    let text = String::from_utf8_lossy(&body[..body.len().min(16 << 10)]);
    let detail = serde_json::from_slice::<serde_json::Value>(body).ok().and_then(|json| {
        let detail = json.get("detail").or_else(|| json.get("message")).or_else(|| json.get("error"))?;
        Some(detail.as_str().map_or_else(|| detail.to_string(), str::to_owned))
    });
    // Masked before it is cut, because a part of a key is a leak, too.
    let line = mask_secrets(&detail.unwrap_or_else(|| text.into_owned()));
    let line = gradus_core::visible::printable_line(&line);
    if line.chars().count() <= MAX_MESSAGE_CHARS {
        return line;
    }
    line.chars().take(MAX_MESSAGE_CHARS).chain("...".chars()).collect()
}

/// Why a list of headers cannot be used. No message shows a value: values hold keys.
#[derive(Debug, thiserror::Error)]
pub enum HeaderListError {
    #[error("a header is written as name=value")]
    NoValue,
    #[error("a header has a name that none can have")]
    InvalidName(#[source] InvalidHeaderName),
    #[error("the header {name} has a value that none can have")]
    InvalidValue {
        name: HeaderName,
        #[source]
        source: InvalidHeaderValue,
    },
}

/// Parses `name=value,name=value` with percent-encoded values: the format of `OTEL_EXPORTER_OTLP_HEADERS` and
/// `PHOENIX_CLIENT_HEADERS`. Values are registered as secrets and marked as sensitive.
pub fn parse_header_list(given: Option<&SecretString>) -> Result<HeaderMap, HeaderListError> {
    let mut map = HeaderMap::new();
    let pairs = given.map(SecretString::expose).unwrap_or_default().split(',').filter(|pair| !pair.trim().is_empty());
    for pair in pairs {
        let (name, value) = pair.split_once('=').ok_or(HeaderListError::NoValue)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(HeaderListError::InvalidName)?;
        let value = percent_decode(value.trim());
        register_secret(value.rsplit(' ').next().unwrap_or_default());
        let mut value = HeaderValue::from_str(&value)
            .map_err(|source| HeaderListError::InvalidValue { name: name.clone(), source })?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_the_server_knows_better() {
        let budget = RetryBudget::new(Duration::from_secs(60));
        for failures in 1..40 {
            let ceiling = budget.first_pause.saturating_mul(1 << (failures - 1).min(20));
            let ceiling = ceiling.min(budget.max_pause);
            let found = budget.backoff_delay(failures, None);
            assert!(found >= ceiling / 2 && found <= ceiling, "{found:?} after {failures}");
        }
        assert_eq!(budget.backoff_delay(9, Some(Duration::from_millis(3))), Duration::from_millis(3));
    }

    #[test]
    fn what_a_server_said_is_one_harmless_line() {
        assert_eq!(response_message(b"{\"detail\":\"no such\\nproject\"}"), "no such project");
        assert_eq!(response_message(b"plain\x1b[2J text"), "plain\\u{1b}[2J text");
        assert!(response_message(&vec![b'x'; 10_000]).chars().count() < 310);
    }

    #[test]
    fn every_message() {
        let failures = [
            HttpFailure::Connect("connection refused".to_owned()),
            HttpFailure::Timeout,
            HttpFailure::Broken("end of file before the message was complete".to_owned()),
            HttpFailure::NotHttp("invalid HTTP version".to_owned()),
            HttpFailure::TooLong { limit: 65_536 },
        ];
        let headers = ["x-team", "x team=a", "x-team=a%0Ab"]
            .map(|list| parse_header_list(Some(&SecretString::new(list))).expect_err("no headers").to_string());
        insta::assert_snapshot!("failures", failures.map(|failure| failure.to_string()).join("\n"));
        insta::assert_snapshot!("header_lists", headers.join("\n"));
    }

    #[test]
    fn headers_are_read_and_never_shown() {
        let map =
            parse_header_list(Some(&SecretString::new("x-team=a%20b, authorization=Bearer%20k=1,"))).expect("headers");
        assert_eq!(map.get("x-team").and_then(|value| value.to_str().ok()), Some("a b"));
        assert_eq!(map.get("authorization").and_then(|value| value.to_str().ok()), Some("Bearer k=1"));
        assert!(!format!("{map:?}").contains("k=1"));
        assert!(parse_header_list(Some(&SecretString::new("novalue"))).is_err());
        let wrong = parse_header_list(Some(&SecretString::new("x=line%0abreak"))).expect_err("a line break");
        assert!(!wrong.to_string().contains("break"), "{wrong}");
        assert!(parse_header_list(None).expect("none").is_empty());
    }
}
