//! Comparison of two commits, and the text formats of diffs.

use serde_json::{Value, json};

use super::writing;
use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{
    ChangeKind, EMPTY_TREE, FileChange, GitCommit, ObjectId, collect_ancestors, count_ahead_behind, diff_trees,
    merge_base, walk_history,
};
use crate::http::{AcceptedMediaType, RequestMethod::Get};
use crate::page::RequestedPage;
use crate::route::{OperationRoute, define_route};
use crate::state::RepositoryId;
use crate::time::SimulatedTime;
use crate::view::CommitParts;

/// `BASE...HEAD` with three dots only; names may contain slashes.
pub(super) const ROUTES: &[OperationRoute] = &[define_route(
    Get,
    "/repos/{owner}/{repo}/compare/{basehead*}",
    "repos/compare-commits-with-basehead",
    "commits/commits#compare-two-commits",
    compare_commits,
)];

/// Resolves `branch`, or `owner:branch` of a visible fork in the same network.
fn find_compared_commit(call: &OperationCall<'_>, id: RepositoryId, name: &str) -> Result<ObjectId, OperationError> {
    let repository = call.repo(id)?;
    if let Some((owner, branch)) = name.split_once(':') {
        let network = repository.network;
        let of_owner = call.state.repositories.values().find(|one| {
            one.network == network
                && call.state.login(one.owner).eq_ignore_ascii_case(owner)
                && access::can_see(call.state, call.actor.as_ref(), one)
        });
        return of_owner
            .and_then(|one| writing::find_commit(call.state, one, branch))
            .ok_or_else(OperationError::not_found);
    }
    writing::find_commit(call.state, repository, name).ok_or_else(OperationError::not_found)
}

/// Commits of the head that the base lacks, oldest first, and the files that changed since the merge base. 404 without
/// a common ancestor. Supports the diff and patch media types.
fn compare_commits(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let basehead = call.path_argument("basehead");
    let (base_name, head_name) = basehead.split_once("...").ok_or_else(OperationError::not_found)?;
    let (base, head) = (find_compared_commit(call, id, base_name)?, find_compared_commit(call, id, head_name)?);
    let (repository, objects) = (call.repo(id)?, call.objects(id)?);
    // Three dots: changes of the head since it left the base, without what happened on the base.
    let common = merge_base(objects, base, head)
        .ok_or_else(|| OperationError::new(404, format!("No common ancestor between {base_name} and {head_name}.")))?;
    let tree = |id: ObjectId| objects.commit(id).map_or(EMPTY_TREE, |commit| commit.tree);
    let files = diff_trees(objects, tree(common), tree(head));
    let mut commits = walk_history(objects, head, &collect_ancestors(objects, base));
    commits.reverse();
    match call.media {
        AcceptedMediaType::Diff => {
            return Ok(OperationReply::from_bytes(
                "application/vnd.github.diff; charset=utf-8",
                format_git_diff(&files).into_bytes(),
            ));
        }
        AcceptedMediaType::Patch => {
            let view = call.view();
            let mails = commits.iter().filter_map(|id| {
                let commit = objects.commit(*id)?;
                Some(format_patch_mail(*id, commit, &view.commit_changes(repository, commit)))
            });
            return Ok(OperationReply::from_bytes(
                "application/vnd.github.patch; charset=utf-8",
                mails.collect::<String>().into_bytes(),
            ));
        }
        _ => {}
    }
    let (ahead, behind) = count_ahead_behind(objects, base, head);
    // GitHub's four states of two branches.
    let status = match (ahead, behind) {
        (0, 0) => "identical",
        (_, 0) => "ahead",
        (0, _) => "behind",
        _ => "diverged",
    };
    let view = call.view();
    let (url, page_url) = (view.repository_url(repository), view.repository_page(repository));
    // Without paging parameters, GitHub returns up to 250 commits.
    let page = if call.query.has("page") || call.query.has("per_page") {
        RequestedPage::from_query(&call.query)
    } else {
        RequestedPage { per_page: 250, number: 1 }
    };
    let shown: Vec<Value> =
        page.slice_items(&commits).iter().map(|id| view.render_commit(repository, *id, CommitParts::Head)).collect();
    // Files come only with the first page, at most 300.
    let files: Vec<Value> = if page.number == 1 {
        files.iter().take(300).map(|change| view.render_file_change(repository, head, change)).collect()
    } else {
        Vec::new()
    };
    let compare_page = format!("{page_url}/compare/{}", super::super::view::escape_path(basehead));
    Ok(OperationReply::ok(json!({
        "url": format!("{url}/compare/{}", super::super::view::escape_path(basehead)),
        "html_url": compare_page,
        "permalink_url": format!("{page_url}/compare/{}...{}", base.short_hex(), head.short_hex()),
        "diff_url": format!("{compare_page}.diff"),
        "patch_url": format!("{compare_page}.patch"),
        "base_commit": view.render_commit(repository, base, CommitParts::Head),
        "merge_base_commit": view.render_commit(repository, common, CommitParts::Head),
        "status": status,
        "ahead_by": ahead,
        "behind_by": behind,
        "total_commits": commits.len(),
        "commits": shown,
        "files": files,
    })))
}

/// Formats changes as `git diff` does. Modes of new files are always 100644, and index lines are omitted.
pub(super) fn format_git_diff(changes: &[FileChange]) -> String {
    let mut text = String::new();
    for change in changes {
        let old = change.previous_path.as_ref().unwrap_or(&change.path);
        text.push_str(&format!("diff --git a/{old} b/{}\n", change.path));
        match change.kind {
            ChangeKind::Added => text.push_str("new file mode 100644\n"),
            ChangeKind::Removed => text.push_str("deleted file mode 100644\n"),
            ChangeKind::Renamed => text.push_str(&format!("rename from {old}\nrename to {}\n", change.path)),
            ChangeKind::Modified => {}
        }
        let Some(patch) = &change.patch else { continue };
        let (from, to) = (format!("a/{old}"), format!("b/{}", change.path));
        let from = if change.kind == ChangeKind::Added { "/dev/null" } else { &from };
        let to = if change.kind == ChangeKind::Removed { "/dev/null" } else { &to };
        text.push_str(&format!("--- {from}\n+++ {to}\n{patch}\n"));
    }
    text
}

/// Formats a commit as `git format-patch` does, including the fixed date in the first line.
pub(super) fn format_patch_mail(id: ObjectId, commit: &GitCommit, changes: &[FileChange]) -> String {
    let body = commit.message.split_once('\n').map_or("", |(_, body)| body.trim());
    let body = if body.is_empty() { String::new() } else { format!("{body}\n") };
    format!(
        "From {id} Mon Sep 17 00:00:00 2001\nFrom: {} <{}>\nDate: {}\nSubject: [PATCH] {}\n\n{body}---\n\n{}\n",
        commit.author.name,
        commit.author.email,
        SimulatedTime(commit.author.at).to_http_date().replace("GMT", "+0000"),
        commit.subject(),
        format_git_diff(changes)
    )
}
