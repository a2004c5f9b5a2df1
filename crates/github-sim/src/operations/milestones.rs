//! Milestones of a repository.

use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Get, Patch, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{IssueState, Milestone, RepositoryId};

/// Labels of a milestone are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/milestones",
        "issues/list-milestones",
        "issues/milestones#list-milestones",
        list_milestones,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/milestones",
        "issues/create-milestone",
        "issues/milestones#create-a-milestone",
        create_milestone,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/milestones/{milestone_number}",
        "issues/get-milestone",
        "issues/milestones#get-a-milestone",
        get_milestone,
    ),
    define_route(
        Patch,
        "/repos/{owner}/{repo}/milestones/{milestone_number}",
        "issues/update-milestone",
        "issues/milestones#update-a-milestone",
        update_milestone,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/milestones/{milestone_number}",
        "issues/delete-milestone",
        "issues/milestones#delete-a-milestone",
        delete_milestone,
    ),
];

/// Open ones by default, sorted by due date or completeness.
fn list_milestones(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    let wanted = call.query.get("state").unwrap_or("open");
    let mut found: Vec<_> =
        repository.milestones.values().filter(|one| wanted == "all" || one.state.name() == wanted).collect();
    if call.query.get("sort") == Some("completeness") {
        // Completeness in thousandths, so that it can be sorted as an integer.
        let done = |one: &Milestone| {
            let inside = || repository.issues.values().filter(|issue| issue.milestone == Some(one.number));
            inside().filter(|issue| !issue.is_open()).count() * 1000 / inside().count().max(1)
        };
        found.sort_by_key(|one| (done(one), one.number));
    } else {
        // Milestones without a due date come last.
        found.sort_by_key(|one| (one.due_on.is_none(), one.due_on, one.number));
    }
    if !call.is_ascending(true) {
        found.reverse();
    }
    Ok(call.reply_with_page(&found, |view, one| view.render_milestone(repository, one)))
}

/// Reads the `state` field of the body.
fn read_milestone_state(call: &OperationCall<'_>) -> Result<Option<IssueState>, OperationError> {
    let fields = call.body_fields()?;
    let wanted = fields.text_one_of("state", &["open", "closed"])?;
    Ok(wanted.map(|name| if name == "closed" { IssueState::Closed } else { IssueState::Open }))
}

/// Refuses an empty title, and one that another milestone has. Titles are case-sensitive.
fn check_milestone_title(
    call: &OperationCall<'_>,
    id: RepositoryId,
    title: &str,
    own: Option<u64>,
) -> Result<(), OperationError> {
    if title.trim().is_empty() {
        return Err(OperationError::validation("Milestone", "title", "missing_field"));
    }
    let taken = call.repo(id)?.milestones.values().any(|one| one.title == title && Some(one.number) != own);
    if taken { Err(OperationError::validation("Milestone", "title", "already_exists")) } else { Ok(()) }
}

/// Requires push access. Numbers are not used again while a higher one exists.
fn create_milestone(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let title = fields.required_text("title")?.to_owned();
    check_milestone_title(call, id, &title, None)?;
    let description = fields.clearable_text("description")?.flatten();
    let due_on = fields.time("due_on")?;
    let state = read_milestone_state(call)?.unwrap_or(IssueState::Open);
    let number = call.repo(id)?.milestones.last_key_value().map_or(1, |(number, _)| number + 1);
    let now = call.now();
    let milestone = Milestone {
        id: call.state.next_id(),
        number,
        title,
        description,
        creator: call.require_account()?,
        state,
        due_on,
        created_at: now,
        updated_at: now,
        closed_at: (state == IssueState::Closed).then_some(now),
    };
    call.repo_mut(id)?.milestones.insert(number, milestone.clone());
    Ok(OperationReply::created(call.view().render_milestone(call.repo(id)?, &milestone)))
}

/// Finds a milestone by the number in the path.
fn find_milestone(call: &OperationCall<'_>, id: RepositoryId) -> Result<Milestone, OperationError> {
    let number = call.path_number("milestone_number")?;
    call.repo(id)?.milestones.get(&number).cloned().ok_or_else(OperationError::not_found)
}

/// Closed ones are found, too.
fn get_milestone(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let milestone = find_milestone(call, id)?;
    Ok(OperationReply::ok(call.view().render_milestone(call.repo(id)?, &milestone)))
}

/// A null `due_on` removes the date.
fn update_milestone(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let mut milestone = find_milestone(call, id)?;
    let fields = call.body_fields()?;
    if let Some(title) = fields.text("title")? {
        check_milestone_title(call, id, title, Some(milestone.number))?;
        title.clone_into(&mut milestone.title);
    }
    milestone.description = fields.clearable_text("description")?.unwrap_or(milestone.description);
    milestone.due_on = if fields.is_null("due_on") { None } else { fields.time("due_on")?.or(milestone.due_on) };
    let now = call.now();
    // Setting the present state again keeps the time of closing.
    if let Some(state) = read_milestone_state(call)?.filter(|state| *state != milestone.state) {
        milestone.state = state;
        milestone.closed_at = (state == IssueState::Closed).then_some(now);
    }
    milestone.updated_at = now;
    call.repo_mut(id)?.milestones.insert(milestone.number, milestone.clone());
    Ok(OperationReply::ok(call.view().render_milestone(call.repo(id)?, &milestone)))
}

/// Issues lose the milestone; their `updated_at` stays.
fn delete_milestone(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let number = find_milestone(call, id)?.number;
    let repository = call.repo_mut(id)?;
    repository.milestones.remove(&number);
    for issue in repository.issues.values_mut().filter(|issue| issue.milestone == Some(number)) {
        issue.milestone = None;
    }
    Ok(OperationReply::no_content())
}
