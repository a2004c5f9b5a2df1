//! Requests to GitHub's REST API, one at a time and never repeated: whether to retry is the agent's decision, so it
//! must see every refusal.

use std::time::Duration;

use hyper::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, LINK, LOCATION, RETRY_AFTER};
use hyper::{Method, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

/// Maximum size in bytes of a response body. GitHub returns files of up to 1 MB as text, which fit.
const MAX_RESPONSE_BODY_BYTES: usize = 16 << 20;
/// Maximum number of redirects that are followed. A renamed repository redirects once per rename.
const MAX_REDIRECTS: u32 = 3;
/// Characters to percent-encode: all but the unreserved ones of RFC 3986.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why an operation has no result. Becomes an observation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ToolOperationFailure {
    /// Nothing was sent, because of the arguments.
    Arguments(Vec<String>),
    /// Another problem that the agent can act on.
    Unfit(String),
    /// GitHub answered with an error status.
    Refused { status: u16, body: Value, retry_after: Option<Duration>, is_write: bool },
    /// No complete response. After a write its effect is unknown.
    Lost { reason: String, is_write: bool },
    /// A success that is not JSON, so that it does not come from GitHub.
    NotJson { content_type: String },
}

/// Why a request got no complete response. The text becomes the reason of [`ToolOperationFailure::Lost`].
#[derive(Debug, thiserror::Error)]
enum LostResponse {
    #[error("this cannot be asked: {0}")]
    BadUrl(String),
    #[error("{}", gradus_http::root_cause(.0))]
    NotSent(#[source] reqwest::Error),
    #[error("the answer broke off ({})", gradus_http::root_cause(.0))]
    BrokenOff(#[source] reqwest::Error),
    #[error("the answer is over {} MB; ask for less", MAX_RESPONSE_BODY_BYTES >> 20)]
    TooLong,
    #[error("nothing came within {} s", .0.as_secs_f64())]
    Timeout(Duration),
}

/// A request before it is sent.
#[derive(Clone, Debug)]
pub(super) struct RestRequest {
    method: Method,
    /// A path below the API's address, or an absolute URL on the same host after a redirect.
    target: String,
    body: Option<Value>,
}

/// Paging parameters; GitHub's defaults apply where they are absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct PagingArguments {
    pub(super) page: Option<u32>,
    pub(super) per_page: Option<u32>,
}

/// A complete response, whatever its status.
#[derive(Debug)]
pub(super) struct RestResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// Null if there is none.
    pub(super) body: Value,
}

/// Sends requests to one server. The token is a default header of the HTTP client.
#[derive(Debug)]
pub(super) struct RestClient {
    http: reqwest::Client,
    base: Uri,
    timeout: Duration,
}

impl RestRequest {
    pub(super) fn get(route: String) -> RestRequest {
        RestRequest { method: Method::GET, target: route, body: None }
    }

    pub(super) fn delete(route: String) -> RestRequest {
        RestRequest { method: Method::DELETE, target: route, body: None }
    }

    pub(super) fn post(route: String, body: Value) -> RestRequest {
        RestRequest { method: Method::POST, target: route, body: None }.with_body(body)
    }

    pub(super) fn put(route: String, body: Value) -> RestRequest {
        RestRequest { method: Method::PUT, target: route, body: None }.with_body(body)
    }

    pub(super) fn patch(route: String, body: Value) -> RestRequest {
        RestRequest { method: Method::PATCH, target: route, body: None }.with_body(body)
    }

    /// Sets the body. Null is no body; null fields are left out, since GitHub treats them as changes.
    pub(super) fn with_body(mut self, body: Value) -> RestRequest {
        self.body = (!body.is_null()).then(|| drop_null_fields(body));
        self
    }

    /// Adds the members of an object as parameters; null ones are left out.
    pub(super) fn with_query(mut self, query: &Value) -> RestRequest {
        for (name, value) in query.as_object().into_iter().flatten() {
            let text = match value {
                Value::Null => continue,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            self.target.push(if self.target.contains('?') { '&' } else { '?' });
            self.target.push_str(name);
            self.target.push('=');
            self.target.extend(utf8_percent_encode(&text, UNRESERVED));
        }
        self
    }

    pub(super) fn with_page(self, page: PagingArguments) -> RestRequest {
        self.with_query(&json!({"page": page.page, "per_page": page.per_page}))
    }
}

impl RestResponse {
    /// Returns the page number of the `rel="next"` link.
    pub(super) fn next_page(&self) -> Option<u64> {
        let link = self.headers.get(LINK)?.to_str().ok()?;
        let next = link.split(',').find(|one| one.contains("rel=\"next\""))?;
        let target = next.split(['<', '>']).nth(1)?;
        let (_, query) = target.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix("page="))?.parse().ok()
    }

    /// Converts to a list as the agent sees it: items, total count if there is one, and the next page.
    pub(super) fn to_item_list(&self, view: impl Fn(&Value) -> Value) -> Value {
        let mut seen = Map::new();
        let list = self.body.get("items").unwrap_or(&self.body);
        if let Some(total) = self.body.get("total_count") {
            seen.insert("total_count".to_owned(), total.clone());
        }
        if self.body["incomplete_results"] == true {
            seen.insert("incomplete_results".to_owned(), true.into());
        }
        let items = list.as_array().map(|list| list.iter().map(view).collect()).unwrap_or_default();
        seen.insert("items".to_owned(), Value::Array(items));
        if let Some(next) = self.next_page() {
            seen.insert("next_page".to_owned(), next.into());
        }
        Value::Object(seen)
    }
}

impl RestClient {
    pub(super) fn new(http: reqwest::Client, base: Uri, timeout: Duration) -> RestClient {
        RestClient { http, base, timeout }
    }

    /// Sends a request and follows redirects of renamed repositories. Any status but success is an error.
    pub(super) async fn send(&self, mut request: RestRequest) -> Result<RestResponse, ToolOperationFailure> {
        let is_write = request.method != Method::GET;
        let mut answer = self.send_once(request.clone()).await?;
        for _ in 0..MAX_REDIRECTS {
            let Some(target) = self.redirect_target(&answer, is_write) else { break };
            request.target = target;
            answer = self.send_once(request.clone()).await?;
        }
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        let retry_after = retry_after(answer.status, &answer.headers);
        let mut body = answer.body;
        if (300..400).contains(&answer.status) {
            let to = answer.headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("elsewhere");
            body = json!({"message": format!("Moved to {to}")});
        }
        Err(ToolOperationFailure::Refused { status: answer.status, body, retry_after, is_write })
    }

    /// Returns the target of a redirect that may be followed: same scheme and host, since the token is for no other,
    /// and for writes only statuses that keep the method.
    fn redirect_target(&self, answer: &RestResponse, is_write: bool) -> Option<String> {
        let keeps_method = matches!(answer.status, 307 | 308);
        if !keeps_method && (is_write || !matches!(answer.status, 301 | 302)) {
            return None;
        }
        let target = answer.headers.get(LOCATION)?.to_str().ok()?;
        let uri: Uri = target.parse().ok()?;
        let is_here = uri.authority() == self.base.authority() && uri.scheme() == self.base.scheme();
        let host = || Some(format!("{}://{}", self.base.scheme_str()?, self.base.authority()?));
        match target.starts_with('/') && !target.starts_with("//") {
            true => Some(format!("{}{target}", host()?)),
            false => is_here.then(|| target.to_owned()),
        }
    }

    /// Sends one request without following redirects; any status is a response.
    pub(super) async fn send_once(&self, request: RestRequest) -> Result<RestResponse, ToolOperationFailure> {
        let is_write = request.method != Method::GET;
        let lost = |error: LostResponse| ToolOperationFailure::Lost { reason: error.to_string(), is_write };
        let (status, headers, bytes) = match tokio::time::timeout(self.timeout, self.send_http(request)).await {
            Ok(done) => done.map_err(lost)?,
            Err(_) => return Err(lost(LostResponse::Timeout(self.timeout))),
        };
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            match serde_json::from_slice(&bytes) {
                Ok(value) => value,
                // An error page of a proxy: the status is enough.
                Err(_) if !status.is_success() => json!({"message": describe_status(status)}),
                Err(_) => {
                    return Err(ToolOperationFailure::NotJson { content_type: content_type(&headers).to_owned() });
                }
            }
        };
        Ok(RestResponse { status: status.as_u16(), headers, body })
    }

    /// Reads the body up to [`MAX_RESPONSE_BODY_BYTES`].
    async fn send_http(&self, request: RestRequest) -> Result<(StatusCode, HeaderMap, Vec<u8>), LostResponse> {
        let address = self.resolve_url(&request.target);
        let url = reqwest::Url::parse(&address).map_err(|error| LostResponse::BadUrl(error.to_string()))?;
        let mut sending = self.http.request(request.method, url).header(ACCEPT, "application/vnd.github+json");
        if let Some(body) = &request.body {
            sending = sending.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let mut response = sending.send().await.map_err(LostResponse::NotSent)?;
        let mut bytes = Vec::new();
        while let Some(part) = response.chunk().await.map_err(LostResponse::BrokenOff)? {
            if bytes.len() + part.len() > MAX_RESPONSE_BODY_BYTES {
                return Err(LostResponse::TooLong);
            }
            bytes.extend_from_slice(&part);
        }
        Ok((response.status(), response.headers().clone(), bytes))
    }

    /// Resolves a path against the base address. Absolute URLs come from redirects that were checked.
    fn resolve_url(&self, target: &str) -> String {
        if target.starts_with('/') {
            format!("{}{target}", self.base.to_string().trim_end_matches('/'))
        } else {
            target.to_owned()
        }
    }
}

/// Returns the content type, for messages about responses that are not JSON.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("of no known type")
}

fn describe_status(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or("no reason given").to_owned()
}

/// Returns how long a rate limit asks to wait. The current time is taken from the response, because a simulated
/// GitHub has its own clock.
fn retry_after(status: u16, headers: &HeaderMap) -> Option<Duration> {
    if !matches!(status, 403 | 429 | 503) {
        return None;
    }
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    if let Some(seconds) = number(RETRY_AFTER.as_str()) {
        return Some(Duration::from_secs(seconds));
    }
    if number("x-ratelimit-remaining") != Some(0) {
        return None;
    }
    let reset = number("x-ratelimit-reset")?;
    let date = headers.get(DATE).and_then(|value| value.to_str().ok());
    let now = match date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) {
        Some(date) => date.timestamp().as_second(),
        None => jiff::Timestamp::now().as_second(),
    };
    Some(Duration::from_secs(reset.saturating_sub(u64::try_from(now).unwrap_or(0))))
}

/// Returns the object without null fields.
pub(super) fn drop_null_fields(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// Builds a path with each segment percent-encoded. Segments that servers or proxies interpret (`..`) are refused:
/// they would lead to another operation.
pub(super) fn build_route(segments: &[&str]) -> Result<String, ToolOperationFailure> {
    let mut path = String::new();
    for segment in segments {
        // Servers and proxies resolve `.` and `..`, or drop empty segments, which leads to another operation.
        if matches!(*segment, "" | "." | "..") {
            return Err(ToolOperationFailure::Arguments(vec![format!(
                "{segment:?} is not a name that can be asked for"
            )]));
        }
        path.push('/');
        path.extend(utf8_percent_encode(segment, UNRESERVED));
    }
    Ok(path)
}

/// Builds a path below a repository. `owner/name` in one argument is a common mistake of models and gets its own
/// message.
pub(super) fn repository_route(owner: &str, repo: &str, below: &[&str]) -> Result<String, ToolOperationFailure> {
    let mut problems = Vec::new();
    if owner.contains('/') {
        problems.push(format!("owner: expected the name of a user or an organization alone, got {owner:?}"));
    }
    if repo.contains('/') {
        problems.push(format!("repo: expected the repository's name without its owner, got {repo:?}"));
    }
    if !problems.is_empty() {
        return Err(ToolOperationFailure::Arguments(problems));
    }
    let mut segments = vec!["repos", owner, repo];
    segments.extend(below);
    build_route(&segments)
}

/// Splits a file path or branch name into segments. A slash at either end is ignored.
pub(super) fn split_path_segments(path: &str) -> impl Iterator<Item = &str> {
    let trimmed = path.strip_prefix('/').unwrap_or(path);
    trimmed.strip_suffix('/').unwrap_or(trimmed).split('/')
}
