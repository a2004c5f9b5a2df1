//! Validation of file paths in a repository.

/// Maximum number of segments, more than any real path has. It bounds the depth of trees, and so the recursion.
const MAX_PATH_SEGMENTS: usize = 64;
/// Maximum length of a path in bytes, as on Linux.
const MAX_PATH_BYTES: usize = 4096;

/// Whether git accepts the path: no empty, `.` or `..` segment, nothing in `.git`, no control characters. Backslashes
/// are refused as well, since they are separators on Windows.
pub fn is_valid_path(path: &str) -> bool {
    path.len() <= MAX_PATH_BYTES
        && path.split('/').count() <= MAX_PATH_SEGMENTS
        && path.split('/').all(|segment| {
            !segment.is_empty()
                && segment != "."
                && segment != ".."
                && !segment.eq_ignore_ascii_case(".git")
                && !segment.contains(|c: char| c.is_control() || c == '\\')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        for good in ["README.md", "src/lib/a.py", ".github/workflows/ci.yml", "a b/ü.txt"] {
            assert!(is_valid_path(good), "{good}");
        }
        for bad in ["", "/etc", "a//b", "a/", "../x", "a/../b", "./a", ".git/config", ".GIT/hooks/x", "a\0b", "a\nb"] {
            assert!(!is_valid_path(bad), "{bad}");
        }
        assert!(!is_valid_path(&"a/".repeat(100)));
    }
}
