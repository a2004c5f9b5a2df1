//! What was replaced, for the manifest of an export.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::finding::{Finding, ScrubCategory};

/// Counts of replaced values. It holds no values, so that it can be published with the export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScrubStatistics {
    /// Texts that were looked at.
    pub text_count: u64,
    /// Their length in bytes.
    pub text_bytes: u64,
    /// Bytes that placeholders replaced.
    pub replaced_bytes: u64,
    /// Different values that were replaced.
    pub distinct_value_count: u64,
    /// Replacements by the label of their category (`SECRET`, `EMAIL`).
    pub by_category: BTreeMap<String, u64>,
    /// Replacements by rule (`github-pat`, `password`, `email`).
    pub by_rule: BTreeMap<String, u64>,
}

impl ScrubStatistics {
    /// Returns the number of all replacements.
    pub fn replacement_count(&self) -> u64 {
        self.by_category.values().sum()
    }

    /// Returns the number of replacements of one category.
    pub fn count_of_category(&self, category: ScrubCategory) -> u64 {
        self.by_category.get(category.label()).copied().unwrap_or(0)
    }

    pub(crate) fn record_replacement(&mut self, finding: &Finding) {
        self.replaced_bytes += finding.span.len() as u64;
        *self.by_category.entry(finding.category.label().to_owned()).or_insert(0) += 1;
        *self.by_rule.entry(finding.rule.clone()).or_insert(0) += 1;
    }
}
