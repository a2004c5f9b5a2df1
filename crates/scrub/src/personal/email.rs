//! E-mail addresses: the common form of RFC 5322 (`local@domain.tld`), without comments and quoted local parts.

use std::ops::Range;

use crate::char_classes::{byte_at, byte_before};

const MAX_LOCAL_BYTES: usize = 64;
const MAX_DOMAIN_BYTES: usize = 253;
/// Ends of file names with an `@` in them (`logo@2x.png`), and of imports (`@scope/name@file.js`).
const FILE_EXTENSIONS: [&str; 22] = [
    "png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "js", "mjs", "cjs", "ts", "tsx", "jsx", "css", "scss", "json",
    "html", "lock", "yaml", "yml", "toml", "txt",
];

pub(crate) fn find_emails(text: &str, add: &mut impl FnMut(Range<usize>)) {
    let mut floor = 0;
    for (at, _) in text.match_indices('@') {
        if let Some(span) = read_email(text, at, floor) {
            floor = span.end;
            add(span);
        } else {
            floor = floor.max(at);
        }
    }
}

fn read_email(text: &str, at: usize, floor: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let is_local = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'%' | b'+' | b'-' | b'\'');
    let floor = floor.max(at.saturating_sub(MAX_LOCAL_BYTES + 1));
    let local_bytes = bytes[floor..at].iter().rev().take_while(|byte| is_local(byte)).count();
    let mut start = at - local_bytes;
    while start < at && !bytes[start].is_ascii_alphanumeric() && bytes[start] != b'_' {
        start += 1;
    }
    start += escape_length(text, start, at);
    let local = &text[start..at];
    if local.is_empty() || local.len() > MAX_LOCAL_BYTES || local.ends_with('.') || local.contains("..") {
        return None;
    }
    let ceiling = (at + 1 + MAX_DOMAIN_BYTES).min(bytes.len());
    let is_domain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let domain_bytes = bytes[at + 1..ceiling].iter().take_while(|byte| is_domain(byte)).count();
    let domain = text[at + 1..at + 1 + domain_bytes].trim_end_matches(['.', '-']);
    let end = at + 1 + domain.len();
    if !is_mail_domain(domain) {
        return None;
    }
    // `git@github.com:owner/name` is a remote, `x@y.method()` is code.
    let is_remote = local == "git" && byte_at(text, end) == Some(b':');
    let is_call = byte_at(text, end) == Some(b'(');
    (!is_remote && !is_call).then_some(start..end)
}

/// Returns the length of an escape (`\n`, `\x0f`, `\u000a`) at the start of the address; it belongs to the text
/// before it.
fn escape_length(text: &str, start: usize, at: usize) -> usize {
    if byte_before(text, start) != Some(b'\\') {
        return 0;
    }
    let length = match byte_at(text, start) {
        Some(b'n' | b't' | b'r') => 1,
        Some(b'x') => 3,
        Some(b'u') => 5,
        _ => 0,
    };
    let is_escape = text.as_bytes()[start..].iter().take(length).skip(1).all(u8::is_ascii_hexdigit);
    if is_escape && start + length < at { length } else { 0 }
}

fn is_mail_domain(domain: &str) -> bool {
    let Some((rest, top)) = domain.rsplit_once('.') else { return false };
    let is_label =
        |label: &str| !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && !label.ends_with('-');
    let is_top_domain =
        (2..=24).contains(&top.len()) && top.bytes().all(|byte| byte.is_ascii_alphabetic()) || top.starts_with("xn--");
    is_top_domain && rest.split('.').all(is_label) && !FILE_EXTENSIONS.contains(&top.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        find_emails(text, &mut |span| found.push(&text[span]));
        found
    }

    #[test]
    fn addresses_are_found_in_prose_lists_and_escapes() {
        assert_eq!(find("Mail <ann.lee+x@mail.example.org>, bob@b.co."), ["ann.lee+x@mail.example.org", "bob@b.co"]);
        assert_eq!(
            find(r"To:\nann@example.org\n \x0fbob@b.co \u000abob@b.co"),
            ["ann@example.org", "bob@b.co", "bob@b.co"]
        );
        assert_eq!(find("mailto:ann@example.org?subject=x"), ["ann@example.org"]);
    }

    #[test]
    fn versions_images_remotes_and_decorators_stay() {
        for text in [
            "lodash@4.17.21",
            "logo@2x.png",
            "git@github.com:a/b",
            "@app.route('/')",
            "a @ b.c",
            "x@self.dot(y)",
            "@@ -1 +1 @@",
            "user@host",
        ] {
            assert!(find(text).is_empty(), "{text}");
        }
    }
}
