//! Applies seeds to a world: accounts, repositories and their settings, and tokens.

use crate::seed::builder::WorldBuilder;
use std::collections::BTreeMap;

use super::file::{AccountSeed, RepositorySeed, SeedFile, TokenSeed};
use super::{SeedError, history, seed_issues};
use crate::rate::ApiRateLimits;
use crate::state::{AccessToken, Account, IssueLabel, LabelId, Repository, RepositoryId, TokenAccess, WorldState};
use crate::world::World;

/// Applies seeds in order; the extended one comes first. Later seeds override `now` and the limits, and add everything
/// else.
pub(super) fn apply_seed_files<'s>(seeds: impl Iterator<Item = &'s SeedFile> + Clone) -> Result<World, SeedError> {
    let state = WorldState::default();
    let mut making = WorldBuilder { latest: state.now, state, origin: "" };
    let (mut now, mut limits, mut faults) = (None, ApiRateLimits::default(), Vec::new());
    for seed in seeds {
        making.origin = &seed.origin;
        for (index, account) in seed.accounts.iter().enumerate() {
            add_account(&mut making, account, &format!("accounts[{index}]"))?;
        }
        for (index, account) in seed.accounts.iter().enumerate() {
            add_members(&mut making, account, &format!("accounts[{index}].members"))?;
        }
        for (index, repository) in seed.repositories.iter().enumerate() {
            add_repository(&mut making, repository, &format!("repositories[{index}]"))?;
        }
        for (index, account) in seed.accounts.iter().enumerate() {
            add_stars(&mut making, account, &format!("accounts[{index}].starred"))?;
        }
        // Tokens refer to accounts and repositories.
        for (index, token) in seed.tokens.iter().enumerate() {
            add_token(&mut making, token, &format!("tokens[{index}]"))?;
        }
        now = seed.now.or(now);
        limits = seed.limits.unwrap_or(limits);
        for (index, fault) in seed.faults.iter().enumerate() {
            fault
                .validate(&making.state)
                .map_err(|error| making.content_error(format!("faults[{index}]"), error.to_string()))?;
            faults.push(fault.clone());
        }
        // The next seed continues where this one ended.
        making.state.now = making.latest;
    }
    making.state.now = now.unwrap_or(making.latest);
    Ok(World::new(making.state, limits, faults))
}

/// Adds an account, or updates the profile of an existing one.
fn add_account(making: &mut WorldBuilder<'_>, seed: &AccountSeed, place: &str) -> Result<(), SeedError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if seed.login.is_empty() || seed.login.len() > 39 || !seed.login.chars().all(fits) {
        return Err(
            making.content_error(place, format!("login {:?}: letters, digits and hyphens, 39 at most", seed.login))
        );
    }
    if let Some(known) = making.state.account_by_login(&seed.login).map(|account| account.id) {
        // A seed that extends another may add to an account.
        if let Some(account) = making.state.accounts.get_mut(&known) {
            update_account_profile(account, seed);
        }
        return Ok(());
    }
    let mut account = Account::new(&seed.login, seed.kind, making.state.now);
    update_account_profile(&mut account, seed);
    making.state.add_account(account);
    Ok(())
}

/// Updates a profile. Absent fields keep their value, so that an extending seed states only what is new.
fn update_account_profile(account: &mut Account, seed: &AccountSeed) {
    let more = |new: &Option<String>, old: &mut Option<String>| {
        if new.is_some() {
            old.clone_from(new);
        }
    };
    more(&seed.name, &mut account.name);
    more(&seed.email, &mut account.email);
    more(&seed.bio, &mut account.bio);
    more(&seed.company, &mut account.company);
    more(&seed.location, &mut account.location);
}

/// Adds members in a second pass, because an organization may be listed before its members.
fn add_members(making: &mut WorldBuilder<'_>, seed: &AccountSeed, place: &str) -> Result<(), SeedError> {
    let organization = making.find_account(&seed.login, place)?;
    for (login, right) in &seed.members {
        let member = making.find_account(login, place)?;
        if let Some(account) = making.state.accounts.get_mut(&organization) {
            account.members.insert(member, *right);
        }
    }
    Ok(())
}

/// Adds stars after all repositories of the seed. Each one takes a minute of simulated time.
fn add_stars(making: &mut WorldBuilder<'_>, seed: &AccountSeed, place: &str) -> Result<(), SeedError> {
    let account = making.find_account(&seed.login, place)?;
    for name in &seed.starred {
        let repository = making.find_repository(name, place)?;
        let at = making.advance_clock(None);
        if let Some(account) = making.state.accounts.get_mut(&account) {
            account.starred.insert(repository, at);
        }
    }
    Ok(())
}

/// Adds a token after all repositories, because fine-grained ones refer to them.
fn add_token(making: &mut WorldBuilder<'_>, seed: &TokenSeed, place: &str) -> Result<(), SeedError> {
    if seed.token.is_empty() || seed.token.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(making.content_error(place, "a token has no blanks, and is not empty"));
    }
    let account = making.find_account(&seed.account, place)?;
    let reach = match (&seed.scopes, &seed.repositories) {
        (Some(scopes), None) => TokenAccess::Scopes(scopes.iter().cloned().collect()),
        (None, Some(rights)) => {
            let mut by_id = BTreeMap::new();
            for (name, right) in rights {
                by_id.insert(making.find_repository(name, &format!("{place}.repositories"))?, *right);
            }
            TokenAccess::Repositories(by_id)
        }
        (None, None) => TokenAccess::Scopes(Default::default()),
        (Some(_), Some(_)) => {
            return Err(making.content_error(place, "a token has scopes or repositories, not both"));
        }
    };
    making.state.tokens.insert(seed.token.clone(), AccessToken { account, reach });
    Ok(())
}

/// Adds a repository or extends an existing one: settings, then history, then issues and pull requests.
fn add_repository(making: &mut WorldBuilder<'_>, seed: &RepositorySeed, place: &str) -> Result<(), SeedError> {
    let Some((owner, name)) = seed.name.split_once('/') else {
        return Err(making.content_error(place, format!("name {:?}: write owner/name", seed.name)));
    };
    let owner = making.find_account(owner, place)?;
    // The name in parentheses helps people; `line_of` ignores it.
    let place = &format!("{place} ({})", seed.name);
    let known = making.state.repository_by_name(making.state.login(owner), name);
    let id = match known {
        Some(id) => id,
        None => {
            let at = making.advance_clock(seed.at);
            let id = RepositoryId(making.state.next_id());
            let state = &mut making.state;
            let repository = Repository::new(id, owner, name, at, || state.next_id());
            making.state.add_repository(repository);
            id
        }
    };
    let mut collaborators = BTreeMap::new();
    for (login, right) in &seed.collaborators {
        collaborators.insert(making.find_account(login, &format!("{place}.collaborators"))?, *right);
    }
    if let Some(repository) = making.state.repositories.get_mut(&id) {
        repository.description = seed.description.clone().or(repository.description.take());
        repository.homepage = seed.homepage.clone().or(repository.homepage.take());
        repository.topics = seed.topics.clone().unwrap_or(std::mem::take(&mut repository.topics));
        repository.private = seed.private.unwrap_or(repository.private);
        repository.has_issues = seed.has_issues.unwrap_or(repository.has_issues);
        repository.delete_branch_on_merge = seed.delete_branch_on_merge.unwrap_or(repository.delete_branch_on_merge);
        repository.default_branch =
            seed.default_branch.clone().unwrap_or(std::mem::take(&mut repository.default_branch));
        repository.collaborators.extend(collaborators);
    }
    add_labels(making, id, seed);
    history::add_git_history(making, id, seed, place)?;
    seed_issues::add_issues_and_pulls(making, id, seed, place)?;
    history::add_publications(making, id, seed, place)?;
    if let Some(repository) = making.state.repositories.get_mut(&id) {
        repository.protection.extend(seed.protection.clone());
        // Last, since an archived repository cannot be changed.
        repository.archived = seed.archived.unwrap_or(repository.archived);
    }
    Ok(())
}

/// Adds labels. One with an existing name keeps its id, so that issues of an extended seed keep the label.
fn add_labels(making: &mut WorldBuilder<'_>, id: RepositoryId, seed: &RepositorySeed) {
    for label in &seed.labels {
        let label_id = LabelId(making.state.next_id());
        let Some(repository) = making.state.repositories.get_mut(&id) else { return };
        let color = label.color.clone().unwrap_or_else(|| "ededed".to_owned());
        let known = repository.label_by_name(&label.name).map(|known| known.id);
        let id = known.unwrap_or(label_id);
        let made = IssueLabel {
            id,
            name: label.name.clone(),
            color,
            description: label.description.clone(),
            is_default: false,
        };
        repository.labels.insert(id, made);
    }
}
