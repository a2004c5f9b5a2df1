//! Distributes the space of a prompt between values of different length.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value of which the judge saw only a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Shortened")]
pub struct TruncatedValue {
    /// The rubric's variable.
    pub variable: String,
    pub shown_bytes: usize,
    pub total_bytes: usize,
}

/// Computes the size limit per text so that all texts fit into `room`: short ones stay whole, long ones share the
/// rest equally (max-min fairness). `usize::MAX` if all fit unchanged.
pub(super) fn compute_size_limit(sizes: &[usize], room: usize) -> usize {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let mut left = room;
    for (at, size) in sorted.iter().enumerate() {
        let each = left / (sorted.len() - at);
        if *size > each {
            return each;
        }
        left -= size;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_stay_whole() {
        assert_eq!(compute_size_limit(&[10, 1_000, 2_000], 1_010), 500);
        assert_eq!(compute_size_limit(&[10, 20], 30), usize::MAX);
        assert_eq!(compute_size_limit(&[], 0), usize::MAX);
    }
}
