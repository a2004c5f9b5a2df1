//! The scrubber: settings, the passes over a text, and the replacement of what was found.

use std::borrow::Cow;

use crate::finding::{Finding, ScrubCategory, resolve_overlaps};
use crate::known_values::KnownSecrets;
use crate::named_secrets::find_named_secrets;
use crate::personal::find_personal_data;
use crate::placeholder::{PlaceholderTable, find_placeholders, subtract_placeholders};
use crate::rule_set::RuleSet;
use crate::secret_scan::find_rule_secrets;
use crate::settings::ScrubSettings;
use crate::statistics::ScrubStatistics;
use crate::url_secrets::find_url_secrets;

/// Maximum number of passes. A replaced finding may uncover another one that it overlapped. Ordinary texts need two
/// passes; the limit prevents a hostile text from costing the square of its length.
const MAX_SCRUB_PASSES: usize = 32;

/// Scrubs the texts of one export. Placeholders are stable for the life of a scrubber.
#[derive(Debug)]
pub struct Scrubber {
    settings: ScrubSettings,
    rule_set: &'static RuleSet,
    placeholders: PlaceholderTable,
    pub(crate) known_secrets: KnownSecrets,
    pub(crate) statistics: ScrubStatistics,
}

impl Scrubber {
    /// Creates a scrubber without placeholders.
    pub fn new(settings: ScrubSettings) -> Self {
        Self {
            settings,
            rule_set: RuleSet::vendored(),
            placeholders: PlaceholderTable::default(),
            known_secrets: KnownSecrets::default(),
            statistics: ScrubStatistics::default(),
        }
    }

    /// Replaces secrets and personal data in a text. Scrubbing the result again changes nothing.
    pub fn scrub_text<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        self.statistics.text_count += 1;
        self.statistics.text_bytes += text.len() as u64;
        self.scrub_field(text, None)
    }

    /// Returns what was replaced so far.
    pub fn statistics(&self) -> &ScrubStatistics {
        &self.statistics
    }

    pub(crate) fn has_category(&self, category: ScrubCategory) -> bool {
        self.settings.has_category(category)
    }

    /// Scrubs the text of a field. It does not count the text: JSON counts its strings once, however often it looks.
    pub(crate) fn scrub_field<'a>(&mut self, text: &'a str, field_name: Option<&str>) -> Cow<'a, str> {
        let mut scrubbed = Cow::Borrowed(text);
        for _ in 0..MAX_SCRUB_PASSES {
            let findings = self.find_values(&scrubbed, field_name);
            if findings.is_empty() {
                break;
            }
            scrubbed = Cow::Owned(self.replace_findings(&scrubbed, &findings));
        }
        scrubbed
    }

    /// Returns the placeholder of one whole value.
    pub(crate) fn replace_value(&mut self, value: &str, category: ScrubCategory, rule: &str) -> String {
        if category == ScrubCategory::Secret {
            self.known_secrets.add_secret(value, rule);
        }
        let placeholder = self.placeholders.placeholder_for(category, rule, value).to_owned();
        self.statistics.distinct_value_count = self.placeholders.len() as u64;
        placeholder
    }

    fn find_values(&self, text: &str, field_name: Option<&str>) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.has_category(ScrubCategory::Secret) {
            find_rule_secrets(self.rule_set, text, &mut findings);
            find_named_secrets(self.rule_set, text, &mut findings);
            find_url_secrets(text, &mut findings);
            self.known_secrets.find_known(text, &mut findings);
        }
        find_personal_data(text, field_name, &self.settings, &mut findings);
        if findings.is_empty() {
            return findings;
        }
        let placeholders = find_placeholders(text);
        let mut cut_findings = Vec::with_capacity(findings.len());
        for finding in findings {
            let pieces = subtract_placeholders(text, finding.span.clone(), &placeholders);
            let is_whole = pieces.first() == Some(&finding.span);
            // A part of an address or number is not one; a part of a secret is a secret.
            if is_whole || finding.category == ScrubCategory::Secret {
                cut_findings.extend(pieces.into_iter().map(|span| Finding { span, ..finding.clone() }));
            }
        }
        resolve_overlaps(cut_findings)
    }

    fn replace_findings(&mut self, text: &str, findings: &[Finding]) -> String {
        let mut scrubbed = String::with_capacity(text.len());
        let mut copied_to = 0;
        for finding in findings {
            scrubbed.push_str(&text[copied_to..finding.span.start]);
            scrubbed.push_str(&self.replace_value(&text[finding.span.clone()], finding.category, &finding.rule));
            copied_to = finding.span.end;
            self.statistics.record_replacement(finding);
        }
        scrubbed.push_str(&text[copied_to..]);
        scrubbed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub(text: &str) -> String {
        Scrubber::new(ScrubSettings::default()).scrub_text(text).into_owned()
    }

    #[test]
    fn placeholders_are_typed_and_stable() {
        let token = "ghp_x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Ue6Xo0";
        let mut scrubber = Scrubber::new(ScrubSettings::default());
        let text = format!("export GITHUB_TOKEN={token}\nmail ann@example.org {token} from /home/ann/x");
        assert_eq!(
            scrubber.scrub_text(&text),
            "export GITHUB_TOKEN=<SECRET:github-pat:1>\nmail <EMAIL:1> <SECRET:github-pat:1> from /home/<USER:1>/x"
        );
        assert_eq!(scrubber.scrub_text("ANN@example.org"), "<EMAIL:1>");
        assert_eq!(scrubber.statistics().by_rule.get("github-pat"), Some(&2));
        assert_eq!(scrubber.statistics().count_of_category(ScrubCategory::Email), 2);
        assert_eq!(scrubber.statistics().distinct_value_count, 3);
    }

    #[test]
    fn a_secret_is_found_again_without_its_context() {
        let text = "bare q8Zr2Lm4Xw9Tb7Kd\nDB_PASSWORD=q8Zr2Lm4Xw9Tb7Kd";
        assert_eq!(scrub(text), "bare <SECRET:password:1>\nDB_PASSWORD=<SECRET:password:1>");
    }

    #[test]
    fn a_text_of_placeholders_is_unchanged() {
        let text =
            "password=<SECRET:password:1> <EMAIL:2>@<IP:3>, token: \"<SECRET:generic-api-key:12>\" /home/<USER:1>/";
        assert_eq!(scrub(text), text);
        assert!(matches!(Scrubber::new(ScrubSettings::default()).scrub_text(text), Cow::Borrowed(_)));
    }

    #[test]
    fn private_keys_are_taken_out_whole() {
        let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n".repeat(8);
        let text = format!("a\n-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\nb");
        assert_eq!(scrub(&text), "a\n<SECRET:private-key:1>\nb");
    }

    #[test]
    fn categories_can_be_left_out() {
        let settings = ScrubSettings::default().without_category(ScrubCategory::Email);
        assert_eq!(Scrubber::new(settings).scrub_text("ann@example.org 10.1.2.30"), "ann@example.org <IP:1>");
        assert_eq!(Scrubber::new(ScrubSettings::secrets_only()).scrub_text("10.1.2.30"), "10.1.2.30");
    }

    #[test]
    fn long_lines_are_linear() {
        let text = format!("{}\n{}", "key=a1b2c3d4e5f6 ".repeat(60_000), "\"password\": \"".repeat(50_000));
        let scrubbed = scrub(&text);
        assert!(!scrubbed.is_empty());
    }
}
