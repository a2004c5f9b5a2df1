//! Which paths a file in a repository can have.

/// More segments than any real path has; bounds how deep trees get in one step.
const MAX_SEGMENTS: usize = 64;
const MAX_BYTES: usize = 4096;

/// Whether git would take it: no empty, `.` or `..` segment, nothing in `.git`, no control characters.
pub fn is_valid_path(path: &str) -> bool {
    path.len() <= MAX_BYTES
        && path.split('/').count() <= MAX_SEGMENTS
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
