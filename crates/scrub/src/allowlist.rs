//! Allowlists of the rule file: findings that are known not to be secrets.

use aho_corasick::AhoCorasick;
use regex::bytes::RegexSet;
use serde::Deserialize;

use crate::rule_pattern::{RuleError, escape_literal_braces};

/// An allowlist as the rule file has it. `paths` and `commits` say where a finding is allowed; a text has neither.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AllowlistEntry {
    regex_target: String,
    condition: String,
    regexes: Vec<String>,
    stopwords: Vec<String>,
    paths: Vec<String>,
    commits: Vec<String>,
}

/// What an allowlist looks at, besides stop words, which are always searched in the secret.
#[derive(Clone, Copy, Debug)]
enum AllowlistTarget {
    Secret,
    Match,
    Line,
}

/// The parts of a finding that allowlists look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllowlistSubject<'a> {
    pub(crate) secret: &'a [u8],
    pub(crate) matched: &'a [u8],
    pub(crate) line: &'a [u8],
}

#[derive(Debug)]
pub(crate) struct Allowlist {
    target: AllowlistTarget,
    regexes: Option<RegexSet>,
    stopwords: Option<AhoCorasick>,
    /// All criteria must hold, including paths and commits, which never hold for a text.
    needs_all: bool,
    has_location: bool,
}

impl Allowlist {
    pub(crate) fn from_entry(entry: &AllowlistEntry) -> Result<Self, RuleError> {
        let target = match entry.regex_target.as_str() {
            "match" => AllowlistTarget::Match,
            "line" => AllowlistTarget::Line,
            _ => AllowlistTarget::Secret,
        };
        let regexes = if entry.regexes.is_empty() {
            None
        } else {
            let patterns: Vec<_> = entry.regexes.iter().map(|pattern| escape_literal_braces(pattern)).collect();
            let set = regex::bytes::RegexSetBuilder::new(patterns).unicode(false).build();
            Some(set.map_err(|error| RuleError::Pattern("an allowlist".to_owned(), error))?)
        };
        let stopwords = if entry.stopwords.is_empty() {
            None
        } else {
            let words = AhoCorasick::builder().ascii_case_insensitive(true).build(&entry.stopwords);
            Some(words.map_err(RuleError::Keywords)?)
        };
        let has_location = !entry.paths.is_empty() || !entry.commits.is_empty();
        Ok(Self { target, regexes, stopwords, needs_all: entry.condition.eq_ignore_ascii_case("and"), has_location })
    }

    pub(crate) fn is_allowed(&self, subject: AllowlistSubject<'_>) -> bool {
        let target = match self.target {
            AllowlistTarget::Secret => subject.secret,
            AllowlistTarget::Match => subject.matched,
            AllowlistTarget::Line => subject.line,
        };
        let has_regex = self.regexes.as_ref().map(|regexes| regexes.is_match(target));
        let has_stopword = self.stopwords.as_ref().map(|words| words.is_match(subject.secret));
        if self.needs_all {
            !self.has_location && has_regex != Some(false) && has_stopword != Some(false)
        } else {
            has_regex == Some(true) || has_stopword == Some(true)
        }
    }
}
