//! A property of a run, as a name with a value.

use gradus_report::html::text;

/// Shown in the head of a run.
pub(super) struct RunFact {
    pub(super) name: &'static str,
    pub(super) value: String,
    /// Target of the value's link.
    pub(super) href: Option<String>,
    pub(super) is_error: bool,
}

impl RunFact {
    /// `value` is ready to be displayed.
    pub(super) fn new(name: &'static str, value: String) -> RunFact {
        RunFact { name, value, href: None, is_error: false }
    }

    /// `value` may be any recorded text.
    pub(super) fn with_link(name: &'static str, value: &str, href: String) -> RunFact {
        RunFact { href: Some(href), ..RunFact::new(name, text::format_display_line(value)) }
    }
}
