//! How this program asks other servers: one kind of client, and patience with those that fail for a while.

use std::time::{Duration, Instant};

use gradus_llm::Secret;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, StatusCode};

/// The beginnings of a client: our name, one provider of cryptography, no following to other places,
/// and no proxy on the way to this machine.
pub(crate) fn client() -> reqwest::ClientBuilder {
    // One provider for the whole process; setting it twice is no error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    gradus_llm::except_here(reqwest::Client::builder())
        .user_agent(concat!("gradus/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
}

/// What a server answered, all of it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
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

/// How long a request is tried again while its server cannot be reached, is too busy or fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// From the first try on.
    pub(crate) give_up_after: Duration,
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
}

impl Patience {
    pub(crate) fn of(give_up_after: Duration) -> Patience {
        Patience {
            give_up_after,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(15),
        }
    }

    fn pause(&self, failures: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << (failures.clamp(1, 20) - 1));
        let ceiling = doubled.min(self.longest_pause);
        // Half fixed, half random: clients that lost a server together do not come back together.
        let own = ceiling.mul_f64(0.5 + 0.5 * fastrand::f64());
        // The server knows better.
        asked.unwrap_or(own)
    }

    /// Sends until there is an answer that trying again would not change, or the patience is at its end. The last answer
    /// is handed out whatever its status.
    pub(crate) async fn exchange(
        &self,
        limit: usize,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Answer, Unanswered> {
        let began = Instant::now();
        let mut failures = 0;
        loop {
            let found = once(request(), limit).await;
            let asked = match &found {
                Ok(answer) if !may_pass(answer.status) => return found,
                Ok(answer) => gradus_llm::retry_after(&answer.headers),
                Err(Unanswered::TooLong { .. } | Unanswered::NotHttp(_)) => return found,
                Err(_) => None,
            };
            failures += 1;
            let pause = self.pause(failures, asked);
            if began.elapsed() + pause > self.give_up_after {
                return found;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Whether the same request may get another answer later.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY
        )
}

/// What is made room for before anything has come.
const MAX_RESERVED: usize = 16 << 20;

async fn once(request: RequestBuilder, limit: usize) -> Result<Answer, Unanswered> {
    let mut response = request.send().await.map_err(unanswered)?;
    let (status, headers) = (response.status(), response.headers().clone());
    // Told beforehand, it need not grow and be moved; what is told is not believed further than the limit.
    let told = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
    let mut body = Vec::with_capacity(told.min(limit).min(MAX_RESERVED));
    while let Some(piece) = response.chunk().await.map_err(unanswered)? {
        if body.len() + piece.len() > limit {
            return Err(Unanswered::TooLong { limit });
        }
        body.extend_from_slice(&piece);
    }
    Ok(Answer { status, headers, body })
}

fn unanswered(error: reqwest::Error) -> Unanswered {
    // Addresses may hold what nobody should read.
    let error = error.without_url();
    if error.is_timeout() {
        Unanswered::Timeout
    } else if error.is_connect() {
        Unanswered::Connect(innermost(&error))
    } else {
        let reason = innermost(&error);
        // What the HTTP library says of bytes that are none, and of a server that speaks first; the error's kind is not to
        // be had from outside.
        let is_no_http = ["invalid HTTP", "unexpected message"].iter().any(|words| reason.contains(words));
        if is_no_http { Unanswered::NotHttp(reason) } else { Unanswered::Broken(reason) }
    }
}

/// The cause that says most; the layers above it only repeat that something failed.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    gradus_llm::mask_secrets(&cause.to_string())
}

/// What stands in an answer, for a message: one line, and not too long.
pub(crate) fn said(body: &[u8]) -> String {
    const SHOWN: usize = 300;
    let text = String::from_utf8_lossy(&body[..body.len().min(16 << 10)]);
    let detail = serde_json::from_slice::<serde_json::Value>(body).ok().and_then(|json| {
        let detail = json.get("detail").or_else(|| json.get("message")).or_else(|| json.get("error"))?;
        Some(detail.as_str().map_or_else(|| detail.to_string(), str::to_owned))
    });
    // Masked before it is cut: half a key is too much.
    let line = gradus_llm::mask_secrets(&detail.unwrap_or_else(|| text.into_owned()));
    let line = gradus_core::visible::printable_line(&line);
    if line.chars().count() <= SHOWN {
        return line;
    }
    line.chars().take(SHOWN).chain("...".chars()).collect()
}

/// A part of a URL's path or query as it must be written.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// `name=value,name=value`, with values as they stand in URLs: what Phoenix's clients and OpenTelemetry's exporters read.
pub(crate) fn headers(given: Option<&Secret>) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    let pairs =
        given.map(Secret::expose).unwrap_or_default().split(',').filter(|pair| !pair.trim().is_empty());
    for pair in pairs {
        let (name, value) = pair.split_once('=').ok_or("a header is written as name=value")?;
        let name = HeaderName::from_bytes(name.trim().as_bytes())
            .map_err(|_| "a header has a name that none can have".to_owned())?;
        let value = percent_decoded(value.trim());
        gradus_llm::register_secret(value.rsplit(' ').next().unwrap_or_default());
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| format!("the header {name} has a value that none can have"))?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    Ok(map)
}

/// Undoes [`percent_encoded`]; what is no code stays as it is.
pub(crate) fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            _ => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_the_server_knows_better() {
        let patience = Patience::of(Duration::from_secs(60));
        for failures in 1..40 {
            let ceiling = patience.first_pause.saturating_mul(1 << (failures - 1).min(20));
            let ceiling = ceiling.min(patience.longest_pause);
            let found = patience.pause(failures, None);
            assert!(found >= ceiling / 2 && found <= ceiling, "{found:?} after {failures}");
        }
        assert_eq!(patience.pause(9, Some(Duration::from_millis(3))), Duration::from_millis(3));
    }

    #[test]
    fn what_a_server_said_is_one_harmless_line() {
        assert_eq!(said(b"{\"detail\":\"no such\\nproject\"}"), "no such project");
        assert_eq!(said(b"plain\x1b[2J text"), "plain\\u{1b}[2J text");
        assert!(said(&vec![b'x'; 10_000]).chars().count() < 310);
    }

    #[test]
    fn headers_are_read_and_never_shown() {
        let map = headers(Some(&Secret::new("x-team=a%20b, authorization=Bearer%20k=1,"))).expect("headers");
        assert_eq!(map.get("x-team").and_then(|value| value.to_str().ok()), Some("a b"));
        assert_eq!(map.get("authorization").and_then(|value| value.to_str().ok()), Some("Bearer k=1"));
        assert!(!format!("{map:?}").contains("k=1"));
        assert!(headers(Some(&Secret::new("novalue"))).is_err());
        let wrong = headers(Some(&Secret::new("x=line%0abreak"))).expect_err("a line break");
        assert!(!wrong.contains("break"), "{wrong}");
        assert!(headers(None).expect("none").is_empty());
    }

    #[test]
    fn what_is_encoded_is_decoded_and_the_rest_is_left() {
        assert_eq!(percent_decoded("a%20b%2"), "a b%2");
        assert_eq!(percent_decoded("100%zz"), "100%zz");
    }
}
