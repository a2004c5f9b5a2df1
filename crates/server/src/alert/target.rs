//! Where a notice goes. A webhook's address is a secret: whoever has it can post. Nothing here shows more of it than
//! scheme and host.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AlertTarget {
    /// The server's own log.
    Log,
    /// The notice as JSON, posted.
    Webhook(WebhookUrl),
    /// The notice in Slack's form, posted.
    Slack(WebhookUrl),
    /// A program and its arguments, started without a shell, with the notice as JSON on its input, and the variables
    /// that it gets beside those that every program gets.
    Command { words: Vec<String>, env: Vec<String> },
}

/// What kind of target, for counters.
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

/// What a log may say about it: of a command its program, as arguments may hold secrets, too.
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

/// An address to post to.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WebhookUrl(Url);

/// Why a text is not the address of a webhook. The message is one line and repeats nothing of the address but its
/// scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookUrlError {
    /// Not a URL by the WHATWG URL standard.
    #[error("is no address ({0}); {EXPECTED}")]
    Syntax(#[source] <Url as FromStr>::Err),
    /// Not `http` or `https`, or a URL without a host.
    #[error("is a {scheme} address; {EXPECTED}")]
    Scheme { scheme: String },
}

impl WebhookUrl {
    /// Surrounding spaces are ignored.
    pub fn parse(text: &str) -> Result<WebhookUrl, WebhookUrlError> {
        let url = Url::parse(text.trim()).map_err(WebhookUrlError::Syntax)?;
        match (url.scheme(), url.has_host()) {
            ("http" | "https", true) => Ok(WebhookUrl(url)),
            (scheme, _) => Err(WebhookUrlError::Scheme { scheme: scheme.to_owned() }),
        }
    }

    pub(super) fn expose(&self) -> &Url {
        &self.0
    }
}

const EXPECTED: &str = "write an http or https address, as \"https://hooks.example.com/alerts\"";

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())
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
