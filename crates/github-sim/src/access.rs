//! Permissions: who may see and do what. As on GitHub, a repository that the caller cannot see is answered with 404,
//! and a visible one on which an action is not allowed with 403.
//!
//! The effective permission is the lower one of what the account has and what its token allows:
//!
//! | source | gives |
//! |---|---|
//! | owner of the repository | admin |
//! | member of the owning organization | the permission of the membership, on all repositories |
//! | collaborator | the permission of the collaboration |
//! | public repository | pull, also without a token |
//! | classic token with `repo` | everything that the account has |
//! | classic token with `public_repo` | everything that the account has, on public repositories |
//! | classic token with other scopes | pull on public repositories |
//! | fine-grained token | at most the listed permission on the listed repositories, pull on public ones |
//!
//! Some operations check scopes of their own beyond this: gists, stars, and creating, forking and deleting
//! repositories.

use std::collections::BTreeMap;

use super::error::OperationError;
use super::state::{AccountId, AccountKind, Repository, RepositoryPermission, TokenAccess, WorldState};

/// The caller of a request. It is looked up for each request, so a revoked token stops working immediately.
#[derive(Clone, Debug)]
pub(super) struct AuthenticatedActor {
    pub(super) account: AccountId,
    /// What the token allows. The effective permission is the lower one of account and token.
    pub(super) reach: TokenAccess,
    /// Rate limits are counted per token.
    pub(super) token: String,
}

/// What an operation requires on a repository, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequiredAccess {
    /// To see the repository. The only level that an anonymous caller can have.
    Read,
    /// To open issues, comment and review: anyone who can see the repository, with a token that may write.
    Participate,
    /// To manage issues and pull requests of others.
    Triage,
    /// To change git content, labels, milestones and releases.
    Push,
    /// To change topics.
    Maintain,
    /// To change settings and to delete the repository.
    Admin,
}

/// Returns the permission of an account, ignoring its token: the highest of ownership, organization membership,
/// collaboration and public visibility. `None` if it cannot see the repository.
pub(super) fn account_permission(
    state: &WorldState,
    account: AccountId,
    repository: &Repository,
) -> Option<RepositoryPermission> {
    if repository.owner == account {
        return Some(RepositoryPermission::Admin);
    }
    let of_member = state.account(repository.owner).and_then(|owner| owner.members.get(&account)).copied();
    let own = repository.collaborators.get(&account).copied();
    let public = (!repository.private).then_some(RepositoryPermission::Pull);
    of_member.max(own).max(public)
}

/// Returns the effective permission of a caller. Public repositories can be read with any token and without one.
pub(super) fn resolve_permission(
    state: &WorldState,
    actor: Option<&AuthenticatedActor>,
    repository: &Repository,
) -> Option<RepositoryPermission> {
    let public = (!repository.private).then_some(RepositoryPermission::Pull);
    let Some(actor) = actor else { return public };
    let own = account_permission(state, actor.account, repository)?;
    let by_token = match &actor.reach {
        // Classic tokens: `repo` covers everything, `public_repo` only public repositories.
        TokenAccess::Scopes(scopes) if scopes.contains("repo") => Some(RepositoryPermission::Admin),
        TokenAccess::Scopes(scopes) if scopes.contains("public_repo") && !repository.private => {
            Some(RepositoryPermission::Admin)
        }
        TokenAccess::Scopes(_) => None,
        TokenAccess::Repositories(rights) => rights.get(&repository.id).copied(),
    };
    by_token.map(|most| most.min(own)).max(public)
}

/// Whether the repository exists for the caller.
pub(super) fn can_see(state: &WorldState, actor: Option<&AuthenticatedActor>, repository: &Repository) -> bool {
    resolve_permission(state, actor, repository).is_some()
}

/// Whether the token allows writing to this repository at all, whatever the permission of its account.
fn token_may_write(actor: &AuthenticatedActor, repository: &Repository) -> bool {
    match &actor.reach {
        TokenAccess::Scopes(scopes) => {
            scopes.contains("repo") || (scopes.contains("public_repo") && !repository.private)
        }
        TokenAccess::Repositories(rights) => {
            rights.get(&repository.id).is_some_and(|right| *right > RepositoryPermission::Pull)
        }
    }
}

/// Checks a requirement and gives the status that GitHub gives: 404 for an invisible repository, 401 for an anonymous
/// writer, 403 otherwise. Writes to archived repositories are refused, except changes of settings.
pub(super) fn check_access(
    state: &WorldState,
    actor: Option<&AuthenticatedActor>,
    repository: &Repository,
    need: RequiredAccess,
) -> Result<(), OperationError> {
    let Some(has) = resolve_permission(state, actor, repository) else {
        return Err(OperationError::not_found());
    };
    if need == RequiredAccess::Read {
        return Ok(());
    }
    let Some(actor) = actor else { return Err(OperationError::requires_authentication()) };
    if need == RequiredAccess::Participate {
        return if token_may_write(actor, repository) {
            ensure_not_archived(repository)
        } else {
            Err(OperationError::token_lacks_permission())
        };
    }
    let needed = match need {
        RequiredAccess::Read | RequiredAccess::Participate => RepositoryPermission::Pull,
        RequiredAccess::Triage => RepositoryPermission::Triage,
        RequiredAccess::Push => RepositoryPermission::Push,
        RequiredAccess::Maintain => RepositoryPermission::Maintain,
        RequiredAccess::Admin => RepositoryPermission::Admin,
    };
    if has >= needed {
        // Settings can be changed, otherwise an archived repository could never be restored.
        return if need == RequiredAccess::Admin { Ok(()) } else { ensure_not_archived(repository) };
    }
    // The message depends on whether the account or only its token lacks the permission.
    let owner_may = account_permission(state, actor.account, repository) >= Some(needed);
    Err(if need >= RequiredAccess::Maintain && !owner_may {
        OperationError::needs_admin()
    } else {
        OperationError::token_lacks_permission()
    })
}

/// Returns 403 for an archived repository, with GitHub's message.
pub(super) fn ensure_not_archived(repository: &Repository) -> Result<(), OperationError> {
    if repository.archived {
        return Err(OperationError::new(403, "Repository was archived so is read-only."));
    }
    Ok(())
}

/// Accounts with an explicit permission: collaborators, and the owner or the members of the owning organization. If an
/// account has several, the highest counts.
pub(super) fn collect_collaborators(
    state: &WorldState,
    repository: &Repository,
) -> BTreeMap<AccountId, RepositoryPermission> {
    let mut found = repository.collaborators.clone();
    match state.account(repository.owner) {
        Some(owner) if owner.kind == AccountKind::Organization => {
            for (member, right) in &owner.members {
                let known = found.get(member).copied();
                found.insert(*member, known.map_or(*right, |known| known.max(*right)));
            }
        }
        Some(owner) => drop(found.insert(owner.id, RepositoryPermission::Admin)),
        None => {}
    }
    found
}

/// Whether an account can be assigned to issues: it needs an explicit permission, as on GitHub.
pub(super) fn can_be_assigned(state: &WorldState, repository: &Repository, account: AccountId) -> bool {
    collect_collaborators(state, repository).contains_key(&account)
}
