//! Estimates the memory of parsed JSON from its text, before anything is allocated. Dense lists take about ninety
//! times their text as `serde_json::Value`: `[0],` is four bytes and becomes a list with room for four values.

/// Memory of one list element or object entry: the value, and the growth of the container.
const ELEMENT_BYTES: usize = 120;
/// Memory that the first element of a list allocates: room for four values.
const ARRAY_BYTES: usize = 320;
/// Memory that the first entry of an object allocates: room for four keys and values, and a hash table.
const OBJECT_BYTES: usize = 480;
/// Memory of a text in addition to its bytes.
const TEXT_BYTES: usize = 32;

/// Returns an upper bound on the memory that a document takes as `serde_json::Value`, in one pass without allocating.
/// Invalid JSON gives some number: the parser rejects it later.
pub(super) fn estimate_parsed_size(text: &[u8]) -> usize {
    let mut size = ELEMENT_BYTES;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b',' => size += ELEMENT_BYTES,
            // Empty lists and objects allocate nothing.
            b'[' | b'{' => {
                let next = text[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                if !matches!(next, Some(b']' | b'}')) {
                    size += ELEMENT_BYTES + if *byte == b'[' { ARRAY_BYTES } else { OBJECT_BYTES };
                }
            }
            b'"' => {
                let end = find_string_end(&text[at..]);
                size += TEXT_BYTES + end;
                at += end + 1;
            }
            _ => {}
        }
    }
    size
}

/// Finds the end of a string whose opening quote was read.
fn find_string_end(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        at += found;
        if text[at] == b'"' {
            return at;
        }
        // A backslash and what it escapes.
        at = (at + 2).min(text.len());
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// What a value has allocated, by capacities as the standard library gives them.
    fn allocated(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.capacity() * size_of::<Value>() + items.iter().map(allocated).sum::<usize>(),
            Value::Object(entries) => {
                let entry = size_of::<(usize, String, Value)>();
                let own = entries.iter().map(|(key, value)| key.len() + allocated(value)).sum::<usize>();
                let places = if entries.is_empty() { 0 } else { entries.len().next_power_of_two().max(4) };
                own + places * entry
            }
            Value::String(text) => text.capacity(),
            _ => 0,
        }
    }

    #[test]
    fn estimates_are_above_what_is_allocated() {
        for unit in
            ["[0]", "{\"\":0}", "0", "\"\"", "\"a\\\"b\"", "{}", "[]", "[[[[1]]]]", "{\"a\":{\"b\":[1,2,3]}}", "null"]
        {
            let text = format!("[{}]", vec![unit; 5000].join(","));
            let value: Value = serde_json::from_str(&text).expect("JSON");
            let (estimate, real) = (estimate_parsed_size(text.as_bytes()), allocated(&value));
            assert!(estimate >= real, "{unit}: {estimate} < {real}");
            assert!(estimate < 40 * real + 1000, "{unit}: {estimate} is far above {real}");
        }
    }

    #[test]
    fn texts_are_no_structure() {
        let text = format!("\"{}\"", "[{,".repeat(1000));
        assert!(estimate_parsed_size(text.as_bytes()) < 4000);
        assert!(estimate_parsed_size(b"\"\\") < 1000 && estimate_parsed_size(b"\"\\\"") < 1000);
        assert!(estimate_parsed_size(b"") < 1000);
    }
}
