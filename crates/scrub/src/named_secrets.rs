//! Finds secrets in a text by the name before them: `"password": "hunter2"` at any depth of escaping,
//! `PASSWORD=hunter2`, `--password hunter2`, `<password>hunter2</password>`.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use crate::char_classes::{byte_at, ceil_boundary};
use crate::finding::{Finding, FindingRank, ScrubCategory};
use crate::rule_set::RuleSet;
use crate::secret_names::{
    MAX_NAME_BYTES, NAME_STEMS, NameStrength, SecretName, classify_secret_name, is_secret_value,
};

/// Maximum length of a quoted value. One that does not end within this is ignored.
const MAX_VALUE_BYTES: usize = 4096;
const MAX_SKIPPED_SPACES: usize = 8;
const MIN_BARE_VALUE_BYTES: usize = 6;

static STEMS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let stems = AhoCorasick::builder().ascii_case_insensitive(true).build(NAME_STEMS);
    stems.unwrap_or_else(|error| panic!("stems of secret names: {error}"))
});

/// Adds the values after names of secrets, unless the allowlist of all rules has them.
pub(crate) fn find_named_secrets(rule_set: &RuleSet, text: &str, findings: &mut Vec<Finding>) {
    let mut searched_to = 0;
    for stem in STEMS.find_iter(text) {
        if stem.start() < searched_to {
            continue;
        }
        let name_span = expand_name(text, stem.range(), searched_to);
        searched_to = name_span.end;
        let Some(name) = classify_secret_name(&text[name_span.clone()]) else { continue };
        if let Some(span) = find_value(text, name_span, name) {
            searched_to = span.end;
            if rule_set.is_allowed_everywhere(text[span.clone()].as_bytes()) {
                continue;
            }
            findings.push(Finding {
                span,
                category: ScrubCategory::Secret,
                rank: FindingRank::NamedSecret,
                rule: name.rule.to_owned(),
            });
        }
    }
}

/// Returns the whole name around a stem.
fn expand_name(text: &str, stem: Range<usize>, floor: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let floor = floor.max(stem.start.saturating_sub(MAX_NAME_BYTES));
    let before = bytes[floor..stem.start].iter().rev().take_while(|byte| is_name(byte)).count();
    let ceiling = (stem.end + MAX_NAME_BYTES).min(bytes.len());
    let after = bytes[stem.end..ceiling].iter().take_while(|byte| is_name(byte)).count();
    stem.start - before..stem.end + after
}

/// Finds the value that is assigned to a name.
fn find_value(text: &str, name_span: Range<usize>, name: SecretName) -> Option<Range<usize>> {
    let closing = Quote::read(text, name_span.end);
    let after_name = closing.as_ref().map_or(name_span.end, |quote| quote.end);
    let is_flag = text[name_span.clone()].starts_with("--");
    let is_tag = name_span.start > 0 && byte_at(text, name_span.start - 1) == Some(b'<');
    let operator = skip_spaces(text, after_name);
    let (mut at, is_tag_value) = match (byte_at(text, operator)?, byte_at(text, operator + 1)) {
        (b':' | b'=', Some(b'=' | b'>')) => (operator + 2, false),
        (b':' | b'=', _) => (operator + 1, false),
        (b'>', _) if is_tag => (operator + 1, true),
        _ if is_flag && operator == name_span.end + 1 => (operator, false),
        _ => return None,
    };
    if is_tag_value {
        return find_tag_value(text, at, name);
    }
    at = skip_spaces(text, at);
    if let Some(opening) = Quote::read(text, at) {
        // The vendored rules judge `token = "..."` by entropy and stop words; what they cannot see are escaped quotes.
        if name.strength == NameStrength::Weak && opening.backslashes == 0 {
            return None;
        }
        let end = opening.find_end(text)?;
        let span = opening.end..end;
        return is_secret_value(name, &text[span.clone()]).then_some(span);
    }
    // A quoted name has a quoted value; a value without quotes is code, or a number.
    if closing.is_some() || name.strength == NameStrength::Weak {
        return None;
    }
    let is_variable = !text[name_span.clone()].bytes().any(|byte| byte.is_ascii_lowercase());
    find_bare_value(text, at, name, is_variable)
}

/// Finds a value without quotes. Code has many of those, so it must have a letter and a digit and must not be called
/// or indexed. An environment variable (`DB_PASSWORD=`) may have letters only, if the value ends its line.
fn find_bare_value(text: &str, at: usize, name: SecretName, is_variable: bool) -> Option<Range<usize>> {
    let ends_value = |byte: &u8| {
        byte.is_ascii_whitespace()
            || matches!(
                byte,
                b'"' | b'\''
                    | b'`'
                    | b','
                    | b';'
                    | b'&'
                    | b'<'
                    | b'>'
                    | b'('
                    | b')'
                    | b'{'
                    | b'}'
                    | b'['
                    | b']'
                    | b'\\'
                    | b'|'
            )
    };
    let ceiling = (at + MAX_VALUE_BYTES).min(text.len());
    let length = text.as_bytes()[at..ceiling].iter().take_while(|byte| !ends_value(byte)).count();
    let span = at..ceil_boundary(text, at + length);
    let value = text[span.clone()].trim_end_matches(['.', ':', '!', '?']);
    let span = at..at + value.len();
    let is_called = matches!(byte_at(text, span.end), Some(b'(' | b'[' | b'{'));
    let has_letter = value.bytes().any(|byte| byte.is_ascii_alphabetic());
    let has_digit = value.bytes().any(|byte| byte.is_ascii_digit());
    let ends_line =
        matches!(byte_at(text, span.end), None | Some(b'\n' | b'\r')) || text[span.end..].starts_with("\\n");
    let has_form = has_letter && (has_digit || is_variable && ends_line && name.strength == NameStrength::Password);
    (value.len() >= MIN_BARE_VALUE_BYTES && !is_called && has_form && is_secret_value(name, value)).then_some(span)
}

fn find_tag_value(text: &str, at: usize, name: SecretName) -> Option<Range<usize>> {
    let ceiling = ceil_boundary(text, (at + MAX_VALUE_BYTES).min(text.len()));
    let length = text[at..ceiling].find('<')?;
    let span = at..at + length;
    (text[span.end..].starts_with("</") && is_secret_value(name, &text[span.clone()])).then_some(span)
}

fn skip_spaces(text: &str, at: usize) -> usize {
    let ceiling = (at + MAX_SKIPPED_SPACES).min(text.len());
    at + text.as_bytes()[at..ceiling].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// A quote with the backslashes before it: JSON in a string of JSON has one, a level deeper three.
#[derive(Debug)]
struct Quote {
    byte: u8,
    backslashes: usize,
    end: usize,
}

impl Quote {
    fn read(text: &str, at: usize) -> Option<Self> {
        let backslashes =
            text.as_bytes()[at..].iter().take(MAX_SKIPPED_SPACES).take_while(|byte| **byte == b'\\').count();
        let byte = byte_at(text, at + backslashes)?;
        matches!(byte, b'"' | b'\'' | b'`').then_some(Self { byte, backslashes, end: at + backslashes + 1 })
    }

    /// Finds where the quoted value ends: before the backslashes of the next quote that is not escaped deeper than
    /// this one.
    fn find_end(&self, text: &str) -> Option<usize> {
        let bytes = text.as_bytes();
        let ceiling = (self.end + MAX_VALUE_BYTES).min(bytes.len());
        let mut backslashes = 0;
        for (offset, byte) in bytes[self.end..ceiling].iter().enumerate() {
            match *byte {
                b'\\' => backslashes += 1,
                b'\n' if self.byte != b'`' => return None,
                byte if byte == self.byte => {
                    let is_end =
                        if self.backslashes == 0 { backslashes % 2 == 0 } else { backslashes <= self.backslashes };
                    if is_end {
                        let own = if self.backslashes == 0 { 0 } else { backslashes };
                        return Some(self.end + offset - own);
                    }
                    backslashes = 0;
                }
                _ => backslashes = 0,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Vec<&str> {
        let mut findings = Vec::new();
        find_named_secrets(RuleSet::vendored(), text, &mut findings);
        findings.into_iter().map(|finding| &text[finding.span]).collect()
    }

    #[test]
    fn values_are_found_at_any_depth_of_escaping() {
        assert_eq!(find(r#"{"password": "hunter2"}"#), ["hunter2"]);
        assert_eq!(find(r#"{\"password\": \"hun\\\"ter2\"}"#), [r#"hun\\\"ter2"#]);
        assert_eq!(find(r#"{\\\"db_password\\\":\\\"hunter2\\\"}"#), ["hunter2"]);
        assert_eq!(find(r#"{"password": "hun\"ter2\\"}"#), [r#"hun\"ter2\\"#]);
        assert_eq!(find("{'api_key': 'abc-123-def'}"), ["abc-123-def"]);
    }

    #[test]
    fn values_without_quotes_need_a_letter_and_a_digit() {
        assert_eq!(find("PASSWORD=hunter2 x"), ["hunter2"]);
        assert_eq!(find("mysql --password hunter2 -h db"), ["hunter2"]);
        assert_eq!(find("DB_PASSWORD=correcthorse\nX=1"), ["correcthorse"]);
        assert_eq!(find("<password>s3cr3t</password>"), ["s3cr3t"]);
        assert_eq!(find("https://x.test/?api_key=abc123def&x=1"), ["abc123def"]);
        for code in [
            "password = get_password2()",
            "password=args.password2",
            "token = tokens[0]",
            "password: str",
            "PASSWORD = getpass.getpass()",
            "password: SecretStr",
            "secret: Option<String>",
        ] {
            assert!(find(code).is_empty(), "{code}");
        }
    }

    #[test]
    fn an_open_quote_ends_nothing() {
        assert!(find("\"password\": \"").is_empty());
        assert!(find("password=\\").is_empty());
        assert!(find(&format!("\"password\": \"{}", "a1".repeat(100_000))).is_empty());
    }
}
