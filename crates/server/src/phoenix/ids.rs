//! Phoenix's global ids: base64 of `Type:name`. Clients pass them back unchanged, and some check the type.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Encodes an id. The name may also be a number or a composite cursor.
pub(super) fn encode_node_id(kind: &str, name: impl std::fmt::Display) -> String {
    STANDARD.encode(format!("{kind}:{name}"))
}

/// Returns the name in an id of this type; `None` for another type or another text.
pub(super) fn decode_node_id(kind: &str, id: &str) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(id).ok()?).ok()?;
    Some(text.strip_prefix(kind)?.strip_prefix(':')?.to_owned())
}

/// Returns the number in an id of this type; `None` also for negative numbers, which no row has.
pub(super) fn decode_numeric_id(kind: &str, id: &str) -> Option<i64> {
    decode_node_id(kind, id)?.parse().ok().filter(|number| *number >= 0)
}

/// Returns 32 hexadecimal digits that the author of a recorded text cannot predict.
pub(super) fn generate_random_id() -> String {
    // `RandomState` is seeded from the operating system.
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_phoenix_writes_them() {
        assert_eq!(encode_node_id("Project", 2), "UHJvamVjdDoy");
        assert_eq!(decode_numeric_id("Project", "UHJvamVjdDoy"), Some(2));
        assert_eq!(decode_numeric_id("Span", "UHJvamVjdDoy"), None);
        assert_eq!(decode_node_id("Project", "no base64"), None);
        assert_eq!(decode_numeric_id("Project", &encode_node_id("Project", -1)), None);
        assert_ne!(generate_random_id(), generate_random_id());
    }
}
