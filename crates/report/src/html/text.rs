//! Makes strings of traces safe to display: without characters that control or reorder the text around them, and with
//! a bounded length, so that one trajectory cannot make a page of gigabytes. Escaping is not done here; templates and
//! [`super::svg`] do it.

use serde::de::IgnoredAny;

use gradus_core::visible::{make_printable, printable_line};

use crate::failure_list::elide_values;

/// Maximum characters of a block of text; the rest is cut with a note.
pub const MAX_CHARS: usize = 4_000;
/// Maximum characters of a name, a label or an id.
const MAX_DISPLAY_LINE_CHARS: usize = 200;
/// Maximum nesting of JSON that is indented. Deeper JSON is shown unchanged: indentation would make it quadratically
/// long.
const MAX_INDENTED_DEPTH: usize = 24;

/// A text that may have been cut.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DisplayText {
    pub text: String,
    /// A sentence about what was cut or is unusual.
    pub note: Option<String>,
}

/// A name, a label or an id: one line, at most 200 characters, with an ellipsis if it was cut.
pub fn format_display_line(text: &str) -> String {
    // Cut before and after: spelling out control characters makes a text longer, and the work must be bounded first.
    let folded = printable_line(split_first_chars(text, 2 * MAX_DISPLAY_LINE_CHARS).0);
    match split_first_chars(&folded, MAX_DISPLAY_LINE_CHARS) {
        (start, true) => format!("{start}…"),
        (_, false) if split_first_chars(text, 2 * MAX_DISPLAY_LINE_CHARS).1 => format!("{folded}…"),
        _ => folded,
    }
}

/// A text over several lines, cut after `MAX_CHARS`.
pub fn format_display_block(text: &str) -> DisplayText {
    truncate_display_text(text, text)
}

/// Arguments of a tool: indented where they are JSON. Only white space is changed, so that numbers and duplicate keys
/// are shown as the agent wrote them; a parsed value would lose them.
pub fn format_display_json(text: &str) -> DisplayText {
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        let mut block = format_display_block(text);
        let note = block.note.map_or(String::new(), |note| format!(" {note}"));
        block.note = Some(format!("Not valid JSON; shown unformatted.{note}"));
        return block;
    }
    match indent_json(text, 4 * MAX_CHARS + 4) {
        Some(indented) => truncate_display_text(&indented, text),
        None => format_display_block(text),
    }
}

/// Indents valid JSON without cutting it. `None` if it is not a JSON object or array, is nested too deep, or grows
/// beyond four times its length.
pub fn indent_whole_json(text: &str) -> Option<String> {
    let most = 4 * text.len() + 4 * MAX_CHARS;
    let is_json = text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok();
    is_json.then(|| indent_json(text, most)).flatten().filter(|moved| moved.len() <= most)
}

/// Cuts `shown`; the note states the length of `whole`, the text before it was indented.
fn truncate_display_text(shown: &str, whole: &str) -> DisplayText {
    let (start, is_cut) = split_first_chars(shown, MAX_CHARS);
    let note = is_cut.then(|| {
        let count = crate::number_text::format_count(whole.chars().count() as u64);
        format!("Truncated: the full text has {count} characters.")
    });
    DisplayText { text: make_printable(&start.replace("\r\n", "\n")).into_owned(), note }
}

/// Splits off the first characters, and returns whether there are more. Reads no further than needed.
fn split_first_chars(text: &str, chars: usize) -> (&str, bool) {
    match text.char_indices().nth(chars) {
        Some((end, _)) => (&text[..end], true),
        None => (text, false),
    }
}

/// Indents JSON that is known to be valid, by a scan over its characters, and stops after `most` bytes. `None` if it is
/// nested too deep. It does not parse: memory and time are linear, whatever the input.
fn indent_json(json: &str, most: usize) -> Option<String> {
    let mut out = String::new();
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut rest = json.chars().peekable();
    while let Some(c) = rest.next() {
        if out.len() > most {
            break;
        }
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = rest.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    if depth > MAX_INDENTED_DEPTH {
                        return None;
                    }
                    push_indented_line_break(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                push_indented_line_break(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                push_indented_line_break(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    Some(out)
}

fn push_indented_line_break(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

/// The reason of a failure group on one line.
pub fn format_reason_line(reason: &str) -> String {
    format_display_line(&elide_values(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_reason_are_left_out() {
        assert_eq!(format_reason_line("Step <number> repeats <text>"), "Step … repeats …");
        assert_eq!(format_reason_line("a < b and <other>"), "a < b and <other>");
        assert_eq!(format_reason_line("Error `500` - {<text>: <text>, <text>: {<id>"), "Error `500` - {…");
        assert_eq!(format_reason_line("Step <number> (<text>): <text> = <number>."), "Step … (…): ….");
    }

    #[test]
    fn json_is_moved_in_and_otherwise_left_alone() {
        let text = r#"{"a":[1,{"b":"x, \"{y}\" \\"}],"n":12345678901234567890.10,"a":{ },"e":[]}"#;
        let expected = "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x, \\\"{y}\\\" \\\\\"\n    }\n  ],\n  \
                        \"n\": 12345678901234567890.10,\n  \"a\": {},\n  \"e\": []\n}";
        assert_eq!(format_display_json(text), DisplayText { text: expected.to_owned(), note: None });
        assert_eq!(format_display_json("\"\\\\\"").text, "\"\\\\\"");
        assert_eq!(format_display_json("{oops").note.as_deref(), Some("Not valid JSON; shown unformatted."));
    }

    #[test]
    fn deep_and_long_json_stays_small() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(format_display_json(&deep).text.len() <= MAX_CHARS);
        let long = format!("[{}1]", "1,".repeat(100_000));
        let block = format_display_json(&long);
        assert!(block.text.chars().count() <= MAX_CHARS);
        assert_eq!(block.note.as_deref(), Some("Truncated: the full text has 200,003 characters."));
    }

    #[test]
    fn all_of_a_long_json_is_moved_in() {
        let long = format!("{{\"all\": [{}1]}}", "{\"a\":1},".repeat(2_000));
        let moved = indent_whole_json(&long).unwrap();
        assert_eq!(moved.lines().filter(|line| line.trim() == "\"a\": 1").count(), 2_000);
        let bare: String = moved.chars().filter(|c| !c.is_whitespace()).collect();
        assert_eq!(bare, long.replace(' ', ""));
        assert_eq!(
            [indent_whole_json("{oops"), indent_whole_json("12"), indent_whole_json(&"[".repeat(99_999))],
            [None, None, None]
        );
        // Much of it would be spaces.
        let deep = format!("{}{}1{}", "[".repeat(20), "1,".repeat(50_000), "]".repeat(20));
        assert_eq!(indent_whole_json(&deep), None);
    }

    #[test]
    fn what_steers_text_is_spelled_out_and_long_text_cut() {
        assert_eq!(format_display_block("a\u{202e}b\r\nc\u{0}").text, "a\\u{202e}b\nc\\u{0}");
        assert_eq!(format_display_line("a\n\u{2066}b"), "a \\u{2066}b");
        assert_eq!(format_display_line(&"é".repeat(201)), format!("{}…", "é".repeat(200)));
        assert_eq!(format_display_line(&"é".repeat(200)), "é".repeat(200));
        assert_eq!(
            format_display_line(&format!("{}x{}", "é".repeat(10), " ".repeat(500))),
            format!("{}x…", "é".repeat(10))
        );
        assert_eq!(format_display_block(&"é".repeat(4_000)).note, None);
        let long = format_display_block(&"é".repeat(4_001));
        assert_eq!(long.text.chars().count(), 4_000);
        assert_eq!(long.note.as_deref(), Some("Truncated: the full text has 4,001 characters."));
    }
}
