//! Paths of GitHub that are not simulated, and that a name in another path would take for its own: without this list
//! `/gists/public` would be a gist that is called so, and was not found.

/// Of GET, which all of them are. These are all that GitHub's description has beside our routes; whoever adds a route that
/// ends in a name looks there for what stands beside it.
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
