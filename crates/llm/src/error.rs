//! Why a call failed, and whether asking again can help.

use std::time::Duration;

use gradus_http::root_cause;
use reqwest::header::InvalidHeaderValue;

use crate::context_refusal::ContextRefusal;

/// The error of [`reqwest::Url::parse`]; reqwest does not export its name.
type UrlParseError = <reqwest::Url as std::str::FromStr>::Err;

/// Why a client for an endpoint could not be set up. Detected before the first request, so the settings are wrong.
#[derive(Debug, thiserror::Error)]
pub enum ModelSetupError {
    #[error("the endpoint's address cannot be read: {0}")]
    Address(#[source] UrlParseError),
    /// The address is shown without user, password and query, which may hold secrets.
    #[error("{shown_url:?} is no http or https address")]
    Scheme { shown_url: String },
    /// The TLS library or the certificates of this machine cannot be used.
    #[error("no HTTPS here: {}", root_cause(.0))]
    HttpClient(#[source] reqwest::Error),
    /// The key is not shown: it may be valid except for a trailing line break.
    #[error("the API key holds characters that no key has (a line break?)")]
    ApiKey(#[source] InvalidHeaderValue),
}

/// Why the body of a response with a status of success is not the reply of a model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplyDecodeError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Some servers send their errors with a status of success.
    #[error("it reports an error ({message})")]
    Reported { message: String },
    #[error("it has no choices")]
    NoChoices,
}

/// Why one attempt failed. The messages contain no secrets: what a server sent is masked before it is put in. Causes
/// are strings, so that the error is comparable and cloneable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    #[error("no connection: {0}")]
    Connect(String),
    /// The request may have arrived and may have to be paid for.
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The endpoint accepts calls but answers none: several rounds of timeouts without any response.
    #[error("no answer to any call for {} s", .0.as_secs_f64().round())]
    Silent(Duration),
    /// The pause that `Retry-After` asks for, if the response has one.
    #[error("rate limited (HTTP 429)")]
    RateLimited { retry_after: Option<Duration> },
    /// A status that may pass: 5xx, 408 or 409.
    #[error("HTTP {status}: {message}")]
    Server { status: u16, message: String, retry_after: Option<Duration> },
    /// The server is still loading its model. The client waits for it, so callers see this only after `max_load_wait`.
    #[error("the model server is still loading its model after {} s (HTTP {status}: {message})", .waited.as_secs())]
    Loading { status: u16, message: String, waited: Duration },
    /// The endpoint asks for a longer pause than `MAX_RETRY_AFTER`. Fatal, so that the user decides whether to wait.
    #[error("the endpoint asks to be left alone for {} s", .0.as_secs())]
    LongPause(Duration),
    /// The key or the account is refused, or its quota is used up.
    #[error("HTTP {status}: {message}")]
    Unauthorized { status: u16, message: String },
    /// The path or the model does not exist.
    #[error("HTTP {status}: {message}")]
    NotFound { status: u16, message: String },
    /// The prompt does not fit into the context window; only a shorter prompt helps.
    #[error("the prompt is too long for the model: {0}")]
    TooLong(ContextRefusal),
    /// The endpoint refuses this request; others may succeed.
    #[error("HTTP {status}: {message}")]
    Refused { status: u16, message: String },
    /// A status of success with a body that is not a reply. It may be a page of a proxy, so another attempt is made.
    #[error("not a model's answer: {0}")]
    BadReply(String),
    /// No request was sent: the limit of calls is reached.
    #[error("the limit of calls is reached")]
    CallLimit,
}

impl CallError {
    /// Whether the same call may succeed later. Only these errors are retried.
    pub fn is_transient(&self) -> bool {
        match self {
            CallError::Connect(_)
            | CallError::Broken(_)
            | CallError::Timeout(_)
            | CallError::RateLimited { .. }
            | CallError::Server { .. }
            | CallError::Loading { .. }
            | CallError::BadReply(_) => true,
            CallError::Unauthorized { .. }
            | CallError::NotFound { .. }
            | CallError::TooLong(_)
            | CallError::Refused { .. }
            | CallError::LongPause(_)
            | CallError::Silent(_)
            | CallError::CallLimit => false,
        }
    }

    /// Whether every other call to this endpoint would fail the same way.
    pub fn is_fatal(&self) -> bool {
        matches!(self, CallError::Unauthorized { .. } | CallError::NotFound { .. } | CallError::LongPause(_))
    }

    /// Whether the provider may charge for the call although it failed: the request arrived, and the response is not a
    /// refusal.
    pub fn may_be_paid_for(&self) -> bool {
        matches!(self, CallError::Broken(_) | CallError::Timeout(_) | CallError::Silent(_) | CallError::BadReply(_))
    }

    /// The pause that the endpoint asked for in its headers.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            CallError::RateLimited { retry_after } | CallError::Server { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// A call that was given up, and how often it was tried.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}{}", attempts_text(*attempts))]
pub struct ModelCallFailure {
    pub error: CallError,
    pub attempts: u32,
}

fn attempts_text(attempts: u32) -> String {
    if attempts > 1 { format!(" (tried {attempts} times)") } else { String::new() }
}
