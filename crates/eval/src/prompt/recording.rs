//! Recorded text in a prompt. Each of its lines begins with `> `. Headings (`step 2:`, `thought:`) and notes on omitted
//! text do not. So recorded text cannot start a step, a tool or a field of its own, and it cannot pretend that
//! something was left out. Invisible characters are escaped, including line separators other than the line feed, so
//! there is no other way to begin a line. Tokens of chat templates are escaped, too.

use std::borrow::Cow;
use std::fmt::Write;

use gradus_core::visible::reveal_invisible;

use super::chat_tokens::escape_chat_tokens;
use super::shorten::compute_size_limit;

/// Begins each line of recorded text.
const QUOTE: &str = "> ";
/// Upper estimate of the length of a note on omitted text.
pub(super) const NOTE_BYTES: usize = 64;
/// Minimum bytes of a field: a note and about 100 characters.
const MIN_FIELD_BYTES: usize = NOTE_BYTES + 100;
/// Minimum bytes of an entry: its headings, and a note in place of each field.
const MIN_ENTRY_BYTES: usize = 340;

/// One recorded text, with line ends normalized and invisible characters escaped.
#[derive(Clone, Debug)]
pub(super) struct QuotedText<'t> {
    text: Cow<'t, str>,
    lines: usize,
}

impl<'t> QuotedText<'t> {
    pub(super) fn new(text: impl Into<Cow<'t, str>>) -> QuotedText<'t> {
        let mut text = text.into();
        if text.contains('\r') {
            text = Cow::Owned(text.replace("\r\n", "\n"));
        }
        if let Cow::Owned(shown) = reveal_invisible(&text) {
            text = Cow::Owned(shown);
        }
        if let Cow::Owned(shown) = escape_chat_tokens(&text) {
            text = Cow::Owned(shown);
        }
        let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
        QuotedText { text, lines }
    }

    /// Upper bound of the bytes in a prompt.
    pub(super) fn len(&self) -> usize {
        self.text.len() + QUOTE.len() * self.lines
    }

    /// Writes the text quoted. If it exceeds `room`, two thirds come from its beginning and one third from its end,
    /// with a note between them: texts usually begin with what they are and end with the result.
    pub(super) fn write_quoted(&self, out: &mut String, room: usize) {
        if self.len() <= room {
            quote_lines(out, &self.text);
            return;
        }
        let kept = room.saturating_sub(NOTE_BYTES);
        let head = find_fitting_end(self.text.char_indices().map(|(at, c)| (at + c.len_utf8(), c)), kept * 2 / 3);
        let tail = find_fitting_end(self.text.char_indices().rev(), kept / 3);
        let head = head.unwrap_or(0);
        let tail = tail.unwrap_or(self.text.len()).max(head);
        if head > 0 {
            quote_lines(out, &self.text[..head]);
            out.push('\n');
        }
        let left_out = self.text[head..tail].chars().count();
        // Writing into a string cannot fail.
        let _ = write!(out, "{}", format_left_out(&format!("{left_out} characters")));
        if tail < self.text.len() {
            out.push('\n');
            quote_lines(out, &self.text[tail..]);
        }
    }
}

/// Finds the offset after as many characters as fit into `bytes`, quote marks included; `None` if none fits. A
/// reversed iterator gives the beginning of the tail.
fn find_fitting_end(characters: impl Iterator<Item = (usize, char)>, bytes: usize) -> Option<usize> {
    let mut left = bytes.checked_sub(QUOTE.len())?;
    let mut reached = None;
    for (at, c) in characters {
        let needed = c.len_utf8() + if c == '\n' { QUOTE.len() } else { 0 };
        let Some(rest) = left.checked_sub(needed) else { break };
        left = rest;
        reached = Some(at);
    }
    reached
}

/// Puts the quote mark before each line. Empty lines get it without its trailing space.
fn quote_lines(out: &mut String, text: &str) {
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        out.push_str(if line.is_empty() { QUOTE.trim_end() } else { QUOTE });
        out.push_str(line);
    }
}

/// The content below the heading of a field.
#[derive(Clone, Debug)]
enum FieldContent<'t> {
    Recorded(QuotedText<'t>),
    /// Our own text if nothing was recorded.
    Absent(&'static str),
    /// A note on what was left out between two fields.
    LeftOut(String),
}

/// A named part of an entry.
#[derive(Clone, Debug)]
pub(super) struct EntryField<'t> {
    /// Empty if the entry has only this field, and for notes.
    name: &'static str,
    content: FieldContent<'t>,
    /// Maximum bytes of this field, even if there is more space.
    max_bytes: usize,
}

impl<'t> EntryField<'t> {
    pub(super) fn new(name: &'static str, text: Option<Cow<'t, str>>, absent: &'static str) -> Self {
        let content = text.map_or(FieldContent::Absent(absent), |text| FieldContent::Recorded(QuotedText::new(text)));
        EntryField { name, content, max_bytes: usize::MAX }
    }

    /// A note in place of fields that are left out: `what` is their count and kind.
    pub(super) fn left_out(what: &str) -> Self {
        let content = FieldContent::LeftOut(format_left_out(what));
        EntryField { name: "", content, max_bytes: usize::MAX }
    }

    #[must_use]
    pub(super) fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Bytes of the recording alone.
    fn len(&self) -> usize {
        match &self.content {
            FieldContent::Recorded(recording) => recording.len().min(self.max_bytes),
            FieldContent::Absent(_) | FieldContent::LeftOut(_) => 0,
        }
    }

    fn heading_len(&self) -> usize {
        let own_text = match &self.content {
            FieldContent::Recorded(_) => 0,
            FieldContent::Absent(absent) => absent.len() + 1,
            FieldContent::LeftOut(note) => note.len(),
        };
        self.name.len() + "\n:\n".len() + own_text
    }

    fn write(&self, out: &mut String, room: usize) {
        match &self.content {
            FieldContent::Recorded(recording) => {
                if !self.name.is_empty() {
                    out.push('\n');
                    out.push_str(self.name);
                    out.push(':');
                }
                out.push('\n');
                recording.write_quoted(out, room.min(self.max_bytes));
            }
            FieldContent::LeftOut(note) => {
                out.push('\n');
                out.push_str(note);
            }
            FieldContent::Absent(absent) => {
                out.push(if self.name.is_empty() { ' ' } else { '\n' });
                if !self.name.is_empty() {
                    out.push_str(self.name);
                    out.push_str(": ");
                }
                out.push_str(absent);
            }
        }
    }
}

/// Formats the line in place of something that is left out.
pub(super) fn format_left_out(what: &str) -> String {
    format!("[... {what} left out by gradus ...]")
}

/// A step, a tool or a turn: a numbered heading with fields below it.
#[derive(Clone, Debug)]
pub(super) struct PromptEntry<'t> {
    /// `step`, `tool` or `turn`.
    kind: &'static str,
    number: usize,
    fields: Vec<EntryField<'t>>,
}

impl<'t> PromptEntry<'t> {
    pub(super) fn new(kind: &'static str, number: usize, fields: Vec<EntryField<'t>>) -> Self {
        PromptEntry { kind, number, fields }
    }

    pub(super) fn len(&self) -> usize {
        self.heading_len() + self.fields.iter().map(EntryField::len).sum::<usize>()
    }

    fn heading_len(&self) -> usize {
        let fields: usize = self.fields.iter().map(EntryField::heading_len).sum();
        self.kind.len() + self.number.checked_ilog10().unwrap_or(0) as usize + " 1:\n".len() + fields
    }

    /// Returns the bytes of the shortest useful form: its headings, and the ends of each recording.
    pub(super) fn min_len(&self) -> usize {
        let shortest = |field: &EntryField<'_>| field.len().min(MIN_FIELD_BYTES);
        self.heading_len() + self.fields.iter().map(shortest).sum::<usize>()
    }

    pub(super) fn write(&self, out: &mut String, room: usize) {
        let sizes: Vec<usize> = self.fields.iter().map(EntryField::len).collect();
        let each = compute_size_limit(&sizes, room.saturating_sub(self.heading_len()));
        // Writing into a string cannot fail.
        let _ = write!(out, "{} {}:", self.kind, self.number);
        self.fields.iter().for_each(|field| field.write(out, each));
    }
}

/// Writes entries in at most about `room` bytes. Long entries are cut first. If there are too many for that, entries in
/// the middle are omitted: the first and the last steps matter most.
pub(super) fn write_entries(entries: &[PromptEntry<'_>], room: usize) -> String {
    let sizes: Vec<usize> = entries.iter().map(|entry| entry.len() + 1).collect();
    let each = compute_size_limit(&sizes, room);
    let all = |out: &mut String, entries: &[PromptEntry<'_>], each: usize| {
        for (number, entry) in entries.iter().enumerate() {
            if number > 0 {
                out.push('\n');
            }
            entry.write(out, each);
        }
    };
    let mut out = String::new();
    if each == usize::MAX {
        all(&mut out, entries, each);
        return out;
    }
    // Number of entries that fit in their shortest form.
    let kept = (room.saturating_sub(NOTE_BYTES) / MIN_ENTRY_BYTES).max(2);
    if each >= MIN_ENTRY_BYTES || kept >= entries.len() {
        all(&mut out, entries, each.max(MIN_ENTRY_BYTES) - 1);
        return out;
    }
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let last = entries.len() - tail;
    all(&mut out, &entries[..head], MIN_ENTRY_BYTES - 1);
    // Writing into a string cannot fail.
    let kind = entries[head].kind;
    let (from, to) = (entries[head].number, entries[last - 1].number);
    let _ = write!(out, "\n{}\n", format_left_out(&format!("{kind}s {from} to {to}")));
    all(&mut out, &entries[last..], MIN_ENTRY_BYTES - 1);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str, room: usize) -> String {
        let mut out = String::new();
        QuotedText::new(text).write_quoted(&mut out, room);
        out
    }

    #[test]
    fn every_line_is_quoted() {
        assert_eq!(quoted("a\n\n> b\r\nc", 100), "> a\n>\n> > b\n> c");
        assert_eq!(quoted("", 100), ">");
        assert_eq!(quoted("a\rb\u{2028}c\u{85}d\u{b}", 100), r"> a\rb\u{2028}c\u{85}d\u{b}");
    }

    #[test]
    fn keeps_both_ends_and_says_what_is_missing() {
        let text = format!("begin{}\nend", "\u{e9}".repeat(5_000));
        let short = quoted(&text, 500);
        assert!(short.len() <= 500 && short.starts_with("> begin") && short.ends_with("\n> end"));
        let note = short.lines().find(|line| !line.starts_with('>')).expect("a note");
        assert!(note.starts_with("[... ") && note.ends_with("characters left out by gradus ...]"), "{note}");
        for room in 0..200 {
            assert!(quoted(&"\n".repeat(1_000), room).len() <= room.max(NOTE_BYTES), "{room}");
        }
    }

    #[test]
    fn long_sequences_lose_their_middle_not_their_ends() {
        let text = "x\ny ".repeat(200);
        let entries: Vec<PromptEntry<'_>> = (1..=1_000)
            .map(|number| {
                let field = |name| EntryField::new(name, Some(text.as_str().into()), "");
                PromptEntry::new(
                    "step",
                    number,
                    vec![field("thought"), field("tool"), field("arguments"), field("result")],
                )
            })
            .collect();
        for room in [5_000, 10_000, 100_000] {
            let text = write_entries(&entries, room);
            assert!(text.len() <= room + 100, "{} of {room}", text.len());
            assert!(text.starts_with("step 1:\n") && text.contains("\nstep 1000:\n"));
            assert!(text.contains(" left out by gradus ...]\nstep "));
        }
        for count in 0..6 {
            let tight = write_entries(&entries[..count], 10);
            assert!(count < 3 || tight.contains("steps"), "{tight}");
        }
        let few = write_entries(&entries[..4], 2_000);
        assert!(few.len() <= 2_000 && few.lines().filter(|line| line.starts_with("step ")).count() == 4);
    }
}
