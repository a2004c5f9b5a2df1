//! Pull requests: listing, opening, changing, and their commits and files.
//!
//! A pull request is an issue with a [`PullRequest`] attached. It moves through these states:
//!
//! ```text
//! open ──▶ merged     (pull_merge; final, cannot be reopened)
//!   │▲
//!   ▼│
//! closed               (by hand, or because a branch was deleted; can be reopened while the head branch exists)
//! ```
//!
//! While it is open, head and base follow their branches, so commits, files and mergeability are computed on each
//! request. When it is closed, both commits are frozen.

use serde_json::{Map, Value, json};

use super::issues::{self, StateChange};
use super::{issue_lists, writing};
use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{ObjectId, is_ancestor};
use crate::http::AcceptedMediaType;
use crate::http::RequestMethod::{Get, Patch, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{Issue, PullHead, PullRequest, Repository, RepositoryId, RepositoryPermission};
use crate::view::CommitParts;

/// Merging is in `pull_merge`, reviews are in `reviews`.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls",
        "pulls/list",
        "pulls/pulls#list-pull-requests",
        list_pull_requests,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/pulls",
        "pulls/create",
        "pulls/pulls#create-a-pull-request",
        create_pull_request,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls/{pull_number}",
        "pulls/get",
        "pulls/pulls#get-a-pull-request",
        get_pull_request,
    ),
    define_route(
        Patch,
        "/repos/{owner}/{repo}/pulls/{pull_number}",
        "pulls/update",
        "pulls/pulls#update-a-pull-request",
        update_pull_request,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls/{pull_number}/files",
        "pulls/list-files",
        "pulls/pulls#list-pull-requests-files",
        list_pull_files,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls/{pull_number}/commits",
        "pulls/list-commits",
        "pulls/pulls#list-commits-on-a-pull-request",
        list_pull_commits,
    ),
];

/// Finds the pull request in the path with its issue and repository. 404 for an issue that is not a pull request.
pub(super) fn find_pull_request<'c>(
    call: &'c OperationCall<'_>,
    id: RepositoryId,
) -> Result<(&'c Repository, &'c Issue, &'c PullRequest), OperationError> {
    let number = call.path_number("pull_number")?;
    let repository = call.repo(id)?;
    let issue = repository.issues.get(&number).ok_or_else(OperationError::not_found)?;
    let pull = issue.pull.as_ref().ok_or_else(OperationError::not_found)?;
    Ok((repository, issue, pull))
}

/// Finds the pull request in the path, for changes.
pub(super) fn find_pull_request_mut<'c>(
    call: &'c mut OperationCall<'_>,
    id: RepositoryId,
) -> Result<&'c mut PullRequest, OperationError> {
    let number = call.path_number("pull_number")?;
    let issue = call.repo_mut(id)?.issues.get_mut(&number).ok_or_else(OperationError::not_found)?;
    issue.pull.as_deref_mut().ok_or_else(OperationError::not_found)
}

/// Filters: `state`, `head` and `base`.
fn list_pull_requests(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    let state = call.query.get("state").unwrap_or("open");
    // GitHub ignores a `head` filter without an owner.
    let head = call.query.get("head").and_then(|head| head.split_once(':'));
    let fits = |issue: &Issue, pull: &PullRequest| {
        (state == "all" || issue.state.name() == state)
            && call.query.get("base").is_none_or(|base| pull.base == base)
            && head.is_none_or(|(owner, branch)| {
                call.state.login(pull.head.owner).eq_ignore_ascii_case(owner) && pull.head.branch == branch
            })
    };
    let mut found: Vec<_> = repository
        .issues
        .values()
        .filter_map(|issue| Some((issue, issue.pull.as_deref()?)))
        .filter(|(issue, pull)| fits(issue, pull))
        .collect();
    issue_lists::sort_issues(call, &mut found, |(issue, _)| (repository, *issue));
    // Sorted by creation, the newest come first; by any other key, GitHub's default direction is ascending.
    if call.query.get("sort").is_some_and(|sort| sort != "created") && call.query.get("direction").is_none() {
        found.reverse();
    }
    Ok(call.reply_with_page(&found, |view, (issue, pull)| view.render_simple_pull(repository, issue, pull)))
}

/// With mergeability. Supports the diff and patch media types.
fn get_pull_request(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (repository, issue, pull) = find_pull_request(call, id)?;
    let view = call.view();
    match call.media {
        AcceptedMediaType::Diff => {
            let text = super::compare::format_git_diff(&view.pull_changes(repository, issue, pull));
            Ok(OperationReply::from_bytes("application/vnd.github.diff; charset=utf-8", text.into_bytes()))
        }
        AcceptedMediaType::Patch => {
            let objects = call.objects(id)?;
            let mails = view.pull_commits(repository, issue, pull).into_iter().filter_map(|id| {
                let commit = objects.commit(id)?;
                Some(super::compare::format_patch_mail(id, commit, &view.commit_changes(repository, commit)))
            });
            let text: String = mails.collect();
            Ok(OperationReply::from_bytes("application/vnd.github.patch; charset=utf-8", text.into_bytes()))
        }
        _ => {
            Ok(OperationReply::ok(view.render_full_pull(repository, issue, pull, true))
                .with_modified_at(issue.updated_at))
        }
    }
}

/// Changes since the merge base, not since the present base branch.
fn list_pull_files(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (repository, issue, pull) = find_pull_request(call, id)?;
    let found = call.view().pull_changes(repository, issue, pull);
    let head = call.state.pull_head(issue, pull);
    Ok(call.reply_with_page(&found, |view, change| view.render_file_change(repository, head, change)))
}

/// Oldest first, at most 250.
fn list_pull_commits(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (repository, issue, pull) = find_pull_request(call, id)?;
    let found = call.view().pull_commits(repository, issue, pull);
    Ok(call.reply_with_page(&found, |view, id| view.render_commit(repository, *id, CommitParts::Head)))
}

/// Builds 422 with the field, GitHub's error for an unknown branch.
fn invalid_pull_field(field: &str) -> OperationError {
    OperationError::validation("PullRequest", field, "invalid")
}

/// Resolves `head`: a branch, or `owner:branch` of a fork in the same network. `head_repo` selects among several forks
/// of one owner.
fn find_head(
    call: &OperationCall<'_>,
    repository: &Repository,
    head: &str,
    head_repo: Option<&str>,
) -> Result<PullHead, OperationError> {
    let (owner, branch) = match head.split_once(':') {
        Some((owner, branch)) => (owner, branch),
        None => (call.state.login(repository.owner), head),
    };
    let network = repository.network;
    let named = |one: &&Repository| {
        head_repo.is_none_or(|name| one.name.eq_ignore_ascii_case(name.rsplit('/').next().unwrap_or(name)))
    };
    let of_owner = |one: &&Repository| {
        one.network == network
            && call.state.login(one.owner).eq_ignore_ascii_case(owner)
            && access::can_see(call.state, call.actor.as_ref(), one)
    };
    let from = if call.state.login(repository.owner).eq_ignore_ascii_case(owner) && head_repo.is_none() {
        Some(repository)
    } else {
        call.state.repositories.values().filter(of_owner).find(named)
    };
    let from = from.ok_or_else(|| invalid_pull_field("head"))?;
    let sha = from.branch_head(branch).ok_or_else(|| invalid_pull_field("head"))?;
    Ok(PullHead { repository: Some(from.id), owner: from.owner, branch: branch.to_owned(), sha })
}

/// Opens a pull request, or turns an open issue into one (`issue`). Mergeability is null at first, since GitHub
/// computes it later.
fn create_pull_request(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let author = call.require_account()?;
    let fields = call.body_fields()?;
    let head = fields.required_text("head")?;
    let base = fields.required_text("base")?.to_owned();
    // `issue` turns an existing issue into a pull request and replaces title and body.
    let from_issue = fields.number("issue")?;
    let title = match from_issue {
        Some(_) => None,
        None => Some(issues::clean_title(fields.required_text("title")?, "PullRequest")?),
    };
    let body = fields.clearable_text("body")?.flatten();
    issues::check_body_length(body.as_deref().unwrap_or_default(), "PullRequest")?;
    let draft = fields.flag("draft")?.unwrap_or(false);
    let maintainer_can_modify = fields.flag("maintainer_can_modify")?.unwrap_or(true);
    let head_repo = fields.text("head_repo")?;
    let repository = call.repo(id)?;
    let base_sha = repository.branch_head(&base).ok_or_else(|| invalid_pull_field("base"))?;
    let head = find_head(call, repository, head, head_repo)?;
    check_may_open(call, repository, &head)?;
    check_pull_branches(call, repository, &head, &base, base_sha)?;
    if let Some(number) = from_issue
        && !repository.issues.get(&number).is_some_and(|issue| issue.pull.is_none() && issue.is_open())
    {
        return Err(invalid_pull_field("issue"));
    }
    let number = from_issue.unwrap_or_else(|| repository.next_number());
    // From here on nothing can fail.
    let (issue_id, pull_id, now) = (call.state.next_id(), call.state.next_id(), call.now());
    let pull = PullRequest {
        id: pull_id,
        head,
        base,
        base_sha,
        draft,
        maintainer_can_modify,
        merged: None,
        requested_reviewers: Vec::new(),
        reviews: Vec::new(),
        review_comments: Vec::new(),
    };
    let repository = call.repo_mut(id)?;
    repository.updated_at = now;
    let fresh = || {
        let mut issue = Issue::new(issue_id, number, title.as_deref().unwrap_or_default(), author, now);
        issue.body = body;
        issue
    };
    let issue = repository.issues.entry(number).or_insert_with(fresh);
    issue.pull = Some(Box::new(pull));
    issue.updated_at = now;
    let repository = call.repo(id)?;
    let issue = repository.issues.get(&number).ok_or_else(OperationError::not_found)?;
    let pull = issue.pull.as_ref().ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::created(call.view().render_full_pull(repository, issue, pull, false)))
}

/// Checks for push access to the head or to the base repository.
fn check_may_open(call: &OperationCall<'_>, repository: &Repository, head: &PullHead) -> Result<(), OperationError> {
    let from = head.repository.and_then(|id| call.state.repository(id)).unwrap_or(repository);
    let pushes = |one: &Repository| {
        access::resolve_permission(call.state, call.actor.as_ref(), one) >= Some(RepositoryPermission::Push)
    };
    if pushes(from) || pushes(repository) { Ok(()) } else { Err(OperationError::token_lacks_permission()) }
}

/// Returns 422 if an open pull request for the same branches exists, or if the head has no commits beyond the base.
fn check_pull_branches(
    call: &OperationCall<'_>,
    repository: &Repository,
    head: &PullHead,
    base: &str,
    base_sha: ObjectId,
) -> Result<(), OperationError> {
    let label = format!("{}:{}", call.state.login(head.owner), head.branch);
    let same = |issue: &&Issue| {
        issue.is_open()
            && issue.pull.as_ref().is_some_and(|pull| {
                pull.head.repository == head.repository && pull.head.branch == head.branch && pull.base == base
            })
    };
    if repository.issues.values().any(|issue| same(&issue)) {
        return Err(OperationError::custom_validation(
            "PullRequest",
            None,
            format!("A pull request already exists for {label}."),
        ));
    }
    if is_ancestor(call.state.objects(repository), head.sha, base_sha) {
        let shown = if head.repository == Some(repository.id) { head.branch.clone() } else { label };
        return Err(OperationError::custom_validation(
            "PullRequest",
            None,
            format!("No commits between {base} and {shown}"),
        ));
    }
    Ok(())
}

/// Authors and accounts with triage permission may change title, body, base and state.
fn update_pull_request(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let by = call.require_account()?;
    let fields = call.body_fields()?;
    let (repository, issue, pull) = find_pull_request(call, id)?;
    let number = issue.number;
    let right = access::resolve_permission(call.state, call.actor.as_ref(), repository);
    if right < Some(RepositoryPermission::Triage) && issue.author != by {
        return Err(OperationError::token_lacks_permission());
    }
    let title = fields.text("title")?.map(|title| issues::clean_title(title, "PullRequest")).transpose()?;
    let body = fields.clearable_text("body")?;
    issues::check_body_length(body.as_ref().and_then(Option::as_deref).unwrap_or_default(), "PullRequest")?;
    let base = fields.text("base")?.map(str::to_owned);
    if let Some(base) = &base
        && repository.branch_head(base).is_none()
    {
        return Err(invalid_pull_field("base"));
    }
    let change = StateChange::read(&fields, issue)?;
    if matches!(change, StateChange::Reopen) {
        check_may_reopen(call, pull)?;
    }
    let modify = fields.flag("maintainer_can_modify")?;
    let now = call.now();
    // A new base makes GitHub compute mergeability again.
    let computed = base.is_none();
    if let Some(issue) = call.repo_mut(id)?.issues.get_mut(&number) {
        issue.title = title.unwrap_or_else(|| issue.title.clone());
        issue.body = body.unwrap_or_else(|| issue.body.clone());
        issue.updated_at = now;
        if let Some(pull) = &mut issue.pull {
            pull.base = base.unwrap_or_else(|| pull.base.clone());
            pull.maintainer_can_modify = modify.unwrap_or(pull.maintainer_can_modify);
        }
    }
    change.apply(call, id, number, by)?;
    let (repository, issue, pull) = find_pull_request(call, id)?;
    Ok(OperationReply::ok(call.view().render_full_pull(repository, issue, pull, computed)))
}

/// Returns 422 if the head branch no longer exists.
fn check_may_reopen(call: &OperationCall<'_>, pull: &PullRequest) -> Result<(), OperationError> {
    let from = pull.head.repository.and_then(|id| call.state.repository(id));
    if from.is_some_and(|from| from.branch_head(&pull.head.branch).is_some()) {
        return Ok(());
    }
    let mut detail = Map::new();
    detail.insert("resource".to_owned(), json!("PullRequest"));
    detail.insert("code".to_owned(), json!("invalid"));
    detail.insert("field".to_owned(), json!("state"));
    detail.insert("message".to_owned(), json!(format!("The {} branch was deleted.", pull.head.branch)));
    Err(OperationError::validation_with_detail(Value::Object(detail)))
}

/// Finds the commit that a review comment refers to.
pub(super) fn find_review_commit(call: &OperationCall<'_>, repository: &Repository, name: &str) -> Option<ObjectId> {
    writing::find_commit(call.state, repository, name)
}
