//! Phoenix's ids: the kind of a thing and what names it, as base64. Clients pass them on and look at their kind.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(super) fn encode_node_id(kind: &str, name: impl std::fmt::Display) -> String {
    STANDARD.encode(format!("{kind}:{name}"))
}

/// What an id of this kind names; `None` when it is something else.
pub(super) fn decode_node_id(kind: &str, id: &str) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(id).ok()?).ok()?;
    Some(text.strip_prefix(kind)?.strip_prefix(':')?.to_owned())
}

pub(super) fn decode_number(kind: &str, id: &str) -> Option<i64> {
    decode_node_id(kind, id)?.parse().ok().filter(|number| *number >= 0)
}

/// 32 digits that nobody who wrote a span could have known.
pub(super) fn generate_random_id() -> String {
    // The keys of these come from the system's source of randomness.
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_phoenix_writes_them() {
        assert_eq!(encode_node_id("Project", 2), "UHJvamVjdDoy");
        assert_eq!(decode_number("Project", "UHJvamVjdDoy"), Some(2));
        assert_eq!(decode_number("Span", "UHJvamVjdDoy"), None);
        assert_eq!(decode_node_id("Project", "no base64"), None);
        assert_eq!(decode_number("Project", &encode_node_id("Project", -1)), None);
        assert_ne!(generate_random_id(), generate_random_id());
    }
}
