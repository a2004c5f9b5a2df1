//! URLs of pages. Filters and selections are query parameters, so that a view can be shared as a link.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are percent-encoded in a query value or a path segment: all but the unreserved ones of RFC 3986 and
/// `:`, which keeps times readable.
const ENCODED_CHARACTERS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// A relative URL of this server. Values are encoded when it is written, so they can be any recorded text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PageUrl {
    path: String,
    pairs: Vec<(&'static str, String)>,
    fragment: String,
}

impl PageUrl {
    /// `path` has to be encoded already.
    pub(super) fn from_path(path: impl Into<String>) -> PageUrl {
        PageUrl { path: path.into(), ..PageUrl::default() }
    }

    /// Adds a parameter. None and the empty string add nothing, so that an absent filter is not in the URL.
    pub(super) fn with(mut self, name: &'static str, value: Option<&str>) -> PageUrl {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.pairs.push((name, value.to_owned()));
        }
        self
    }

    /// Returns a copy with this parameter replaced, or removed for `None`.
    pub(super) fn with_replaced(&self, name: &'static str, value: Option<&str>) -> PageUrl {
        let mut other = self.clone();
        other.pairs.retain(|(known, _)| *known != name);
        other.with(name, value)
    }

    /// Returns the same parameters on another path, which has to be encoded already.
    pub(super) fn with_path(&self, path: impl Into<String>) -> PageUrl {
        PageUrl { path: path.into(), ..self.clone() }
    }

    /// `fragment` is written as it is; an empty one is left out.
    pub(super) fn with_fragment(mut self, fragment: impl Into<String>) -> PageUrl {
        self.fragment = fragment.into();
        self
    }

    /// The parameters in the order in which they were added, not encoded.
    pub(super) fn pairs(&self) -> &[(&'static str, String)] {
        &self.pairs
    }
}

impl fmt::Display for PageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        for (at, (name, value)) in self.pairs.iter().enumerate() {
            let mark = if at == 0 { '?' } else { '&' };
            write!(f, "{mark}{name}={}", utf8_percent_encode(value, ENCODED_CHARACTERS))?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.fragment)?;
        }
        Ok(())
    }
}

/// Encodes a name as one path segment. Segments of dots only are encoded as well, since browsers resolve `.` and `..`.
pub(super) fn encode_path_segment(name: &str) -> String {
    let dots = name.chars().all(|c| c == '.');
    let text = utf8_percent_encode(name, ENCODED_CHARACTERS).to_string();
    if dots { text.replace('.', "%2E") } else { text }
}

/// Accepts a path of this server as the target of a redirect. Rejects what a browser could take for another host, as
/// `//host` and `/\host`, and control characters, which could split a header: the value comes from a form (open
/// redirect).
pub(super) fn parse_own_path(given: Option<&str>) -> Option<&str> {
    given.filter(|path| {
        path.starts_with('/')
            && !path.starts_with("//")
            && !path.contains(|c: char| c.is_control() || c == '\\' || c == ' ')
    })
}

/// Formats the element id of a step's section, or of the verdicts on the whole trajectory.
pub(super) fn format_step_anchor(step: Option<u32>) -> String {
    step.map_or_else(|| "whole".to_owned(), |step| format!("step-{step}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_stands_in_the_address() {
        let address =
            PageUrl::from_path("/traces").with("q", Some("a b&c=é\"<")).with("tool", None).with_fragment("main");
        assert_eq!(address.to_string(), "/traces?q=a%20b%26c%3D%C3%A9%22%3C#main");
        assert_eq!(address.with_replaced("q", None).to_string(), "/traces#main");
        assert_eq!(address.with_replaced("q", Some("x")).to_string(), "/traces?q=x#main");
    }

    #[test]
    fn nobody_is_sent_elsewhere() {
        for path in ["//evil.example", "https://evil.example", "/\\evil.example", "/a\nb", "", "javascript:1"] {
            assert_eq!(parse_own_path(Some(path)), None, "{path}");
        }
        assert_eq!(parse_own_path(Some("/traces?q=x#step-1")), Some("/traces?q=x#step-1"));
    }
}
