//! The cache key of a question.

/// 128 bits of BLAKE3 over everything that may change the answer. Collisions are not a concern at this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuestionKey(pub(super) u128);

impl QuestionKey {
    /// Each part is hashed with its length, so that no two lists of parts give the same input.
    pub fn from_parts(parts: &[&[u8]]) -> QuestionKey {
        let mut hasher = blake3::Hasher::new_derive_key("gradus 2026 verdict cache");
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        QuestionKey(u128::from_be_bytes(bytes))
    }

    /// The key as bytes, for databases.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The bits, for hashing and spreading.
    pub(crate) fn to_u128(self) -> u128 {
        self.0
    }

    /// Reads a key as `Display` writes it.
    pub(super) fn parse(digits: &str) -> Option<QuestionKey> {
        let is_key = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_key.then(|| u128::from_str_radix(digits, 16).ok()).flatten().map(QuestionKey)
    }
}

impl std::fmt::Display for QuestionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
