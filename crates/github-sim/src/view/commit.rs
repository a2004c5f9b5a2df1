//! Commits, references, branches and file changes.

use serde_json::{Value, json};

use super::{ApiView, escape_path, node_id};
use crate::git::{CommitSignature, EMPTY_TREE, FileChange, GitCommit, ObjectId, diff_trees};
use crate::state::{CommitStatus, Repository};
use crate::time::SimulatedTime;

/// How much of a commit is rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitParts {
    /// As in lists.
    Head,
    /// With statistics and changed files.
    Files,
}

/// Renders the git identity, without an account.
fn render_commit_person(signature: &CommitSignature) -> Value {
    json!({"name": signature.name, "email": signature.email, "date": SimulatedTime(signature.at)})
}

/// Renders the verification of an unsigned commit, as all are.
fn render_unsigned_verification() -> Value {
    json!({"verified": false, "reason": "unsigned", "signature": null, "payload": null, "verified_at": null})
}

impl ApiView<'_> {
    /// Renders the account whose email address the commit carries; null if there is none.
    pub(crate) fn render_commit_user(&self, signature: &CommitSignature) -> Value {
        let found = self.state.accounts.values().find(|one| one.commit_email().eq_ignore_ascii_case(&signature.email));
        found.map_or(Value::Null, |account| self.render_simple_account(account))
    }

    /// Renders the form of the `repos` endpoints. At most 300 files; null for an unknown commit.
    pub(crate) fn render_commit(&self, repository: &Repository, id: ObjectId, parts: CommitParts) -> Value {
        let objects = self.state.objects(repository);
        let Some(commit) = objects.commit(id) else { return Value::Null };
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let parents: Vec<Value> = commit
            .parents
            .iter()
            .map(|parent| {
                json!({"sha": parent, "url": format!("{url}/commits/{parent}"), "html_url": format!("{page}/commit/{parent}")})
            })
            .collect();
        let comments_url = format!("{url}/commits/{id}/comments");
        let mut object = json!({
            "sha": id,
            "node_id": node_id("Commit", id),
            "commit": {
                "author": render_commit_person(&commit.author),
                "committer": render_commit_person(&commit.committer),
                "message": commit.message,
                "tree": {"sha": commit.tree, "url": format!("{url}/git/trees/{}", commit.tree)},
                "url": format!("{url}/git/commits/{id}"),
                "comment_count": 0,
                "verification": render_unsigned_verification(),
            },
            "url": format!("{url}/commits/{id}"),
            "html_url": format!("{page}/commit/{id}"),
            "comments_url": comments_url,
            "author": self.render_commit_user(&commit.author),
            "committer": self.render_commit_user(&commit.committer),
            "parents": parents,
        });
        if parts == CommitParts::Files {
            let changes = self.commit_changes(repository, commit);
            let additions: usize = changes.iter().map(|change| change.additions).sum();
            let deletions: usize = changes.iter().map(|change| change.deletions).sum();
            object["stats"] = json!({"total": additions + deletions, "additions": additions, "deletions": deletions});
            // GitHub's limit per page; further files cannot be requested here.
            let files = changes.iter().take(300).map(|change| self.render_file_change(repository, id, change));
            object["files"] = Value::Array(files.collect());
        }
        object
    }

    /// Changes against the first parent, also for merges.
    pub(crate) fn commit_changes(&self, repository: &Repository, commit: &GitCommit) -> Vec<FileChange> {
        let objects = self.state.objects(repository);
        let parent = commit.parents.first().and_then(|parent| objects.commit(*parent));
        diff_trees(objects, parent.map_or(EMPTY_TREE, |parent| parent.tree), commit.tree)
    }

    /// Renders a changed file. `patch` is absent for binary files.
    pub(crate) fn render_file_change(&self, repository: &Repository, at: ObjectId, change: &FileChange) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let path = escape_path(&change.path);
        let mut object = json!({
            "sha": change.id,
            "filename": change.path,
            "status": change.kind.name(),
            "additions": change.additions,
            "deletions": change.deletions,
            "changes": change.additions + change.deletions,
            "blob_url": format!("{page}/blob/{at}/{path}"),
            "raw_url": format!("{page}/raw/{at}/{path}"),
            "contents_url": format!("{url}/contents/{path}?ref={at}"),
        });
        if let Some(patch) = &change.patch {
            object["patch"] = json!(patch);
        }
        if let Some(previous) = &change.previous_path {
            object["previous_filename"] = json!(previous);
        }
        object
    }

    /// Renders the form of the `git` endpoints, which have no accounts and no files.
    pub(crate) fn render_git_commit(&self, repository: &Repository, id: ObjectId) -> Value {
        let Some(commit) = self.state.objects(repository).commit(id) else { return Value::Null };
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let parents: Vec<Value> = commit
            .parents
            .iter()
            .map(|parent| {
                json!({"sha": parent, "url": format!("{url}/git/commits/{parent}"), "html_url": format!("{page}/commit/{parent}")})
            })
            .collect();
        json!({
            "sha": id,
            "node_id": node_id("Commit", id),
            "url": format!("{url}/git/commits/{id}"),
            "html_url": format!("{page}/commit/{id}"),
            "author": render_commit_person(&commit.author),
            "committer": render_commit_person(&commit.committer),
            "tree": {"sha": commit.tree, "url": format!("{url}/git/trees/{}", commit.tree)},
            "message": commit.message,
            "parents": parents,
            "verification": render_unsigned_verification(),
        })
    }

    /// Renders a reference with the type of its object.
    pub(crate) fn render_git_ref(&self, repository: &Repository, name: &str, id: ObjectId) -> Value {
        let url = self.repository_url(repository);
        let kind = self.state.objects(repository).get(id).map_or("commit", |object| object.kind());
        json!({
            "ref": name,
            "node_id": node_id("Ref", format!("{}:{name}", repository.id.0)),
            "url": format!("{url}/git/{}", escape_path(name)),
            "object": {"sha": id, "type": kind, "url": format!("{url}/git/{kind}s/{id}")},
        })
    }

    /// Renders the form in lists.
    pub(crate) fn render_short_branch(&self, repository: &Repository, name: &str, id: ObjectId) -> Value {
        let url = self.repository_url(repository);
        json!({
            "name": name,
            "commit": {"sha": id, "url": format!("{url}/commits/{id}")},
            "protected": repository.protection.contains_key(name),
        })
    }

    /// Renders a branch with the head commit and a summary of the protection.
    pub(crate) fn render_branch(&self, repository: &Repository, name: &str, id: ObjectId) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let branch_url = format!("{url}/branches/{}", escape_path(name));
        let rule = repository.protection.get(name);
        let checks = rule.map(|rule| rule.required_checks.clone()).unwrap_or_default();
        json!({
            "name": name,
            "commit": self.render_commit(repository, id, CommitParts::Head),
            "_links": {"self": branch_url, "html": format!("{page}/tree/{}", escape_path(name))},
            "protected": rule.is_some(),
            "protection": {
                "enabled": rule.is_some(),
                "required_status_checks": {
                    "enforcement_level": if checks.is_empty() { "off" } else { "everyone" },
                    "contexts": checks,
                    "checks": [],
                },
            },
            "protection_url": format!("{branch_url}/protection"),
        })
    }

    /// Archive URLs are not simulated.
    pub(crate) fn render_tag(&self, repository: &Repository, name: &str, id: ObjectId) -> Value {
        let url = self.repository_url(repository);
        let name_in_url = escape_path(name);
        json!({
            "name": name,
            "zipball_url": format!("{url}/zipball/refs/tags/{name_in_url}"),
            "tarball_url": format!("{url}/tarball/refs/tags/{name_in_url}"),
            "commit": {"sha": id, "url": format!("{url}/commits/{id}")},
            "node_id": node_id("Ref", format!("{}:refs/tags/{name}", repository.id.0)),
        })
    }

    /// Renders a commit status.
    pub(crate) fn render_commit_status(&self, repository: &Repository, status: &CommitStatus) -> Value {
        let avatar = self.render_simple_user(status.creator)["avatar_url"].clone();
        json!({
            "url": format!("{}/statuses/{}", self.repository_url(repository), status.commit),
            "avatar_url": avatar,
            "id": status.id,
            "node_id": node_id("StatusContext", status.id),
            "state": status.state.name(),
            "description": status.description,
            "target_url": status.target_url,
            "context": status.context,
            "created_at": status.created_at,
            "updated_at": status.created_at,
            "creator": self.render_simple_user(status.creator),
        })
    }
}
