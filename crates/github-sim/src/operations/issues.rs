//! Issues: creating, changing and locking them.

use serde_json::{Value, json};

use super::{labels, writing};
use crate::access::{self, RequiredAccess};
use crate::call::{BodyFields, OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Get, Patch, Post, Put};
use crate::route::{OperationRoute, define_route};
use crate::state::{AccountId, Issue, IssueState, IssueStateReason, Repository, RepositoryId, RepositoryPermission};

/// Pull requests are issues, so these endpoints accept their numbers, too. Events, timelines, sub-issues and transfers
/// are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(Post, "/repos/{owner}/{repo}/issues", "issues/create", "issues/issues#create-an-issue", create_issue),
    define_route(
        Get,
        "/repos/{owner}/{repo}/issues/{issue_number}",
        "issues/get",
        "issues/issues#get-an-issue",
        get_issue,
    ),
    define_route(
        Patch,
        "/repos/{owner}/{repo}/issues/{issue_number}",
        "issues/update",
        "issues/issues#update-an-issue",
        update_issue,
    ),
    define_route(
        Put,
        "/repos/{owner}/{repo}/issues/{issue_number}/lock",
        "issues/lock",
        "issues/issues#lock-an-issue",
        lock_issue,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/issues/{issue_number}/lock",
        "issues/unlock",
        "issues/issues#unlock-an-issue",
        unlock_issue,
    ),
];

/// Maximum length of a title in characters.
const MAX_TITLE_CHARS: usize = 256;
/// Maximum length of a body or a comment in characters.
pub(super) const MAX_BODY_CHARS: usize = 65_536;

/// Returns 410 if issues are disabled.
pub(super) fn ensure_issues_enabled(repository: &Repository) -> Result<(), OperationError> {
    if repository.has_issues {
        return Ok(());
    }
    Err(OperationError::new(410, "Issues has been disabled in this repository."))
}

/// Returns the number in the path, if such an issue or pull request exists. With issues disabled, only pull requests
/// count.
pub(super) fn find_issue_number(call: &OperationCall<'_>, id: RepositoryId) -> Result<u64, OperationError> {
    let number = call.path_number("issue_number")?;
    let repository = call.repo(id)?;
    let issue = repository.issues.get(&number).ok_or_else(OperationError::not_found)?;
    if issue.pull.is_none() {
        ensure_issues_enabled(repository)?;
    }
    Ok(number)
}

/// Replies 200 with the current issue.
pub(super) fn build_issue_reply(call: &OperationCall<'_>, id: RepositoryId, number: u64) -> OperationResult {
    let repository = call.repo(id)?;
    let issue = repository.issues.get(&number).ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::ok(call.view().render_issue(repository, issue)).with_modified_at(issue.updated_at))
}

/// Also returns pull requests, in their form as issues.
fn get_issue(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let number = find_issue_number(call, id)?;
    build_issue_reply(call, id, number)
}

/// Fields that creating and updating share. `None` leaves a field unchanged.
struct IssueFields {
    labels: Option<Vec<String>>,
    assignees: Option<Vec<AccountId>>,
    /// `Some(None)` removes the milestone.
    milestone: Option<Option<u64>>,
}

impl IssueFields {
    /// Reads and validates all fields before anything changes. The old field `assignee` is accepted, too.
    fn read(call: &OperationCall<'_>, id: RepositoryId, fields: &BodyFields) -> Result<IssueFields, OperationError> {
        let repository = call.repo(id)?;
        let labels = fields.list("labels")?.map(labels::parse_label_names).transpose()?;
        let mut names = fields.text_list("assignees")?;
        if names.is_none() && fields.get("assignee").is_some() {
            names =
                Some(fields.text("assignee")?.filter(|name| !name.is_empty()).map(str::to_owned).into_iter().collect());
        }
        let assignees = names.map(|names| resolve_assignees(call, repository, &names)).transpose()?;
        let milestone = match fields.number("milestone")? {
            Some(number) if repository.milestones.contains_key(&number) => Some(Some(number)),
            Some(number) => {
                let error = json!({"resource": "Issue", "field": "milestone", "code": "invalid", "value": number});
                return Err(OperationError::validation_with_detail(error));
            }
            None => fields.is_null("milestone").then_some(None),
        };
        Ok(IssueFields { labels, assignees, milestone })
    }

    /// Applies the fields. Labels that do not exist are created.
    fn apply(self, call: &mut OperationCall<'_>, id: RepositoryId, number: u64) -> Result<(), OperationError> {
        let labels = self.labels.map(|names| labels::ensure_labels(call, id, &names)).transpose()?;
        if let Some(issue) = call.repo_mut(id)?.issues.get_mut(&number) {
            issue.labels = labels.unwrap_or_else(|| std::mem::take(&mut issue.labels));
            issue.assignees = self.assignees.unwrap_or_else(|| std::mem::take(&mut issue.assignees));
            issue.milestone = self.milestone.unwrap_or(issue.milestone);
        }
        Ok(())
    }
}

/// Resolves logins. Unlike in the assignee endpoints, an account that cannot be assigned is an error (422).
fn resolve_assignees(
    call: &OperationCall<'_>,
    repository: &Repository,
    names: &[String],
) -> Result<Vec<AccountId>, OperationError> {
    let mut found = Vec::new();
    for name in names {
        let account = call.state.account_by_login(name).map(|account| account.id);
        let account = account.filter(|account| access::can_be_assigned(call.state, repository, *account));
        let Some(account) = account else {
            let error = json!({"resource": "Issue", "field": "assignees", "code": "invalid", "value": name});
            return Err(OperationError::validation_with_detail(error));
        };
        if !found.contains(&account) {
            found.push(account);
        }
    }
    found.truncate(MAX_ASSIGNEES);
    Ok(found)
}

/// Trims and validates a title, also for pull requests; `resource` is the name in the error.
pub(super) fn clean_title(title: &str, resource: &str) -> Result<String, OperationError> {
    if title.trim().is_empty() {
        return Err(OperationError::validation(resource, "title", "missing_field"));
    }
    if title.chars().count() > MAX_TITLE_CHARS {
        return Err(OperationError::custom_validation(
            resource,
            Some("title"),
            "title is too long (maximum is 256 characters)",
        ));
    }
    Ok(title.to_owned())
}

/// Checks the length of a body; 422 beyond the limit.
pub(super) fn check_body_length(body: &str, resource: &str) -> Result<(), OperationError> {
    if body.chars().count() > MAX_BODY_CHARS {
        return Err(OperationError::custom_validation(
            resource,
            Some("body"),
            "body is too long (maximum is 65536 characters)",
        ));
    }
    Ok(())
}

/// Anyone who can see the repository may open an issue.
fn create_issue(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let author = call.require_account()?;
    let fields = call.body_fields()?;
    ensure_issues_enabled(call.repo(id)?)?;
    let title = match fields.get("title") {
        // GitHub accepts numbers as titles.
        Some(Value::Number(number)) => number.to_string(),
        _ => fields.required_text("title")?.to_owned(),
    };
    let title = clean_title(&title, "Issue")?;
    let body = fields.clearable_text("body")?.flatten();
    check_body_length(body.as_deref().unwrap_or_default(), "Issue")?;
    let mut wanted = IssueFields::read(call, id, &fields)?;
    let repository = call.repo(id)?;
    if access::resolve_permission(call.state, call.actor.as_ref(), repository) < Some(RepositoryPermission::Triage) {
        // Without triage permission these fields are ignored silently, as on GitHub.
        wanted = IssueFields { labels: None, assignees: None, milestone: None };
    }
    let number = repository.next_number();
    let mut issue = Issue::new(call.state.next_id(), number, &title, author, call.now());
    issue.body = body;
    call.repo_mut(id)?.issues.insert(number, issue);
    wanted.apply(call, id, number)?;
    touch_repository(call, id)?;
    let repository = call.repo(id)?;
    let issue = repository.issues.get(&number).ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::created(call.view().render_issue(repository, issue)))
}

/// Updates `updated_at` of the repository.
fn touch_repository(call: &mut OperationCall<'_>, id: RepositoryId) -> Result<(), OperationError> {
    let now = call.now();
    call.repo_mut(id)?.updated_at = now;
    Ok(())
}

/// Authors may change title, body and state of their own issues; everything else needs triage permission.
fn update_issue(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let number = find_issue_number(call, id)?;
    let by = call.require_account()?;
    let fields = call.body_fields()?;
    let repository = call.repo(id)?;
    let issue = repository.issues.get(&number).ok_or_else(OperationError::not_found)?;
    let right = access::resolve_permission(call.state, call.actor.as_ref(), repository);
    if right < Some(RepositoryPermission::Triage) && issue.author != by {
        return Err(OperationError::token_lacks_permission());
    }
    let title = fields.text("title")?.map(|title| clean_title(title, "Issue")).transpose()?;
    let body = fields.clearable_text("body")?;
    check_body_length(body.as_ref().and_then(Option::as_deref).unwrap_or_default(), "Issue")?;
    let mut wanted = IssueFields::read(call, id, &fields)?;
    if right < Some(RepositoryPermission::Triage) {
        wanted = IssueFields { labels: None, assignees: None, milestone: None };
    }
    // Validated before the first change.
    let change = StateChange::read(&fields, issue)?;
    let now = call.now();
    if let Some(issue) = call.repo_mut(id)?.issues.get_mut(&number) {
        issue.title = title.unwrap_or_else(|| issue.title.clone());
        issue.body = body.unwrap_or_else(|| issue.body.clone());
        issue.updated_at = now;
    }
    wanted.apply(call, id, number)?;
    change.apply(call, id, number, by)?;
    touch_repository(call, id)?;
    build_issue_reply(call, id, number)
}

/// A requested change of the state. Pull requests use it, too.
pub(super) enum StateChange {
    /// The state stays as it is.
    None,
    /// The reason is `None` for pull requests.
    Close(Option<IssueStateReason>),
    /// Only for a closed issue.
    Reopen,
}

impl StateChange {
    /// Reads `state` and `state_reason`. 422 if a merged pull request is to be reopened.
    pub(super) fn read(fields: &BodyFields, issue: &Issue) -> Result<StateChange, OperationError> {
        let state = fields.text_one_of("state", &["open", "closed"])?;
        let reason = fields.text_one_of("state_reason", &["completed", "not_planned", "duplicate", "reopened"])?;
        let reason = reason.and_then(IssueStateReason::from_name);
        let is_pull = issue.pull.is_some();
        // A merge is final.
        let merged = issue.pull.as_ref().is_some_and(|pull| pull.merged.is_some());
        match state {
            Some("closed") => {
                let reason = reason
                    .filter(|reason| *reason != IssueStateReason::Reopened)
                    .unwrap_or(IssueStateReason::Completed);
                // Closing a closed issue only changes the reason.
                Ok(StateChange::Close((!is_pull).then_some(reason)))
            }
            Some("open") if merged => Err(OperationError::custom_validation(
                "PullRequest",
                Some("state"),
                "state cannot be changed. The pull request has already been merged.",
            )),
            Some("open") if issue.state == IssueState::Closed => Ok(StateChange::Reopen),
            _ => Ok(StateChange::None),
        }
    }

    /// Applies the change. Closing a pull request also freezes its commits; see `writing::close_issue_or_pull`.
    pub(super) fn apply(
        self,
        call: &mut OperationCall<'_>,
        id: RepositoryId,
        number: u64,
        by: AccountId,
    ) -> Result<(), OperationError> {
        let now = call.now();
        let is_open = call.repo(id)?.issues.get(&number).is_some_and(Issue::is_open);
        match self {
            StateChange::None => {}
            StateChange::Close(reason) if is_open => writing::close_issue_or_pull(call.state, id, number, by, reason),
            StateChange::Close(reason) => {
                if let Some(issue) = call.repo_mut(id)?.issues.get_mut(&number)
                    && issue.pull.is_none()
                {
                    issue.state_reason = reason;
                }
            }
            StateChange::Reopen => {
                if let Some(issue) = call.repo_mut(id)?.issues.get_mut(&number) {
                    issue.reopen(now);
                }
            }
        }
        Ok(())
    }
}

/// Requires triage permission, and locks only comments of others.
fn lock_issue(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let number = find_issue_number(call, id)?;
    let fields = call.body_fields()?;
    let reason =
        fields.text_one_of("lock_reason", &["off-topic", "too heated", "resolved", "spam"])?.map(str::to_owned);
    set_lock(call, id, number, true, reason)
}

/// 204 even if it was not locked.
fn unlock_issue(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let number = find_issue_number(call, id)?;
    set_lock(call, id, number, false, None)
}

/// Locks or unlocks an issue; 204 in both cases.
fn set_lock(
    call: &mut OperationCall<'_>,
    id: RepositoryId,
    number: u64,
    locked: bool,
    reason: Option<String>,
) -> OperationResult {
    let now = call.now();
    if let Some(issue) = call.repo_mut(id)?.issues.get_mut(&number) {
        issue.locked = locked;
        issue.lock_reason = reason;
        issue.updated_at = now;
    }
    Ok(OperationReply::no_content())
}

/// Maximum number of assignees, as on GitHub. Further ones are dropped silently.
pub(super) const MAX_ASSIGNEES: usize = 10;
