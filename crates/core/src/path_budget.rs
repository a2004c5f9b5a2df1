//! A budget for the paths of nested attributes, such as `a.b.0.c`.
//!
//! A path repeats the names above it. Without a limit, one key of a megabyte with a hundred thousand values below it
//! would make paths of a hundred gigabytes.

/// Maximum bytes of a path that values below it may repeat.
const MAX_PREFIX_BYTES: usize = 256;
/// Maximum bytes of names that all paths of one span may repeat. Ten thousand messages need less.
const MAX_REPEATED_BYTES: usize = 4 << 20;

/// What the paths of one span may still repeat.
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
    /// Whether the values below a path get paths of their own. If not, the caller stores the tree as one value.
    /// Charges the budget.
    pub fn try_open_path(&mut self, path: &str, values: usize) -> bool {
        let left = self.bytes_left.checked_sub(path.len().saturating_mul(values));
        let is_open = left.is_some() && path.len() <= MAX_PREFIX_BYTES;
        if is_open {
            self.bytes_left = left.unwrap_or_default();
        }
        is_open
    }
}
