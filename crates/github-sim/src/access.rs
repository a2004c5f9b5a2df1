//! Who may see and do what. What cannot be seen does not exist for the asker; what can be seen may still be refused.

use std::collections::BTreeMap;

use super::error::ApiError;
use super::state::{AccountId, AccountKind, Permission, Reach, Repository, State};

/// Who asks, by which token.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) account: AccountId,
    pub(super) reach: Reach,
    pub(super) token: String,
}

/// What an operation needs of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
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
    state: &State,
    account: AccountId,
    repository: &Repository,
) -> Option<Permission> {
    if repository.owner == account {
        return Some(Permission::Admin);
    }
    let of_member = state.account(repository.owner).and_then(|owner| owner.members.get(&account)).copied();
    let own = repository.collaborators.get(&account).copied();
    let public = (!repository.private).then_some(Permission::Pull);
    of_member.max(own).max(public)
}

/// The right that an account has by this token.
pub(super) fn permission(
    state: &State,
    actor: Option<&Actor>,
    repository: &Repository,
) -> Option<Permission> {
    let public = (!repository.private).then_some(Permission::Pull);
    let Some(actor) = actor else { return public };
    let own = permission_of(state, actor.account, repository)?;
    let by_token = match &actor.reach {
        Reach::Scopes(scopes) if scopes.contains("repo") => Some(Permission::Admin),
        Reach::Scopes(scopes) if scopes.contains("public_repo") && !repository.private => {
            Some(Permission::Admin)
        }
        Reach::Scopes(_) => None,
        Reach::Repositories(rights) => rights.get(&repository.id).copied(),
    };
    by_token.map(|most| most.min(own)).max(public)
}

pub(super) fn can_see(state: &State, actor: Option<&Actor>, repository: &Repository) -> bool {
    permission(state, actor, repository).is_some()
}

/// Whether the token may write to this repository at all.
fn token_writes(actor: &Actor, repository: &Repository) -> bool {
    match &actor.reach {
        Reach::Scopes(scopes) => {
            scopes.contains("repo") || (scopes.contains("public_repo") && !repository.private)
        }
        Reach::Repositories(rights) => {
            rights.get(&repository.id).is_some_and(|right| *right > Permission::Pull)
        }
    }
}

pub(super) fn check(
    state: &State,
    actor: Option<&Actor>,
    repository: &Repository,
    need: Need,
) -> Result<(), ApiError> {
    let Some(has) = permission(state, actor, repository) else { return Err(ApiError::not_found()) };
    if need == Need::Read {
        return Ok(());
    }
    let Some(actor) = actor else { return Err(ApiError::requires_authentication()) };
    if need == Need::TakePart {
        return if token_writes(actor, repository) {
            writable(repository)
        } else {
            Err(ApiError::out_of_reach())
        };
    }
    let needed = match need {
        Need::Read | Need::TakePart => Permission::Pull,
        Need::Triage => Permission::Triage,
        Need::Push => Permission::Push,
        Need::Maintain => Permission::Maintain,
        Need::Admin => Permission::Admin,
    };
    if has >= needed {
        // Settings of an archived repository can be changed, else it could not be brought back.
        return if need == Need::Admin { Ok(()) } else { writable(repository) };
    }
    let owner_may = permission_of(state, actor.account, repository) >= Some(needed);
    Err(if need >= Need::Maintain && !owner_may { ApiError::needs_admin() } else { ApiError::out_of_reach() })
}

pub(super) fn writable(repository: &Repository) -> Result<(), ApiError> {
    if repository.archived {
        return Err(ApiError::new(403, "Repository was archived so is read-only."));
    }
    Ok(())
}

/// Everyone with a right of their own, and which.
pub(super) fn collaborators(state: &State, repository: &Repository) -> BTreeMap<AccountId, Permission> {
    let mut found = repository.collaborators.clone();
    match state.account(repository.owner) {
        Some(owner) if owner.kind == AccountKind::Organization => {
            for (member, right) in &owner.members {
                let known = found.get(member).copied();
                found.insert(*member, known.map_or(*right, |known| known.max(*right)));
            }
        }
        Some(owner) => drop(found.insert(owner.id, Permission::Admin)),
        None => {}
    }
    found
}

/// Who can be given an issue: those with a right of their own.
pub(super) fn can_be_assigned(state: &State, repository: &Repository, account: AccountId) -> bool {
    collaborators(state, repository).contains_key(&account)
}
