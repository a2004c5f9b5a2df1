//! Addresses of pages: what is looked at stands in them, so that a view can be shared.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What may stand in a query as it is.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PageUrl {
    path: String,
    pairs: Vec<(&'static str, String)>,
    fragment: String,
}

impl PageUrl {
    /// An address of ours; `path` must be one already.
    pub(super) fn from_path(path: impl Into<String>) -> PageUrl {
        PageUrl { path: path.into(), ..PageUrl::default() }
    }

    /// With a parameter, if it is given.
    pub(super) fn with(mut self, name: &'static str, value: Option<&str>) -> PageUrl {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.pairs.push((name, value.to_owned()));
        }
        self
    }

    /// With a parameter in place of what it was.
    pub(super) fn with_replaced(&self, name: &'static str, value: Option<&str>) -> PageUrl {
        let mut other = self.clone();
        other.pairs.retain(|(known, _)| *known != name);
        other.with(name, value)
    }

    pub(super) fn with_fragment(mut self, fragment: impl Into<String>) -> PageUrl {
        self.fragment = fragment.into();
        self
    }

    pub(super) fn pairs(&self) -> &[(&'static str, String)] {
        &self.pairs
    }
}

impl fmt::Display for PageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        for (at, (name, value)) in self.pairs.iter().enumerate() {
            let mark = if at == 0 { '?' } else { '&' };
            write!(f, "{mark}{name}={}", utf8_percent_encode(value, VALUE))?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.fragment)?;
        }
        Ok(())
    }
}

/// A name as one part of a path. A dot alone would be taken for a place.
pub(super) fn encode_path_segment(name: &str) -> String {
    let dots = name.chars().all(|c| c == '.');
    let text = utf8_percent_encode(name, VALUE).to_string();
    if dots { text.replace('.', "%2E") } else { text }
}

/// An address that somebody was on, if it is one of ours: nobody is sent elsewhere.
pub(super) fn own_path(given: Option<&str>) -> Option<&str> {
    given.filter(|path| {
        path.starts_with('/')
            && !path.starts_with("//")
            && !path.contains(|c: char| c.is_control() || c == '\\' || c == ' ')
    })
}

/// Where in its page a verdict stands.
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
            assert_eq!(own_path(Some(path)), None, "{path}");
        }
        assert_eq!(own_path(Some("/traces?q=x#step-1")), Some("/traces?q=x#step-1"));
    }
}
