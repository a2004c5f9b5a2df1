//! A request and an answer, as far as they matter here: no sockets, no streams.

use percent_encoding::percent_decode_str;

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

    pub fn is_read(self) -> bool {
        matches!(self, RequestMethod::Get | RequestMethod::Head)
    }
}

#[derive(Clone, Debug)]
pub struct SimulatedRequest {
    pub method: RequestMethod,
    /// As it came, with escapes.
    pub path: String,
    /// What stands behind the question mark.
    pub query: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl SimulatedRequest {
    /// `target` is a path, with a query if there is one.
    pub fn new(method: RequestMethod, target: &str) -> SimulatedRequest {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        SimulatedRequest { method, path, query, headers: Vec::new(), body: Vec::new() }
    }

    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> SimulatedRequest {
        self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn with_token(self, token: &str) -> SimulatedRequest {
        self.with_header("authorization", &format!("Bearer {token}"))
    }

    #[must_use]
    pub fn with_json(mut self, body: &serde_json::Value) -> SimulatedRequest {
        self.body = body.to_string().into_bytes();
        self.with_header("content-type", "application/json")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedResponse {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// How long to wait before it is sent; whoever owns the socket does that.
    pub delay_ms: u64,
}

impl SimulatedResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Takes the escapes out of a path segment or a value.
pub(super) fn decode_percent_escapes(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Names and values of a query.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestQuery(Vec<(String, String)>);

impl RequestQuery {
    pub(super) fn parse(text: &str) -> RequestQuery {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_percent_escapes(&name.replace('+', " ")), decode_percent_escapes(&value.replace('+', " ")))
        });
        RequestQuery(pairs.collect())
    }

    /// None also for an empty value, which says nothing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }
}

/// The form in which a client wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptedMediaType {
    Json,
    Raw,
    Text,
    Html,
    Full,
    Diff,
    Patch,
}

impl AcceptedMediaType {
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
