//! Who may see and do what. What cannot be seen does not exist for the asker; what can be seen may still be refused.

use std::collections::BTreeMap;

use super::error::OperationError;
use super::state::{AccountId, AccountKind, Repository, RepositoryPermission, TokenAccess, WorldState};

/// Who asks, by which token.
#[derive(Clone, Debug)]
pub(super) struct AuthenticatedActor {
    pub(super) account: AccountId,
    pub(super) reach: TokenAccess,
    pub(super) token: String,
}

/// What an operation needs of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequiredAccess {
    /// To see it.
    Read,
    /// To take part: anyone who can see it, by a token that may write.
    TakePart,
    Triage,
    Push,
    Maintain,
    Admin,
}

/// The right that an account has, whatever its token.
pub(super) fn permission_of(
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

/// The right that an account has by this token.
pub(super) fn resolve_permission(
    state: &WorldState,
    actor: Option<&AuthenticatedActor>,
    repository: &Repository,
) -> Option<RepositoryPermission> {
    let public = (!repository.private).then_some(RepositoryPermission::Pull);
    let Some(actor) = actor else { return public };
    let own = permission_of(state, actor.account, repository)?;
    let by_token = match &actor.reach {
        TokenAccess::Scopes(scopes) if scopes.contains("repo") => Some(RepositoryPermission::Admin),
        TokenAccess::Scopes(scopes) if scopes.contains("public_repo") && !repository.private => {
            Some(RepositoryPermission::Admin)
        }
        TokenAccess::Scopes(_) => None,
        TokenAccess::Repositories(rights) => rights.get(&repository.id).copied(),
    };
    by_token.map(|most| most.min(own)).max(public)
}

pub(super) fn can_see(state: &WorldState, actor: Option<&AuthenticatedActor>, repository: &Repository) -> bool {
    resolve_permission(state, actor, repository).is_some()
}

/// Whether the token may write to this repository at all.
fn token_writes(actor: &AuthenticatedActor, repository: &Repository) -> bool {
    match &actor.reach {
        TokenAccess::Scopes(scopes) => {
            scopes.contains("repo") || (scopes.contains("public_repo") && !repository.private)
        }
        TokenAccess::Repositories(rights) => {
            rights.get(&repository.id).is_some_and(|right| *right > RepositoryPermission::Pull)
        }
    }
}

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
    if need == RequiredAccess::TakePart {
        return if token_writes(actor, repository) {
            ensure_not_archived(repository)
        } else {
            Err(OperationError::out_of_reach())
        };
    }
    let needed = match need {
        RequiredAccess::Read | RequiredAccess::TakePart => RepositoryPermission::Pull,
        RequiredAccess::Triage => RepositoryPermission::Triage,
        RequiredAccess::Push => RepositoryPermission::Push,
        RequiredAccess::Maintain => RepositoryPermission::Maintain,
        RequiredAccess::Admin => RepositoryPermission::Admin,
    };
    if has >= needed {
        // Settings of an archived repository can be changed, else it could not be brought back.
        return if need == RequiredAccess::Admin { Ok(()) } else { ensure_not_archived(repository) };
    }
    let owner_may = permission_of(state, actor.account, repository) >= Some(needed);
    Err(if need >= RequiredAccess::Maintain && !owner_may {
        OperationError::needs_admin()
    } else {
        OperationError::out_of_reach()
    })
}

pub(super) fn ensure_not_archived(repository: &Repository) -> Result<(), OperationError> {
    if repository.archived {
        return Err(OperationError::new(403, "Repository was archived so is read-only."));
    }
    Ok(())
}

/// Everyone with a right of their own, and which.
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

/// Who can be given an issue: those with a right of their own.
pub(super) fn can_be_assigned(state: &WorldState, repository: &Repository, account: AccountId) -> bool {
    collect_collaborators(state, repository).contains_key(&account)
}
