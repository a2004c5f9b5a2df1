//! An inventory: all resources of a state by path, each as a JSON object. Task verifiers read it, and differences are
//! expressed in it. Modification times are omitted, since they change with everything nearby.
//!
//! ```text
//! accounts/LOGIN                                  repos/O/N/issues/NUMBER
//! stars/LOGIN/O/N                                 repos/O/N/issues/NUMBER/comments/ID
//! gists/ID                                        repos/O/N/pulls/NUMBER
//! repos/O/N                                       repos/O/N/pulls/NUMBER/reviews/ID
//! repos/O/N/collaborators/LOGIN                   repos/O/N/pulls/NUMBER/comments/ID
//! repos/O/N/protection/BRANCH                     repos/O/N/branches/NAME
//! repos/O/N/labels/NAME                           repos/O/N/tags/NAME
//! repos/O/N/milestones/NUMBER                     repos/O/N/commits/SHA
//! repos/O/N/releases/TAG                          repos/O/N/files/BRANCH:PATH
//! repos/O/N/statuses/SHA/CONTEXT
//! repos/O/N/runs/ID
//! ```
//!
//! A pull request appears twice: as an issue, with title, labels and state, and below `pulls`, with its branches and
//! reviews. Accounts appear as logins and labels as names, so that verifiers need no ids.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::git::{GitObjectStore, collect_ancestors, list_tree_files};
use super::state::{AccountId, Issue, LabelId, Repository, WorldState};

/// Resources by path: `repos/octo/demo/issues/5`. Paths are part of the task format.
pub type WorldInventory = BTreeMap<String, Value>;

/// Collects all resources. The cost grows with the whole world, so it is for verification and not for requests.
pub fn take_inventory(state: &WorldState) -> WorldInventory {
    let mut found = WorldInventory::new();
    for account in state.accounts.values() {
        let members: BTreeMap<&str, _> = account.members.iter().map(|(id, right)| (state.login(*id), right)).collect();
        found.insert(
            format!("accounts/{}", account.login),
            json!({"kind": account.kind, "name": account.name, "email": account.email, "members": members}),
        );
        for repository in account.starred.keys().filter_map(|id| state.repository(*id)) {
            found.insert(format!("stars/{}/{}", account.login, state.full_name(repository)), json!({}));
        }
    }
    for gist in state.gists.values() {
        found.insert(
            format!("gists/{}", gist.id),
            json!({"owner": state.login(gist.owner), "public": gist.public, "description": gist.description, "files": gist.files}),
        );
    }
    for repository in state.repositories.values() {
        add_repository(state, repository, &mut found);
    }
    found
}

/// Adds a repository with its settings, labels, issues, releases and git content.
fn add_repository(state: &WorldState, repository: &Repository, found: &mut WorldInventory) {
    let path = format!("repos/{}", state.full_name(repository));
    let parent = repository.fork_of.and_then(|id| state.repository(id)).map(|one| state.full_name(one));
    found.insert(
        path.clone(),
        json!({
            "id": repository.id,
            "description": repository.description,
            "homepage": repository.homepage,
            "topics": repository.topics,
            "private": repository.private,
            "archived": repository.archived,
            "default_branch": repository.default_branch,
            "has_issues": repository.has_issues,
            "has_wiki": repository.has_wiki,
            "has_projects": repository.has_projects,
            "fork_of": parent,
            "created_at": repository.created_at,
        }),
    );
    for (account, right) in &repository.collaborators {
        found.insert(format!("{path}/collaborators/{}", state.login(*account)), json!({"permission": right}));
    }
    for (branch, rule) in &repository.protection {
        found.insert(format!("{path}/protection/{branch}"), json!(rule));
    }
    for label in repository.labels.values() {
        let value = json!({"id": label.id, "name": label.name, "color": label.color, "description": label.description});
        found.insert(format!("{path}/labels/{}", label.name), value);
    }
    for one in repository.milestones.values() {
        let value =
            json!({"title": one.title, "description": one.description, "state": one.state, "due_on": one.due_on});
        found.insert(format!("{path}/milestones/{}", one.number), value);
    }
    for release in repository.releases.values() {
        found.insert(
            format!("{path}/releases/{}", release.tag_name),
            json!({
                "name": release.name, "body": release.body, "draft": release.draft, "prerelease": release.prerelease,
                "target_commitish": release.target_commitish, "author": state.login(release.author),
            }),
        );
    }
    for status in &repository.statuses {
        let value =
            json!({"state": status.state, "description": status.description, "creator": state.login(status.creator)});
        found.insert(format!("{path}/statuses/{}/{}", status.commit, status.context), value);
    }
    for run in repository.runs.values() {
        let value = json!({"path": run.path, "branch": run.branch, "commit": run.commit, "event": run.event, "status": run.status, "conclusion": run.conclusion});
        found.insert(format!("{path}/runs/{}", run.id), value);
    }
    for issue in repository.issues.values() {
        add_issue(state, repository, issue, &path, found);
    }
    for comment in repository.comments.values() {
        let value =
            json!({"author": state.login(comment.author), "body": comment.body, "created_at": comment.created_at});
        found.insert(format!("{path}/issues/{}/comments/{}", comment.issue, comment.id), value);
    }
    add_git(state.objects(repository), repository, &path, found);
}

/// Adds an issue; a pull request additionally appears below `pulls/`.
fn add_issue(state: &WorldState, repository: &Repository, issue: &Issue, path: &str, found: &mut WorldInventory) {
    let logins = |ids: &[AccountId]| ids.iter().map(|id| state.login(*id)).collect::<Vec<_>>();
    let names = |ids: &[LabelId]| {
        ids.iter().filter_map(|id| Some(repository.labels.get(id)?.name.as_str())).collect::<Vec<_>>()
    };
    let path_of_issue = format!("{path}/issues/{}", issue.number);
    found.insert(
        path_of_issue,
        json!({
            "is_pull": issue.pull.is_some(),
            "title": issue.title,
            "body": issue.body,
            "author": state.login(issue.author),
            "labels": names(&issue.labels),
            "assignees": logins(&issue.assignees),
            "milestone": issue.milestone,
            "state": issue.state,
            "state_reason": issue.state_reason,
            "locked": issue.locked,
            "created_at": issue.created_at,
            "closed_at": issue.closed_at,
            "closed_by": issue.closed_by.map(|id| state.login(id)),
        }),
    );
    let Some(pull) = &issue.pull else { return };
    let path = format!("{path}/pulls/{}", issue.number);
    found.insert(
        path.clone(),
        json!({
            "head": format!("{}:{}", state.login(pull.head.owner), pull.head.branch),
            "head_sha": state.pull_head(issue, pull),
            "base": pull.base,
            "draft": pull.draft,
            "merged": pull.merged.as_ref().map(|merged| json!({"by": state.login(merged.by), "commit": merged.commit})),
            "requested_reviewers": logins(&pull.requested_reviewers),
        }),
    );
    for review in &pull.reviews {
        let value = json!({"author": state.login(review.author), "state": review.state, "body": review.body, "commit": review.commit});
        found.insert(format!("{path}/reviews/{}", review.id), value);
    }
    for comment in &pull.review_comments {
        let value = json!({"author": state.login(comment.author), "path": comment.path, "line": comment.line, "body": comment.body});
        found.insert(format!("{path}/comments/{}", comment.id), value);
    }
}

/// Adds references, the commits that can be reached from them, and the files of each branch. Unreachable objects are
/// invisible on GitHub and do not count.
fn add_git(objects: &GitObjectStore, repository: &Repository, path: &str, found: &mut WorldInventory) {
    let mut reachable = BTreeSet::new();
    for (name, id) in &repository.refs {
        reachable.extend(collect_ancestors(objects, *id));
        let kind = if name.starts_with("refs/tags/") { "tags" } else { "branches" };
        let short = name.trim_start_matches("refs/heads/").trim_start_matches("refs/tags/");
        found.insert(format!("{path}/{kind}/{short}"), json!({"sha": id}));
    }
    for id in reachable {
        let Some(commit) = objects.commit(id) else { continue };
        found.insert(
            format!("{path}/commits/{id}"),
            json!({
                "message": commit.message, "parents": commit.parents, "tree": commit.tree,
                "author": commit.author, "committer": commit.committer,
            }),
        );
    }
    for (branch, head) in repository.branches() {
        let Some(commit) = objects.commit(head) else { continue };
        for (file, leaf) in list_tree_files(objects, commit.tree) {
            found.insert(format!("{path}/files/{branch}:{file}"), json!({"sha": leaf.id, "mode": leaf.mode}));
        }
    }
}
