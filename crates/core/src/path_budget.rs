//! Paths of nested attributes: `a.b.0.c`.
//!
//! A path repeats the names above it, so that one key of a megabyte with a hundred thousand values below it would make
//! paths of a hundred gigabytes.

/// A path that is longer than this is not continued.
const MAX_PREFIX_BYTES: usize = 256;
/// Bytes of names that the paths of one span repeat: ten thousand messages have fewer.
const MAX_REPEATED_BYTES: usize = 4 << 20;

/// What paths of one span may still repeat.
#[derive(Debug)]
pub struct PathBudget {
    bytes_left: usize,
}

impl Default for PathBudget {
    fn default() -> Self {
        PathBudget { bytes_left: MAX_REPEATED_BYTES }
    }
}

impl PathBudget {
    /// Whether the values below a path get paths of their own; what does not stays one value.
    pub fn may_open(&mut self, path: &str, values: usize) -> bool {
        let left = self.bytes_left.checked_sub(path.len().saturating_mul(values));
        let is_open = left.is_some() && path.len() <= MAX_PREFIX_BYTES;
        if is_open {
            self.bytes_left = left.unwrap_or_default();
        }
        is_open
    }
}
