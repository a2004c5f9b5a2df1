//! HTTP requests to a Phoenix: key, headers, timeouts, retries. It knows nothing of spans and annotations.

use std::time::Duration;

use gradus_http::{HttpFailure, HttpResponse, RetryBudget, SecretString};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::address::PhoenixAddress;
use super::error::{PhoenixClientError, PhoenixSettingsError};
use crate::client::exchange::{RestExchange, is_page};

/// A connection pool with credentials and a retry budget. Cheap to clone; clones share the pool.
#[derive(Clone, Debug)]
pub struct PhoenixClient {
    http: reqwest::Client,
    /// Without a slash at the end.
    base: String,
    /// Sent as a bearer token. Validated in [`PhoenixClient::new`], so that building a request cannot fail.
    key: Option<SecretString>,
    /// Further headers of the user, such as those of a reverse proxy. Their values are marked sensitive.
    headers: HeaderMap,
    retry_budget: RetryBudget,
    /// Maximum time without a byte, not for the whole response.
    timeout: Duration,
}

/// The `[phoenix]` table and the environment variables of Phoenix's own clients.
#[derive(Clone, Debug, Default)]
pub struct PhoenixClientSettings {
    /// Seconds without a byte before a request fails.
    pub timeout_s: Option<f64>,
    /// Seconds for which an unreachable or failing server is retried.
    pub retry_s: Option<f64>,
    /// `PHOENIX_API_KEY`.
    pub api_key: Option<SecretString>,
    /// `name=value,name=value`, the format of `PHOENIX_CLIENT_HEADERS`.
    pub headers: Option<SecretString>,
}

/// Separate from the response timeout: a host that does not exist is known sooner.
const PHOENIX_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a response: Phoenix answers no request while it serialises a large page.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// Phoenix's server closes connections that were idle for five seconds. A request on a connection that is being closed
/// would fail, so ours are dropped earlier.
const MAX_IDLE_TIME: Duration = Duration::from_secs(3);
/// A restart of Phoenix takes about half a minute.
pub const DEFAULT_RETRY_TIME: Duration = Duration::from_secs(60);
/// The first request fails quickly: a wrong address is more probable than a restart.
const FIRST_RETRY_TIME: Duration = Duration::from_secs(3);
/// Maximum bytes of lists of projects and of responses to annotations; pages of spans have limits of their own.
const MAX_REST_RESPONSE_BYTES: usize = 32 << 20;

impl PhoenixClient {
    /// Fails only because of settings; nothing is sent yet.
    pub fn new(
        address: &PhoenixAddress,
        settings: &PhoenixClientSettings,
    ) -> Result<PhoenixClient, PhoenixSettingsError> {
        let seconds = |value: Option<f64>, name: &'static str, default: Duration| match value {
            None => Ok(default),
            Some(value) => Duration::try_from_secs_f64(value).map_err(|_| PhoenixSettingsError::NotSeconds { name }),
        };
        let timeout = seconds(settings.timeout_s, "timeout_s", DEFAULT_TIMEOUT)?;
        let give_up_after = seconds(settings.retry_s, "retry_s", DEFAULT_RETRY_TIME)?;
        let http = gradus_http::http_client_builder()
            .connect_timeout(PHOENIX_CONNECT_TIMEOUT.min(timeout))
            .read_timeout(timeout)
            .pool_idle_timeout(MAX_IDLE_TIME)
            .build()
            .map_err(PhoenixSettingsError::HttpClient)?;
        let is_key = |key: &SecretString| HeaderValue::from_str(&format!("Bearer {}", key.expose())).is_ok();
        if settings.api_key.as_ref().is_some_and(|key| !is_key(key)) {
            return Err(PhoenixSettingsError::MalformedKey);
        }
        Ok(PhoenixClient {
            http,
            base: address.base.clone(),
            key: settings.api_key.clone(),
            headers: gradus_http::parse_header_list(settings.headers.as_ref())
                .map_err(|error| PhoenixSettingsError::MalformedHeaders(error.to_string()))?,
            retry_budget: RetryBudget::new(give_up_after),
            timeout,
        })
    }

    /// Without credentials, so that it can be shown.
    pub fn base_url(&self) -> &str {
        &self.base
    }

    /// The same client with a smaller retry budget, for the first request of a command.
    pub(super) fn with_short_retry(&self) -> PhoenixClient {
        let give_up_after = self.retry_budget.give_up_after.min(FIRST_RETRY_TIME);
        PhoenixClient { retry_budget: RetryBudget { give_up_after, ..self.retry_budget }, ..self.clone() }
    }

    /// GETs JSON of a known form. `what` names the purpose in error messages.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        what: &'static str,
    ) -> Result<T, PhoenixClientError> {
        let answer = self.get_with_limit(path, what, MAX_REST_RESPONSE_BYTES).await?;
        serde_json::from_slice(&answer.body).map_err(|_| self.unexpected_response_error(&answer, path, what))
    }

    /// GETs a response of up to `limit` bytes. A longer one is [`PhoenixClientError::TooLong`], and is not read to its
    /// end.
    pub(super) async fn get_with_limit(
        &self,
        path: &str,
        what: &'static str,
        limit: usize,
    ) -> Result<HttpResponse, PhoenixClientError> {
        let answer = self
            .retry_budget
            .send_with_retries(limit, || self.with_key(self.http.get(format!("{}{path}", self.base))))
            .await
            .map_err(|error| self.unanswered_error(error))?;
        // Old versions answer unknown routes with the HTML of their web interface and status 200.
        if answer.status != StatusCode::OK || is_page(&answer) {
            return Err(self.unexpected_response_error(&answer, path, what));
        }
        Ok(answer)
    }

    /// POSTs JSON and returns any response. The caller interprets the status. A retry can repeat a request that took
    /// effect; annotations with an identifier are upserts, so that does no harm.
    pub(super) async fn post(&self, path: &str, body: &Json) -> Result<HttpResponse, PhoenixClientError> {
        let body = body.to_string();
        let request = || {
            let request = self.http.post(format!("{}{path}", self.base));
            self.with_key(request.header(CONTENT_TYPE, "application/json").body(body.clone()))
        };
        self.retry_budget
            .send_with_retries(MAX_REST_RESPONSE_BYTES, request)
            .await
            .map_err(|error| self.unanswered_error(error))
    }

    /// The error for a response that is not the expected one.
    pub(super) fn unexpected_response_error(
        &self,
        answer: &HttpResponse,
        path: &str,
        what: &'static str,
    ) -> PhoenixClientError {
        let route = path.split('?').next().unwrap_or_default();
        PhoenixClientError::from_exchange(&self.base, self.key.is_some(), &RestExchange { answer, route, what })
    }

    /// The error for a request that got no response.
    fn unanswered_error(&self, error: HttpFailure) -> PhoenixClientError {
        PhoenixClientError::from_http_failure(&self.base, error, self.timeout.as_secs())
    }

    /// Adds credentials and configured headers to a request.
    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request.headers(self.headers.clone());
        match &self.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        }
    }
}
