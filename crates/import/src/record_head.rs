//! The first records of a file, from its first bytes.

use serde_json::Value as Json;

/// Maximum number of records that are looked at: enough to pass the metadata that some tools write first.
const MAX_HEAD_RECORDS: usize = 20;

/// Returns the first records of a JSON input: of lines, of consecutive documents, or of the elements of one list. The
/// last one may be incomplete, if `head` ends within it.
pub fn read_first_records(head: &[u8]) -> Vec<Json> {
    let mut rest = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    if let Some(inside) = rest.strip_prefix(b"[") {
        rest = inside;
    }
    let mut records = Vec::new();
    while records.len() < MAX_HEAD_RECORDS {
        rest = rest.trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start();
        let mut stream = serde_json::Deserializer::from_slice(rest).into_iter::<Json>();
        match stream.next() {
            Some(Ok(record)) => records.push(record),
            Some(Err(error)) if error.is_eof() => {
                records.extend(complete_json(rest));
                break;
            }
            _ => break,
        }
        rest = &rest[stream.byte_offset()..];
    }
    records
}

/// Parses JSON that was cut off, by closing what is open. `None` if it is not JSON even so.
fn complete_json(cut: &[u8]) -> Option<Json> {
    let cut = match std::str::from_utf8(cut) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&cut[..error.valid_up_to()]).ok()?,
    };
    // What closes each open bracket, and how long the text was when it last could be closed.
    let mut closers: Vec<char> = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    let mut last_whole: Option<(usize, String)> = None;
    for (at, character) in cut.char_indices() {
        if in_string {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match character {
            '"' => in_string = true,
            '{' => closers.push('}'),
            '[' => closers.push(']'),
            '}' | ']' => drop(closers.pop()),
            // Before a comma everything is complete.
            ',' => last_whole = Some((at, closers.iter().rev().collect())),
            _ => {}
        }
    }
    let (end, closing) = last_whole?;
    serde_json::from_str(&format!("{}{closing}", &cut[..end])).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_lists_and_cut_records() {
        let expected = vec![json!({"a": 1}), json!({"b": [1, 2]})];
        for text in ["{\"a\":1}\n{\"b\":[1,2]}\n", "[{\"a\":1},\n {\"b\":[1,2]}]", "\u{feff}{\"a\":1}{\"b\":[1,2]} x"] {
            assert_eq!(read_first_records(text.as_bytes()), expected, "{text}");
        }
        let cut = "{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"a, \\\"b";
        assert_eq!(read_first_records(cut.as_bytes()), [json!({"type": "user", "message": {"role": "user"}})]);
        assert_eq!(read_first_records(b"[1,"), [json!(1)]);
        assert!(read_first_records(b"{\"a").is_empty() && read_first_records(b"").is_empty());
    }
}
