//! Patterns of project names in rules and alerts: a name, or the beginning of names followed by `*`. No other
//! wildcard exists, so that a pattern can be matched without a parser.

/// Whether a pattern matches a project. `*` alone matches every project.
pub(crate) fn is_project_match(pattern: &str, project: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => project.starts_with(beginning),
        None => pattern == project,
    }
}

/// Whether a pattern may match several projects, so that the store has to be asked for their names.
pub(crate) fn may_match_several(pattern: &str) -> bool {
    pattern.ends_with('*')
}

/// Whether a pattern matches every project. A rule without a pattern does.
pub(crate) fn matches_every_project(pattern: Option<&str>) -> bool {
    pattern.is_none_or(|pattern| pattern == "*")
}

/// Whether there may be a project that both patterns match.
pub(crate) fn may_overlap(one: &str, other: &str) -> bool {
    match (one.strip_suffix('*'), other.strip_suffix('*')) {
        (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
        (Some(_), None) => is_project_match(one, other),
        (None, _) => is_project_match(other, one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_stands_for_anything() {
        assert!(
            is_project_match("shop-*", "shop-web") && is_project_match("shop-*", "shop-") && is_project_match("*", "")
        );
        assert!(
            !is_project_match("shop-*", "shop")
                && !is_project_match("shop", "shop-web")
                && !is_project_match("a*b", "a*bc")
        );
        assert!(is_project_match("shop", "shop") && is_project_match("a*b", "a*b"));
        assert!(may_match_several("*") && !may_match_several("a*b"));
        assert!(may_overlap("shop-*", "shop*") && may_overlap("shop", "s*") && may_overlap("s*", "shop"));
        assert!(!may_overlap("shop-*", "web*") && !may_overlap("shop", "web") && !may_overlap("shop-*", "shop"));
        assert!(matches_every_project(None) && matches_every_project(Some("*")) && !matches_every_project(Some("a*")));
    }
}
