//! Which projects a rule or an alert is about: a name, or the beginning of names with a `*` behind it.

/// Whether a pattern means this project.
pub(crate) fn fits(pattern: &str, project: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => project.starts_with(beginning),
        None => pattern == project,
    }
}

/// Whether it may mean several projects.
pub(crate) fn is_open(pattern: &str) -> bool {
    pattern.ends_with('*')
}

/// Whether it means all projects; a rule without a pattern does, too.
pub(crate) fn is_all(pattern: Option<&str>) -> bool {
    pattern.is_none_or(|pattern| pattern == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_stands_for_anything() {
        assert!(fits("shop-*", "shop-web") && fits("shop-*", "shop-") && fits("*", ""));
        assert!(!fits("shop-*", "shop") && !fits("shop", "shop-web") && !fits("a*b", "a*bc"));
        assert!(fits("shop", "shop") && fits("a*b", "a*b"));
        assert!(is_open("*") && !is_open("a*b"));
        assert!(is_all(None) && is_all(Some("*")) && !is_all(Some("a*")));
    }
}
