//! Sends calls to one endpoint. Each attempt needs a permit of the limiter. A failed attempt is retried if that can
//! help.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gradus_http::{contains_secret, http_client_builder, mask_secrets, register_url_secrets, root_cause};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{StatusCode, Url};
use tokio::time::Instant;

use crate::chat::{ChatReply, ChatRequest};
use crate::context_refusal::ContextRefusal;
use crate::endpoint::{ModelEndpoint, ModelProvider};
use crate::error::{CallError, ModelCallFailure, ModelSetupError, ReplyDecodeError};
use crate::limiter::{CallPermit, CallPriority, ConcurrencyLimiter, LoadSignal};
use crate::loading::{LoadWait, is_loading_message};
use crate::openai::{EndpointQuirks, RequestedFeatures};
use crate::request::{ModelReply, ModelRequest};
use crate::retry::RetryPolicy;
use crate::silence::SilenceDetector;
use crate::{anthropic, headers, openai};

/// Maximum bytes read from a response. No judge or agent writes more, so a longer response is an error or an attack
/// on memory.
const MAX_REPLY_BYTES: usize = 8 << 20;
/// An endpoint that has never answered is probably misconfigured. It gets fewer attempts than the retry policy allows,
/// so that a wrong address is reported within seconds.
const FIRST_CONTACT_ATTEMPTS: u32 = 3;
const FIRST_CONTACT_TIMEOUTS: u32 = 2;
/// Interval at which a server that is loading its model is polled.
const LOAD_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which the load notice is repeated.
const LOAD_NOTICE_INTERVAL: Duration = Duration::from_secs(30);

/// Called with the time that a model server has been loading its model: at first, then every 30 seconds. May be called
/// from any task of the client.
pub type LoadNotice = Arc<dyn Fn(Duration) + Send + Sync>;

/// A request of either kind in the wire form of the endpoint. The body is encoded anew for each attempt, because the
/// client may have learned in between what the endpoint does not accept.
struct RequestCodec<'q, T> {
    body: &'q (dyn Fn(EndpointQuirks) -> Vec<u8> + Sync),
    read: fn(&[u8]) -> Result<T, ReplyDecodeError>,
    /// Optional features that the request uses. The client learns from a refusal only if it names one of them.
    features: RequestedFeatures,
}

/// One endpoint with its connection pool, its concurrency limiter and what was learned about it. Shared by all tasks
/// that call the endpoint; every method takes `&self`.
pub struct ModelClient {
    endpoint: ModelEndpoint,
    url: Url,
    /// The address without user, password and query.
    shown_url: String,
    http: reqwest::Client,
    /// Content type, version and key. The key is marked as sensitive, so that debug output does not show it.
    headers: HeaderMap,
    /// Shared by clients of the same endpoint.
    limiter: Arc<ConcurrencyLimiter>,
    retry: RetryPolicy,
    /// Learned from refusals. Held only to read or replace the value, never across an await.
    quirks: Mutex<EndpointQuirks>,
    /// Whether any response was successful, which shows that address, key and model are right.
    has_answered: AtomicBool,
    silence: SilenceDetector,
    /// Requests sent, retries included. Compared with `max_calls` before each request. Clients may share it.
    calls: Arc<AtomicU64>,
    max_calls: u64,
    load_wait: LoadWait,
    load_notice: Option<LoadNotice>,
    /// Seconds of loading at the last notice; `u64::MAX` before the first one.
    load_noticed_s: AtomicU64,
}

impl std::fmt::Debug for ModelClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl ModelClient {
    /// Sets up the connection pool. Sends nothing, so a wrong host or key is only found by the first call.
    pub fn new(
        endpoint: ModelEndpoint,
        concurrency: usize,
        retry: RetryPolicy,
    ) -> Result<ModelClient, ModelSetupError> {
        let url = endpoint.build_request_url()?;
        register_url_secrets(&endpoint.base_url);
        let http = http_client_builder()
            .connect_timeout(endpoint.timeout.min(Duration::from_secs(10)))
            .pool_max_idle_per_host(concurrency)
            .tcp_nodelay(true)
            .build()
            .map_err(ModelSetupError::HttpClient)?;
        let headers = build_request_headers(&endpoint)?;
        let shown_url = endpoint.shown_url();
        let limiter = Arc::new(ConcurrencyLimiter::new(concurrency));
        Ok(ModelClient {
            url,
            shown_url,
            http,
            headers,
            limiter,
            retry,
            endpoint,
            quirks: Mutex::default(),
            has_answered: AtomicBool::new(false),
            silence: SilenceDetector::default(),
            calls: Arc::default(),
            max_calls: u64::MAX,
            load_wait: LoadWait::default(),
            load_notice: None,
            load_noticed_s: AtomicU64::new(u64::MAX),
        })
    }

    /// Calls `notice` while the endpoint's server loads its model: at first, and every 30 seconds.
    #[must_use]
    pub fn with_load_notice(mut self, notice: LoadNotice) -> ModelClient {
        self.load_notice = Some(notice);
        self
    }

    /// For how long the endpoint's server has been loading its model; `None` when it is not.
    pub fn loading_for(&self) -> Option<Duration> {
        self.load_wait.elapsed()
    }

    /// Limits the requests that the client may send, retries included. A call over the limit fails with
    /// [`CallError::CallLimit`].
    #[must_use]
    pub fn with_max_calls(mut self, max_calls: Option<u64>) -> ModelClient {
        self.max_calls = max_calls.unwrap_or(u64::MAX);
        self
    }

    /// A client of the same endpoint that counts and limits its own requests. Connections and the concurrency limit are
    /// shared.
    #[must_use]
    pub fn with_own_calls(&self, max_calls: Option<u64>) -> ModelClient {
        let quirks = *self.quirks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        ModelClient {
            endpoint: self.endpoint.clone(),
            url: self.url.clone(),
            shown_url: self.shown_url.clone(),
            http: self.http.clone(),
            headers: self.headers.clone(),
            limiter: Arc::clone(&self.limiter),
            retry: self.retry,
            quirks: Mutex::new(quirks),
            has_answered: AtomicBool::new(false),
            silence: SilenceDetector::default(),
            calls: Arc::default(),
            max_calls: max_calls.unwrap_or(u64::MAX),
            load_wait: LoadWait::default(),
            load_notice: self.load_notice.clone(),
            load_noticed_s: AtomicU64::new(u64::MAX),
        }
    }

    /// Counts requests together with another client, so that a limit holds for both.
    #[must_use]
    pub fn with_shared_calls(mut self, other: &ModelClient) -> ModelClient {
        self.calls = Arc::clone(&other.calls);
        self
    }

    /// Whether both count their requests together.
    pub fn shares_calls_with(&self, other: &ModelClient) -> bool {
        Arc::ptr_eq(&self.calls, &other.calls)
    }

    pub fn endpoint(&self) -> &ModelEndpoint {
        &self.endpoint
    }

    /// The address for messages and reports, without user, password and query.
    pub fn shown_url(&self) -> &str {
        &self.shown_url
    }

    /// The limiter of this endpoint, for reports on the load.
    pub fn limiter(&self) -> &ConcurrencyLimiter {
        &self.limiter
    }

    /// Requests sent so far, retries included; with a shared counter, those of all clients.
    pub fn call_count(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether the endpoint has ever answered a call. Until then an error may be one of configuration.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Asks until the endpoint answers or a retry cannot help. Also returns the number of requests sent, even on
    /// failure: they may be billed.
    pub async fn ask(&self, request: &ModelRequest<'_>) -> (u32, Result<ModelReply, ModelCallFailure>) {
        let model = &self.endpoint.model;
        let question = match self.endpoint.provider {
            ModelProvider::OpenAi => RequestCodec {
                body: &|quirks| openai::encode_openai_request(model, request, quirks),
                read: openai::decode_openai_reply,
                features: RequestedFeatures::for_request(request),
            },
            ModelProvider::Anthropic => RequestCodec {
                body: &|_| anthropic::encode_anthropic_request(model, request),
                read: anthropic::decode_anthropic_reply,
                features: RequestedFeatures::default(),
            },
        };
        let (attempts, mut answered) = self.call_with_retries(&question).await;
        if let Ok(reply) = &mut answered {
            mask_echoed_secrets([Some(&mut reply.text), reply.model.as_mut()].into_iter().flatten());
        }
        (attempts, answered)
    }

    /// Continues a conversation with tools, with the limits and retries of `ask`.
    pub async fn chat(&self, chat: &ChatRequest<'_>) -> (u32, Result<ChatReply, ModelCallFailure>) {
        let model = &self.endpoint.model;
        let question = match self.endpoint.provider {
            ModelProvider::OpenAi => RequestCodec {
                body: &|quirks| openai::chat::encode_openai_chat(model, chat, quirks),
                read: openai::chat::decode_openai_chat,
                features: RequestedFeatures::for_chat(chat),
            },
            ModelProvider::Anthropic => RequestCodec {
                body: &|_| anthropic::chat::encode_anthropic_chat(model, chat),
                read: anthropic::chat::decode_anthropic_chat,
                features: RequestedFeatures::default(),
            },
        };
        let (attempts, mut answered) = self.call_with_retries(&question).await;
        if let Ok(reply) = &mut answered {
            let arguments = reply.calls.iter_mut().map(|call| &mut call.arguments);
            mask_echoed_secrets(arguments.chain([&mut reply.text]));
        }
        (attempts, answered)
    }

    /// Repeats the attempts of one call. Rate limits and other failures are counted separately: rate limits pass, so
    /// they get more attempts.
    async fn call_with_retries<T>(&self, question: &RequestCodec<'_, T>) -> (u32, Result<T, ModelCallFailure>) {
        let mut turn = CallPriority::New;
        let (mut others, mut rate_limited, mut attempts) = (0, 0, 0);
        loop {
            let load_turn = self.load_wait.wait_turn(LOAD_POLL_INTERVAL.min(self.retry.max_load_wait)).await;
            let mut permit = self.limiter.acquire(turn).await;
            // Read after the wait: another call may have learned a quirk meanwhile.
            let quirks = self.current_quirks();
            if self.calls.fetch_add(1, Ordering::Relaxed) >= self.max_calls {
                self.calls.fetch_sub(1, Ordering::Relaxed);
                return (attempts, Err(ModelCallFailure { error: CallError::CallLimit, attempts }));
            }
            attempts += 1;
            let error = match self.attempt_call(question, quirks, &mut permit).await {
                Ok(reply) => return (attempts, Ok(reply)),
                Err(error) => error,
            };
            drop(permit);
            drop(load_turn);
            turn = CallPriority::Retry;
            if let CallError::Loading { waited, .. } = &error {
                // No model worked on it, so it does not count against the limit of calls.
                self.calls.fetch_sub(1, Ordering::Relaxed);
                attempts -= 1;
                if *waited >= self.retry.max_load_wait {
                    return (attempts, Err(ModelCallFailure { error, attempts }));
                }
                self.notify_loading(*waited);
                continue;
            }
            if let CallError::Refused { message, .. } = &error
                && self.learn_from_refusal(question.features, quirks, message)
            {
                continue;
            }
            match error {
                CallError::RateLimited { .. } => rate_limited += 1,
                _ => others += 1,
            }
            // If the first contact fails like this, the full retry policy is not used.
            let given_up = !self.has_answered()
                && match error {
                    CallError::Connect(_) => others >= FIRST_CONTACT_ATTEMPTS,
                    CallError::Timeout(_) => others >= FIRST_CONTACT_TIMEOUTS,
                    _ => false,
                };
            match self.retry.next_retry_delay(&error, others, rate_limited) {
                Some(pause) if !given_up => tokio::time::sleep(pause).await,
                _ => return (attempts, Err(ModelCallFailure { error, attempts })),
            }
        }
    }

    /// Calls the load notice if it is due. The atomic exchange ensures that only one of the waiting calls does.
    fn notify_loading(&self, waited: Duration) {
        let Some(notice) = &self.load_notice else { return };
        let (now, last) = (waited.as_secs(), self.load_noticed_s.load(Ordering::Relaxed));
        let is_due = last > now || now - last >= LOAD_NOTICE_INTERVAL.as_secs();
        if is_due && self.load_noticed_s.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            notice(waited);
        }
    }

    fn current_quirks(&self) -> EndpointQuirks {
        *self.quirks.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Learns a quirk of the endpoint from a refusal. Returns `true` if the call should be repeated: a quirk was
    /// learned now, or by another call after this one was encoded.
    fn learn_from_refusal(&self, features: RequestedFeatures, used: EndpointQuirks, message: &str) -> bool {
        if self.endpoint.provider != ModelProvider::OpenAi {
            return false;
        }
        let mut known = self.quirks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *known != used {
            return true;
        }
        match known.learn_from_refusal(features, message) {
            Some(better) => {
                *known = better;
                true
            }
            None => false,
        }
    }

    /// Sends one request under a permit. Sets the permit's load signal and passes the quota from the headers to the
    /// limiter.
    async fn attempt_call<T>(
        &self,
        question: &RequestCodec<'_, T>,
        quirks: EndpointQuirks,
        permit: &mut CallPermit<'_>,
    ) -> Result<T, CallError> {
        let body = (question.body)(quirks);
        let (limit, started) = (self.endpoint.timeout, Instant::now());
        let exchanged = tokio::time::timeout(limit, self.send_request(body)).await;
        let (status, answer_headers, bytes) = match exchanged {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                self.load_wait.end();
                return Err(error);
            }
            Err(_) => {
                self.load_wait.end();
                // A timeout counts as overload: overloaded servers answer late instead of refusing.
                permit.set_signal(LoadSignal::Overloaded { retry_after: None });
                let silent_for = self.silence.record_timeout(started, Instant::now());
                return Err(silent_for.map_or(CallError::Timeout(limit), CallError::Silent));
            }
        };
        self.silence.record_response();
        if let Some(allowance) = headers::parse_remaining_quota(&answer_headers) {
            self.limiter.set_quota(allowance);
        }
        if status.is_success() {
            self.has_answered.store(true, Ordering::Relaxed);
            permit.set_signal(LoadSignal::Answered);
            self.load_wait.end();
            return (question.read)(&bytes).map_err(|reason| {
                CallError::BadReply(mask_secrets(&format!("{reason}: {}", format_body_excerpt(&bytes))))
            });
        }
        let mut error = classify_error_response(status, &answer_headers, &bytes, self.has_answered());
        if let CallError::Loading { waited, .. } = &mut error {
            self.load_wait.begin();
            *waited = self.load_wait.elapsed().unwrap_or_default();
        } else {
            self.load_wait.end();
        }
        if matches!(error, CallError::RateLimited { .. }) || error.retry_after().is_some() {
            permit.set_signal(LoadSignal::Overloaded { retry_after: error.retry_after() });
        }
        Err(error)
    }

    /// Sends one request and reads the whole response, up to `MAX_REPLY_BYTES`.
    async fn send_request(&self, body: Vec<u8>) -> Result<(StatusCode, HeaderMap, Vec<u8>), CallError> {
        let sent = self.http.post(self.url.clone()).headers(self.headers.clone()).body(body).send().await;
        let mut response = sent.map_err(|error| {
            let reason = root_cause(&error);
            if error.is_connect() { CallError::Connect(reason) } else { CallError::Broken(reason) }
        })?;
        let status = response.status();
        let answer_headers = std::mem::take(response.headers_mut());
        let mut bytes = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if bytes.len() + chunk.len() > MAX_REPLY_BYTES => {
                    return Err(CallError::BadReply(format!("longer than {} MB", MAX_REPLY_BYTES >> 20)));
                }
                Ok(Some(chunk)) if bytes.is_empty() => bytes = chunk.to_vec(),
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => return Ok((status, answer_headers, bytes)),
                Err(error) => return Err(CallError::Broken(root_cause(&error))),
            }
        }
    }
}

/// Builds the headers of every request. Anthropic and Azure have their own key headers; all others take a bearer
/// token.
fn build_request_headers(endpoint: &ModelEndpoint) -> Result<HeaderMap, ModelSetupError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if endpoint.provider == ModelProvider::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
    }
    if !endpoint.key.is_empty() {
        let key = endpoint.key.expose();
        let (name, value) = match endpoint.provider {
            ModelProvider::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
            ModelProvider::OpenAi if endpoint.is_azure() => (HeaderName::from_static("api-key"), key.to_owned()),
            ModelProvider::OpenAi => (AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::from_str(&value).map_err(ModelSetupError::ApiKey)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Maps an HTTP error to a [`CallError`], which decides about retries. Once the endpoint has answered, the key is
/// known to be valid: a 403 is then about this request, for example moderation of the prompt.
fn classify_error_response(
    status: StatusCode,
    answer_headers: &HeaderMap,
    bytes: &[u8],
    has_answered: bool,
) -> CallError {
    let code = status.as_u16();
    let message = extract_error_message(bytes);
    let retry_after = gradus_http::retry_after(answer_headers);
    let lower = message.to_ascii_lowercase();
    match code {
        // OpenAI reports an empty account with the status of a rate limit. Waiting does not help.
        429 if lower.contains("insufficient_quota") => CallError::Unauthorized { status: code, message },
        429 | 503 if retry_after.is_some_and(|pause| pause > headers::MAX_RETRY_AFTER) => {
            CallError::LongPause(retry_after.unwrap_or_default())
        }
        429 => CallError::RateLimited { retry_after },
        _ if is_loading_message(code, &message) => CallError::Loading { status: code, message, waited: Duration::ZERO },
        // Redirects are not followed: the key would go to another host.
        300..=399 => {
            let to = answer_headers.get("location").and_then(|value| value.to_str().ok()).unwrap_or("elsewhere");
            let message = format!("it sends us to {}; check the address", format_body_excerpt(to.as_bytes()));
            CallError::Refused { status: code, message }
        }
        // Some servers report it as a server error (5xx), but a retry cannot help.
        500 if ContextRefusal::matches_message(&lower) => CallError::TooLong(ContextRefusal::read(message, bytes)),
        408 | 409 | 500.. => CallError::Server { status: code, message, retry_after },
        403 if has_answered => CallError::Refused { status: code, message },
        401..=403 => CallError::Unauthorized { status: code, message },
        404 => CallError::NotFound { status: code, message },
        413 => CallError::TooLong(ContextRefusal::read(message, bytes)),
        _ if ContextRefusal::matches_message(&lower) => CallError::TooLong(ContextRefusal::read(message, bytes)),
        _ => CallError::Refused { status: code, message },
    }
}

/// Returns the message in an error body: `error.message` (OpenAI, Anthropic), `message`, `detail` (FastAPI), or the
/// text itself.
fn extract_error_message(bytes: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
    let text = json.as_ref().and_then(|json| {
        let error = json.get("error").unwrap_or(json);
        let message = error.get("message").or_else(|| json.get("message")).or_else(|| json.get("detail"));
        let text = message.and_then(|message| message.as_str()).or_else(|| error.as_str())?;
        let code = error.get("code").and_then(|code| code.as_str());
        Some(match code {
            Some(code) if !text.contains(code) => format!("{text} ({code})"),
            _ => text.to_owned(),
        })
    });
    match (text, json) {
        (Some(text), _) => format_body_excerpt(text.as_bytes()),
        // Serialised again, because escapes in the original could hide a key from masking.
        (None, Some(json)) => format_body_excerpt(json.to_string().as_bytes()),
        (None, None) => format_body_excerpt(bytes),
    }
}

/// Masks keys in texts of an endpoint, which may echo the key that it received.
fn mask_echoed_secrets<'a>(texts: impl Iterator<Item = &'a mut String>) {
    for text in texts {
        if contains_secret(text) {
            *text = mask_secrets(text);
        }
    }
}

/// Returns the beginning of a response on one line, for messages. Secrets are masked before the cut, because part of
/// a key is a leak, too.
fn format_body_excerpt(bytes: &[u8]) -> String {
    const SHOWN: usize = 300;
    // Masking is linear in the text, and a response may have megabytes.
    const LOOKED_AT: usize = 16 << 10;
    let text = mask_secrets(&String::from_utf8_lossy(&bytes[..bytes.len().min(LOOKED_AT)]));
    let line = text.split_whitespace().take(SHOWN).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None if line.is_empty() => "(empty)".to_owned(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> CallError {
        classify_error_response(
            StatusCode::from_u16(status).expect("a status"),
            &HeaderMap::new(),
            body.as_bytes(),
            false,
        )
    }

    #[test]
    fn a_key_that_is_echoed_is_masked() {
        gradus_http::register_secret("echoed-key-4711");
        let mut texts = ["{\"key\": \"echoed-key-4711\"}".to_owned(), "nothing".to_owned()];
        mask_echoed_secrets(texts.iter_mut());
        assert!(!texts[0].contains("4711"), "{}", texts[0]);
        assert_eq!(texts[1], "nothing");
    }

    #[test]
    fn tells_refusals_apart() {
        assert!(refused(401, "{\"error\":{\"message\":\"Incorrect API key\"}}").is_fatal());
        assert!(refused(404, "{\"error\":{\"message\":\"The model `x` does not exist\"}}").is_fatal());
        let quota = "{\"error\":{\"message\":\"You exceeded your current quota\",\"code\":\"insufficient_quota\"}}";
        assert!(refused(429, quota).is_fatal());
        for status in [408, 409, 429, 500, 502, 503, 529] {
            assert!(refused(status, "").is_transient(), "{status}");
        }
        for status in [400, 405, 422] {
            let error = refused(status, "{\"detail\":\"bad\"}");
            assert!(!error.is_transient() && !error.is_fatal(), "{status}");
            assert_eq!(error.to_string(), format!("HTTP {status}: bad"));
        }
        let loading = "{\"error\":{\"code\":503,\"message\":\"Loading model\",\"type\":\"unavailable_error\"}}";
        assert!(matches!(refused(503, loading), CallError::Loading { .. }));
        let long = "{\"error\":{\"message\":\"maximum context length is 8192 tokens\"}}";
        assert!(matches!(refused(400, long), CallError::TooLong(refusal) if refusal.window_tokens == Some(8192)));
        assert_eq!(refused(502, "<html>\n\n<b>Bad gateway</b>").to_string(), "HTTP 502: <html> <b>Bad gateway</b>");
    }

    /// An endpoint that answers one call and then accepts connections without answering.
    #[tokio::test]
    async fn an_endpoint_that_falls_silent_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                if open.is_empty() {
                    let mut request = [0; 4096];
                    let _ = tokio::io::AsyncReadExt::read(&mut connection, &mut request).await;
                    let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut connection, answer.as_bytes()).await;
                }
                open.push(connection);
            }
        });
        let endpoint = ModelEndpoint {
            provider: ModelProvider::OpenAi,
            base_url: format!("http://{address}/v1"),
            key: gradus_http::SecretString::default(),
            model: "m".to_owned(),
            timeout: Duration::from_millis(200),
            local_server: None,
        };
        let retry = RetryPolicy { attempts: 100, first_pause: Duration::from_millis(1), ..RetryPolicy::default() };
        let client = ModelClient::new(endpoint, 4, retry).expect("a client");
        let question =
            RequestCodec { body: &|_| b"{}".to_vec(), read: |_| Ok(()), features: RequestedFeatures::default() };
        assert_eq!(client.call_with_retries(&question).await.1, Ok(()));
        let (attempts, answered) = client.call_with_retries(&question).await;
        let failure = answered.expect_err("nobody answers");
        assert!(matches!(failure.error, CallError::Silent(time) if time >= Duration::from_secs(1)), "{failure}");
        assert_eq!(attempts, 5);
        serving.abort();
    }
}
