//! Lists of issues. They contain pull requests, as on GitHub.

use serde_json::json;

use super::issues::ensure_issues_enabled;
use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::Get;
use crate::route::{OperationRoute, define_route};
use crate::state::{Issue, Repository};
use crate::time::SimulatedTime;

/// Organization-wide lists are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/issues",
        "issues/list",
        "issues/issues#list-issues-assigned-to-the-authenticated-user",
        list_assigned,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/issues",
        "issues/list-for-repo",
        "issues/issues#list-repository-issues",
        list_repository_issues,
    ),
];

/// Whether an issue matches GitHub's filters: `state`, `labels` (all must match), `assignee`, `milestone`, `creator`,
/// `mentioned` and `since`. The default is open issues.
fn matches_issue_query(call: &OperationCall<'_>, repository: &Repository, issue: &Issue) -> bool {
    let query = &call.query;
    let account = |login: &str| call.state.account_by_login(login).map(|account| account.id);
    let state_fits = match query.get("state") {
        Some("closed") => !issue.is_open(),
        Some("all") => true,
        _ => issue.is_open(),
    };
    let labelled = |name: &str| {
        let name = name.trim().to_lowercase();
        issue
            .labels
            .iter()
            .filter_map(|label| repository.labels.get(label))
            .any(|label| label.name.to_lowercase() == name)
    };
    let assigned = match query.get("assignee") {
        None => true,
        Some("none") => issue.assignees.is_empty(),
        Some("*") => !issue.assignees.is_empty(),
        Some(login) => account(login).is_some_and(|one| issue.assignees.contains(&one)),
    };
    let in_milestone = match query.get("milestone") {
        None => true,
        Some("none") => issue.milestone.is_none(),
        Some("*") => issue.milestone.is_some(),
        Some(number) => number.parse().ok() == issue.milestone && issue.milestone.is_some(),
    };
    // Only the body is searched; GitHub also looks into comments.
    let mentions = |login: &str| {
        let name = format!("@{}", login.to_lowercase());
        issue.body.as_ref().is_some_and(|body| body.to_lowercase().contains(&name))
    };
    state_fits
        && query.get("labels").is_none_or(|names| names.split(',').all(labelled))
        && assigned
        && in_milestone
        && query.get("creator").is_none_or(|login| account(login) == Some(issue.author))
        && query.get("mentioned").is_none_or(mentions)
        && query.get("since").and_then(SimulatedTime::parse).is_none_or(|since| issue.updated_at >= since)
}

/// Sorts by `sort` and `direction`; newest first by default. The number breaks ties, so that pages are stable. Lists
/// of pull requests use it, too.
pub(super) fn sort_issues<T>(
    call: &OperationCall<'_>,
    found: &mut [T],
    issue_of: impl Fn(&T) -> (&Repository, &Issue),
) {
    match call.query.get("sort") {
        Some("updated") => found.sort_by_key(|one| (issue_of(one).1.updated_at, issue_of(one).1.number)),
        Some("comments") => found.sort_by_key(|one| {
            let (repository, issue) = issue_of(one);
            (repository.list_comments(issue.number).count(), issue.number)
        }),
        _ => found.sort_by_key(|one| (issue_of(one).1.created_at, issue_of(one).1.number)),
    }
    if !call.is_ascending(false) {
        found.reverse();
    }
}

/// 410 if issues are disabled, 422 for an unknown state.
fn list_repository_issues(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    ensure_issues_enabled(repository)?;
    if let Some(state) = call.query.get("state").filter(|state| !["open", "closed", "all"].contains(state)) {
        let value = json!({"resource": "Issue", "field": "state", "code": "invalid", "value": state});
        return Err(OperationError::validation_with_detail(value));
    }
    let mut found: Vec<_> = repository
        .issues
        .values()
        .filter(|issue| matches_issue_query(call, repository, issue))
        .map(|issue| (repository, issue))
        .collect();
    sort_issues(call, &mut found, |one| *one);
    Ok(call.reply_with_page(&found, |view, (repository, issue)| view.render_issue(repository, issue)))
}

/// Across all visible repositories; `filter` selects assigned, created or all issues. Each item contains its
/// repository.
fn list_assigned(call: &mut OperationCall<'_>) -> OperationResult {
    let account = call.require_account()?;
    let concerns = |issue: &Issue| match call.query.get("filter").unwrap_or("assigned") {
        "created" => issue.author == account,
        "all" | "repos" => true,
        _ => issue.assignees.contains(&account),
    };
    let seen = call.state.repositories.values().filter(|one| access::can_see(call.state, call.actor.as_ref(), one));
    let mut found: Vec<_> = seen
        .flat_map(|repository| repository.issues.values().map(move |issue| (repository, issue)))
        .filter(|(repository, issue)| concerns(issue) && matches_issue_query(call, repository, issue))
        .collect();
    sort_issues(call, &mut found, |one| *one);
    Ok(call.reply_with_page(&found, |view, (repository, issue)| {
        let mut object = view.render_issue(repository, issue);
        object["repository"] = view.render_repository(repository);
        object
    }))
}
