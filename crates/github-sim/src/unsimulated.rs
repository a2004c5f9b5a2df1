//! Paths of GitHub that are not simulated and that a placeholder of another route would match. Without this list,
//! `/gists/public` would be a gist with the id `public` that was not found, instead of a path that is not simulated.

/// All of them are GET. The list contains everything of that kind in GitHub's OpenAPI description. A new route that
/// ends in a placeholder must be checked against the description.
pub(super) const PATHS: [&str; 17] = [
    "/gists/public",
    "/gists/starred",
    "/repos/{owner}/{repo}/branches/{branch*}/protection/enforce_admins",
    "/repos/{owner}/{repo}/branches/{branch*}/protection/required_pull_request_reviews",
    "/repos/{owner}/{repo}/branches/{branch*}/protection/required_signatures",
    "/repos/{owner}/{repo}/branches/{branch*}/protection/required_status_checks",
    "/repos/{owner}/{repo}/branches/{branch*}/protection/required_status_checks/contexts",
    "/repos/{owner}/{repo}/branches/{branch*}/protection/restrictions",
    "/repos/{owner}/{repo}/branches/{branch*}/protection/restrictions/apps",
    "/repos/{owner}/{repo}/branches/{branch*}/protection/restrictions/teams",
    "/repos/{owner}/{repo}/branches/{branch*}/protection/restrictions/users",
    "/repos/{owner}/{repo}/commits/{ref*}/branches-where-head",
    "/repos/{owner}/{repo}/commits/{ref*}/check-runs",
    "/repos/{owner}/{repo}/commits/{ref*}/check-suites",
    "/repos/{owner}/{repo}/commits/{ref*}/comments",
    "/repos/{owner}/{repo}/issues/events",
    "/repos/{owner}/{repo}/pulls/comments",
];
