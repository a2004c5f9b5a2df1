//! Commands and addresses as they may be stored and shown: secrets in them are masked. What was masked is still
//! recognised, by a digest of the whole text.

use gradus_http::mask_secrets;

const MASK: &str = "[redacted]";
/// A word that contains one of these names a secret: the value after it is masked.
const SECRET_WORDS: [&str; 9] =
    ["key", "token", "secret", "passw", "authorization", "credential", "bearer", "cookie", "signature"];

/// A text without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MaskedText {
    pub(super) text: String,
    /// Of the whole text; `None` if nothing was masked.
    pub(super) digest: Option<String>,
}

impl MaskedText {
    /// Masks users and passwords of addresses, values of their queries, and values after names of secrets:
    /// `Authorization: Bearer …`, `API_KEY=…`, `--token …`. Names of variables (`$TOKEN`) stay, since they are no
    /// secrets.
    pub(super) fn new(text: &str) -> MaskedText {
        let masked = mask_named_values(&mask_queries(&mask_secrets(text)));
        let digest = (masked != text).then(|| format!("{:032x}", gradus_core::stable_digest(text.as_bytes())));
        MaskedText { text: masked, digest }
    }

    /// Joins text and digest, for settings that are only compared.
    pub(super) fn into_setting(self) -> String {
        match self.digest {
            Some(digest) => format!("{} (digest {digest})", self.text),
            None => self.text,
        }
    }
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ';' | '|' | '<' | '>' | '(' | ')')
}

/// Masks the values of queries of addresses.
fn mask_queries(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let end = rest[at..].find(ends_word).map_or(rest.len(), |length| at + length);
        let (address, later) = rest.split_at(end);
        match address[at..].find(['?', '#']) {
            Some(length) => {
                let (path, query) = address.split_at(at + length);
                out.push_str(path);
                for (number, pair) in query[1..].split('&').enumerate() {
                    out.push(if number == 0 { query.chars().next().unwrap_or('?') } else { '&' });
                    match pair.split_once('=') {
                        Some((name, value)) => {
                            out.push_str(&format!("{name}={}", mask_value(value)));
                        }
                        None => out.push_str(&mask_value(pair)),
                    }
                }
            }
            None => out.push_str(address),
        }
        rest = later;
    }
    out.push_str(rest);
    out
}

/// Masks the value after a word that names a secret: after `=` or `:`, or as the next word of an option.
fn mask_named_values(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // How many of the next words are values: `Authorization: Bearer X` has two.
    let mut is_value_next = false;
    while !rest.is_empty() {
        let start = rest.find(|c| !ends_word(c)).unwrap_or(rest.len());
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(ends_word).unwrap_or(rest.len());
        let (word, later) = rest.split_at(end);
        rest = later;
        let names_secret = |name: &str| {
            let name = name.to_ascii_lowercase();
            SECRET_WORDS.iter().any(|secret| name.contains(secret))
        };
        let is_scheme = ["bearer", "basic", "token"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
        // The scheme of an address does not name a value.
        let named = word.split_once(['=', ':']).filter(|(_, value)| !value.starts_with("//"));
        match named {
            _ if is_value_next && is_scheme => out.push_str(word),
            _ if is_value_next => {
                out.push_str(&mask_value(word));
                is_value_next = false;
            }
            Some((name, "")) if names_secret(name) => {
                out.push_str(word);
                is_value_next = true;
            }
            Some((name, value)) if names_secret(name) => {
                out.push_str(&word[..=name.len()]);
                out.push_str(&mask_value(value));
            }
            _ if is_scheme || (word.starts_with('-') && names_secret(word)) => {
                out.push_str(word);
                is_value_next = true;
            }
            _ => out.push_str(word),
        }
    }
    out
}

/// Masks a value, except the name of a variable, an option, or an already masked one.
fn mask_value(value: &str) -> String {
    let is_variable = value.starts_with('$');
    if value.is_empty() || is_variable || value.starts_with("--") || value.contains(MASK) {
        return value.to_owned();
    }
    MASK.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_the_rest_stays() {
        for (text, shown) in [
            ("python my_agent.py --fast", "python my_agent.py --fast"),
            ("http://127.0.0.1:8000/chat", "http://127.0.0.1:8000/chat"),
            ("https://bob:hunter2@h/chat?v=2&key=abc", "https://[redacted]@h/chat?v=[redacted]&key=[redacted]"),
            ("curl -H 'Authorization: Bearer abc.def' http://h", "curl -H 'Authorization: Bearer [redacted]' http://h"),
            (
                "curl -H \"x-api-key: abc\" http://h/a?b=c&d",
                "curl -H \"x-api-key: [redacted]\" http://h/a?b=[redacted]&[redacted]",
            ),
            ("OPENAI_API_KEY=sk-1 python a.py", "OPENAI_API_KEY=[redacted] python a.py"),
            ("agent --token abc --steps 3", "agent --token [redacted] --steps 3"),
            ("agent --api-key=abc", "agent --api-key=[redacted]"),
            ("agent --token \"$TOKEN\" --key $KEY", "agent --token \"$TOKEN\" --key $KEY"),
            ("docker run -e DB_PASSWORD=x y", "docker run -e DB_PASSWORD=[redacted] y"),
        ] {
            let masked = MaskedText::new(text);
            assert_eq!(masked.text, shown);
            assert_eq!(masked.digest.is_some(), text != shown, "{text}");
        }
        // Two secrets are told apart, and the same one is recognised.
        let digest = |text: &str| MaskedText::new(text).into_setting();
        assert_ne!(digest("agent --token one"), digest("agent --token two"));
        assert_eq!(digest("agent --token one"), digest("agent --token one"));
    }
}
