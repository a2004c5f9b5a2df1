//! Requests and responses as plain data, without sockets and streams.

use percent_encoding::percent_decode_str;

/// The methods of GitHub's API. `Other` never matches a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestMethod {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Other,
}

impl RequestMethod {
    /// Parses a method, ignoring case.
    pub fn from_name(name: &str) -> RequestMethod {
        let all = [
            RequestMethod::Get,
            RequestMethod::Head,
            RequestMethod::Post,
            RequestMethod::Put,
            RequestMethod::Patch,
            RequestMethod::Delete,
        ];
        all.into_iter().find(|method| method.name().eq_ignore_ascii_case(name)).unwrap_or(RequestMethod::Other)
    }

    pub fn name(self) -> &'static str {
        match self {
            RequestMethod::Get => "GET",
            RequestMethod::Head => "HEAD",
            RequestMethod::Post => "POST",
            RequestMethod::Put => "PUT",
            RequestMethod::Patch => "PATCH",
            RequestMethod::Delete => "DELETE",
            RequestMethod::Other => "OTHER",
        }
    }

    /// Whether the method is GET or HEAD, which change nothing and cost no simulated time.
    pub fn is_read(self) -> bool {
        matches!(self, RequestMethod::Get | RequestMethod::Head)
    }
}

/// One request. The builder methods are for tests and for agents in the same process.
#[derive(Clone, Debug)]
pub struct SimulatedRequest {
    pub method: RequestMethod,
    /// As received, percent-encoded.
    pub path: String,
    /// The part after the question mark, percent-encoded.
    pub query: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Empty for requests without a body.
    pub body: Vec<u8>,
}

impl SimulatedRequest {
    /// Creates a request. `target` is a path with an optional query.
    pub fn new(method: RequestMethod, target: &str) -> SimulatedRequest {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        SimulatedRequest { method, path, query, headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header. Names are stored in lower case.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> SimulatedRequest {
        self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// Sends the token as `Authorization: Bearer`.
    #[must_use]
    pub fn with_token(self, token: &str) -> SimulatedRequest {
        self.with_header("authorization", &format!("Bearer {token}"))
    }

    /// Sets the body and its content type.
    #[must_use]
    pub fn with_json(mut self, body: &serde_json::Value) -> SimulatedRequest {
        self.body = body.to_string().into_bytes();
        self.with_header("content-type", "application/json")
    }

    /// Returns the first header with this name, which must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedResponse {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// How long the owner of the socket waits before sending it, in milliseconds. The world itself never waits.
    pub delay_ms: u64,
}

impl SimulatedResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON; null if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Decodes a path segment or a query value. Invalid UTF-8 is replaced.
pub(super) fn decode_percent_escapes(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Decoded parameters of a query, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestQuery(Vec<(String, String)>);

impl RequestQuery {
    /// Parses a query. `+` is a space, as in forms.
    pub(super) fn parse(text: &str) -> RequestQuery {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_percent_escapes(&name.replace('+', " ")), decode_percent_escapes(&value.replace('+', " ")))
        });
        RequestQuery(pairs.collect())
    }

    /// Returns the last value, since a repeated parameter overrides. `None` also for an empty value.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether a parameter is present, also with an empty value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }
}

/// GitHub's media types (`application/vnd.github.raw+json` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptedMediaType {
    Json,
    /// The content of a file itself.
    Raw,
    /// Texts as plain text (`body_text`).
    Text,
    /// Texts as HTML (`body_html`).
    Html,
    /// Texts in all forms.
    Full,
    /// A commit, comparison or pull request as a unified diff.
    Diff,
    /// The same as mails of `git format-patch`.
    Patch,
}

impl AcceptedMediaType {
    /// Parses an `Accept` header. Unknown types and a missing header give JSON. The version (`.v3`) is ignored.
    pub(super) fn from_accept(accept: Option<&str>) -> AcceptedMediaType {
        let Some(accept) = accept else { return AcceptedMediaType::Json };
        let kind = accept.split([',', ';']).find_map(|one| {
            let one = one.trim().strip_prefix("application/vnd.github")?;
            let one = one.trim_start_matches(".v3").trim_start_matches('.');
            Some(one.split('+').next().unwrap_or_default())
        });
        match kind {
            Some("raw") => AcceptedMediaType::Raw,
            Some("text") => AcceptedMediaType::Text,
            Some("html") => AcceptedMediaType::Html,
            Some("full") => AcceptedMediaType::Full,
            Some("diff") => AcceptedMediaType::Diff,
            Some("patch") => AcceptedMediaType::Patch,
            _ => AcceptedMediaType::Json,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types() {
        assert_eq!(AcceptedMediaType::from_accept(Some("application/vnd.github+json")), AcceptedMediaType::Json);
        assert_eq!(AcceptedMediaType::from_accept(Some("application/vnd.github.raw+json")), AcceptedMediaType::Raw);
        assert_eq!(AcceptedMediaType::from_accept(Some("application/vnd.github.v3.diff")), AcceptedMediaType::Diff);
        assert_eq!(
            AcceptedMediaType::from_accept(Some("application/vnd.github.v3.full+json")),
            AcceptedMediaType::Full
        );
        assert_eq!(
            AcceptedMediaType::from_accept(Some("text/plain, application/vnd.github.v3.raw; q=0.5")),
            AcceptedMediaType::Raw
        );
        assert_eq!(AcceptedMediaType::from_accept(Some("*/*")), AcceptedMediaType::Json);
    }

    #[test]
    fn queries() {
        let query = RequestQuery::parse("q=is%3Aopen+label:a%20b&state=&page=2&page=3");
        assert_eq!(query.get("q"), Some("is:open label:a b"));
        assert_eq!(query.get("state"), None);
        assert_eq!(query.get("page"), Some("3"));
        assert!(query.has("state"));
    }
}
