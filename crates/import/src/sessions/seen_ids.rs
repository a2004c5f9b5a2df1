//! Ids that were seen before, at 16 bytes each: a session of gigabytes has millions of them.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A set of ids. The probability that two ids that are not UUIDs collide is 2^-128.
#[derive(Debug, Default)]
pub(crate) struct SeenIds(HashSet<u128>);

impl SeenIds {
    /// Adds an id. Returns `false` if it was there.
    pub(crate) fn insert(&mut self, id: &str) -> bool {
        self.0.insert(hash_id(id))
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.0.contains(&hash_id(id))
    }
}

/// Returns the number of a UUID, or a hash of any other text.
pub(crate) fn hash_id(id: &str) -> u128 {
    if let Some(number) = parse_uuid(id) {
        return number;
    }
    let mut low = DefaultHasher::new();
    id.hash(&mut low);
    let mut high = DefaultHasher::new();
    (id, 1_u8).hash(&mut high);
    u128::from(high.finish()) << 64 | u128::from(low.finish())
}

fn parse_uuid(id: &str) -> Option<u128> {
    let bytes = id.as_bytes();
    if bytes.len() != 36 {
        return None;
    }
    let mut number = 0_u128;
    for (position, byte) in bytes.iter().enumerate() {
        if matches!(position, 8 | 13 | 18 | 23) {
            if *byte != b'-' {
                return None;
            }
            continue;
        }
        number = number << 4 | u128::from((*byte as char).to_digit(16)?);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_any_form_are_remembered() {
        let mut seen = SeenIds::default();
        for id in ["0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f", "msg_01", "", "0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7g"] {
            assert!(!seen.contains(id));
            assert!(seen.insert(id), "{id}");
            assert!(!seen.insert(id), "{id}");
        }
        assert_eq!(parse_uuid("00000000-0000-0000-0000-0000000000ff"), Some(255));
    }
}
