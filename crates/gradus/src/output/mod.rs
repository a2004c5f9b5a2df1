//! How trajectories look on a terminal. Content of traces is untrusted: nothing of it reaches the terminal as an escape
//! sequence, and nothing reorders the text around it.

pub(crate) mod coverage;
pub(crate) mod csv;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod junit;
pub(crate) mod markdown;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod transcript;

pub(crate) use html::number::{count, counted};

use std::borrow::Cow;

use gradus_core::visible::reveal_invisible;
use gradus_eval::evaluator::SIMULATOR;
use gradus_eval::report::Metric;

/// Text as it may be printed: control characters, those that change the direction of text and those that nobody sees
/// are spelled out. Line ends stay.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    match reveal_invisible(text) {
        shown if shown.contains('\t') => Cow::Owned(shown.replace('\t', "    ")),
        shown => shown,
    }
}

/// The same on one line.
pub(crate) fn printable_line(text: &str) -> String {
    let folded = text.split_whitespace().collect::<Vec<_>>().join(" ");
    printable(&folded).into_owned()
}

/// What a number is about that nobody judged and that is no share: a median over tasks, or a price.
pub(crate) fn measured_of(metric: &Metric) -> Option<String> {
    let (one, many) = match metric.name.as_str() {
        _ if metric.is_share || metric.judge != SIMULATOR => return None,
        "calls_ratio" => ("task with a trial that passed", "tasks with a trial that passed"),
        _ => ("trial that passed", "trials that passed"),
    };
    Some(format!("of {}", counted(metric.denominator, one, many)))
}

/// Styles; `anstream` drops them where nobody can see them.
pub(crate) const BOLD: anstyle::Style = anstyle::Style::new().bold();
pub(crate) const DIM: anstyle::Style = anstyle::Style::new().dimmed();
pub(crate) const RED: anstyle::Style = anstyle::AnsiColor::Red.on_default();
pub(crate) const GREEN: anstyle::Style = anstyle::AnsiColor::Green.on_default();
pub(crate) const YELLOW: anstyle::Style = anstyle::AnsiColor::Yellow.on_default();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_spelled_out() {
        assert_eq!(printable("a\u{1b}[31mred\u{7}"), "a\\u{1b}[31mred\\u{7}");
        assert_eq!(printable("abc\u{202e}fed"), "abc\\u{202e}fed");
        assert_eq!(printable("two\nlines\r"), "two\nlines\\r");
        assert_eq!(printable("a\u{e0041}\u{200b}\tb"), "a\\u{e0041}\\u{200b}    b");
        assert_eq!(printable_line("two\n lines\u{9b}"), "two lines\\u{9b}");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in ["plain", "café 🐛 👩\u{200d}💻 שלום 修复"] {
            assert_eq!(printable(text), text);
        }
    }
}
