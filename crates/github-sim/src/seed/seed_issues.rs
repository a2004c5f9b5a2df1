//! Applies milestones, issues and pull requests of a seed. Milestones come first, since issues refer to them by title.
//! Issues come before pull requests, since they usually have the lower numbers. Pull requests are merged in the order
//! of the file, so a later one sees the base that an earlier one left.

use super::SeedError;
use super::file::{CommentSeed, IssueSeed, PullSeed, RepositorySeed};
use crate::git::{GitCommit, GitObject, ObjectId};
use crate::merging;
use crate::operations::writing;
use crate::seed::builder::WorldBuilder;
use crate::state::{
    AccountId, Issue, IssueComment, IssueState, IssueStateReason, LabelId, Milestone, PullHead, PullRequest,
    PullRequestMerge, PullRequestReview, RepositoryId,
};
use crate::time::SimulatedTime;

/// Adds milestones, then issues, then pull requests.
pub(super) fn add_issues_and_pulls(
    making: &mut WorldBuilder<'_>,
    id: RepositoryId,
    seed: &RepositorySeed,
    place: &str,
) -> Result<(), SeedError> {
    let owner = making.state.repository(id).map(|one| one.owner).unwrap_or_default();
    for milestone in &seed.milestones {
        let (at, milestone_id) = (making.advance_clock(milestone.at), making.state.next_id());
        let Some(repository) = making.state.repositories.get_mut(&id) else { continue };
        let number = repository.milestones.len() as u64 + 1;
        let made = Milestone {
            id: milestone_id,
            number,
            title: milestone.title.clone(),
            description: milestone.description.clone(),
            // A seed does not say who created a milestone.
            creator: owner,
            state: if milestone.closed { IssueState::Closed } else { IssueState::Open },
            due_on: milestone.due_on,
            created_at: at,
            updated_at: at,
            closed_at: milestone.closed.then_some(at),
        };
        repository.milestones.insert(number, made);
    }
    for (index, issue) in seed.issues.iter().enumerate() {
        add_issue(making, id, owner, issue, &format!("{place}.issues[{index}]"))?;
    }
    for (index, pull) in seed.pulls.iter().enumerate() {
        add_pull(making, id, owner, pull, &format!("{place}.pulls[{index}]"))?;
    }
    Ok(())
}

/// Returns `given` or the next free number. A number that is taken is an error.
fn choose_issue_number(
    making: &WorldBuilder<'_>,
    id: RepositoryId,
    given: Option<u64>,
    place: &str,
) -> Result<u64, SeedError> {
    let Some(repository) = making.state.repository(id) else {
        return Err(making.content_error(place, "the repository is gone"));
    };
    match given {
        Some(0) => Err(making.content_error(place, "numbers begin with 1")),
        Some(number) if repository.issues.contains_key(&number) => {
            Err(making.content_error(place, format!("number {number} is taken: issues and pull requests share them")))
        }
        Some(number) => Ok(number),
        None => Ok(repository.next_number()),
    }
}

fn find_account_ids(making: &WorldBuilder<'_>, names: &[String], place: &str) -> Result<Vec<AccountId>, SeedError> {
    names.iter().map(|name| making.find_account(name, place)).collect()
}

/// Finds labels by name. They must exist: unlike the API, a seed does not create missing ones, which are usually
/// typos.
fn find_label_ids(
    making: &WorldBuilder<'_>,
    id: RepositoryId,
    names: &[String],
    place: &str,
) -> Result<Vec<LabelId>, SeedError> {
    let repository = making.state.repository(id);
    let find = |name: &String| {
        let found = repository.and_then(|one| one.label_by_name(name)).map(|label| label.id);
        found.ok_or_else(|| making.content_error(place, format!("there is no label {name:?}; add it to labels")))
    };
    names.iter().map(find).collect()
}

/// Adds comments and returns the time of the last one.
fn add_comments(
    making: &mut WorldBuilder<'_>,
    id: RepositoryId,
    number: u64,
    seeds: &[CommentSeed],
    place: &str,
) -> Result<SimulatedTime, SeedError> {
    let mut last = making.state.now;
    for (index, seed) in seeds.iter().enumerate() {
        let author = making.find_account(&seed.author, &format!("{place}.comments[{index}]"))?;
        let (at, comment_id) = (making.advance_clock(seed.at), making.state.next_id());
        let made = IssueComment {
            id: comment_id,
            issue: number,
            author,
            body: seed.body.clone(),
            created_at: at,
            updated_at: at,
        };
        if let Some(repository) = making.state.repositories.get_mut(&id) {
            repository.comments.insert(comment_id, made);
        }
        last = at;
    }
    Ok(last)
}

/// Adds an issue with its comments, then closes it if the seed says so.
fn add_issue(
    making: &mut WorldBuilder<'_>,
    id: RepositoryId,
    owner: AccountId,
    seed: &IssueSeed,
    place: &str,
) -> Result<(), SeedError> {
    let number = choose_issue_number(making, id, seed.number, place)?;
    let author = seed.author.as_deref().map_or(Ok(owner), |name| making.find_account(name, place))?;
    let closed_by = seed.closed_by.as_deref().map_or(Ok(owner), |name| making.find_account(name, place))?;
    let (labels, assignees) =
        (find_label_ids(making, id, &seed.labels, place)?, find_account_ids(making, &seed.assignees, place)?);
    let milestone = match &seed.milestone {
        None => None,
        Some(title) => {
            let found =
                making.state.repository(id).and_then(|one| one.milestones.values().find(|one| one.title == *title));
            let found = found.map(|one| one.number);
            Some(found.ok_or_else(|| {
                making.content_error(place, format!("there is no milestone {title:?}; add it to milestones"))
            })?)
        }
    };
    let at = making.advance_clock(seed.at);
    let mut issue = Issue::new(making.state.next_id(), number, &seed.title, author, at);
    issue.body.clone_from(&seed.body);
    (issue.labels, issue.assignees, issue.milestone, issue.locked) = (labels, assignees, milestone, seed.locked);
    if let Some(repository) = making.state.repositories.get_mut(&id) {
        repository.issues.insert(number, issue);
    }
    let last = add_comments(making, id, number, &seed.comments, place)?;
    // `closed_as` alone closes the issue a minute after its last comment.
    let closed_at =
        (seed.closed_at.is_some() || seed.closed_as.is_some()).then(|| making.advance_clock(seed.closed_at));
    if let Some(issue) = making.state.repositories.get_mut(&id).and_then(|one| one.issues.get_mut(&number)) {
        // Comments update an issue.
        issue.updated_at = last.max(at);
        if let Some(closed_at) = closed_at {
            issue.close(closed_by, Some(seed.closed_as.unwrap_or(IssueStateReason::Completed)), closed_at);
        }
    }
    Ok(())
}

/// Adds a pull request with its reviews and comments, then merges or closes it.
fn add_pull(
    making: &mut WorldBuilder<'_>,
    id: RepositoryId,
    owner: AccountId,
    seed: &PullSeed,
    place: &str,
) -> Result<(), SeedError> {
    let number = choose_issue_number(making, id, seed.number, place)?;
    let author = seed.author.as_deref().map_or(Ok(owner), |name| making.find_account(name, place))?;
    let (labels, assignees) =
        (find_label_ids(making, id, &seed.labels, place)?, find_account_ids(making, &seed.assignees, place)?);
    let reviewers = find_account_ids(making, &seed.reviewers, place)?;
    let head = resolve_pull_head(making, id, &seed.head, place)?;
    let Some(repository) = making.state.repository(id) else {
        return Err(making.content_error(place, "the repository is gone"));
    };
    let base = seed.base.clone().unwrap_or_else(|| repository.default_branch.clone());
    // The branches must exist at this point: commits are applied before.
    let base_sha = repository
        .branch_head(&base)
        .ok_or_else(|| making.content_error(place, format!("there is no branch {base:?}")))?;
    let at = making.advance_clock(seed.at);
    let mut issue = Issue::new(making.state.next_id(), number, &seed.title, author, at);
    issue.body.clone_from(&seed.body);
    (issue.labels, issue.assignees) = (labels, assignees);
    let mut pull = PullRequest {
        id: making.state.next_id(),
        head,
        base,
        base_sha,
        draft: seed.draft,
        maintainer_can_modify: true,
        merged: None,
        requested_reviewers: reviewers,
        reviews: Vec::new(),
        review_comments: Vec::new(),
    };
    for (index, review) in seed.reviews.iter().enumerate() {
        let author = making.find_account(&review.author, &format!("{place}.reviews[{index}]"))?;
        let (at, review_id) = (making.advance_clock(review.at), making.state.next_id());
        // Reviews are about the head at the time of the seed, even if later seeds move the branch.
        let commit = pull.head.sha;
        pull.reviews.push(PullRequestReview {
            id: review_id,
            author,
            state: review.state,
            body: review.body.clone(),
            commit,
            submitted_at: Some(at),
        });
    }
    issue.pull = Some(Box::new(pull));
    issue.updated_at = making.state.now;
    if let Some(repository) = making.state.repositories.get_mut(&id) {
        repository.issues.insert(number, issue);
    }
    add_comments(making, id, number, &seed.comments, place)?;
    if seed.merged.is_some() {
        return merge_seeded_pull(making, id, owner, number, seed, place);
    }
    if seed.closed {
        making.advance_clock(None);
        writing::close_issue_or_pull(&mut making.state, id, number, owner, None);
    }
    Ok(())
}

/// Resolves a branch of this repository, or `owner:branch` of a fork in the same network.
fn resolve_pull_head(
    making: &WorldBuilder<'_>,
    id: RepositoryId,
    name: &str,
    place: &str,
) -> Result<PullHead, SeedError> {
    let state = &making.state;
    let Some(repository) = state.repository(id) else {
        return Err(making.content_error(place, "the repository is gone"));
    };
    let (from, branch) = match name.split_once(':') {
        None => (Some(repository), name),
        Some((owner, branch)) => {
            let of_owner = |one: &&crate::state::Repository| {
                one.network == repository.network && state.login(one.owner).eq_ignore_ascii_case(owner)
            };
            (state.repositories.values().find(of_owner), branch)
        }
    };
    let found = from.and_then(|from| Some((from, from.branch_head(branch)?)));
    let (from, sha) = found.ok_or_else(|| {
        making.content_error(place, format!("there is no branch {name:?}; commit something to it first"))
    })?;
    Ok(PullHead { repository: Some(from.id), owner: from.owner, branch: branch.to_owned(), sha })
}

/// Merges as the API would: the commit is by GitHub, the branch moves, and the pull request is closed.
fn merge_seeded_pull(
    making: &mut WorldBuilder<'_>,
    id: RepositoryId,
    owner: AccountId,
    number: u64,
    seed: &PullSeed,
    place: &str,
) -> Result<(), SeedError> {
    let Some(how) = &seed.merged else { return Ok(()) };
    let by = how.by.as_deref().map_or(Ok(owner), |name| making.find_account(name, place))?;
    let at = making.advance_clock(how.at);
    let (base, head, base_name, network) = find_merge_inputs(making, id, number)
        .ok_or_else(|| making.content_error(place, "there is nothing to merge"))?;
    let (author, committer) = (writing::account_signature(&making.state, by, at), writing::build_github_signature(at));
    // GitHub's form for squash merges; merge commits of seeds use it, too.
    let message = format!("{} (#{number})", seed.title);
    let origin = making.origin;
    let objects = making.state.networks.entry(network).or_default();
    let plan = merging::plan_merge(objects, base, head).map_err(|paths| SeedError::Content {
        origin: origin.to_owned(),
        line: None,
        place: place.to_owned(),
        reason: format!("it cannot be merged, there are conflicts in {}", paths.join(", ")),
    })?;
    // A rebase cannot be seeded.
    let commit = if how.squash {
        let tree = plan.write(objects);
        objects.insert(GitObject::Commit(GitCommit { tree, parents: vec![base], author, committer, message }))
    } else {
        merging::merge_commit(objects, plan, (base, head), (author, committer), message)
    };
    // Closed before the base branch moves, so that the stored base is the one before the merge.
    writing::close_issue_or_pull(&mut making.state, id, number, by, None);
    let issue = making.state.repositories.get_mut(&id).and_then(|one| one.issues.get_mut(&number));
    if let Some(pull) = issue.and_then(|issue| issue.pull.as_mut()) {
        pull.merged = Some(PullRequestMerge { at, by, commit });
    }
    writing::move_branch(&mut making.state, id, &base_name, commit);
    Ok(())
}

/// Returns base commit, head commit, name of the base branch, and network.
fn find_merge_inputs(
    making: &WorldBuilder<'_>,
    id: RepositoryId,
    number: u64,
) -> Option<(ObjectId, ObjectId, String, RepositoryId)> {
    let repository = making.state.repository(id)?;
    let issue = repository.issues.get(&number)?;
    let pull = issue.pull.as_ref()?;
    let (base, head) = (making.state.pull_base(repository, issue, pull), making.state.pull_head(issue, pull));
    Some((base, head, pull.base.clone(), repository.network))
}
