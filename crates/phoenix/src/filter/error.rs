//! Errors of filters with their position.

use thiserror::Error;

/// One line: what is wrong, at which character (from 1), and what to write instead where that is known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// Not a Python expression.
    #[error("invalid syntax at character {at}: {what}")]
    Syntax { at: usize, what: String },
    /// An expression that has no meaning as a filter: unknown names, incomparable kinds.
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
    /// An error of lexer or parser.
    pub(super) fn syntax(at: usize, what: impl Into<String>) -> FilterError {
        FilterError::Syntax { at, what: what.into() }
    }

    /// An error of the type checker or of lowering.
    pub(super) fn meaning(at: usize, what: impl Into<String>) -> FilterError {
        FilterError::Meaning { at, what: what.into() }
    }
}

/// A piece of user input for a message: one line without control characters, at most 80 characters.
pub(super) fn format_excerpt(text: &str) -> String {
    const MAX_EXCERPT_CHARS: usize = 80;
    let mut shown: String =
        text.chars().take(MAX_EXCERPT_CHARS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(MAX_EXCERPT_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let errors = [
            FilterError::syntax(11, "a comparison is written as =="),
            FilterError::meaning(1, "there is no name 'spankind'"),
            FilterError::TooLong { length: 70_000, limit: 65_536 },
            FilterError::TooComplex { parts: 5_001, limit: 5_000 },
            FilterError::TooDeep { at: 90, limit: 64 },
        ];
        insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"));
    }
}
