//! URLs of rubrics and of their trials.

use super::address::PageUrl;

/// Builds the URL of a rubric. Names come from files and may contain any character.
pub(super) fn build_rubric_url(name: &str) -> PageUrl {
    let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    PageUrl::from_path(format!("/rubrics/{name}"))
}

/// Builds the URL of a trial on many cases.
pub(super) fn build_trial_url(rubric: &str, id: &str) -> PageUrl {
    PageUrl::from_path(format!("{}/trials/{id}", build_rubric_url(rubric)))
}
