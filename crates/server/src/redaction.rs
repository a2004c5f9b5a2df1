//! Redaction: removes text that must not be stored, by the patterns of the `[[serve.redact]]` tables of `gradus.toml`
//! and by built-in ones.
//!
//! A text without a match, which nearly all are, costs one pass of a `RegexSet` over all patterns. Only patterns that
//! match search again, each in the original text. Where matches overlap, everything that either one found is replaced.
//! Recorded texts are often JSON, so a replacement never splits an escape sequence.

mod built_in;
mod cards;

use std::ops::Range;

use gradus_otlp::TextKind;
use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use built_in::{BUILT_IN_PATTERNS, RedactionMatchCheck};

/// What must not be stored: a pattern with its name, or names of built-in patterns. See [Redaction](redaction.md).
// Attributes for the reference: see `serve_section`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedactSection {
    /// The name of an own pattern. It is shown in the replacement.
    pub name: Option<String>,
    /// A regular expression. If it has a group named `secret`, only that is replaced.
    pub pattern: Option<String>,
    /// The text that replaces a match.
    #[schemars(extend("x-default-text" = "`[redacted:NAME]`"))]
    pub replacement: Option<String>,
    /// Names of built-in patterns, instead of `name` and `pattern`.
    #[serde(default)]
    pub builtin: Vec<String>,
}

/// Why a table cannot be used. Each message is one line. A wrong table stops the start, because storing unredacted text
/// cannot be undone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedactionError {
    #[error("a redact table has a name and a pattern, or builtin = [\"emails\"]; this one has neither or both")]
    Form,
    #[error("redact: {0:?} is no name; write letters, digits, _ - or ., as in name = \"order_numbers\"")]
    Name(String),
    #[error("redact {0:?}: there is no such built-in pattern; there are {names}", names = built_in::join_pattern_names())]
    BuiltIn(String),
    #[error("redact {name:?}: the pattern cannot be read: {reason}")]
    Syntax { name: String, reason: String },
    #[error("redact {name:?}: the pattern is too large; use smaller counts, as \\d{{4}} and not \\d{{4000}}")]
    TooLarge { name: String },
    #[error("redact {name:?}: the pattern matches the empty text, which is everywhere; use + and not *")]
    Empty { name: String },
    #[error(
        "redact {name:?}: a replacement has no quotes, backslashes or line breaks, which would break recorded JSON"
    )]
    Replacement { name: String },
    #[error("the redact tables are too large together; leave some out")]
    TooLargeTogether,
}

/// Maximum memory of one compiled pattern, of the set of all patterns, and of the lazily built automaton of the set.
const MAX_PATTERN_BYTES: usize = 1 << 20;
const MAX_PATTERN_SET_BYTES: usize = 10 << 20;
const MAX_PATTERN_CACHE_BYTES: usize = 4 << 20;

/// Compiled patterns. The `regex` crate has no backtracking, so the time is linear in the text whatever pattern a user
/// writes.
#[derive(Debug)]
pub struct Redaction {
    /// All patterns in the order of `patterns`, to find quickly which of them match.
    all: RegexSet,
    patterns: Vec<RedactionPattern>,
}

/// One compiled pattern with its replacement.
#[derive(Debug)]
struct RedactionPattern {
    regex: Regex,
    /// Only the group `secret` is replaced, and the rest of the match is context.
    has_secret_group: bool,
    check: RedactionMatchCheck,
    replacement: String,
}

/// Maximum number of matches in one text that are replaced one by one. A text with more is replaced as a whole.
const MAX_REPLACED_MATCHES: usize = 100_000;
/// Replaces a text with too many matches. It has no quotes or backslashes, so it is valid inside of JSON strings.
const TOO_MANY_MATCHES_TEXT: &str = "[redacted: a text with too many places to redact]";

impl Redaction {
    /// Compiles all tables. Fails on the first one that is wrong.
    pub fn from_sections(sections: &[RedactSection]) -> Result<Redaction, RedactionError> {
        let mut patterns = Vec::new();
        for section in sections {
            add_section(section, &mut patterns)?;
        }
        let all = RegexSetBuilder::new(patterns.iter().map(|pattern| pattern.regex.as_str()))
            .size_limit(MAX_PATTERN_SET_BYTES)
            .dfa_size_limit(MAX_PATTERN_CACHE_BYTES)
            .build()
            .map_err(|_| RedactionError::TooLargeTogether)?;
        Ok(Redaction { all, patterns })
    }

    /// Whether there are no patterns, so that records need not be copied.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns the redacted text; `None` if it has no match, so that unchanged texts are not copied.
    pub fn apply(&self, text: &str) -> Option<String> {
        // `is_match` stops at the first match and may skip ahead by literals. `matches` can do neither.
        if self.patterns.is_empty() || !self.all.is_match(text) {
            return None;
        }
        let mut found: Vec<(Range<usize>, &str)> = Vec::new();
        for index in self.all.matches(text) {
            let pattern = &self.patterns[index];
            pattern.find_matches(text, &mut |range| {
                let range = narrow_to_escapes(text, range);
                if !range.is_empty() && found.len() <= MAX_REPLACED_MATCHES {
                    found.push((range, &pattern.replacement));
                }
            });
        }
        if found.len() > MAX_REPLACED_MATCHES {
            return Some(TOO_MANY_MATCHES_TEXT.to_owned());
        }
        // Of matches that begin at the same position, the longest comes first: its name describes the text best.
        found.sort_by_key(|(range, _)| (range.start, usize::MAX - range.end));
        let replaced = replace_matches(text, &found);
        replaced.filter(|replaced| replaced != text)
    }

    /// As [`Redaction::apply`], for a text of an OTLP record. Attribute names of known conventions stay unchanged,
    /// because dialects find values by them.
    pub fn apply_in_record(&self, kind: TextKind, text: &str) -> Option<String> {
        if kind == TextKind::Key && is_conventional_key(text) { None } else { self.apply(text) }
    }

    /// Redacts a text in place.
    pub fn apply_to(&self, text: &mut String) {
        if let Some(changed) = self.apply(text) {
            *text = changed;
        }
    }
}

/// First segments of attribute names that instrumentations use and that dialects look for.
const CONVENTION_PREFIXES: [&str; 44] = [
    "agent",
    "ai",
    "aws",
    "azure",
    "cloud",
    "code",
    "container",
    "crewai",
    "db",
    "deployment",
    "document",
    "embedding",
    "event",
    "exception",
    "faas",
    "gcp",
    "gen_ai",
    "graph",
    "host",
    "http",
    "input",
    "k8s",
    "langfuse",
    "langsmith",
    "llm",
    "logfire",
    "mcp",
    "message",
    "metadata",
    "net",
    "openai",
    "openinference",
    "os",
    "otel",
    "output",
    "process",
    "reranker",
    "retrieval",
    "server",
    "service",
    "session",
    "telemetry",
    "tool",
    "traceloop",
];

/// Whether a key was chosen by a program and not by a person: a pattern that happens to match `session.id` must not
/// make a trace unreadable.
fn is_conventional_key(key: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    if key.len() <= 24 && key.bytes().all(is_plain) {
        return true;
    }
    let Some((first, _)) = key.split_once('.') else { return false };
    // Indexes of messages and tools are short. Long numbers may be account or card numbers.
    let has_long_number = key.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 6);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    CONVENTION_PREFIXES.contains(&first) && key.len() <= 100 && key.bytes().all(is_name) && !has_long_number
}

/// Adds the patterns of a table. A built-in pattern that is selected under several names is added once.
fn add_section(section: &RedactSection, patterns: &mut Vec<RedactionPattern>) -> Result<(), RedactionError> {
    let RedactSection { name, pattern, replacement, builtin } = section;
    match (name, pattern) {
        (Some(name), Some(pattern)) if builtin.is_empty() => {
            if !is_pattern_name(name) {
                return Err(RedactionError::Name(name.chars().take(60).collect()));
            }
            patterns.push(RedactionPattern::new(name, pattern, replacement.as_deref(), RedactionMatchCheck::None)?);
            Ok(())
        }
        (None, None) if !builtin.is_empty() => {
            for name in builtin {
                let is_named = |pattern: &&built_in::BuiltInPattern| pattern.names.contains(&name.as_str());
                let mut named = BUILT_IN_PATTERNS.iter().filter(is_named).peekable();
                if named.peek().is_none() {
                    return Err(RedactionError::BuiltIn(name.chars().take(60).collect()));
                }
                for built_in in named {
                    // It may have been added under another of its names.
                    if patterns.iter().all(|known| known.regex.as_str() != built_in.pattern) {
                        let replacement = replacement.as_deref();
                        patterns.push(RedactionPattern::new(name, built_in.pattern, replacement, built_in.check)?);
                    }
                }
            }
            Ok(())
        }
        _ => Err(RedactionError::Form),
    }
}

/// Whether a name is valid. Names appear in redacted texts, so they must be harmless in JSON, HTML and terminals.
fn is_pattern_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

impl RedactionPattern {
    fn new(
        name: &str,
        pattern: &str,
        replacement: Option<&str>,
        check: RedactionMatchCheck,
    ) -> Result<RedactionPattern, RedactionError> {
        let built = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
        let regex = built.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => RedactionError::TooLarge { name: name.to_owned() },
            error => RedactionError::Syntax { name: name.to_owned(), reason: summarize_regex_error(&error) },
        })?;
        // Such a pattern would insert its replacement between all characters.
        if regex.is_match("") {
            return Err(RedactionError::Empty { name: name.to_owned() });
        }
        let is_harmless = |c: char| !matches!(c, '"' | '\\') && !c.is_control();
        let replacement = match replacement {
            Some(replacement) if !replacement.chars().all(is_harmless) => {
                return Err(RedactionError::Replacement { name: name.to_owned() });
            }
            Some(replacement) => replacement.to_owned(),
            None => format!("[redacted:{name}]"),
        };
        let has_secret_group = regex.capture_names().any(|group| group == Some("secret"));
        Ok(RedactionPattern { regex, has_secret_group, check, replacement })
    }

    /// Passes the ranges that are to be replaced to `sink`, after the additional check of the pattern.
    fn find_matches(&self, text: &str, sink: &mut dyn FnMut(Range<usize>)) {
        let mut checked = |range: Range<usize>| match self.check {
            RedactionMatchCheck::None => sink(range),
            RedactionMatchCheck::Digit if text[range.clone()].bytes().any(|byte| byte.is_ascii_digit()) => sink(range),
            RedactionMatchCheck::BasicCredentials if built_in::is_basic_credentials(&text[range.clone()]) => {
                sink(range)
            }
            RedactionMatchCheck::Digit | RedactionMatchCheck::BasicCredentials => {}
            RedactionMatchCheck::Card => cards::find_card_numbers(text, range, sink),
        };
        if self.has_secret_group {
            let secrets = self.regex.captures_iter(text).filter_map(|groups| groups.name("secret"));
            secrets.for_each(|secret| checked(secret.range()));
        } else {
            self.regex.find_iter(text).for_each(|found| checked(found.range()));
        }
    }
}

/// Returns the last line of a syntax error, which has the reason. The lines before it draw arrows below the pattern.
fn summarize_regex_error(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    last.trim().trim_start_matches("error: ").to_owned()
}

/// Narrows a range so that it neither begins nor ends inside of a JSON escape sequence: in `\nme@here.org` the `n`
/// belongs to the escape, and replacing it would leave a lone backslash.
fn narrow_to_escapes(text: &str, range: Range<usize>) -> Range<usize> {
    let (before, bytes) = (&text.as_bytes()[..range.start], text.as_bytes());
    let mut start = range.start;
    if before.ends_with(b"\\") {
        match bytes.get(start) {
            Some(b'u') if bytes.get(start + 1..start + 5).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => {
                start += 5;
            }
            Some(b'n' | b'r' | b't' | b'b' | b'f' | b'"' | b'/') => start += 1,
            _ => {}
        }
    }
    if start >= range.end {
        return range.end..range.end;
    }
    let kept = text[start..range.end].trim_end_matches('\\');
    start..start + kept.len()
}

/// Inserts the replacements. `found` is sorted by start. Overlapping matches are replaced together, by the replacement
/// of the first one.
fn replace_matches(text: &str, found: &[(Range<usize>, &str)]) -> Option<String> {
    let mut ranges = found.iter().peekable();
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    while let Some((range, replacement)) = ranges.next() {
        let mut end = range.end;
        while let Some((next, _)) = ranges.next_if(|(next, _)| next.start < end) {
            end = end.max(next.end);
        }
        out.push_str(&text[copied..range.start]);
        out.push_str(replacement);
        copied = end;
    }
    out.push_str(&text[copied..]);
    (!found.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests;
