//! Quotes recorded text inside our own sentences: short, on one line, and marked as a quotation.

/// Maximum number of characters of a quotation.
const MAX_QUOTE_CHARS: usize = 80;

/// Quotes a value in quotation marks: at most 80 characters, with spaces for control characters.
pub(super) fn quote_excerpt(text: &str) -> String {
    quote_between(text, '"')
}

/// Quotes the name of a tool or a parameter in backticks. Failure groups distinguish names, but not values.
pub(super) fn quote_name(name: &str) -> String {
    quote_between(name, '`')
}

fn quote_between(text: &str, mark: char) -> String {
    let mut quoted = String::with_capacity(text.len().min(MAX_QUOTE_CHARS) + 6);
    quoted.push(mark);
    let mut left = MAX_QUOTE_CHARS;
    let mut after_space = true;
    // Bounded before the loop, so that a megabyte of white space is not scanned.
    for letter in text.chars().take(MAX_QUOTE_CHARS * 4) {
        let letter = if letter.is_whitespace() || letter.is_control() { ' ' } else { letter };
        if letter == ' ' && after_space {
            continue;
        }
        if left == 0 {
            quoted.push('…');
            break;
        }
        after_space = letter == ' ';
        quoted.push(if letter == mark { '\'' } else { letter });
        left -= 1;
    }
    let kept = quoted.trim_end().len();
    quoted.truncate(kept);
    quoted.push(mark);
    quoted
}

/// Returns at most this many bytes from the beginning, cut at a character boundary.
pub(super) fn take_prefix(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

/// Returns at most this many bytes from the end, cut at a character boundary.
pub(super) fn take_suffix(text: &str, bytes: usize) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(bytes))..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_short_and_on_one_line() {
        assert_eq!(quote_excerpt("a\n\t b"), "\"a b\"");
        assert_eq!(quote_excerpt("say \"hi\""), "\"say 'hi'\"");
        assert_eq!(quote_name("a`b"), "`a'b`");
        let long = quote_excerpt(&"é".repeat(500));
        assert_eq!(long.chars().count(), 83);
        assert!(long.ends_with("…\""));
    }

    #[test]
    fn cuts_fall_between_characters() {
        assert_eq!(take_prefix("日本語", 4), "日");
        assert_eq!(take_suffix("日本語", 4), "語");
        assert_eq!(take_prefix("ab", 9), "ab");
    }
}
