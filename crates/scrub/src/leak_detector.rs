//! The check after scrubbing: searches the output for credentials that survived, before it is written. It shares no
//! rule with the scrubber: it knows the secrets of the environment, the form of private keys, and what random tokens
//! look like.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::Regex;

use crate::char_classes::{byte_before, find_token_runs, text_before};
use crate::entropy::shannon_entropy;
use crate::placeholder::find_placeholders;
use crate::random_tokens::{MAX_TOKEN_BYTES, MIN_TOKEN_BYTES, has_random_part};

const MIN_ENVIRONMENT_BYTES: usize = 8;
const MIN_ENVIRONMENT_ENTROPY: f64 = 2.3;
const CONTEXT_BYTES: usize = 40;
/// Minimum length of a line of wrapped base64 (certificates, attachments).
const MIN_WRAPPED_LINE_BYTES: usize = 56;

/// Prefixes of identifiers that providers put into every trace. They are random and give access to nothing.
const IDENTIFIER_PREFIXES: [&str; 34] = [
    "toolu_",
    "srvtoolu_",
    "call_",
    "msg_",
    "chatcmpl-",
    "chatcmpl_",
    "cmpl-",
    "resp_",
    "rs_",
    "fc_",
    "req_",
    "run_",
    "run-",
    "step_",
    "thread_",
    "asst_",
    "item_",
    "gen-",
    "file-",
    "evt_",
    "org-",
    "proj_",
    "batch_",
    "ft-",
    "ws_",
    "rc_",
    "ses_",
    "prt_",
    "fp_",
    "sha256-",
    "sha384-",
    "sha512-",
    "sha1-",
    "h1:",
];
/// Ends of names whose values are identifiers or checksums.
const IDENTIFIER_NAMES: [&str; 20] = [
    "id",
    "ids",
    "uuid",
    "guid",
    "hash",
    "sha",
    "sha1",
    "sha256",
    "sha512",
    "digest",
    "checksum",
    "integrity",
    "etag",
    "signature",
    "fingerprint",
    "cursor",
    "nonce",
    "boundary",
    "sum",
    "md5",
];

static PRIVATE_KEY: LazyLock<Regex> = LazyLock::new(|| {
    // A header followed by encoded bytes, or the first bytes of a PKCS#1, PKCS#8, SEC1 or OpenSSH key without a header.
    let pattern = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\+[nr])*[A-Za-z0-9+/=:]{16,}|\bMII(?:E[a-zA-Z]|CX|J[a-zA-Z]|Bv|G)[A-Za-z0-9+/]{1,2}IBA[A-Za-z0-9+/]{40,}|\bb3BlbnNzaC1rZXktdjE[A-Za-z0-9+/]{16,}";
    Regex::new(pattern).unwrap_or_else(|error| panic!("private keys: {error}"))
});

/// What kind of evidence a leak is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeakKind {
    /// The value of an environment variable of this process; the name of the variable.
    EnvironmentSecret(String),
    /// A private key.
    PrivateKey,
    /// A token that looks random.
    RandomToken,
}

/// A credential that survived scrubbing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// The evidence.
    pub kind: LeakKind,
    /// Where it begins, in bytes of the text.
    pub offset: usize,
    /// Enough to find it, never enough to use it: the first three characters of a long value, and its length.
    pub masked_excerpt: String,
}

/// Finds credentials in scrubbed texts.
#[derive(Debug)]
pub struct LeakDetector {
    environment: Option<AhoCorasick>,
    /// The variable of each pattern of `environment`.
    variables: Vec<String>,
}

impl LeakDetector {
    /// Creates a detector that knows the secrets among these environment variables (`std::env::vars()`).
    pub fn new(environment: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut patterns = Vec::new();
        let mut variables = Vec::new();
        for (name, value) in environment {
            if !has_secret_name(&name) || !is_distinctive_value(&value) {
                continue;
            }
            for form in escaped_forms(&value) {
                patterns.push(form);
                variables.push(name.clone());
            }
        }
        // A set of patterns this small always builds; without it the other methods still work.
        let environment = if patterns.is_empty() { None } else { AhoCorasick::new(&patterns).ok() };
        Self { environment, variables }
    }

    /// Finds the first leak of a text.
    pub fn find_leak(&self, text: &str) -> Option<Leak> {
        self.find_environment_secret(text).or_else(|| find_private_key(text)).or_else(|| find_random_token(text))
    }

    fn find_environment_secret(&self, text: &str) -> Option<Leak> {
        let found = self.environment.as_ref()?.find(text)?;
        let name = self.variables.get(found.pattern().as_usize())?.clone();
        Some(make_leak(LeakKind::EnvironmentSecret(name), text, found.range()))
    }
}

fn make_leak(kind: LeakKind, text: &str, span: Range<usize>) -> Leak {
    let value = &text[span.clone()];
    let shown: String = if value.len() >= MIN_TOKEN_BYTES { value.chars().take(3).collect() } else { String::new() };
    Leak { kind, offset: span.start, masked_excerpt: format!("{shown}… ({} characters)", value.chars().count()) }
}

fn has_secret_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let is_about = upper.split('_').any(|part| {
        matches!(part, "KEY" | "PASS" | "PWD" | "PAT" | "AUTH" | "CREDENTIAL" | "CREDENTIALS" | "CREDS")
            || ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY"].iter().any(|word| part.contains(word))
    });
    let is_location =
        ["_FILE", "_PATH", "_DIR", "_URL", "_SOCK", "_ID", "_NAME", "_TYPE"].iter().any(|end| upper.ends_with(end));
    is_about && !is_location && upper != "PWD" && upper != "OLDPWD"
}

/// Whether a value can be searched for: words and paths (`AUTH=basic`, `KEY=/etc/key`) would be found in every text.
fn is_distinctive_value(value: &str) -> bool {
    let has = |check: fn(&u8) -> bool| value.as_bytes().iter().any(check);
    let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
        || has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
        || has(u8::is_ascii_punctuation);
    value.len() >= MIN_ENVIRONMENT_BYTES
        && !value.starts_with(['/', '.', '~'])
        && is_mixed
        && shannon_entropy(value.as_bytes()) >= MIN_ENVIRONMENT_ENTROPY
}

/// Returns the value, also as JSON and URLs escape it.
fn escaped_forms(value: &str) -> Vec<String> {
    let escaped = serde_json::to_string(value).unwrap_or_default();
    let escaped = escaped.trim_matches('"').to_owned();
    let encoded: String = value
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect();
    let mut forms = vec![value.to_owned(), escaped, encoded];
    forms.dedup();
    forms.retain(|form| form.len() >= MIN_ENVIRONMENT_BYTES);
    forms
}

fn find_private_key(text: &str) -> Option<Leak> {
    PRIVATE_KEY.find(text).map(|found| make_leak(LeakKind::PrivateKey, text, found.range()))
}

fn find_random_token(text: &str) -> Option<Leak> {
    let placeholders = find_placeholders(text);
    for run in find_token_runs(text) {
        // `\n` and `\t` of an escaped text do not belong to what follows.
        let is_escape =
            byte_before(text, run.start) == Some(b'\\') && matches!(text.as_bytes()[run.start], b'n' | b't' | b'r');
        let run = run.start + usize::from(is_escape)..run.end;
        // Very long runs are encoded files.
        if run.len() < MIN_TOKEN_BYTES || is_encoded_blob(&text[run.clone()]) || is_encoded_file(text, run.clone()) {
            continue;
        }
        let Some(span) = find_random_part(text, run.clone()) else { continue };
        let first = placeholders.partition_point(|placeholder| placeholder.end <= span.start);
        let is_placeholder = placeholders.get(first).is_some_and(|placeholder| placeholder.start < span.end);
        if !is_placeholder && !is_identifier(text, run.clone(), span.clone()) && !is_wrapped_line(text, run) {
            return Some(make_leak(LeakKind::RandomToken, text, span));
        }
    }
    None
}

/// Finds the random part of a run: between the separators of paths and assignments, or all of it, since base64 has
/// `/` and `=`.
fn find_random_part(text: &str, run: Range<usize>) -> Option<Range<usize>> {
    let mut start = run.start;
    for part in text[run.clone()].split(['/', '=', '.', '+', '~']) {
        if has_random_part(part) {
            return Some(start..start + part.len());
        }
        start += part.len() + 1;
    }
    let has_base64 = text[run.clone()].contains(['+', '/']);
    // Identifiers in paths (`/traces/0af765...`) are words and hexadecimal numbers between slashes.
    let has_path =
        text[run.clone()].contains(['.', '-', '_']) || text[run.clone()].split(['/', '+']).any(is_long_hexadecimal);
    (has_base64 && !has_path && run.len() <= 88 && has_random_part(text[run.clone()].trim_end_matches('=')))
        .then_some(run)
}

fn is_long_hexadecimal(part: &str) -> bool {
    part.len() >= 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_encoded_blob(run: &str) -> bool {
    run.split(['.', '-', '_']).any(|part| part.len() > MAX_TOKEN_BYTES)
}

/// First bytes of images, documents and archives in base64.
const BASE64_FILE_PREFIXES: [&str; 7] = ["iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "JVBERi0", "UEsDB", "H4sI"];

/// Whether a short run is a file in base64, by its first bytes.
fn is_encoded_file(text: &str, run: Range<usize>) -> bool {
    text_before(text, run.start, CONTEXT_BYTES).ends_with("base64,")
        || BASE64_FILE_PREFIXES.iter().any(|start| text[run.clone()].starts_with(start))
}

/// Whether the context shows that a token is an identifier: its prefix, the name before it, or a URL path around it.
fn is_identifier(text: &str, run: Range<usize>, span: Range<usize>) -> bool {
    let token = &text[span.clone()];
    let whole = &text[run.clone()];
    if IDENTIFIER_PREFIXES.iter().any(|prefix| token.starts_with(prefix) || whole.starts_with(prefix)) {
        return true;
    }
    let is_assigned = byte_before(text, span.start) == Some(b'=');
    let before = text_before(text, if is_assigned { span.start } else { run.start }, CONTEXT_BYTES);
    let name = before.trim_end_matches([' ', '"', '\'', '`', ':', '=', '\\', '<', '(', '[', '#']);
    let has_operator = name.len() < before.len();
    let name: String = name.chars().rev().take_while(char::is_ascii_alphanumeric).collect();
    let name: String = name.chars().rev().collect();
    let lower = name.to_ascii_lowercase();
    let is_camel_id = name.ends_with("Id") || name.ends_with("ID");
    // Checksums of Go and of lock files have a short scheme: `h1:`.
    let is_scheme = before.ends_with(':') && name.len() == 2 && name.ends_with(|last: char| last.is_ascii_digit());
    if has_operator
        && (is_camel_id
            || is_scheme
            || IDENTIFIER_NAMES.contains(&lower.as_str())
            || lower.ends_with("hash")
            || lower.ends_with("signature"))
    {
        return true;
    }
    // `https://host/a/TOKEN`: the scheme ends in a colon, which is not part of the run.
    let is_url = whole.starts_with("//") && before.ends_with(':');
    is_url && byte_before(text, span.start) == Some(b'/')
}

/// Whether a run is a line of base64 among lines of base64.
fn is_wrapped_line(text: &str, run: Range<usize>) -> bool {
    if run.len() < MIN_WRAPPED_LINE_BYTES {
        return false;
    }
    let is_line_end = |rest: &str| {
        rest.is_empty() || rest.starts_with(['\n', '\r']) || rest.starts_with("\\n") || rest.starts_with("\\r")
    };
    let after = &text[run.end..];
    let starts_line = matches!(byte_before(text, run.start), None | Some(b'\n' | b' ' | b'\t' | b'"'))
        || text_before(text, run.start, 2).ends_with("\\n");
    let previous = text[..run.start].trim_end_matches(['\n', '\r', ' ', '\t']);
    let follows_block = previous.ends_with("-----")
        || previous
            .bytes()
            .rev()
            .take(16)
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
    let next = after.trim_start_matches(['\n', '\r', ' ', '\t']);
    let precedes_block = next.starts_with("-----")
        || next
            .bytes()
            .take(16)
            .filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
            .count()
            == 16;
    starts_line && is_line_end(after) && (follows_block && !previous.is_empty() || precedes_block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detector() -> LeakDetector {
        let variables = [
            ("SERVICE_TOKEN", "tok \"9\" value"),
            ("HOME", "/home/ann"),
            ("AUTH_MODE", "password"),
            ("SSH_AUTH_SOCK", "/tmp/x.sock"),
        ];
        LeakDetector::new(variables.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn leaks_are_found_and_masked() {
        let token = "x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Ue";
        let leak = detector().find_leak(&format!("see {token}.")).expect("a random token");
        assert_eq!((leak.kind, leak.offset), (LeakKind::RandomToken, 4));
        assert_eq!(leak.masked_excerpt, "x7K… (32 characters)");
        let leak = detector().find_leak(r#"{"a": "tok \"9\" value"}"#).expect("the environment's");
        assert_eq!(leak.kind, LeakKind::EnvironmentSecret("SERVICE_TOKEN".to_owned()));
        assert_eq!(leak.masked_excerpt, "… (15 characters)");
        let key = format!("-----BEGIN RSA PRIVATE KEY-----\\n{}", "MIIEowIBAAKCAQEA".repeat(4));
        assert_eq!(detector().find_leak(&key).map(|leak| leak.kind), Some(LeakKind::PrivateKey));
    }

    #[test]
    fn identifiers_hashes_images_and_placeholders_are_no_leaks() {
        let image = format!("data:image/png;base64,{}", "iVBORw0KGgoAAAANSUhEUgAAAAUA7x9Q".repeat(40));
        let certificate = format!(
            "-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----",
            "MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\n".repeat(6)
        );
        for text in [
            "<SECRET:github-pat:1> <EMAIL:2>",
            "commit 3f786850e387550fdab836ed7e6dc881de23001b",
            "id 550e8400-e29b-41d4-a716-446655440000",
            "\"tool_use_id\": \"toolu_01A09q90qw90lq917835lq9X\"",
            "\"requestId\":\"x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Ue\"",
            "password method",
            "integrity sha512-x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Uex7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4UeAA==",
            "-----BEGIN PRIVATE KEY-----\n<SECRET:x:1>",
            "h1:zVEjciLdlk/TPWCOyZo7k24T+tOKRQC+u8MKq/xS80I=",
            "a\\n7f800d2ac276dd7042ea0e8d7438527d236fd098",
            "https://docs.test/d/x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Ue/edit",
            image.as_str(),
            certificate.as_str(),
        ] {
            assert_eq!(detector().find_leak(text), None, "{text}");
        }
    }
}
