//! Words of a trace inside our own sentences: short, on one line, and marked as a quotation. What a trace says
//! is shown, never obeyed.

const MAX_QUOTE_CHARS: usize = 80;

/// The text between quotation marks, at most 80 characters of it, control characters as spaces.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().min(MAX_QUOTE_CHARS) + 6);
    quoted.push('"');
    let mut left = MAX_QUOTE_CHARS;
    let mut after_space = true;
    // Bounded before the loop: a megabyte of white space must not be walked.
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
        quoted.push(if letter == '"' { '\'' } else { letter });
        left -= 1;
    }
    let kept = quoted.trim_end().len();
    quoted.truncate(kept);
    quoted.push('"');
    quoted
}

/// The beginning of a text, cut at a character.
pub(super) fn head(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

/// The end of a text, cut at a character.
pub(super) fn tail(text: &str, bytes: usize) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(bytes))..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_short_and_on_one_line() {
        assert_eq!(quote("a\n\t b"), "\"a b\"");
        assert_eq!(quote("say \"hi\""), "\"say 'hi'\"");
        let long = quote(&"é".repeat(500));
        assert_eq!(long.chars().count(), 83);
        assert!(long.ends_with("…\""));
    }

    #[test]
    fn cuts_fall_between_characters() {
        assert_eq!(head("日本語", 4), "日");
        assert_eq!(tail("日本語", 4), "語");
        assert_eq!(head("ab", 9), "ab");
    }
}
