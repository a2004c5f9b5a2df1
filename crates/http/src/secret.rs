//! Keys and passwords that no message, log or report may show. Servers echo what they were sent, so the secrets of this
//! process's configuration are registered here and masked in every message that comes from outside.

use std::fmt;
use std::sync::{PoisonError, RwLock};

use crate::percent_code::percent_decode;

/// A key that no message, log or report can show: it has no `Display`, and its `Debug` hides it.
#[derive(Clone, Default)]
pub struct SecretString(String);

impl SecretString {
    /// Removes white space around the key, which files and environments add, and registers it.
    pub fn new(key: impl Into<String>) -> Self {
        let key = key.into().trim().to_owned();
        register_secret(&key);
        SecretString(key)
    }

    /// Wraps an address with a password. Only the password is registered: messages must name the server.
    pub fn from_address(address: impl Into<String>) -> Self {
        let address = address.into().trim().to_owned();
        // Drivers accept passwords with characters that end an authority, so it ends at the last `@`.
        let authority = address.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        let own = authority.and_then(|(user, _)| user.split_once(':')).map(|(_, password)| password.to_owned());
        let url = reqwest::Url::parse(&address).ok();
        let named = url.iter().flat_map(|url| url.query_pairs()).find(|(name, _)| name == "password");
        for password in own.into_iter().chain(named.map(|(_, value)| value.into_owned())) {
            register_secret(&password);
            register_secret(&percent_decode(&password));
        }
        SecretString(address)
    }

    /// Returns the key itself, to be put into a request and nowhere else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SecretString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(no key)" } else { "(a key)" })
    }
}

/// Minimum length of a secret that is masked. Masking shorter texts would make messages unreadable.
const MIN_SECRET_BYTES: usize = 6;
/// Minimum length of a part of a secret that is masked. A server may cut what it echoes.
const MIN_ECHO_BYTES: usize = 12;
/// Maximum number of registered secrets. Masking is linear in it.
const MAX_SECRETS: usize = 256;
/// Texts that people set as a key where none is needed. Masking them would garble messages about such servers.
const PLACEHOLDER_KEYS: [&str; 6] = ["ollama", "lm-studio", "llama.cpp", "no-key", "not-needed", "sk-no-key-required"];
const MASK: &str = "[redacted]";

/// Longest first, so that a secret that contains another one is masked as a whole.
static SECRETS: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Registers a secret of the configuration of this process. Secrets of requests do not belong here: they would fill the
/// list.
pub fn register_secret(secret: &str) {
    let secret = secret.trim();
    if secret.len() < MIN_SECRET_BYTES || PLACEHOLDER_KEYS.contains(&secret) {
        return;
    }
    let mut secrets = SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    if secrets.len() < MAX_SECRETS && !secrets.iter().any(|known| known == secret) {
        secrets.push(secret.to_owned());
        secrets.sort_by_key(|known| std::cmp::Reverse(known.len()));
    }
}

/// Registers the user, the password and the query values of an address.
pub fn register_url_secrets(url: &str) {
    // Also for a text without a scheme, which is not an address: error messages repeat it.
    let authority = url.rsplit("://").next().and_then(|rest| rest.split(['/', '?', '#']).next());
    if let Some((user, _)) = authority.and_then(|authority| authority.rsplit_once('@')) {
        user.splitn(2, ':').for_each(register_secret);
    }
    let Ok(url) = reqwest::Url::parse(url) else { return };
    for part in [url.password().unwrap_or_default(), url.username()] {
        register_secret(part);
        register_secret(&percent_decode(part));
    }
    for (name, value) in url.query_pairs() {
        // Azure's version is not a secret, and people need to see it.
        if name != "api-version" {
            register_secret(&value);
        }
    }
}

/// Whether the text contains a registered secret completely.
pub fn contains_secret(text: &str) -> bool {
    let secrets = SECRETS.read().unwrap_or_else(PoisonError::into_inner);
    secrets.iter().any(|secret| text.contains(secret.as_str()))
}

/// Finds the byte ranges of users and passwords of addresses in a text, however short they are.
fn find_url_users(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    text.match_indices("://").filter_map(|(at, scheme)| {
        let start = at + scheme.len();
        let ends_authority = |c: char| matches!(c, '/' | '?' | '#' | '"' | '\'' | '`') || c.is_whitespace();
        let authority = text[start..].split(ends_authority).next()?;
        let end = start + authority.rfind('@')?;
        // The user name of a database URL is not a secret; a user without a password can be a token elsewhere.
        if text[..at].ends_with("postgres") && !text[start..end].contains(':') {
            return None;
        }
        (end > start).then_some(start..end)
    })
}

/// Returns the text with all registered secrets, long parts of them, and users and passwords of addresses masked.
pub fn mask_secrets(text: &str) -> String {
    let secrets = SECRETS.read().unwrap_or_else(PoisonError::into_inner);
    let mut masked = vec![false; text.len()];
    let mut is_any = false;
    for user in find_url_users(text) {
        masked[user].fill(true);
        is_any = true;
    }
    for secret in secrets.iter() {
        let width = secret.len().min(MIN_ECHO_BYTES);
        // Every window of a secret is searched, so that an echo is covered wherever it begins and ends.
        for window in secret.as_bytes().windows(width) {
            let Ok(window) = std::str::from_utf8(window) else { continue };
            for (at, _) in text.match_indices(window) {
                masked[at..at + width].fill(true);
                is_any = true;
            }
        }
    }
    if !is_any {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut is_inside = false;
    for (at, c) in text.char_indices() {
        match (masked[at], is_inside) {
            (true, false) => out.push_str(MASK),
            (true, true) => {}
            (false, _) => out.push(c),
        }
        is_inside = masked[at];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown() {
        assert_eq!(format!("{:?}", SecretString::new(" sk-123 ")), "(a key)");
    }

    #[test]
    fn echoes_are_masked_also_where_they_are_cut() {
        drop(SecretString::new("sk-proj-Aa1Bb2Cc3Dd4Ee5Ff6Gg7"));
        let masked = |text: &str| mask_secrets(text);
        assert_eq!(masked("bad key: sk-proj-Aa1Bb2Cc3Dd4Ee5Ff6Gg7."), "bad key: [redacted].");
        assert_eq!(masked("bad key: sk-proj-Aa1Bb2C..."), "bad key: [redacted]...");
        assert_eq!(masked("ends in Cc3Dd4Ee5Ff6Gg7"), "ends in [redacted]");
        assert_eq!(masked("\u{e9} sk-proj- is a prefix \u{e9}"), "\u{e9} sk-proj- is a prefix \u{e9}");
    }

    #[test]
    fn addresses_hold_secrets_too() {
        register_url_secrets("http://someone:pass%2Fword9@127.0.0.1:1/v1?api-version=2024-10-21&sig=abcdef0123");
        assert_eq!(mask_secrets("someone, pass/word9, pass%2Fword9"), "[redacted], [redacted], [redacted]");
        assert_eq!(mask_secrets("abcdef0123 in 2024-10-21"), "[redacted] in 2024-10-21");
        assert_eq!(mask_secrets("\"gradus://me:pw@h:1/x\" failed"), "\"gradus://[redacted]@h:1/x\" failed");
        assert_eq!(mask_secrets("https://h/a@b and c://d"), "https://h/a@b and c://d");
        assert_eq!(mask_secrets("postgres://me@h, https://token@h"), "postgres://me@h, https://[redacted]@h");
        register_url_secrets("anyone:pa55word@127.0.0.1/v1");
        assert_eq!(
            mask_secrets("no address: anyone:pa55word@127.0.0.1/v1"),
            "no address: [redacted]:[redacted]@127.0.0.1/v1"
        );
    }

    #[test]
    fn the_password_of_a_database_is_masked_and_the_rest_is_shown() {
        drop(SecretString::from_address("postgres://writer:kX9/Qw7+Zt3=@db:5432/shop"));
        assert_eq!(mask_secrets("writer on db:5432/shop, kX9/Qw7+Zt3="), "writer on db:5432/shop, [redacted]");
        drop(SecretString::from_address("postgres://db/shop?password=in-the-query"));
        assert_eq!(mask_secrets("in-the-query at db"), "[redacted] at db");
    }

    #[test]
    fn placeholders_are_no_secrets() {
        register_secret("ollama");
        register_secret("EMPTY");
        assert_eq!(mask_secrets("ollama is EMPTY"), "ollama is EMPTY");
    }
}
