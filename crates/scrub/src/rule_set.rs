//! The vendored rules of gitleaks, parsed once and compiled on first use.

use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::allowlist::{Allowlist, AllowlistEntry, AllowlistSubject};
use crate::keyword_windows::KeywordFollower;
use crate::rule_pattern::{RuleError, escape_literal_braces};

const RULE_FILE: &str = include_str!("../rules/gitleaks.toml");
/// Maximum size of a compiled rule. The largest takes 2 MiB; a faulty update of the rule file must not take all
/// memory.
const MAX_COMPILED_BYTES: usize = 16 << 20;
const MAX_DFA_BYTES: usize = 8 << 20;

#[derive(Debug, Deserialize)]
struct RuleFile {
    allowlist: Option<AllowlistEntry>,
    #[serde(default)]
    allowlists: Vec<AllowlistEntry>,
    rules: Vec<RuleEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuleEntry {
    id: String,
    /// Rules without a pattern are about file names.
    regex: Option<String>,
    #[serde(default)]
    entropy: f64,
    #[serde(default)]
    secret_group: usize,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    allowlists: Vec<AllowlistEntry>,
}

#[derive(Debug)]
pub(crate) struct SecretRule {
    pub(crate) id: String,
    pattern: String,
    regex: OnceLock<Option<Regex>>,
    pub(crate) entropy: f64,
    pub(crate) secret_group: usize,
    /// What has to follow a keyword for the pattern to match.
    pub(crate) follower: KeywordFollower,
    /// The pattern goes over any number of lines, so that no window around a keyword is large enough.
    pub(crate) is_multiline: bool,
    allowlists: Vec<Allowlist>,
}

impl SecretRule {
    fn from_entry(entry: &RuleEntry) -> Result<Option<Self>, RuleError> {
        let Some(regex) = &entry.regex else { return Ok(None) };
        let allowlists = entry.allowlists.iter().map(Allowlist::from_entry).collect::<Result<_, _>>()?;
        Ok(Some(Self {
            id: entry.id.clone(),
            pattern: escape_literal_braces(regex),
            regex: OnceLock::new(),
            entropy: entry.entropy,
            secret_group: entry.secret_group,
            follower: KeywordFollower::for_rule(&entry.id),
            is_multiline: regex.contains(r"\s\S"),
            allowlists,
        }))
    }

    fn compile_pattern(&self) -> Result<Regex, RuleError> {
        // Go's classes (\w, \b, \s, case folding) are ASCII. Bytes also keep `.` from needing Unicode tables.
        RegexBuilder::new(&self.pattern)
            .unicode(false)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_DFA_BYTES)
            .build()
            .map_err(|error| RuleError::Pattern(self.id.clone(), error))
    }

    /// Returns the pattern, compiled when the first text has one of its keywords.
    pub(crate) fn regex(&self) -> Option<&Regex> {
        self.regex.get_or_init(|| self.compile_pattern().ok()).as_ref()
    }
}

/// All rules that apply to texts, with one search for the keywords of all.
#[derive(Debug)]
pub(crate) struct RuleSet {
    pub(crate) rules: Vec<SecretRule>,
    pub(crate) keywords: AhoCorasick,
    /// For each keyword the indices of its rules.
    pub(crate) rules_by_keyword: Vec<Vec<usize>>,
    allowlists: Vec<Allowlist>,
}

impl RuleSet {
    fn parse(file: &str) -> Result<Self, RuleError> {
        let file: RuleFile = toml::from_str(file).map_err(RuleError::File)?;
        let allowlists =
            file.allowlist.iter().chain(&file.allowlists).map(Allowlist::from_entry).collect::<Result<_, _>>()?;
        let mut rules = Vec::new();
        let mut keywords: Vec<String> = Vec::new();
        let mut rules_by_keyword: Vec<Vec<usize>> = Vec::new();
        for entry in &file.rules {
            let Some(rule) = SecretRule::from_entry(entry)? else { continue };
            for keyword in &entry.keywords {
                let keyword = keyword.to_ascii_lowercase();
                let position = keywords.iter().position(|known| *known == keyword).unwrap_or_else(|| {
                    keywords.push(keyword);
                    rules_by_keyword.push(Vec::new());
                    keywords.len() - 1
                });
                rules_by_keyword[position].push(rules.len());
            }
            rules.push(rule);
        }
        let keywords = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&keywords)
            .map_err(RuleError::Keywords)?;
        Ok(Self { rules, keywords, rules_by_keyword, allowlists })
    }

    /// Returns the rules of the vendored file. They are shared: parsing takes milliseconds, compiled patterns
    /// megabytes.
    pub(crate) fn vendored() -> &'static Self {
        static RULE_SET: LazyLock<RuleSet> =
            LazyLock::new(|| RuleSet::parse(RULE_FILE).unwrap_or_else(|error| panic!("vendored rules: {error}")));
        &RULE_SET
    }

    /// Whether the allowlists for all rules take a secret as harmless.
    pub(crate) fn is_allowed_everywhere(&self, secret: &[u8]) -> bool {
        let subject = AllowlistSubject { secret, matched: secret, line: secret };
        self.allowlists.iter().any(|allowlist| allowlist.is_allowed(subject))
    }

    /// Whether the file's allowlists (global, or of the rule) take a finding as harmless.
    pub(crate) fn is_allowed(&self, rule: &SecretRule, subject: AllowlistSubject<'_>) -> bool {
        self.allowlists.iter().chain(&rule.allowlists).any(|allowlist| allowlist.is_allowed(subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_of_the_vendored_file_compiles() {
        let rule_set = RuleSet::vendored();
        assert_eq!(rule_set.rules.len(), 221, "222 rules, of which one is about file names");
        for rule in &rule_set.rules {
            rule.compile_pattern().unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
