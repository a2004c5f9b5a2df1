//! Finds secrets by the vendored rules, with their keywords, entropy thresholds and allowlists.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::allowlist::AllowlistSubject;
use crate::char_classes::{ceil_boundary, floor_boundary};
use crate::entropy::shannon_entropy;
use crate::finding::{Finding, FindingRank, ScrubCategory};
use crate::keyword_windows::{GENERIC_RULE, KeywordWindows};
use crate::rule_set::{RuleSet, SecretRule};

/// Maximum part of a line that allowlists look at. A line of megabytes with many findings would otherwise cost the
/// square of its length.
const MAX_LINE_CONTEXT: usize = 1000;

/// Adds what the rules find in a text. Comments such as `gitleaks:allow` are not honoured: the text is not ours.
pub(crate) fn find_rule_secrets(rule_set: &RuleSet, text: &str, findings: &mut Vec<Finding>) {
    let bytes = text.as_bytes();
    let mut windows_by_rule: BTreeMap<usize, KeywordWindows> = BTreeMap::new();
    for keyword in rule_set.keywords.find_overlapping_iter(bytes) {
        for &rule_index in &rule_set.rules_by_keyword[keyword.pattern().as_usize()] {
            let rule = &rule_set.rules[rule_index];
            if rule.follower.can_match(bytes, keyword.range()) {
                let windows = windows_by_rule.entry(rule_index).or_default();
                windows.add_keyword(bytes, keyword.range(), rule.is_multiline);
            }
        }
    }
    for (rule_index, windows) in windows_by_rule {
        let rule = &rule_set.rules[rule_index];
        for window in windows.windows {
            scan_window(rule_set, rule, text, window, findings);
        }
    }
}

fn scan_window(rule_set: &RuleSet, rule: &SecretRule, text: &str, window: Range<usize>, findings: &mut Vec<Finding>) {
    let Some(regex) = rule.regex() else { return };
    let haystack = &text.as_bytes()[..window.end];
    let mut at = window.start;
    while at <= haystack.len() {
        let Some(found) = regex.find_at(haystack, at) else { break };
        at = found.end().max(found.start() + 1);
        let Some(span) = capture_secret(rule, regex, haystack, found.range()) else { continue };
        let secret = &haystack[span.clone()];
        if rule.entropy > 0.0 && shannon_entropy(secret) <= rule.entropy {
            continue;
        }
        let subject =
            AllowlistSubject { secret, matched: found.as_bytes(), line: line_around(haystack, found.range()) };
        if rule_set.is_allowed(rule, subject) {
            continue;
        }
        let is_generic = rule.id == GENERIC_RULE;
        let span = trim_quotes(text, floor_boundary(text, span.start)..ceil_boundary(text, span.end));
        findings.push(Finding {
            span,
            category: ScrubCategory::Secret,
            rank: if is_generic { FindingRank::GenericSecret } else { FindingRank::SpecificSecret },
            rule: rule.id.clone(),
        });
    }
}

/// Returns the secret in a match: the group that the rule names, else the first group that matched, else all of it.
fn capture_secret(
    rule: &SecretRule,
    regex: &regex::bytes::Regex,
    haystack: &[u8],
    found: Range<usize>,
) -> Option<Range<usize>> {
    // Named groups distinguish kinds of a token (`jwt-base64`); the secret is all of it.
    let has_named_groups = regex.capture_names().flatten().next().is_some();
    if regex.captures_len() == 1 || has_named_groups {
        let matched = &haystack[found.clone()];
        let leading = matched.iter().take_while(|byte| **byte == b'\n').count();
        let trailing = matched[leading..].iter().rev().take_while(|byte| **byte == b'\n').count();
        return Some(found.start + leading..found.end - trailing);
    }
    let captures = regex.captures_at(haystack, found.start)?;
    let group = if rule.secret_group > 0 {
        captures.get(rule.secret_group)
    } else {
        captures.iter().skip(1).flatten().find(|group| !group.is_empty())
    };
    Some(group.map_or(found, |group| group.range()))
}

fn line_around(haystack: &[u8], found: Range<usize>) -> &[u8] {
    let floor = found.start.saturating_sub(MAX_LINE_CONTEXT);
    let ceiling = found.end.saturating_add(MAX_LINE_CONTEXT).min(haystack.len());
    let start = haystack[floor..found.start].iter().rposition(|byte| *byte == b'\n').map_or(floor, |at| floor + at + 1);
    let end = haystack[found.end..ceiling].iter().position(|byte| *byte == b'\n').map_or(ceiling, |at| found.end + at);
    &haystack[start..end]
}

/// Removes quotes that some rules capture, so that the same secret is the same value everywhere.
fn trim_quotes(text: &str, span: Range<usize>) -> Range<usize> {
    let secret = &text[span.clone()];
    for quote in ['"', '\'', '`'] {
        if secret.len() > 2 && secret.starts_with(quote) && secret.ends_with(quote) {
            return span.start + 1..span.end - 1;
        }
    }
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Vec<(String, String)> {
        let mut findings = Vec::new();
        find_rule_secrets(RuleSet::vendored(), text, &mut findings);
        findings.into_iter().map(|finding| (finding.rule, text[finding.span].to_owned())).collect()
    }

    #[test]
    fn only_the_secret_of_a_match_is_found() {
        let token = "ghp_x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Ue6Xo0";
        let found = find(&format!("export GITHUB_TOKEN={token}\n"));
        assert!(found.contains(&("github-pat".to_owned(), token.to_owned())), "{found:?}");
    }

    #[test]
    fn low_entropy_and_stop_words_are_no_secrets() {
        assert!(find("api_key = \"aaaaaaaaaaaaaaaaaaaaaaaa\"").is_empty());
        assert!(find("token = \"${GITHUB_TOKEN}\"").is_empty());
        assert!(find(&format!("ghp_{}", "a".repeat(36))).is_empty());
    }

    #[test]
    fn characters_that_are_not_ascii_are_kept_whole() {
        for finding in find(
            "pässword: é -----BEGIN PRIVATE KEY-----\nüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüü\n-----END PRIVATE KEY-----",
        ) {
            assert_eq!(finding.0, "private-key");
        }
    }
}
