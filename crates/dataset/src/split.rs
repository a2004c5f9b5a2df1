//! Splits a dataset by a hash of the id, so that an item stays in its part when others are added or removed.

/// A part of a dataset and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitPart {
    pub name: String,
    /// Relative to the sum over all parts.
    pub weight: u32,
}

/// Why a part cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    #[error("part not readable: {text:?}: not NAME=WEIGHT; hint: --part train=80 --part test=20")]
    Format { text: String },
    #[error("part not readable: {text:?}: the weight is a whole number from 1 to 1000000; hint: --part test=20")]
    Weight { text: String },
    #[error("part not readable: {text:?}: the name becomes a part of a file name; hint: use letters, digits, - and _")]
    Name { text: String },
}

/// Parses `NAME=WEIGHT`.
pub fn parse_split_part(text: &str) -> Result<SplitPart, SplitError> {
    const MAX_WEIGHT: u32 = 1_000_000;
    let (name, weight) = text.split_once('=').ok_or_else(|| SplitError::Format { text: text.to_owned() })?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_plain) {
        return Err(SplitError::Name { text: text.to_owned() });
    }
    match weight.trim_end_matches('%').parse::<u32>() {
        Ok(weight @ 1..=MAX_WEIGHT) => Ok(SplitPart { name: name.to_owned(), weight }),
        _ => Err(SplitError::Weight { text: text.to_owned() }),
    }
}

/// Returns the index of the part that an item belongs to, which depends only on the id, the seed and the parts.
/// `None` without parts.
pub fn assign_part(id: &str, seed: u64, parts: &[SplitPart]) -> Option<usize> {
    let total: u64 = parts.iter().map(|part| u64::from(part.weight)).sum();
    if total == 0 {
        return None;
    }
    let digest = gradus_core::stable_digest(format!("{seed}\0{id}").as_bytes()) as u64;
    // The high bits of the product are uniform over the weights; a remainder would favour the first ones slightly.
    let mut drawn = ((u128::from(digest) * u128::from(total)) >> 64) as u64;
    parts.iter().position(|part| {
        let is_here = drawn < u64::from(part.weight);
        drawn = drawn.saturating_sub(u64::from(part.weight));
        is_here
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_parsed() {
        assert_eq!(parse_split_part("test=20"), Ok(SplitPart { name: "test".to_owned(), weight: 20 }));
        assert_eq!(parse_split_part("test=20%"), parse_split_part("test=20"));
        for text in ["test", "test=0", "test=x", "=3", "../x=3", "a=1000001"] {
            assert!(parse_split_part(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_about_right_and_seeds_differ() {
        let parts = [("train", 80), ("test", 20)].map(|(name, weight)| SplitPart { name: name.to_owned(), weight });
        let assigned = |seed| -> Vec<usize> {
            (0..5_000).filter_map(|at| assign_part(&format!("item-{at}"), seed, &parts)).collect()
        };
        let (first, second) = (assigned(1), assigned(2));
        let tests = first.iter().filter(|part| **part == 1).count();
        // Six standard deviations around 1,000.
        assert!((830..1_170).contains(&tests), "{tests}");
        assert_eq!(first, assigned(1));
        assert_ne!(first, second);
        assert_eq!(assign_part("a", 0, &[]), None);
    }
}
