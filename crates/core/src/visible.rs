//! Makes invisible characters visible. Recorded text can hide instructions in characters that people do not see and
//! models read (tag characters, zero-width characters, variation selectors), or can reverse the displayed order
//! (bidirectional controls). Prompts, the terminal and pages show such characters as `\u{200b}`.
//!
//! A few of these characters have a meaning in ordinary text and stay where they have it: the zero-width joiner inside
//! emoji and inside words of Arabic and Indic scripts, the zero-width non-joiner inside words of those scripts, and the
//! emoji and text variation selectors behind a symbol. Everywhere else they are escaped, too.

use std::borrow::Cow;
use std::fmt::Write;

use crate::whitespace::collapse_whitespace;

/// The text with its invisible characters escaped. Line feeds and tabs stay. Borrowed if there is nothing to escape.
pub fn reveal_invisible(text: &str) -> Cow<'_, str> {
    // Fast path: nearly all text is ASCII without control characters.
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    let Some(first) = text.bytes().position(|byte| !is_plain(&byte)) else { return Cow::Borrowed(text) };
    // The decision about a character depends on the one before it, so the scan starts one character early.
    let start = text[..text.floor_char_boundary(first)].char_indices().next_back().map_or(0, |(at, _)| at);
    let mut out: Option<String> = None;
    let mut copied = 0;
    let mut previous = None;
    let mut characters = text[start..].char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        if is_hidden(previous, c, next) {
            let out = out.get_or_insert_with(|| String::with_capacity(text.len() + 64));
            out.push_str(&text[copied..start + at]);
            // Writing into a string cannot fail.
            let _ = write!(out, "{}", c.escape_default());
            copied = start + at + c.len_utf8();
        }
        previous = Some(c);
    }
    match out {
        Some(mut out) => {
            out.push_str(&text[copied..]);
            Cow::Owned(out)
        }
        None => Cow::Borrowed(text),
    }
}

/// Text that is safe to print on a terminal: control characters, bidirectional controls and invisible characters are
/// escaped, tabs become blanks. Line feeds stay.
pub fn make_printable(text: &str) -> Cow<'_, str> {
    match reveal_invisible(text) {
        shown if shown.contains('\t') => Cow::Owned(shown.replace('\t', "    ")),
        shown => shown,
    }
}

/// As [`make_printable`], on one line: runs of white space become one blank.
pub fn printable_line(text: &str) -> String {
    make_printable(&collapse_whitespace(text)).into_owned()
}

/// Whether a character between these two is invisible, or changes the display of what is around it.
pub fn is_hidden(previous: Option<char>, c: char, next: Option<char>) -> bool {
    match c {
        '\n' | '\t' | ' '..='~' => false,
        '\u{200d}' => !joins_emoji(previous, next) && !is_inside_word(previous, next),
        '\u{200c}' => !is_inside_word(previous, next),
        '\u{fe0e}' | '\u{fe0f}' => !previous.is_some_and(takes_variation),
        _ => c.is_control() || is_invisible(c),
    }
}

/// Format characters (Unicode category Cf), characters that are drawn as nothing (`Default_Ignorable_Code_Point`), line
/// and paragraph separators, and noncharacters.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
        | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fdd0}'..='\u{fdef}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{fffe}' | '\u{ffff}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        || (c as u32) & 0xfffe == 0xfffe
}

/// Whether a zero-width joiner stands between two emoji, as in 👩‍💻, ❤️‍🔥, 🏳️‍🌈.
fn joins_emoji(previous: Option<char>, next: Option<char>) -> bool {
    let is_before = |c: char| is_picture(c) || matches!(c, '\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}');
    previous.is_some_and(is_before) && next.is_some_and(is_picture)
}

/// Arrows, technical symbols, dingbats and the emoji blocks: what is drawn as a picture or a symbol.
fn is_picture(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// Whether a joiner stands between two letters of one script that uses joiners in its spelling: Arabic, the Indic
/// scripts, Burmese, Khmer.
fn is_inside_word(previous: Option<char>, next: Option<char>) -> bool {
    let script = |c: char| match c {
        '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' => None,
        '\u{606}'..='\u{6ff}'
        | '\u{750}'..='\u{77f}'
        | '\u{8a0}'..='\u{8ff}'
        | '\u{fb50}'..='\u{fdcf}'
        | '\u{fe70}'..='\u{fefc}' => Some(0),
        '\u{900}'..='\u{dff}' => Some(u32::from(c) >> 7),
        '\u{1000}'..='\u{109f}' => Some(1),
        '\u{1780}'..='\u{17b3}' | '\u{17b6}'..='\u{17ff}' => Some(2),
        _ => None,
    };
    let before = previous.and_then(script);
    before.is_some() && before == next.and_then(script)
}

/// Whether a text or emoji variation selector may follow: behind emoji, behind the digits of key caps, and behind a few
/// symbols.
fn takes_variation(c: char) -> bool {
    is_picture(c)
        || matches!(
            c,
            '0'..='9'
                | '#'
                | '*'
                | '\u{a9}'
                | '\u{ae}'
                | '\u{203c}'
                | '\u{2049}'
                | '\u{2122}'
                | '\u{2139}'
                | '\u{3030}'
                | '\u{303d}'
                | '\u{3297}'
                | '\u{3299}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spells_out_what_nobody_sees() {
        for (text, shown) in [
            ("a\u{200b}b", r"a\u{200b}b"),
            ("\u{202e}abc\u{2066}", r"\u{202e}abc\u{2066}"),
            ("hi\u{e0041}\u{e007f}", r"hi\u{e0041}\u{e007f}"),
            ("x\u{e0100}\u{fe01}", r"x\u{e0100}\u{fe01}"),
            ("a\u{200d}b\u{200c}", r"a\u{200d}b\u{200c}"),
            ("\u{feff}\u{ad}\u{34f}\u{3164}", r"\u{feff}\u{ad}\u{34f}\u{3164}"),
            ("\u{0}\u{1b}[2J\u{7f}\u{9b}\r", r"\u{0}\u{1b}[2J\u{7f}\u{9b}\r"),
            ("a\u{2028}b\u{85}c\u{b}\u{c}", r"a\u{2028}b\u{85}c\u{b}\u{c}"),
            ("a\u{fffe}\u{1ffff}", r"a\u{fffe}\u{1ffff}"),
            // A second selector, or one behind a letter, says nothing that can be seen.
            ("a\u{fe0f}\u{2764}\u{fe0f}\u{fe0f}", "a\\u{fe0f}\u{2764}\u{fe0f}\\u{fe0f}"),
        ] {
            assert_eq!(reveal_invisible(text), shown, "{text:?}");
        }
    }

    #[test]
    fn leaves_what_people_write() {
        for text in [
            "",
            "two\n\tlines",
            "na\u{ef}ve \u{4e2d}\u{6587} \u{5e9}\u{5dc}\u{5d5}\u{5dd}",
            // A family, a heart on fire, a key cap.
            "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{2764}\u{fe0f}\u{200d}\u{1f525} 1\u{fe0f}\u{20e3}",
            // Persian with a non-joiner, Hindi with a joiner.
            "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645} \u{915}\u{94d}\u{200d}\u{937}",
        ] {
            assert!(matches!(reveal_invisible(text), Cow::Borrowed(_)), "{text:?}");
        }
    }

    #[test]
    fn nothing_hidden_is_left() {
        for code in 0..=0x10_ffff {
            let Some(c) = char::from_u32(code) else { continue };
            let shown = reveal_invisible("a").into_owned() + &reveal_invisible(&format!("a{c}b"));
            assert!(!shown.chars().any(|c| is_hidden(Some('a'), c, Some('b'))), "{code:x}");
        }
    }

    #[test]
    fn escape_sequences_are_spelled_out() {
        assert_eq!(make_printable("a\u{1b}[31mred\u{7}"), "a\\u{1b}[31mred\\u{7}");
        assert_eq!(make_printable("abc\u{202e}fed"), "abc\\u{202e}fed");
        assert_eq!(make_printable("two\nlines\r"), "two\nlines\\r");
        assert_eq!(make_printable("a\u{e0041}\u{200b}\tb"), "a\\u{e0041}\\u{200b}    b");
        assert_eq!(printable_line("two\n lines\u{9b}"), "two lines\\u{9b}");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in ["plain", "café 🐛 👩\u{200d}💻 שלום 修复"] {
            assert_eq!(make_printable(text), text);
        }
    }
}
