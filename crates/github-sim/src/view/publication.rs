//! Releases, gists, workflows and their runs.

use serde_json::{Map, Value, json};

use super::{ApiView, escape_path, escape_segment, node_id};
use crate::state::{Gist, Repository, RepositoryRelease, WorkflowRun};

/// A workflow, derived from its file.
#[derive(Clone, Debug)]
pub(crate) struct WorkflowFile {
    /// Stable: derived from repository and path.
    pub(crate) id: u64,
    /// The `name:` of the file, otherwise its path.
    pub(crate) name: String,
    pub(crate) path: String,
    /// Whether it can be dispatched by hand.
    pub(crate) has_dispatch: bool,
}

impl ApiView<'_> {
    /// Assets are always empty.
    pub(crate) fn render_release(&self, repository: &Repository, release: &RepositoryRelease) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let own = format!("{url}/releases/{}", release.id);
        let tag = escape_path(&release.tag_name);
        let mut object = json!({
            "url": own,
            "assets_url": format!("{own}/assets"),
            "upload_url": format!("{own}/assets{{?name,label}}"),
            "html_url": format!("{page}/releases/tag/{tag}"),
            "id": release.id,
            "author": self.render_simple_user(release.author),
            "node_id": node_id("Release", release.id),
            "tag_name": release.tag_name,
            "target_commitish": release.target_commitish,
            "name": release.name,
            "draft": release.draft,
            "prerelease": release.prerelease,
            "immutable": false,
            "created_at": release.created_at,
            "updated_at": release.published_at.unwrap_or(release.created_at),
            "published_at": release.published_at,
            "assets": [],
            "tarball_url": format!("{url}/tarball/{tag}"),
            "zipball_url": format!("{url}/zipball/{tag}"),
        });
        self.add_body_fields(&mut object, release.body.as_deref());
        object
    }

    /// `with_content` adds contents and a history of one revision, as for a single gist; lists omit them.
    pub(crate) fn render_gist(&self, gist: &Gist, with_content: bool) -> Value {
        let url = format!("{}/gists/{}", self.base, gist.id);
        let page = format!("{}/gist/{}", self.site_url(), gist.id);
        let mut files = Map::new();
        for (name, content) in &gist.files {
            let mut file = json!({
                "filename": name,
                "type": "text/plain",
                "language": if name.ends_with(".md") { "Markdown" } else { "Text" },
                "raw_url": format!("{page}/raw/{}", escape_segment(name)),
                "size": content.len(),
            });
            if with_content {
                super::extend_json_object(
                    &mut file,
                    json!({"truncated": false, "content": content, "encoding": "utf-8"}),
                );
            }
            files.insert(name.clone(), file);
        }
        let mut object = json!({
            "url": url,
            "forks_url": format!("{url}/forks"),
            "commits_url": format!("{url}/commits"),
            "id": gist.id,
            "node_id": node_id("Gist", &gist.id),
            "git_pull_url": format!("{page}.git"),
            "git_push_url": format!("{page}.git"),
            "html_url": page,
            "files": files,
            "public": gist.public,
            "created_at": gist.created_at,
            "updated_at": gist.updated_at,
            "description": gist.description,
            "comments": 0,
            "comments_enabled": true,
            "user": null,
            "comments_url": format!("{url}/comments"),
            "owner": self.render_simple_user(gist.owner),
            "truncated": false,
        });
        if with_content {
            // Instead of a commit id; it changes with every update.
            let version = blake3::hash(format!("{} {}", gist.id, gist.updated_at).as_bytes()).to_hex()[..40].to_owned();
            let lines: usize = gist.files.values().map(|content| content.lines().count()).sum();
            let change = json!({
                "user": self.render_simple_user(gist.owner),
                "url": format!("{url}/{version}"),
                "version": version,
                "committed_at": gist.updated_at,
                "change_status": {"total": lines, "additions": lines, "deletions": 0},
            });
            super::extend_json_object(&mut object, json!({"forks": [], "history": [change]}));
        }
        object
    }

    /// Workflows are always active.
    pub(crate) fn render_workflow(&self, repository: &Repository, workflow: &WorkflowFile) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let path = escape_path(&workflow.path);
        json!({
            "id": workflow.id,
            "node_id": node_id("Workflow", workflow.id),
            "name": workflow.name,
            "path": workflow.path,
            "state": "active",
            "created_at": repository.created_at,
            "updated_at": repository.pushed_at,
            "url": format!("{url}/actions/workflows/{}", workflow.id),
            "html_url": format!("{page}/blob/{}/{path}", escape_path(&repository.default_branch)),
            "badge_url": format!("{page}/workflows/{}/badge.svg", escape_segment(&workflow.name)),
        })
    }

    /// `workflow` is `None` if the file no longer exists.
    pub(crate) fn render_workflow_run(
        &self,
        repository: &Repository,
        run: &WorkflowRun,
        workflow: Option<&WorkflowFile>,
    ) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let own = format!("{url}/actions/runs/{}", run.id);
        let commit = self.state.objects(repository).commit(run.commit);
        let message = commit.map(|commit| commit.message.clone()).unwrap_or_default();
        let person = |who: Option<&crate::git::CommitSignature>| match who {
            Some(who) => json!({"name": who.name, "email": who.email}),
            None => Value::Null,
        };
        // 0 for a run whose workflow file is gone.
        let workflow_id = workflow.map_or(0, |workflow| workflow.id);
        let mut object = json!({
            "id": run.id,
            "name": workflow.map(|workflow| workflow.name.clone()),
            "node_id": node_id("WorkflowRun", run.id),
            "head_branch": run.branch,
            "head_sha": run.commit,
            "path": run.path,
            "display_title": message.lines().next().unwrap_or_default(),
            "run_number": run.number,
            // Re-runs are not simulated.
            "run_attempt": 1,
            "event": run.event,
            "status": run.status,
            "conclusion": run.conclusion,
            "workflow_id": workflow_id,
            "check_suite_id": run.id,
            "check_suite_node_id": node_id("CheckSuite", run.id),
            "url": own,
            "html_url": format!("{page}/actions/runs/{}", run.id),
            "pull_requests": [],
            "created_at": run.created_at,
            "updated_at": run.updated_at,
            "actor": self.render_simple_user(run.actor),
            "triggering_actor": self.render_simple_user(run.actor),
            "run_started_at": run.created_at,
        });
        super::extend_json_object(
            &mut object,
            json!({
                "jobs_url": format!("{own}/jobs"),
                "logs_url": format!("{own}/logs"),
                "check_suite_url": format!("{url}/check-suites/{}", run.id),
                "artifacts_url": format!("{own}/artifacts"),
                "cancel_url": format!("{own}/cancel"),
                "rerun_url": format!("{own}/rerun"),
                "previous_attempt_url": null,
                "workflow_url": format!("{url}/actions/workflows/{workflow_id}"),
                "head_commit": {
                    "id": run.commit,
                    "tree_id": commit.map(|commit| commit.tree),
                    "message": message,
                    "timestamp": commit.map(|commit| crate::time::SimulatedTime(commit.committer.at)),
                    "author": person(commit.map(|commit| &commit.author)),
                    "committer": person(commit.map(|commit| &commit.committer)),
                },
                "repository": self.render_repository(repository),
                "head_repository": self.render_repository(repository),
                "referenced_workflows": [],
            }),
        );
        object
    }
}
