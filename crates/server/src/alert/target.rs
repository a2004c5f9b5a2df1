//! Targets of notices. The address of a webhook is a secret, since whoever has it can post: nothing here shows more of
//! it than scheme and host.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;

/// Equal targets of different rules share one queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AlertTarget {
    /// The server's own log, written synchronously.
    Log,
    /// An HTTP POST with the notice as JSON.
    Webhook(WebhookUrl),
    /// An HTTP POST with the notice as a Slack message.
    Slack(WebhookUrl),
    /// A program and its arguments, started without a shell, with the notice as JSON on standard input. `env` names
    /// variables that it gets besides the common ones.
    Command { words: Vec<String>, env: Vec<String> },
}

/// The kind of a target, as counters and pages name it. The discriminants index arrays, in the order of `ALL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetKind {
    Log,
    Webhook,
    Slack,
    Command,
}

impl TargetKind {
    pub const ALL: [TargetKind; 4] = [TargetKind::Log, TargetKind::Webhook, TargetKind::Slack, TargetKind::Command];

    pub fn name(self) -> &'static str {
        match self {
            TargetKind::Log => "log",
            TargetKind::Webhook => "webhook",
            TargetKind::Slack => "slack",
            TargetKind::Command => "command",
        }
    }
}

impl AlertTarget {
    pub fn kind(&self) -> TargetKind {
        match self {
            AlertTarget::Log => TargetKind::Log,
            AlertTarget::Webhook(_) => TargetKind::Webhook,
            AlertTarget::Slack(_) => TargetKind::Slack,
            AlertTarget::Command { .. } => TargetKind::Command,
        }
    }
}

/// The form for logs. A command is shown without its arguments, which may contain secrets.
impl fmt::Display for AlertTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AlertTarget::Log => f.write_str("log"),
            AlertTarget::Webhook(url) => write!(f, "webhook {url}"),
            AlertTarget::Slack(url) => write!(f, "slack {url}"),
            AlertTarget::Command { words, .. } => {
                write!(f, "command {:?}", words.first().map_or("", String::as_str))
            }
        }
    }
}

/// An `http` or `https` address with a host. `Display` and `Debug` show scheme and host only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WebhookUrl {
    url: Url,
    /// Entered on the page: it must not lead to private addresses.
    is_guarded: bool,
}

/// Why a text is not the address of a webhook. The message is one line and repeats nothing of the address but its
/// scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookUrlError {
    /// Not a URL by the WHATWG URL standard.
    #[error("is no address ({0}); {EXPECTED_ADDRESS}")]
    Syntax(#[source] <Url as FromStr>::Err),
    /// Not `http` or `https`, or a URL without a host.
    #[error("is a {scheme} address; {EXPECTED_ADDRESS}")]
    Scheme { scheme: String },
}

impl WebhookUrl {
    /// Surrounding spaces are ignored.
    pub fn parse(text: &str) -> Result<WebhookUrl, WebhookUrlError> {
        let url = Url::parse(text.trim()).map_err(WebhookUrlError::Syntax)?;
        match (url.scheme(), url.has_host()) {
            ("http" | "https", true) => Ok(WebhookUrl { url, is_guarded: false }),
            (scheme, _) => Err(WebhookUrlError::Scheme { scheme: scheme.to_owned() }),
        }
    }

    /// Returns the whole address, for the request only. It must not be logged.
    pub(super) fn expose(&self) -> &Url {
        &self.url
    }

    /// The same address, which must not lead to private addresses.
    #[must_use]
    pub(crate) fn guarded(self) -> WebhookUrl {
        WebhookUrl { is_guarded: true, ..self }
    }

    pub(super) fn is_guarded(&self) -> bool {
        self.is_guarded
    }
}

/// The last part of every message about an invalid address.
const EXPECTED_ADDRESS: &str = "write an http or https address, as \"https://hooks.example.com/alerts\"";

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.url.scheme(), self.url.host_str().unwrap_or_default())
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_scheme_and_host_only() {
        let url =
            WebhookUrl::parse("https://me:pw@hooks.example.com:8443/services/T0/B0/key?token=k#f").expect("an address");
        for shown in [url.to_string(), format!("{url:?}")] {
            assert_eq!(shown, "https://hooks.example.com");
        }
        assert_eq!(format!("{:?}", AlertTarget::Slack(url)), "Slack(https://hooks.example.com)");
        let command =
            AlertTarget::Command { words: vec!["notify".to_owned(), "--key=secret".to_owned()], env: Vec::new() };
        assert_eq!(command.to_string(), "command \"notify\"");
    }

    #[test]
    fn refuses_other_addresses_without_repeating_them() {
        for text in ["", "hooks.example.com/key", "ftp://h/key", "file:///key", "mailto:key@h", "http://", "data:,key"]
        {
            let error = WebhookUrl::parse(text).expect_err("no address").to_string();
            assert!(!error.contains("key") && error.contains("https://hooks.example.com"), "{error}");
        }
    }
}
