//! Why a text is no filter, and where.

use thiserror::Error;

/// One line: what is wrong, at which character (the first is 1), and what to write instead where that is known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    #[error("invalid syntax at character {at}: {what}")]
    Syntax { at: usize, what: String },
    #[error("{what}, at character {at}")]
    Meaning { at: usize, what: String },
    #[error("the filter has {length} bytes, more than the {limit} that are read")]
    TooLong { length: usize, limit: usize },
    #[error(
        "the filter has {parts} names, operators and brackets, more than the {limit} that are read; write lists as `x in [...]`"
    )]
    TooComplex { parts: usize, limit: usize },
    #[error("the filter is nested too deeply at character {at}: no more than {limit} levels are read")]
    TooDeep { at: usize, limit: usize },
}

impl FilterError {
    pub(super) fn syntax(at: usize, what: impl Into<String>) -> FilterError {
        FilterError::Syntax { at, what: what.into() }
    }

    pub(super) fn meaning(at: usize, what: impl Into<String>) -> FilterError {
        FilterError::Meaning { at, what: what.into() }
    }
}

/// What is shown of a text that came from outside: one line, not too long.
pub(super) fn format_excerpt(text: &str) -> String {
    const MAX_EXCERPT_CHARS: usize = 80;
    let mut shown: String =
        text.chars().take(MAX_EXCERPT_CHARS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(MAX_EXCERPT_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
