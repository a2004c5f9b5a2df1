//! What a rule found in a text, and which findings win where they overlap.

use std::ops::Range;

/// The kind of data that a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScrubCategory {
    /// A credential; its placeholder also names the rule.
    Secret,
    /// An e-mail address.
    Email,
    /// A telephone number.
    Phone,
    /// A payment card number with a valid check digit.
    Card,
    /// A bank account number (ISO 13616) with valid check digits.
    Iban,
    /// An IPv4 or IPv6 address.
    IpAddress,
    /// The user name in the path of a home directory.
    UserName,
}

impl ScrubCategory {
    /// All categories, in the order of their names in reports.
    pub const ALL: [Self; 7] =
        [Self::Secret, Self::Email, Self::Phone, Self::Card, Self::Iban, Self::IpAddress, Self::UserName];

    /// Returns the word in the placeholder.
    pub fn label(self) -> &'static str {
        match self {
            Self::Secret => "SECRET",
            Self::Email => "EMAIL",
            Self::Phone => "PHONE",
            Self::Card => "CARD",
            Self::Iban => "IBAN",
            Self::IpAddress => "IP",
            Self::UserName => "USER",
        }
    }
}

/// How sure a rule is of what it names. A higher rank wins where findings overlap, and gives the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingRank {
    Personal,
    /// `generic-api-key`: finds much, names nothing.
    GenericSecret,
    NamedSecret,
    SpecificSecret,
}

#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) span: Range<usize>,
    pub(crate) category: ScrubCategory,
    pub(crate) rank: FindingRank,
    pub(crate) rule: String,
}

impl Finding {
    pub(crate) fn personal(span: Range<usize>, category: ScrubCategory) -> Self {
        Self { span, category, rank: FindingRank::Personal, rule: category.label().to_lowercase() }
    }
}

/// Makes findings disjoint, in the order of the text. Overlapping secrets become one, so that no part of a secret
/// stays; personal data that overlaps a secret is dropped: the next pass over the text finds what is left of it.
pub(crate) fn resolve_overlaps(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| (finding.span.start, std::cmp::Reverse(finding.span.end)));
    let mut resolved: Vec<Finding> = Vec::with_capacity(findings.len());
    for finding in findings {
        let Some(last) = resolved.last_mut().filter(|last| finding.span.start < last.span.end) else {
            resolved.push(finding);
            continue;
        };
        let has_personal = last.rank == FindingRank::Personal || finding.rank == FindingRank::Personal;
        if has_personal {
            if finding.rank > last.rank {
                *last = finding;
            }
            continue;
        }
        last.span.end = last.span.end.max(finding.span.end);
        if finding.rank > last.rank {
            last.rank = finding.rank;
            last.rule = finding.rule;
        }
    }
    // A secret that replaced personal data may begin after a finding that was pushed before it; spans stay sorted,
    // since only the last one is ever replaced and its start only grows.
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(span: Range<usize>, rank: FindingRank, rule: &str) -> Finding {
        Finding { span, category: ScrubCategory::Secret, rank, rule: rule.to_owned() }
    }

    #[test]
    fn overlapping_secrets_become_one_with_the_better_name() {
        let findings = vec![
            secret(5..20, FindingRank::GenericSecret, "generic-api-key"),
            secret(8..25, FindingRank::SpecificSecret, "jwt"),
        ];
        let resolved = resolve_overlaps(findings);
        assert_eq!(resolved.len(), 1);
        assert_eq!((resolved[0].span.clone(), resolved[0].rule.as_str()), (5..25, "jwt"));
    }

    #[test]
    fn a_secret_wins_over_personal_data() {
        let findings = vec![
            Finding::personal(3..30, ScrubCategory::Email),
            secret(3..10, FindingRank::NamedSecret, "url-password"),
            Finding::personal(40..50, ScrubCategory::Phone),
        ];
        let resolved = resolve_overlaps(findings);
        assert_eq!(resolved.iter().map(|finding| finding.span.clone()).collect::<Vec<_>>(), [3..10, 40..50]);
    }
}
