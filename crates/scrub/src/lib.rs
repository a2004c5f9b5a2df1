//! Replaces secrets and personal data in texts and JSON by placeholders before anything leaves the machine.
//!
//! - [`Scrubber`] finds secrets by the vendored rules of gitleaks (`rules/`), by the name of their field, and in URLs
//!   and authorization headers, and personal data by rules with check digits. The same value gets the same placeholder
//!   everywhere in one export (`<SECRET:github-pat:1>`, `<EMAIL:2>`), so that data flow between steps survives.
//! - [`LeakDetector`] checks the result: it searches for surviving secrets by methods that share nothing with the
//!   rules.
//!
//! Content is hostile: every search is linear in the text, and patterns have no backtracking.

mod allowlist;
mod char_classes;
mod entropy;
mod finding;
mod json_scrub;
mod keyword_windows;
mod known_values;
mod leak_detector;
mod named_secrets;
mod personal;
mod placeholder;
mod random_tokens;
mod rule_pattern;
mod rule_set;
mod scrubber;
mod secret_names;
mod secret_scan;
mod settings;
mod statistics;
mod url_secrets;

pub use finding::ScrubCategory;
pub use leak_detector::{Leak, LeakDetector, LeakKind};
pub use scrubber::Scrubber;
pub use settings::ScrubSettings;
pub use statistics::ScrubStatistics;
