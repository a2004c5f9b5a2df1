//! Writes JSON that is safe to print on a terminal: characters that control a terminal or reorder text are written as
//! `\uXXXX` escapes. The value is unchanged for every JSON parser.

use std::io::{self, Write};

use gradus_core::visible::is_hidden;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// Writes a value on one line, with a line end (JSON Lines).
pub fn write_line(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut *out, EscapingFormatter(CompactFormatter)))?;
    out.write_all(b"\n")
}

/// Writes a value over several lines, without a line end at the end.
pub fn write_pretty(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    Ok(value.serialize(&mut Serializer::with_formatter(out, EscapingFormatter(PrettyFormatter::new())))?)
}

/// Wraps a formatter of serde_json and escapes more characters in strings; everything else is delegated.
struct EscapingFormatter<F>(F);

macro_rules! pass_on {
    ($($name:ident $(($($argument:ident: $kind:ty),*))?;)*) => {
        $(fn $name<W: ?Sized + Write>(&mut self, writer: &mut W $($(, $argument: $kind)*)?) -> io::Result<()> {
            self.0.$name(writer $($(, $argument)*)?)
        })*
    };
}

impl<F: Formatter> Formatter for EscapingFormatter<F> {
    pass_on! {
        begin_array; end_array; begin_array_value(first: bool); end_array_value;
        begin_object; end_object; begin_object_key(first: bool); end_object_key; begin_object_value; end_object_value;
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // Fast path: most text is printable ASCII. The fold has no early exit, so that the compiler can vectorise it.
        if !fragment.bytes().fold(false, |is_odd, byte| is_odd | !(b' '..=b'~').contains(&byte)) {
            return writer.write_all(fragment.as_bytes());
        }
        // Joiners and emoji selectors are legitimate in text and cannot move other characters. Whether they are visible
        // depends on their neighbours, which a fragment does not have.
        let is_kept = |c: char| matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}');
        let is_unsafe = |c: char| !is_kept(c) && is_hidden(None, c, None);
        let mut rest = fragment;
        while let Some(place) = rest.find(is_unsafe) {
            let (before, behind) = rest.split_at(place);
            writer.write_all(before.as_bytes())?;
            let mut characters = behind.chars();
            if let Some(c) = characters.next() {
                // Characters beyond the Basic Multilingual Plane are two escapes, a surrogate pair (RFC 8259, section
                // 7).
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped_and_comes_back() {
        let text = "a\u{7f}b\u{9b}31m\u{202e}c é 🐛";
        let mut out = Vec::new();
        write_line(&text, &mut out).unwrap();
        assert_eq!(String::from_utf8(out.clone()).unwrap(), "\"a\\u007fb\\u009b31m\\u202ec é 🐛\"\n");
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }
}
