//! A request and an answer, as far as they matter here: no sockets, no streams.

use percent_encoding::percent_decode_str;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Other,
}

impl Method {
    pub fn from_name(name: &str) -> Method {
        let all = [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete];
        all.into_iter().find(|method| method.name().eq_ignore_ascii_case(name)).unwrap_or(Method::Other)
    }

    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Other => "OTHER",
        }
    }

    pub fn is_read(self) -> bool {
        matches!(self, Method::Get | Method::Head)
    }
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    /// As it came, with escapes.
    pub path: String,
    /// What stands behind the question mark.
    pub query: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// `target` is a path, with a query if there is one.
    pub fn new(method: Method, target: &str) -> Request {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        Request { method, path, query, headers: Vec::new(), body: Vec::new() }
    }

    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn with_token(self, token: &str) -> Request {
        self.with_header("authorization", &format!("Bearer {token}"))
    }

    #[must_use]
    pub fn with_json(mut self, body: &serde_json::Value) -> Request {
        self.body = body.to_string().into_bytes();
        self.with_header("content-type", "application/json")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// How long to wait before it is sent; whoever owns the socket does that.
    pub delay_ms: u64,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Takes the escapes out of a path segment or a value.
pub(super) fn unescape(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Names and values of a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Query {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(&name.replace('+', " ")), unescape(&value.replace('+', " ")))
        });
        Query(pairs.collect())
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
pub(super) enum Media {
    Json,
    Raw,
    Text,
    Html,
    Full,
    Diff,
    Patch,
}

impl Media {
    pub(super) fn of(accept: Option<&str>) -> Media {
        let Some(accept) = accept else { return Media::Json };
        let kind = accept.split([',', ';']).find_map(|one| {
            let one = one.trim().strip_prefix("application/vnd.github")?;
            let one = one.trim_start_matches(".v3").trim_start_matches('.');
            Some(one.split('+').next().unwrap_or_default())
        });
        match kind {
            Some("raw") => Media::Raw,
            Some("text") => Media::Text,
            Some("html") => Media::Html,
            Some("full") => Media::Full,
            Some("diff") => Media::Diff,
            Some("patch") => Media::Patch,
            _ => Media::Json,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types() {
        assert_eq!(Media::of(Some("application/vnd.github+json")), Media::Json);
        assert_eq!(Media::of(Some("application/vnd.github.raw+json")), Media::Raw);
        assert_eq!(Media::of(Some("application/vnd.github.v3.diff")), Media::Diff);
        assert_eq!(Media::of(Some("application/vnd.github.v3.full+json")), Media::Full);
        assert_eq!(Media::of(Some("text/plain, application/vnd.github.v3.raw; q=0.5")), Media::Raw);
        assert_eq!(Media::of(Some("*/*")), Media::Json);
    }

    #[test]
    fn queries() {
        let query = Query::parse("q=is%3Aopen+label:a%20b&state=&page=2&page=3");
        assert_eq!(query.get("q"), Some("is:open label:a b"));
        assert_eq!(query.get("state"), None);
        assert_eq!(query.get("page"), Some("3"));
        assert!(query.has("state"));
    }
}
