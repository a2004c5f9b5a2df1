//! Repositories: creating, changing and deleting them; topics and languages.
//!
//! | action | account | classic token | fine-grained token |
//! |---|---|---|---|
//! | create | owner, or member of the organization | `repo`, or `public_repo` for public ones | never |
//! | change settings | admin | `repo`, or `public_repo` for public ones | admin on the repository |
//! | replace topics | maintain | `repo`, or `public_repo` for public ones | maintain on the repository |
//! | delete | admin | `delete_repo` in addition | admin on the repository |

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::writing;
use crate::access::{self, RequiredAccess};
use crate::call::{BodyFields, OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{EMPTY_TREE, GitCommit, GitFileMode, GitObject, TreeLeaf, edit_tree};
use crate::http::RequestMethod::{Delete, Get, Patch, Post, Put};
use crate::route::{OperationRoute, define_route};
use crate::state::{AccountId, AccountKind, Repository, RepositoryId, RepositoryPermission, TokenAccess};
use crate::view::repository::count_language_bytes;

/// Transfers, templates, hooks and deploy keys are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Post,
        "/user/repos",
        "repos/create-for-authenticated-user",
        "repos/repos#create-a-repository-for-the-authenticated-user",
        create_own_repository,
    ),
    define_route(
        Post,
        "/orgs/{org}/repos",
        "repos/create-in-org",
        "repos/repos#create-an-organization-repository",
        create_in_org,
    ),
    define_route(Get, "/repos/{owner}/{repo}", "repos/get", "repos/repos#get-a-repository", get_repository),
    define_route(Patch, "/repos/{owner}/{repo}", "repos/update", "repos/repos#update-a-repository", update_repository),
    define_route(Delete, "/repos/{owner}/{repo}", "repos/delete", "repos/repos#delete-a-repository", delete_repository),
    define_route(
        Get,
        "/repos/{owner}/{repo}/topics",
        "repos/get-all-topics",
        "repos/repos#get-all-repository-topics",
        get_repository_topics,
    ),
    define_route(
        Put,
        "/repos/{owner}/{repo}/topics",
        "repos/replace-all-topics",
        "repos/repos#replace-all-repository-topics",
        replace_topics,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/languages",
        "repos/list-languages",
        "repos/repos#list-repository-languages",
        list_languages,
    ),
];

/// Finds the organization in the path; 404 for users.
pub(super) fn find_organization(call: &OperationCall<'_>) -> Result<AccountId, OperationError> {
    let found = call.state.account_by_login(call.path_argument("org"));
    let found = found.filter(|account| account.kind == AccountKind::Organization);
    Ok(found.ok_or_else(OperationError::not_found)?.id)
}

/// Creates a repository in the account of the caller.
fn create_own_repository(call: &mut OperationCall<'_>) -> OperationResult {
    let account = call.require_account()?;
    create_repository(call, account)
}

/// Any member of the organization may create repositories.
fn create_in_org(call: &mut OperationCall<'_>) -> OperationResult {
    let account = call.require_account()?;
    let owner = find_organization(call)?;
    let is_member = call.state.account(owner).is_some_and(|owner| owner.members.contains_key(&account));
    if !is_member {
        return Err(OperationError::new(
            403,
            "You need admin access to the organization before adding a repository to it.",
        ));
    }
    create_repository(call, owner)
}

/// Checks the scopes that GitHub requires: `repo`, or `public_repo` for public repositories.
fn check_may_create(call: &OperationCall<'_>, private: bool) -> Result<(), OperationError> {
    let reach = call.actor.as_ref().map(|actor| &actor.reach);
    let allowed = match reach {
        Some(TokenAccess::Scopes(scopes)) => scopes.contains("repo") || (scopes.contains("public_repo") && !private),
        // Fine-grained tokens are limited to existing repositories here.
        Some(TokenAccess::Repositories(_)) | None => false,
    };
    if allowed { Ok(()) } else { Err(OperationError::token_lacks_permission()) }
}

/// Replaces invalid characters of a name by hyphens and cuts it at 100, as GitHub does.
pub(super) fn clean_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.trim().chars().map(|c| if fits(c) { c } else { '-' }).take(100).collect()
}

/// Builds GitHub's 422, with a special message.
pub(super) fn name_taken_error() -> OperationError {
    let mut error =
        OperationError::custom_validation("Repository", Some("name"), "name already exists on this account");
    error.message = "Repository creation failed.".to_owned();
    error
}

/// Cleans a name and refuses reserved ones.
fn clean_repository_name(name: &str) -> Result<String, OperationError> {
    let cleaned = clean_name(name);
    if cleaned.is_empty() || cleaned == "." || cleaned == ".." || cleaned.to_lowercase().ends_with(".git") {
        let mut error =
            OperationError::custom_validation("Repository", Some("name"), "name is too short (minimum is 1 character)");
        error.message = "Repository creation failed.".to_owned();
        return Err(error);
    }
    Ok(cleaned)
}

/// Creates a repository: empty, or with a README if `auto_init` is set.
fn create_repository(call: &mut OperationCall<'_>, owner: AccountId) -> OperationResult {
    let fields = call.body_fields()?;
    let name = clean_repository_name(fields.required_text("name")?)?;
    let private = fields.flag("private")?.unwrap_or(fields.text("visibility")? == Some("private"));
    check_may_create(call, private)?;
    if call.state.repository_by_name(call.state.login(owner), &name).is_some() {
        return Err(name_taken_error());
    }
    let settings = RepositorySettings::read(&fields)?;
    let auto_init = fields.flag("auto_init")?.unwrap_or(false);
    let by = call.require_account()?;
    let (id, now) = (RepositoryId(call.state.next_id()), call.now());
    let state = &mut *call.state;
    let mut repository = Repository::new(id, owner, &name, now, || state.next_id());
    repository.private = private;
    settings.apply(&mut repository);
    let description = repository.description.clone();
    call.state.add_repository(repository);
    if auto_init {
        create_initial_commit(call, id, by, &name, description.as_deref())?;
    }
    Ok(OperationReply::created(call.view().render_full_repository(call.repo(id)?)))
}

/// Creates the first commit, as `auto_init` does.
fn create_initial_commit(
    call: &mut OperationCall<'_>,
    id: RepositoryId,
    by: AccountId,
    name: &str,
    description: Option<&str>,
) -> Result<(), OperationError> {
    let text = match description {
        Some(description) => format!("# {name}\n{description}\n"),
        None => format!("# {name}\n"),
    };
    let now = call.now();
    let who = writing::account_signature(call.state, by, now);
    let objects = call.objects_mut(id)?;
    let leaf = TreeLeaf { mode: GitFileMode::File, id: objects.insert(GitObject::Blob(text.into_bytes())) };
    let tree = edit_tree(objects, EMPTY_TREE, &BTreeMap::from([("README.md".to_owned(), Some(leaf))]));
    let message = "Initial commit".to_owned();
    let first = GitCommit { tree, parents: Vec::new(), author: who.clone(), committer: who, message };
    let commit = objects.insert(GitObject::Commit(first));
    let branch = call.repo(id)?.default_branch.clone();
    writing::move_branch(call.state, id, &branch, commit);
    Ok(())
}

/// Supports conditional requests by `updated_at`.
fn get_repository(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    Ok(OperationReply::ok(call.view().render_full_repository(repository)).with_modified_at(repository.updated_at))
}

/// Settings that creating and updating share.
struct RepositorySettings {
    description: Option<Option<String>>,
    homepage: Option<Option<String>>,
    /// Flags that are set in the body.
    flags: Vec<(&'static str, bool)>,
}

impl RepositorySettings {
    /// Reads the settings. 422 for wrong types; unknown settings are ignored.
    fn read(fields: &BodyFields) -> Result<RepositorySettings, OperationError> {
        const FLAGS: [&str; 7] = [
            "has_issues",
            "has_wiki",
            "has_projects",
            "allow_merge_commit",
            "allow_squash_merge",
            "allow_rebase_merge",
            "delete_branch_on_merge",
        ];
        let mut flags = Vec::new();
        for name in FLAGS {
            flags.extend(fields.flag(name)?.map(|flag| (name, flag)));
        }
        Ok(RepositorySettings {
            description: fields.clearable_text("description")?,
            homepage: fields.clearable_text("homepage")?,
            flags,
        })
    }

    fn apply(self, repository: &mut Repository) {
        if let Some(description) = self.description {
            repository.description = description;
        }
        if let Some(homepage) = self.homepage {
            repository.homepage = homepage;
        }
        for (name, flag) in self.flags {
            match name {
                "has_issues" => repository.has_issues = flag,
                "has_wiki" => repository.has_wiki = flag,
                "has_projects" => repository.has_projects = flag,
                "allow_merge_commit" => repository.allow_merge_commit = flag,
                "allow_squash_merge" => repository.allow_squash_merge = flag,
                "allow_rebase_merge" => repository.allow_rebase_merge = flag,
                _ => repository.delete_branch_on_merge = flag,
            }
        }
    }
}

/// Requires admin permission. An archived repository accepts only `archived: false`. Renaming leaves a redirect.
fn update_repository(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Admin)?;
    let fields = call.body_fields()?;
    let archived = fields.flag("archived")?;
    if archived != Some(false) {
        access::ensure_not_archived(call.repo(id)?)?;
    }
    let settings = RepositorySettings::read(&fields)?;
    let private = match fields.text_one_of("visibility", &["public", "private", "internal"])? {
        Some(visibility) => Some(visibility != "public"),
        None => fields.flag("private")?,
    };
    let name = fields.text("name")?.map(clean_repository_name).transpose()?;
    let repository = call.repo(id)?;
    if let Some(name) = &name {
        let owner = call.state.login(repository.owner);
        if call.state.repository_by_name(owner, name).is_some_and(|other| other != id) {
            return Err(name_taken_error());
        }
    }
    // An empty repository may name a default branch that does not exist yet.
    let branch = fields.text("default_branch")?.map(str::to_owned);
    if let Some(branch) = &branch
        && repository.branch_head(branch).is_none()
        && !(repository.is_empty() && writing::is_valid_ref(branch))
    {
        let message =
            format!("The branch {branch} was not found. Please push that ref first or create it via the Git Data API.");
        return Err(OperationError::custom_validation("Repository", Some("default_branch"), message));
    }
    let now = call.now();
    let repository = call.repo_mut(id)?;
    settings.apply(repository);
    repository.private = private.unwrap_or(repository.private);
    repository.archived = archived.unwrap_or(repository.archived);
    repository.default_branch = branch.unwrap_or_else(|| repository.default_branch.clone());
    repository.updated_at = now;
    if let Some(name) = name {
        call.state.rename_repository(id, &name);
    }
    Ok(OperationReply::ok(call.view().render_full_repository(call.repo(id)?)))
}

/// Classic tokens need the `delete_repo` scope besides admin permission.
fn delete_repository(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Admin)?;
    let may = match call.actor.as_ref().map(|actor| &actor.reach) {
        Some(TokenAccess::Scopes(scopes)) => scopes.contains("delete_repo"),
        Some(TokenAccess::Repositories(rights)) => rights.get(&id) == Some(&RepositoryPermission::Admin),
        None => false,
    };
    if !may {
        return Err(OperationError::needs_admin());
    }
    let by = call.require_account()?;
    let branches: Vec<String> = call.repo(id)?.branches().map(|(name, _)| name.to_owned()).collect();
    // Pull requests from here into other repositories are closed.
    for branch in branches {
        writing::delete_branch(call.state, id, &branch, by);
    }
    // Pull requests into other repositories survive without their head repository.
    for repository in call.state.repositories.values_mut() {
        for pull in repository.issues.values_mut().filter_map(|issue| issue.pull.as_mut()) {
            if pull.head.repository == Some(id) {
                pull.head.repository = None;
            }
        }
    }
    for account in call.state.accounts.values_mut() {
        account.starred.remove(&id);
    }
    call.state.remove_repository(id);
    Ok(OperationReply::no_content())
}

/// In the stored order.
fn get_repository_topics(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    Ok(OperationReply::ok(json!({"names": call.repo(id)?.topics})))
}

/// At most 20 topics of lower-case letters, digits and hyphens.
fn replace_topics(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Maintain)?;
    let fields = call.body_fields()?;
    let names = fields.text_list("names")?.ok_or_else(|| OperationError::missing_field("names"))?;
    let fits = |name: &String| {
        let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !name.is_empty() && name.len() <= 50 && !name.starts_with('-') && name.chars().all(letter)
    };
    if names.len() > 20 || !names.iter().all(fits) {
        return Err(OperationError::custom_validation(
            "Repository",
            Some("topics"),
            "Topics must start with a lowercase letter or number, consist of 50 characters or less, and can include hyphens.",
        ));
    }
    let now = call.now();
    let repository = call.repo_mut(id)?;
    repository.topics = names;
    repository.updated_at = now;
    Ok(OperationReply::ok(json!({"names": repository.topics})))
}

/// Bytes by language, largest first; an estimate by file extension.
fn list_languages(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let found = count_language_bytes(call.objects(id)?, call.repo(id)?);
    let counted = found.into_iter().map(|(name, bytes)| (name.to_owned(), json!(bytes)));
    Ok(OperationReply::ok(Value::Object(counted.collect())))
}
