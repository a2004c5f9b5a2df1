//! `s3://BUCKET/PREFIX`.

use std::fmt;

use object_store::path::Path as ObjectPath;

use super::failure::S3Failure;

/// Scheme of sources and targets in S3.
const SCHEME: &str = "s3://";

/// A bucket, and a prefix without slashes around it. The prefix may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct S3Address {
    pub(super) bucket: String,
    prefix: String,
}

impl S3Address {
    pub(super) fn parse(text: &str) -> Result<S3Address, S3Failure> {
        // Keys do not belong into an address; they must not be repeated if they are in it.
        gradus_http::register_url_secrets(text);
        let shown = if text.contains('@') { "s3://…" } else { text };
        let bad = || S3Failure::BadAddress { address: shown.to_owned() };
        let rest = text.strip_prefix(SCHEME).ok_or_else(bad)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(is_name) {
            return Err(bad());
        }
        let prefix = prefix.trim_matches('/');
        ObjectPath::parse(prefix).map_err(|_| bad())?;
        Ok(S3Address { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// Returns the key of an object of the archive.
    pub(super) fn key_below(&self, path: &str) -> String {
        match (self.prefix.as_str(), path) {
            ("", path) => path.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, path) => format!("{prefix}/{path}"),
        }
    }

    /// Returns the path of an object of the archive; `None` for the prefix itself, and for keys elsewhere.
    pub(super) fn path_below<'k>(&self, key: &'k str) -> Option<&'k str> {
        let path = match self.prefix.as_str() {
            "" => key,
            prefix => key.strip_prefix(prefix)?.strip_prefix('/')?,
        };
        (!path.is_empty()).then_some(path)
    }

    pub(super) fn describe(&self, path: &str) -> String {
        format!("{SCHEME}{}/{}", self.bucket, self.key_below(path)).trim_end_matches('/').to_owned()
    }
}

impl fmt::Display for S3Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_below_the_prefix() {
        let address = S3Address::parse("s3://traces/2026/november/").unwrap();
        assert_eq!(address.to_string(), "s3://traces/2026/november");
        assert_eq!(address.key_below("manifest.json"), "2026/november/manifest.json");
        assert_eq!(address.path_below("2026/november/spans/a"), Some("spans/a"));
        assert_eq!(address.path_below("2026/november"), None);
        assert_eq!(address.path_below("2026/november-2/a"), None);
        let whole = S3Address::parse("s3://traces").unwrap();
        assert_eq!((whole.to_string(), whole.key_below("a/b")), ("s3://traces".to_owned(), "a/b".to_owned()));
        assert_eq!(whole.path_below("a/b"), Some("a/b"));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["s3://", "s3:///prefix", "s3://key:secret@bucket/a", "s3://bucket/a//b", "s3://bucket/../a"] {
            assert!(matches!(S3Address::parse(text), Err(S3Failure::BadAddress { .. })), "{text}");
        }
    }
}
