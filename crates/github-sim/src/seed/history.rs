//! Applies the git part of a seed: commits, branches, tags, and what is published of them.

use std::collections::BTreeMap;

use super::SeedError;
use super::file::{CommitSeed, RepositorySeed};
use crate::git::{
    EMPTY_TREE, GitCommit, GitFileMode, GitObject, ObjectId, TreeLeaf, edit_tree, find_tree_entry, is_valid_path,
};
use crate::merging;
use crate::operations::writing;
use crate::seed::builder::WorldBuilder;
use crate::state::{CommitStatus, RepositoryId, RepositoryRelease, WorkflowRun};

/// Adds commits, then branches, then tags: later ones refer to earlier ones.
pub(super) fn add_git_history(
    making: &mut WorldBuilder<'_>,
    id: RepositoryId,
    seed: &RepositorySeed,
    place: &str,
) -> Result<(), SeedError> {
    for (index, commit) in seed.commits.iter().enumerate() {
        add_commit(making, id, commit, &format!("{place}.commits[{index}]"))?;
    }
    // A branch that exists already is moved.
    for (index, branch) in seed.branches.iter().enumerate() {
        let place = format!("{place}.branches[{index}]");
        let from = resolve_seed_commit(making, id, branch.from.as_deref(), &place)?;
        writing::move_branch(&mut making.state, id, &branch.name, from);
    }
    for (index, tag) in seed.tags.iter().enumerate() {
        let place = format!("{place}.tags[{index}]");
        let from = resolve_seed_commit(making, id, tag.from.as_deref(), &place)?;
        if let Some(repository) = making.state.repositories.get_mut(&id) {
            repository.refs.insert(format!("refs/tags/{}", tag.name), from);
        }
    }
    Ok(())
}

/// Resolves a branch, tag or sha; `main~2` is two commits before `main`, along first parents. `None` is the default
/// branch.
fn resolve_seed_commit(
    making: &WorldBuilder<'_>,
    id: RepositoryId,
    name: Option<&str>,
    place: &str,
) -> Result<ObjectId, SeedError> {
    let Some(repository) = making.state.repository(id) else {
        return Err(making.content_error(place, "the repository is gone"));
    };
    let name = name.unwrap_or(&repository.default_branch);
    let (start, back) = name.split_once('~').unwrap_or((name, "0"));
    let mut found = writing::find_commit(&making.state, repository, start);
    let back: usize =
        back.parse().map_err(|_| making.content_error(place, format!("{name:?}: what follows ~ is a number")))?;
    for _ in 0..back {
        let objects = making.state.objects(repository);
        found = found.and_then(|id| objects.commit(id)?.parents.first().copied());
    }
    found.ok_or_else(|| making.content_error(place, format!("there is no branch, tag or commit {name:?}")))
}

/// Adds one commit and moves its branch. A merge is applied before the listed files.
fn add_commit(
    making: &mut WorldBuilder<'_>,
    id: RepositoryId,
    seed: &CommitSeed,
    place: &str,
) -> Result<(), SeedError> {
    let Some(repository) = making.state.repository(id) else {
        return Err(making.content_error(place, "the repository is gone"));
    };
    let owner = making.state.login(repository.owner).to_owned();
    let branch = seed.branch.clone().unwrap_or_else(|| repository.default_branch.clone());
    let (network, existing, is_empty) = (repository.network, repository.branch_head(&branch), repository.is_empty());
    // The first commit of a repository has no parent; a new branch begins at `from`.
    let head = match existing {
        Some(head) => Some(head),
        None if is_empty => None,
        None => Some(resolve_seed_commit(making, id, seed.from.as_deref(), place)?),
    };
    let author = making.find_account(seed.author.as_deref().unwrap_or(&owner), place)?;
    let at = making.advance_clock(seed.at);
    let who = writing::account_signature(&making.state, author, at);
    let merged = match &seed.merge {
        Some(name) => Some(resolve_seed_commit(making, id, Some(name), place)?),
        None => None,
    };
    // Checked before anything is written, with git's rules for paths.
    if let Some(bad) = seed.files.keys().chain(&seed.delete).find(|path| !is_valid_path(path)) {
        return Err(making.content_error(place, format!("{bad:?} is no path of a file")));
    }
    let origin = making.origin;
    let objects = making.state.networks.entry(network).or_default();
    let mut tree = head.and_then(|head| objects.commit(head)).map_or(EMPTY_TREE, |commit| commit.tree);
    if let (Some(head), Some(merged)) = (head, merged) {
        let plan = merging::plan_merge(objects, head, merged).map_err(|paths| SeedError::Content {
            origin: origin.to_owned(),
            line: None,
            place: place.to_owned(),
            reason: format!("the merge has conflicts in {}", paths.join(", ")),
        })?;
        tree = plan.write(objects);
    }
    let mut changes: BTreeMap<String, Option<TreeLeaf>> = BTreeMap::new();
    for (path, text) in &seed.files {
        // An existing file keeps its mode.
        let mode = find_tree_entry(objects, tree, path).map_or(GitFileMode::File, |entry| entry.mode);
        let blob = objects.insert(GitObject::Blob(text.clone().into_bytes()));
        changes.insert(path.clone(), Some(TreeLeaf { mode, id: blob }));
    }
    for path in &seed.delete {
        changes.insert(path.clone(), None);
    }
    let tree = edit_tree(objects, tree, &changes);
    // The branch itself is the first parent, the merged one the second.
    let parents = head.into_iter().chain(merged).collect();
    let message = seed.message.clone();
    let made =
        objects.insert(GitObject::Commit(GitCommit { tree, parents, author: who.clone(), committer: who, message }));
    writing::move_branch(&mut making.state, id, &branch, made);
    if let (Some(tag), Some(repository)) = (&seed.tag, making.state.repositories.get_mut(&id)) {
        repository.refs.insert(format!("refs/tags/{tag}"), made);
    }
    Ok(())
}

/// Adds releases, commit statuses and workflow runs.
pub(super) fn add_publications(
    making: &mut WorldBuilder<'_>,
    id: RepositoryId,
    seed: &RepositorySeed,
    place: &str,
) -> Result<(), SeedError> {
    let owner = making.state.repository(id).map(|one| making.state.login(one.owner).to_owned()).unwrap_or_default();
    for (index, release) in seed.releases.iter().enumerate() {
        let place = format!("{place}.releases[{index}]");
        // A release may name a tag that does not exist yet.
        let commit = resolve_seed_commit(making, id, Some(&release.tag), &place)
            .or_else(|_| resolve_seed_commit(making, id, None, &place))?;
        let author = making.find_account(release.author.as_deref().unwrap_or(&owner), &place)?;
        let at = making.advance_clock(release.at);
        let release_id = making.state.next_id();
        let Some(repository) = making.state.repositories.get_mut(&id) else { continue };
        // Drafts have no tag yet.
        if !release.draft {
            repository.refs.entry(format!("refs/tags/{}", release.tag)).or_insert(commit);
        }
        let made = RepositoryRelease {
            id: release_id,
            tag_name: release.tag.clone(),
            target_commitish: repository.default_branch.clone(),
            name: release.name.clone(),
            body: release.body.clone(),
            draft: release.draft,
            prerelease: release.prerelease,
            author,
            created_at: at,
            published_at: (!release.draft).then_some(at),
        };
        repository.releases.insert(release_id, made);
    }
    for (index, status) in seed.statuses.iter().enumerate() {
        let place = format!("{place}.statuses[{index}]");
        let commit = resolve_seed_commit(making, id, Some(&status.on), &place)?;
        let creator = making.find_account(status.creator.as_deref().unwrap_or(&owner), &place)?;
        // Later statuses of the same context supersede earlier ones, so their order in the seed matters.
        let (status_id, created_at) = (making.state.next_id(), making.advance_clock(None));
        let made = CommitStatus {
            id: status_id,
            commit,
            state: status.state,
            context: status.context.clone(),
            description: status.description.clone(),
            target_url: None,
            creator,
            created_at,
        };
        if let Some(repository) = making.state.repositories.get_mut(&id) {
            repository.statuses.push(made);
        }
    }
    for (index, run) in seed.runs.iter().enumerate() {
        let place = format!("{place}.runs[{index}]");
        let commit = resolve_seed_commit(making, id, run.branch.as_deref(), &place)?;
        let actor = making.find_account(run.actor.as_deref().unwrap_or(&owner), &place)?;
        let (run_id, at) = (making.state.next_id(), making.advance_clock(run.at));
        let Some(repository) = making.state.repositories.get_mut(&id) else { continue };
        // Runs are numbered per workflow.
        let number = repository.runs.values().filter(|one| one.path == run.path).count() as u64 + 1;
        let made = WorkflowRun {
            id: run_id,
            number,
            path: run.path.clone(),
            branch: run.branch.clone().unwrap_or_else(|| repository.default_branch.clone()),
            commit,
            event: run.event.clone(),
            status: run.status.clone(),
            conclusion: run.conclusion.clone(),
            actor,
            created_at: at,
            updated_at: at,
        };
        repository.runs.insert(run_id, made);
    }
    Ok(())
}
