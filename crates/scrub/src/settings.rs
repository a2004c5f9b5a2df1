//! Which kinds of data are scrubbed.

use std::collections::BTreeSet;

use crate::finding::ScrubCategory;

/// What is scrubbed.
#[derive(Clone, Debug)]
pub struct ScrubSettings {
    categories: BTreeSet<ScrubCategory>,
    /// Also replaces loopback, unspecified and documentation addresses (127.0.0.1, 192.0.2.0/24, 2001:db8::/32).
    pub include_reserved_addresses: bool,
}

impl Default for ScrubSettings {
    fn default() -> Self {
        Self { categories: ScrubCategory::ALL.into_iter().collect(), include_reserved_addresses: false }
    }
}

impl ScrubSettings {
    /// Returns settings that scrub secrets only; personal data stays.
    pub fn secrets_only() -> Self {
        Self { categories: [ScrubCategory::Secret].into(), include_reserved_addresses: false }
    }

    /// Returns the same settings without a category.
    #[must_use]
    pub fn without_category(mut self, category: ScrubCategory) -> Self {
        self.categories.remove(&category);
        self
    }

    /// Whether a category is scrubbed.
    pub fn has_category(&self, category: ScrubCategory) -> bool {
        self.categories.contains(&category)
    }
}
