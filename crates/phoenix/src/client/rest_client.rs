//! Asks a Phoenix: the key, the headers, how long to wait and to try again. What is asked, others know.

use std::time::Duration;

use gradus_http::{HttpFailure, HttpResponse, RetryBudget, SecretString};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::address::PhoenixAddress;
use super::error::{PhoenixClientError, PhoenixSettingsError};
use crate::client::exchange::{RestExchange, is_page};

/// A Phoenix and how it is asked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PhoenixClient {
    http: reqwest::Client,
    base: String,
    key: Option<SecretString>,
    headers: HeaderMap,
    retry_budget: RetryBudget,
    timeout: Duration,
}

/// How a Phoenix is asked.
#[derive(Clone, Debug, Default)]
pub struct PhoenixClientSettings {
    /// How long it may say nothing.
    pub timeout_s: Option<f64>,
    /// How long to try again while it cannot be reached or fails.
    pub retry_s: Option<f64>,
    pub api_key: Option<SecretString>,
    /// `name=value,name=value`, as Phoenix's own clients are told.
    pub headers: Option<SecretString>,
}

const CONNECT: Duration = Duration::from_secs(10);
/// Phoenix answers nobody while it is busy with a large page.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Its server closes connections that were idle for five seconds: a request on one that is being closed would fail.
const IDLE: Duration = Duration::from_secs(3);
/// It takes half a minute to start anew.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
/// A first look at a server that is not there should not take long.
const FIRST_GIVE_UP_AFTER: Duration = Duration::from_secs(3);
/// Of lists of projects and of what is said to annotations; pages of spans have their own.
const MAX_ANSWER: usize = 32 << 20;

impl PhoenixClient {
    pub fn new(address: &PhoenixAddress, settings: &PhoenixClientSettings) -> Result<PhoenixClient, PhoenixSettingsError> {
        let seconds = |value: Option<f64>, name: &'static str, default: Duration| match value {
            None => Ok(default),
            Some(value) => {
                Duration::try_from_secs_f64(value).map_err(|_| PhoenixSettingsError::NotSeconds { name })
            }
        };
        let timeout = seconds(settings.timeout_s, "timeout_s", TIMEOUT)?;
        let give_up_after = seconds(settings.retry_s, "retry_s", GIVE_UP_AFTER)?;
        let http = gradus_http::http_client()
            .connect_timeout(CONNECT.min(timeout))
            .read_timeout(timeout)
            .pool_idle_timeout(IDLE)
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

    pub fn base_url(&self) -> &str {
        &self.base
    }

    /// The same with less retry_budget, for the first question.
    pub(super) fn with_short_retry(&self) -> PhoenixClient {
        let give_up_after = self.retry_budget.give_up_after.min(FIRST_GIVE_UP_AFTER);
        PhoenixClient { retry_budget: RetryBudget { give_up_after, ..self.retry_budget }, ..self.clone() }
    }

    /// Asks for JSON of a known form.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        what: &'static str,
    ) -> Result<T, PhoenixClientError> {
        let answer = self.get_with_limit(path, what, MAX_ANSWER).await?;
        serde_json::from_slice(&answer.body).map_err(|_| self.not_as_expected(&answer, path, what))
    }

    /// Asks for something that may be long: an answer over the limit is an error that tells so.
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
        // An old Phoenix shows its page for everything that it does not know.
        if answer.status != StatusCode::OK || is_page(&answer) {
            return Err(self.not_as_expected(&answer, path, what));
        }
        Ok(answer)
    }

    /// Sends JSON. What the answer means, the caller knows.
    pub(super) async fn post(&self, path: &str, body: &Json) -> Result<HttpResponse, PhoenixClientError> {
        let body = body.to_string();
        let request = || {
            let request = self.http.post(format!("{}{path}", self.base));
            self.with_key(request.header(CONTENT_TYPE, "application/json").body(body.clone()))
        };
        self.retry_budget.send_with_retries(MAX_ANSWER, request).await.map_err(|error| self.unanswered_error(error))
    }

    pub(super) fn not_as_expected(&self, answer: &HttpResponse, path: &str, what: &'static str) -> PhoenixClientError {
        let route = path.split('?').next().unwrap_or_default();
        PhoenixClientError::from_exchange(&self.base, self.key.is_some(), &RestExchange { answer, route, what })
    }

    fn unanswered_error(&self, error: HttpFailure) -> PhoenixClientError {
        PhoenixClientError::from_http_failure(&self.base, error, self.timeout.as_secs())
    }

    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request.headers(self.headers.clone());
        match &self.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        }
    }
}
