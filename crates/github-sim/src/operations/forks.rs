//! Forks: copies of a repository that share its objects.

use super::repositories::clean_name;
use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Get, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{AccountKind, Repository, RepositoryId};

/// Syncing with the upstream is not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(Post, "/repos/{owner}/{repo}/forks", "repos/create-fork", "repos/forks#create-a-fork", create_fork),
    define_route(Get, "/repos/{owner}/{repo}/forks", "repos/list-forks", "repos/forks#list-forks", list_forks),
];

/// 202, as on GitHub, although the fork exists at once. A second fork into the same account returns the first one. 403
/// for empty repositories and for tokens that may not create repositories.
fn create_fork(call: &mut OperationCall<'_>) -> OperationResult {
    let source = call.require_repository(RequiredAccess::Read)?;
    let account = call.require_account()?;
    let fields = call.body_fields()?;
    let owner = match fields.text("organization")? {
        None => account,
        Some(login) => {
            let found = call.state.account_by_login(login).filter(|one| one.kind == AccountKind::Organization);
            let organization = found.ok_or_else(|| OperationError::validation("Fork", "organization", "invalid"))?;
            if !organization.members.contains_key(&account) {
                return Err(OperationError::token_lacks_permission());
            }
            organization.id
        }
    };
    // Forking creates a repository, so the token needs the same scopes.
    let writes = call.actor.as_ref().is_some_and(|actor| {
        actor.reach.has_scope("repo")
            || (actor.reach.has_scope("public_repo") && call.repo(source).is_ok_and(|one| !one.private))
    });
    if !writes {
        return Err(OperationError::token_lacks_permission());
    }
    let only_default = fields.flag("default_branch_only")?.unwrap_or(false);
    let wanted = fields.text("name")?.map(clean_name);
    let from = call.repo(source)?;
    if from.is_empty() {
        return Err(OperationError::new(
            403,
            "The repository exists, but it contains no Git content. Empty repositories cannot be forked.",
        ));
    }
    // One fork per account and source.
    let existing = call.state.repositories.values().find(|one| one.fork_of == Some(source) && one.owner == owner);
    if let Some(existing) = existing {
        return Ok(OperationReply::new(202, call.view().render_full_repository(existing)));
    }
    let name = wanted.filter(|name| !name.is_empty()).unwrap_or_else(|| from.name.clone());
    let login = call.state.login(owner);
    if call.state.repository_by_name(login, &name).is_some() {
        if from.owner == owner && from.name.eq_ignore_ascii_case(&name) {
            return Err(OperationError::new(
                403,
                "You cannot fork a repository into the account that it is in under the same name.",
            ));
        }
        return Err(super::repositories::name_taken_error());
    }
    let from = from.clone();
    let (id, now) = (RepositoryId(call.state.next_id()), call.now());
    let state = &mut *call.state;
    let mut fork = Repository::new(id, owner, &name, now, || state.next_id());
    fork.description = from.description;
    fork.homepage = from.homepage;
    fork.private = from.private;
    // GitHub disables issues in forks.
    fork.has_issues = false;
    fork.fork_of = Some(source);
    fork.network = from.network;
    fork.pushed_at = from.pushed_at;
    // `default_branch_only` leaves out all other branches and all tags.
    let kept = |name: &str| !only_default || name == format!("refs/heads/{}", from.default_branch);
    fork.refs = from.refs.iter().filter(|(name, _)| kept(name)).map(|(name, id)| (name.clone(), *id)).collect();
    fork.default_branch = from.default_branch;
    call.state.add_repository(fork);
    Ok(OperationReply::new(202, call.view().render_full_repository(call.repo(id)?)))
}

/// Visible forks, newest first unless `sort=oldest`.
fn list_forks(call: &mut OperationCall<'_>) -> OperationResult {
    let source = call.require_repository(RequiredAccess::Read)?;
    let seen = |one: &&Repository| one.fork_of == Some(source) && access::can_see(call.state, call.actor.as_ref(), one);
    let mut found: Vec<_> = call.state.repositories.values().filter(seen).collect();
    found.sort_by_key(|one| (one.created_at, one.id));
    if call.query.get("sort") != Some("oldest") {
        found.reverse();
    }
    Ok(call.reply_with_page(&found, |view, one| view.render_repository(one)))
}
