//! An agent behind HTTP: one POST for each trial, with a body from a template and the answer from a JSON pointer. The
//! `traceparent` and `baggage` headers (W3C Trace Context, W3C Baggage) identify the trial of its spans.

use std::time::Duration;

use gradus_dataset::{DatasetItem, TrialEnd};
use gradus_http::{SecretString, mask_secrets, percent_encode, register_secret, register_url_secrets, root_cause};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value as Json;

use crate::program_runner::MAX_ANSWER_BYTES;

/// How requests are made and answers are read.
#[derive(Clone, Debug)]
pub(super) struct AgentRequest {
    url: reqwest::Url,
    template: Json,
    answer_path: Option<String>,
    /// Of the user. Values are marked as sensitive.
    headers: HeaderMap,
}

/// Why the options of an agent behind HTTP are invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentRequestError {
    #[error("option refused: --agent-url {text:?}: {reason}; hint: --agent-url http://127.0.0.1:8000/chat")]
    Url { text: String, reason: String },
    #[error("option refused: --body-template: {reason}; hint: --body-template '{{\"input\": \"{{request}}\"}}'")]
    Template { reason: String },
    #[error("option refused: --agent-header: {reason}; hint: --agent-header 'Authorization: Bearer $TOKEN'")]
    Header { reason: String },
    #[error("option refused: --answer-path {text:?}: a JSON pointer begins with /; hint: --answer-path /output/text")]
    AnswerPath { text: String },
}

/// Headers that every request has.
const RESERVED_HEADERS: [&str; 5] = ["content-type", "content-length", "host", "traceparent", "baggage"];

const DEFAULT_TEMPLATE: &str = r#"{"request": "{request}", "messages": "{messages}"}"#;

/// Which trial a request is for, as headers have it.
#[derive(Clone, Debug)]
pub(super) struct TrialContext {
    pub(super) experiment_id: String,
    pub(super) item_id: String,
    pub(super) trial: u32,
    /// 32 hexadecimal digits.
    pub(super) trace_id: String,
}

/// The response of the agent.
#[derive(Debug)]
pub(super) struct AgentResponse {
    pub(super) end: TrialEnd,
    pub(super) failure: Option<String>,
    pub(super) answer: Option<String>,
}

impl TrialContext {
    fn traceparent(&self) -> String {
        // The parent is a span that nobody records; 01 asks the agent to sample the trace.
        format!("00-{}-{}-01", self.trace_id, &self.trace_id[..16])
    }

    /// Returns the same attributes that programs get in OTEL_RESOURCE_ATTRIBUTES.
    pub(super) fn baggage(&self) -> String {
        format!(
            "gradus.experiment.id={},gradus.item.id={},gradus.trial={},gradus.attempt.id={}",
            percent_encode(&self.experiment_id),
            percent_encode(&self.item_id),
            self.trial,
            self.trace_id
        )
    }
}

impl AgentRequest {
    /// Parses the options. `template` is JSON, or `@FILE`.
    pub(super) fn parse(
        url: &str,
        template: Option<&str>,
        answer_path: Option<&str>,
    ) -> Result<AgentRequest, AgentRequestError> {
        // A message about a URL must not show a password in it.
        register_url_secrets(url);
        let bad_url = |reason: String| AgentRequestError::Url { text: mask_secrets(url), reason };
        let parsed = reqwest::Url::parse(url).map_err(|error| bad_url(error.to_string()))?;
        if !["http", "https"].contains(&parsed.scheme()) || parsed.host_str().is_none() {
            return Err(bad_url("not an http address".to_owned()));
        }
        let bad_template = |reason: String| AgentRequestError::Template { reason };
        let text = match template.map(|text| (text, text.strip_prefix('@'))) {
            None => DEFAULT_TEMPLATE.to_owned(),
            Some((_, Some(path))) => {
                std::fs::read_to_string(path).map_err(|error| bad_template(format!("{path}: {error}")))?
            }
            Some((text, None)) => text.to_owned(),
        };
        let template: Json = serde_json::from_str(&text).map_err(|error| bad_template(format!("not JSON: {error}")))?;
        if !text.contains("{request}") && !text.contains("{messages}") {
            return Err(bad_template("it has neither {request} nor {messages}".to_owned()));
        }
        if let Some(path) = answer_path.filter(|path| !path.is_empty() && !path.starts_with('/')) {
            return Err(AgentRequestError::AnswerPath { text: path.to_owned() });
        }
        let answer_path = answer_path.map(str::to_owned);
        Ok(AgentRequest { url: parsed, template, answer_path, headers: HeaderMap::new() })
    }

    /// Adds headers of the form `NAME: VALUE`. `$NAME` and `${NAME}` in a value are replaced by what `read_variable`
    /// returns. Messages name the header and never its value.
    pub(super) fn with_headers(
        mut self,
        headers: &[String],
        read_variable: impl Fn(&str) -> Option<SecretString>,
    ) -> Result<AgentRequest, AgentRequestError> {
        let refuse = |reason: String| AgentRequestError::Header { reason };
        for header in headers {
            let (name, value) = header.split_once(':').ok_or_else(|| refuse("it is no NAME: VALUE".to_owned()))?;
            let name = name.trim();
            let parsed = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| refuse(format!("{name:?} is no name of a header")))?;
            if RESERVED_HEADERS.contains(&parsed.as_str()) {
                return Err(refuse(format!("{name} is set by Gradus")));
            }
            let value = fill_variables(value.trim(), &read_variable)
                .map_err(|missing| refuse(format!("{name}: the variable {missing} is not set")))?;
            register_secret(value.rsplit(' ').next().unwrap_or_default());
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| refuse(format!("{name}: the value has characters that no header may have")))?;
            value.set_sensitive(true);
            self.headers.append(parsed, value);
        }
        Ok(self)
    }

    /// Sends the request of an item and reads the answer, within the timeout.
    pub(super) async fn ask(
        &self,
        client: &reqwest::Client,
        item: &DatasetItem,
        context: &TrialContext,
        timeout: Duration,
    ) -> AgentResponse {
        let body = fill_template(&self.template, item).to_string();
        let request = client
            .post(self.url.clone())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/plain, */*")
            .header("traceparent", context.traceparent())
            .header("baggage", context.baggage())
            .headers(self.headers.clone())
            .body(body);
        match tokio::time::timeout(timeout, self.exchange(request)).await {
            Ok(response) => response,
            Err(_) => {
                let failure = format!("it took longer than {} s", timeout.as_secs_f64());
                AgentResponse { end: TrialEnd::TimedOut, failure: Some(failure), answer: None }
            }
        }
    }

    async fn exchange(&self, request: reqwest::RequestBuilder) -> AgentResponse {
        // A server may echo what it was sent, also in an error.
        let failed =
            |end, failure: String, answer| AgentResponse { end, failure: Some(mask_secrets(&failure)), answer };
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                let end = if error.is_connect() { TrialEnd::NotStarted } else { TrialEnd::Failed };
                return failed(end, format!("no response: {}", root_cause(&error)), None);
            }
        };
        let status = response.status();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ANSWER_BYTES => {
                    let failure = format!("its answer is longer than {} KiB", MAX_ANSWER_BYTES >> 10);
                    return failed(TrialEnd::AnswerTooLong, failure, None);
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => {
                    return failed(TrialEnd::Failed, format!("the response broke off: {}", root_cause(&error)), None);
                }
            }
        }
        let text = String::from_utf8_lossy(&body).trim().to_owned();
        if !status.is_success() {
            let shown: String = text.chars().take(200).collect();
            let shown = gradus_core::visible::printable_line(&shown);
            return failed(TrialEnd::Failed, format!("status {}: {shown}", status.as_u16()), None);
        }
        match self.read_answer(&text) {
            Ok(answer) => AgentResponse { end: TrialEnd::Answered, failure: None, answer: Some(answer) },
            Err(failure) => failed(TrialEnd::Failed, failure, None),
        }
    }

    fn read_answer(&self, body: &str) -> Result<String, String> {
        let Some(path) = &self.answer_path else { return Ok(body.to_owned()) };
        let document: Json =
            serde_json::from_str(body).map_err(|error| format!("the response is not JSON: {error}"))?;
        match document.pointer(path) {
            Some(Json::String(text)) => Ok(text.clone()),
            Some(Json::Null) | None => Err(format!("the response has nothing at {path}")),
            Some(other) => Ok(other.to_string()),
        }
    }
}

/// Replaces `$NAME` and `${NAME}`. The error is the name of a variable that is not set.
fn fill_variables(text: &str, read_variable: &dyn Fn(&str) -> Option<SecretString>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (name, length) = match rest.strip_prefix('{').and_then(|inside| inside.find('}')) {
            Some(end) => (&rest[1..=end], end + 2),
            None => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                (&rest[..end], end)
            }
        };
        match name {
            "" => filled.push('$'),
            name => filled.push_str(read_variable(name).ok_or_else(|| name.to_owned())?.expose()),
        }
        rest = &rest[length..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Replaces placeholders inside texts. Values are never parsed as JSON, so a request cannot change the structure.
fn fill_template(template: &Json, item: &DatasetItem) -> Json {
    match template {
        Json::String(text) if text == "{messages}" => serde_json::to_value(item.request_messages()).unwrap_or_default(),
        Json::String(text) => Json::String(fill_text(text, item)),
        Json::Array(values) => values.iter().map(|value| fill_template(value, item)).collect(),
        Json::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), fill_template(value, item))).collect(),
        other => other.clone(),
    }
}

/// Replaces placeholders in one pass from left to right: a placeholder inside of a request is text.
fn fill_text(text: &str, item: &DatasetItem) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let placeholder = ["{request}", "{item_id}", "{messages}"].into_iter().find(|name| rest.starts_with(name));
        match placeholder {
            Some("{request}") => filled.push_str(item.request_text()),
            Some("{item_id}") => filled.push_str(&item.id),
            Some(_) => filled.push_str(&serde_json::to_string(&item.request_messages()).unwrap_or_default()),
            None => filled.push('{'),
        }
        rest = &rest[placeholder.map_or(1, str::len)..];
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(text: &str) -> DatasetItem {
        serde_json::from_str(text).expect("an item")
    }

    #[test]
    fn a_request_cannot_change_the_body() {
        let item = item(r#"{"id": "a", "request": "\"}, {item_id} {messages}"}"#);
        let template = json!({"q": "Q: {request}!", "n": [1, "{item_id}", "{messages}"], "{request}": "{x}"});
        let messages = json!([{"role": "user", "content": "\"}, {item_id} {messages}"}]);
        let expected = json!({"q": "Q: \"}, {item_id} {messages}!", "n": [1, "a", messages], "{request}": "{x}"});
        assert_eq!(fill_template(&template, &item), expected);
    }

    #[test]
    fn options_are_checked() {
        let parse = |url: &str, template: Option<&str>, path: Option<&str>| {
            AgentRequest::parse(url, template, path).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(parse("http://127.0.0.1:1/x", None, Some("/a")), Ok(()));
        for (url, template, path, expected) in [
            ("localhost:8000", None, None, "not an http address"),
            ("ftp://host/x", None, None, "not an http address"),
            ("no address", None, None, "--agent-url \"no address\""),
            ("http://h", Some("{request}"), None, "--body-template: not JSON"),
            ("http://h", Some(r#"{"a": "b"}"#), None, "neither {request} nor {messages}"),
            ("http://h", Some("@no/such/file"), None, "no/such/file: "),
            ("http://h", None, Some("output"), "a JSON pointer begins with /"),
        ] {
            let message = parse(url, template, path).expect_err(url);
            assert!(message.contains(expected) && message.contains("; hint: "), "{message}");
        }
    }

    #[test]
    fn headers_take_their_values_from_the_environment() {
        let known = |name: &str| (name == "TOKEN").then(|| SecretString::new("abc-secret"));
        let with = |header: &str| {
            let request = AgentRequest::parse("http://h", None, None).expect("valid");
            request.with_headers(&[header.to_owned()], known).map_err(|error| error.to_string())
        };
        for (text, value) in [
            ("Authorization: Bearer $TOKEN", "Bearer abc-secret"),
            ("authorization:Bearer ${TOKEN}!", "Bearer abc-secret!"),
            ("X-Cost: 5$", "5$"),
        ] {
            let request = with(text).expect(text);
            let found = request.headers.values().next().expect("a header");
            assert!(found == value && found.is_sensitive(), "{text}");
            assert!(!format!("{request:?}").contains("abc-secret"), "{text}");
        }
        for (text, why) in [
            ("Authorization", "it is no NAME: VALUE"),
            ("a b: c", "is no name of a header"),
            ("Authorization: $OTHER", "the variable OTHER is not set"),
            ("traceparent: x", "is set by Gradus"),
            ("x: $TOKEN\nb", "characters that no header may have"),
        ] {
            let message = with(text).expect_err(text);
            assert!(message.contains(why) && !message.contains("abc-secret"), "{message}");
        }
    }

    #[test]
    fn the_answer_is_where_the_pointer_points() {
        let request = |path| AgentRequest::parse("http://h", None, path).expect("valid");
        assert_eq!(request(None).read_answer("hello"), Ok("hello".to_owned()));
        let body = r#"{"a": [{"b": "yes"}, 3], "n": null}"#;
        assert_eq!(request(Some("/a/0/b")).read_answer(body), Ok("yes".to_owned()));
        assert_eq!(request(Some("/a/1")).read_answer(body), Ok("3".to_owned()));
        assert_eq!(request(Some("/n")).read_answer(body), Err("the response has nothing at /n".to_owned()));
        assert!(request(Some("/a")).read_answer("hello").is_err());
    }
}
