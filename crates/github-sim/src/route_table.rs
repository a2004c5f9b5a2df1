//! The route table: finds the operation of a request.
//!
//! | pattern | path | arguments |
//! |---|---|---|
//! | `/repos/{owner}/{repo}` | `/repos/octo/demo` | `owner` = octo, `repo` = demo |
//! | `/repos/{owner}/{repo}/contents/{path*}` | `/repos/octo/demo/contents/src/a.rs` | `path` = src/a.rs |
//! | `/repos/{owner}/{repo}/commits/{ref*}/status` | `/repos/octo/demo/commits/fix/1/status` | `ref` = fix/1 |
//!
//! The search is linear: there are about 130 routes, and comparing segments is cheap next to rendering a response.

use crate::route::OperationRoute;
use std::sync::OnceLock;

use super::http::{RequestMethod, decode_percent_escapes};
use super::{operations, unsimulated};
use crate::call::PathArguments;

/// A route with its parsed pattern.
#[derive(Debug)]
pub(super) struct CompiledRoute {
    pub(super) route: &'static OperationRoute,
    pub(super) shape: RoutePattern,
}

/// A parsed pattern.
#[derive(Debug)]
pub(super) struct RoutePattern {
    pub(super) segments: Vec<RouteSegment>,
    /// Index of the `{name*}` placeholder; a pattern has at most one.
    pub(super) tail: Option<usize>,
}

/// A literal segment or a placeholder.
#[derive(Debug)]
pub(super) enum RouteSegment {
    Literal(&'static str),
    Name(&'static str),
}

/// Returns the first route that matches. Literal routes are listed before routes with placeholders in the same
/// position. HEAD uses the routes of GET.
pub(super) fn find_route(method: RequestMethod, path: &str) -> Option<(&'static OperationRoute, PathArguments)> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let method = if method == RequestMethod::Head { RequestMethod::Get } else { method };
    let (route, arguments) = compiled_routes().iter().filter(|one| one.route.method == method).find_map(|one| {
        let arguments = one.shape.match_path(&segments)?;
        Some((one.route, arguments))
    })?;
    // A placeholder at the end may match a path that is another operation on GitHub. Those are answered with 501.
    let may_be_another = method == RequestMethod::Get && route.pattern.ends_with('}');
    let is_another = may_be_another && unsimulated_patterns().iter().any(|shape| shape.match_path(&segments).is_some());
    (!is_another).then_some((route, arguments))
}

/// Whether an operation exists for this path, which is as clients write it, without the query.
pub fn is_simulated(method: RequestMethod, path: &str) -> bool {
    let path = path.strip_prefix("/api/v3").unwrap_or(path);
    // Repositories can be addressed by id.
    let by_number = path.strip_prefix("/repositories/").map(|rest| match rest.split_once('/') {
        Some((_, rest)) => format!("/repos/owner/name/{rest}"),
        None => "/repos/owner/name".to_owned(),
    });
    find_route(method, by_number.as_deref().unwrap_or(path)).is_some()
}

/// Returns all routes, parsed once per process.
pub(super) fn compiled_routes() -> &'static [CompiledRoute] {
    static TABLE: OnceLock<Vec<CompiledRoute>> = OnceLock::new();
    TABLE.get_or_init(|| {
        operations::list_operation_routes()
            .map(|route| CompiledRoute { route, shape: RoutePattern::new(route.pattern) })
            .collect()
    })
}

/// Returns known paths of GitHub that the simulator does not have, parsed once per process.
pub(super) fn unsimulated_patterns() -> &'static [RoutePattern] {
    static SHAPES: OnceLock<Vec<RoutePattern>> = OnceLock::new();
    SHAPES.get_or_init(|| unsimulated::PATHS.into_iter().map(RoutePattern::new).collect())
}

impl RoutePattern {
    pub(super) fn new(pattern: &'static str) -> RoutePattern {
        let mut tail = None;
        let segments = pattern.trim_matches('/').split('/').enumerate().map(|(index, segment)| {
            let Some(name) = segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else {
                return RouteSegment::Literal(segment);
            };
            if name.ends_with('*') {
                tail = Some(index);
            }
            RouteSegment::Name(name.trim_end_matches('*'))
        });
        RoutePattern { segments: segments.collect(), tail }
    }

    /// Returns the arguments if the path matches; `None` otherwise.
    pub(super) fn match_path(&self, path: &[&str]) -> Option<PathArguments> {
        let Some(tail) = self.tail else {
            return (path.len() == self.segments.len()).then(|| match_segments(&self.segments, path))?;
        };
        // The segments after the tail must match, too. The tail may be empty only at the end: a branch may be called
        // `status`.
        let behind = &self.segments[tail + 1..];
        if path.len() < tail + behind.len() + usize::from(!behind.is_empty()) {
            return None;
        }
        let (middle, end) = path[tail..].split_at(path.len() - tail - behind.len());
        let mut arguments = match_segments(&self.segments[..tail], &path[..tail])?;
        arguments.extend(match_segments(behind, end)?);
        let RouteSegment::Name(name) = self.segments[tail] else { return None };
        arguments.push((name, decode_percent_escapes(&middle.join("/"))));
        Some(arguments)
    }
}

/// Matches segments one by one. A placeholder does not match an empty segment.
pub(super) fn match_segments(segments: &[RouteSegment], path: &[&str]) -> Option<PathArguments> {
    let literals_fit = segments.iter().zip(path).all(|(segment, text)| match segment {
        RouteSegment::Literal(literal) => literal == text,
        RouteSegment::Name(_) => !text.is_empty(),
    });
    if !literals_fit {
        return None;
    }
    let named = segments.iter().zip(path).filter_map(|(segment, text)| match segment {
        RouteSegment::Literal(_) => None,
        RouteSegment::Name(name) => Some((*name, decode_percent_escapes(text))),
    });
    Some(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(method: RequestMethod, path: &str) -> Option<&'static str> {
        find_route(method, path).map(|(route, _)| route.operation)
    }

    #[test]
    fn paths_find_their_operation() {
        assert_eq!(operation(RequestMethod::Get, "/user"), Some("users/get-authenticated"));
        assert_eq!(operation(RequestMethod::Get, "/repos/a/b/issues/3"), Some("issues/get"));
        assert_eq!(operation(RequestMethod::Get, "/repos/a/b/contents"), Some("repos/get-content"));
        assert_eq!(operation(RequestMethod::Get, "/repos/a/b/contents/"), Some("repos/get-content"));
        assert_eq!(
            operation(RequestMethod::Get, "/repos/a/b/commits/feature/x/status"),
            Some("repos/get-combined-status-for-ref")
        );
        assert_eq!(operation(RequestMethod::Get, "/repos/a/b/branches/feature/x"), Some("repos/get-branch"));
        assert_eq!(operation(RequestMethod::Get, "/repos/a/b/nothing"), None);
        assert_eq!(operation(RequestMethod::Put, "/user"), None);
    }

    #[test]
    fn what_is_not_simulated_is_no_name() {
        for path in unsimulated::PATHS {
            for branch in ["main", "feature/x"] {
                let path = path.replace("{branch*}", branch).replace("{ref*}", branch);
                let path = path.replace(['{', '}'], "");
                for method in [RequestMethod::Get, RequestMethod::Head] {
                    assert_eq!(operation(method, &path), None, "{path}");
                }
            }
            // Each of them is needed here.
            let shape = RoutePattern::new(path);
            let path = path.replace(['{', '}', '*'], "");
            let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
            assert!(shape.match_path(&segments).is_some());
            assert!(compiled_routes().iter().any(|one| one.shape.match_path(&segments).is_some()), "{path}");
        }
        // Names that look like them, and such with slashes.
        for (path, wanted) in [
            ("/repos/a/b/commits/heads/a/b", "repos/get-commit"),
            ("/repos/a/b/commits/comments", "repos/get-commit"),
            ("/repos/a/b/commits/status", "repos/get-commit"),
            ("/repos/a/b/commits/check-runs/x", "repos/get-commit"),
            ("/repos/a/b/commits/x%2Fcheck-runs", "repos/get-commit"),
            ("/repos/a/b/branches/protection", "repos/get-branch"),
            ("/repos/a/b/branches/a/protection", "repos/get-branch-protection"),
            ("/repos/a/b/branches/protection/x", "repos/get-branch"),
            ("/repos/a/b/issues/comments", "issues/list-comments-for-repo"),
            ("/repos/a/b/contents/commits/x/comments", "repos/get-content"),
            ("/gists/publication", "gists/get"),
        ] {
            assert_eq!(operation(RequestMethod::Get, path), Some(wanted), "{path}");
        }
    }

    #[test]
    fn paths_are_known_as_clients_write_them() {
        for path in ["/user", "/api/v3/user", "/repositories/5/issues/7", "/repositories/5"] {
            assert!(is_simulated(RequestMethod::Get, path), "{path}");
        }
        for path in ["/repos/octo/demo/isues/28", "/repositories/5/isues", "/gists/public", "user/x"] {
            assert!(!is_simulated(RequestMethod::Get, path), "{path}");
        }
    }

    /// What agents' tools and the tasks are made of; the rest is a gift.
    #[test]
    fn all_operations_of_the_plan_are_there() {
        const PLAN: [&str; 83] = [
            "users/get-authenticated",
            "users/get-by-username",
            "rate-limit/get",
            "repos/list-for-authenticated-user",
            "repos/list-for-user",
            "repos/list-for-org",
            "repos/create-for-authenticated-user",
            "repos/create-in-org",
            "repos/get",
            "repos/update",
            "repos/delete",
            "repos/create-fork",
            "repos/list-forks",
            "repos/list-collaborators",
            "repos/get-all-topics",
            "repos/get-content",
            "repos/create-or-update-file-contents",
            "repos/delete-file",
            "repos/get-readme",
            "repos/list-branches",
            "repos/get-branch",
            "git/get-ref",
            "git/create-ref",
            "git/update-ref",
            "git/delete-ref",
            "git/get-tree",
            "git/create-tree",
            "git/create-blob",
            "git/get-blob",
            "git/create-commit",
            "git/get-commit",
            "repos/list-commits",
            "repos/get-commit",
            "repos/compare-commits-with-basehead",
            "repos/get-combined-status-for-ref",
            "repos/create-commit-status",
            "repos/merge",
            "issues/list-for-repo",
            "issues/create",
            "issues/get",
            "issues/update",
            "issues/list-comments",
            "issues/create-comment",
            "issues/update-comment",
            "issues/delete-comment",
            "issues/add-labels",
            "issues/remove-label",
            "issues/add-assignees",
            "issues/remove-assignees",
            "issues/list-labels-for-repo",
            "issues/create-label",
            "issues/update-label",
            "issues/delete-label",
            "issues/list-milestones",
            "issues/create-milestone",
            "pulls/list",
            "pulls/create",
            "pulls/get",
            "pulls/update",
            "pulls/list-files",
            "pulls/list-commits",
            "pulls/merge",
            "pulls/check-if-merged",
            "pulls/list-reviews",
            "pulls/create-review",
            "pulls/request-reviewers",
            "pulls/list-review-comments",
            "search/repos",
            "search/issues-and-pull-requests",
            "search/code",
            "repos/list-releases",
            "repos/create-release",
            "repos/get-latest-release",
            "repos/get-release-by-tag",
            "repos/list-tags",
            "actions/list-repo-workflows",
            "actions/list-workflow-runs-for-repo",
            "actions/create-workflow-dispatch",
            "activity/star-repo-for-authenticated-user",
            "activity/unstar-repo-for-authenticated-user",
            "activity/list-repos-starred-by-authenticated-user",
            "gists/create",
            "gists/get",
        ];
        for operation in PLAN {
            assert!(operations::list_operation_routes().any(|route| route.operation == operation), "{operation}");
        }
    }

    #[test]
    fn tails_keep_their_slashes() {
        let (_, arguments) = find_route(RequestMethod::Get, "/repos/a/b/contents/src/a%20b.py").unwrap();
        assert!(arguments.contains(&("path", "src/a b.py".to_owned())));
        let (_, arguments) = find_route(RequestMethod::Get, "/repos/a/b/branches/feature%2Fx").unwrap();
        assert!(arguments.contains(&("branch", "feature/x".to_owned())));
    }

    #[test]
    fn no_operation_is_hidden_by_another() {
        for route in operations::list_operation_routes() {
            let path = route.pattern.replace(['{', '}', '*'], "");
            assert_eq!(operation(route.method, &path), Some(route.operation), "{}", route.pattern);
        }
    }
}
