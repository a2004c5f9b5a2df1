//! Pull requests, reviews and review comments.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{ApiView, extend_json_object, node_id};
use crate::git::{EMPTY_TREE, ObjectId, collect_ancestors, diff_trees, merge_base, walk_history};
use crate::merging;
use crate::state::{Issue, PullRequest, PullRequestReview, Repository, ReviewComment};

impl ApiView<'_> {
    /// Renders the form in lists, without mergeability and counts, which are expensive.
    pub(crate) fn render_simple_pull(&self, repository: &Repository, issue: &Issue, pull: &PullRequest) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let number = issue.number;
        let (own, html, as_issue) =
            (format!("{url}/pulls/{number}"), format!("{page}/pull/{number}"), format!("{url}/issues/{number}"));
        // Computed: an open pull request follows its branches.
        let head = self.state.pull_head(issue, pull);
        let base = self.state.pull_base(repository, issue, pull);
        let link = |href: String| json!({"href": href});
        let mut object = json!({
            "url": own,
            "id": pull.id,
            "node_id": node_id("PullRequest", pull.id),
            "html_url": html,
            "diff_url": format!("{html}.diff"),
            "patch_url": format!("{html}.patch"),
            "issue_url": as_issue,
            "number": number,
            "state": issue.state.name(),
            "locked": issue.locked,
            "title": issue.title,
            "user": self.render_simple_user(issue.author),
            "created_at": issue.created_at,
            "updated_at": issue.updated_at,
            "closed_at": issue.closed_at,
            "merged_at": pull.merged.as_ref().map(|merged| merged.at),
            "merge_commit_sha": pull.merged.as_ref().map(|merged| merged.commit),
            "assignee": issue.assignees.first().map_or(Value::Null, |id| self.render_simple_user(*id)),
            "assignees": self.render_simple_users(&issue.assignees),
        });
        extend_json_object(
            &mut object,
            json!({
                "requested_reviewers": self.render_simple_users(&pull.requested_reviewers),
                "requested_teams": [],
                "labels": self.render_labels(repository, &issue.labels),
                "milestone": self.render_issue_milestone(repository, issue),
                "draft": pull.draft,
                "commits_url": format!("{own}/commits"),
                "review_comments_url": format!("{own}/comments"),
                "review_comment_url": format!("{url}/pulls/comments{{/number}}"),
                "comments_url": format!("{as_issue}/comments"),
                "statuses_url": format!("{url}/statuses/{head}"),
                "head": self.render_branch_end(pull.head.repository.and_then(|id| self.state.repository(id)), pull.head.owner, &pull.head.branch, head),
                "base": self.render_branch_end(Some(repository), repository.owner, &pull.base, base),
                "_links": {
                    "self": link(own.clone()),
                    "html": link(html.clone()),
                    "issue": link(as_issue.clone()),
                    "comments": link(format!("{as_issue}/comments")),
                    "review_comments": link(format!("{own}/comments")),
                    "review_comment": link(format!("{url}/pulls/comments{{/number}}")),
                    "commits": link(format!("{own}/commits")),
                    "statuses": link(format!("{url}/statuses/{head}")),
                },
                "author_association": self.author_association(repository, issue.author),
                "auto_merge": null,
                "active_lock_reason": issue.lock_reason,
            }),
        );
        self.add_body_fields(&mut object, issue.body.as_deref());
        object
    }

    /// Renders `head` or `base`. The repository is null for a deleted fork.
    fn render_branch_end(
        &self,
        repository: Option<&Repository>,
        owner: crate::state::AccountId,
        branch: &str,
        sha: ObjectId,
    ) -> Value {
        json!({
            "label": format!("{}:{branch}", self.state.login(owner)),
            "ref": branch,
            "sha": sha,
            "user": self.render_simple_user(owner),
            "repo": repository.map(|repository| self.render_repository(repository)),
        })
    }

    /// The full form. `computed` is false right after a change: GitHub computes mergeability in the background, and
    /// clients must poll for it.
    pub(crate) fn render_full_pull(
        &self,
        repository: &Repository,
        issue: &Issue,
        pull: &PullRequest,
        computed: bool,
    ) -> Value {
        let mut object = self.render_simple_pull(repository, issue, pull);
        let changes = self.pull_changes(repository, issue, pull);
        let (mergeable, state) = merging::assess_mergeability(self.state, repository, issue, pull);
        // Null until GitHub's background job has run, which is after the response to a change.
        let mergeable = if computed { mergeable } else { None };
        extend_json_object(
            &mut object,
            json!({
                "merged": pull.merged.is_some(),
                "mergeable": mergeable,
                // GitHub computes both separately; here a merge without conflicts counts as rebaseable.
                "rebaseable": mergeable,
                "mergeable_state": if computed { state } else { "unknown" },
                "merged_by": pull.merged.as_ref().map(|merged| self.render_simple_user(merged.by)),
                "comments": repository.list_comments(issue.number).count(),
                "review_comments": pull.review_comments.len(),
                "maintainer_can_modify": pull.maintainer_can_modify,
                "commits": self.pull_commits(repository, issue, pull).len(),
                "additions": changes.iter().map(|change| change.additions).sum::<usize>(),
                "deletions": changes.iter().map(|change| change.deletions).sum::<usize>(),
                "changed_files": changes.len(),
            }),
        );
        object
    }

    /// Returns the merge base, where the changes of a pull request begin.
    fn pull_merge_base(&self, repository: &Repository, issue: &Issue, pull: &PullRequest) -> Option<ObjectId> {
        let base = self.state.pull_base(repository, issue, pull);
        merge_base(self.state.objects(repository), base, self.state.pull_head(issue, pull))
    }

    /// Returns the three-dot diff: changes of the head since the merge base.
    pub(crate) fn pull_changes(
        &self,
        repository: &Repository,
        issue: &Issue,
        pull: &PullRequest,
    ) -> Vec<crate::git::FileChange> {
        let objects = self.state.objects(repository);
        let start = self.pull_merge_base(repository, issue, pull).and_then(|id| objects.commit(id));
        let Some(head) = objects.commit(self.state.pull_head(issue, pull)) else { return Vec::new() };
        diff_trees(objects, start.map_or(EMPTY_TREE, |start| start.tree), head.tree)
    }

    /// Commits that the base lacks, oldest first; at most 250, GitHub's limit.
    pub(crate) fn pull_commits(&self, repository: &Repository, issue: &Issue, pull: &PullRequest) -> Vec<ObjectId> {
        let objects = self.state.objects(repository);
        let base = self.state.pull_base(repository, issue, pull);
        let hidden: BTreeSet<ObjectId> = collect_ancestors(objects, base);
        let mut commits = walk_history(objects, self.state.pull_head(issue, pull), &hidden);
        commits.reverse();
        commits.truncate(250);
        commits
    }

    /// A pending review has no `submitted_at`.
    pub(crate) fn render_pull_review(
        &self,
        repository: &Repository,
        issue: &Issue,
        review: &PullRequestReview,
    ) -> Value {
        let own = format!("{}/pulls/{}", self.repository_url(repository), issue.number);
        let html =
            format!("{}/pull/{}#pullrequestreview-{}", self.repository_page(repository), issue.number, review.id);
        let mut object = json!({
            "id": review.id,
            "node_id": node_id("PullRequestReview", review.id),
            "user": self.render_simple_user(review.author),
            "state": review.state.name(),
            "html_url": html,
            "pull_request_url": own,
            "author_association": self.author_association(repository, review.author),
            "_links": {"html": {"href": html}, "pull_request": {"href": own}},
            "commit_id": review.commit,
        });
        if let Some(at) = review.submitted_at {
            object["submitted_at"] = json!(at);
        }
        self.add_body_fields(&mut object, Some(&review.body));
        object
    }

    /// Positions equal lines: the position within the diff is not simulated.
    pub(crate) fn render_review_comment(
        &self,
        repository: &Repository,
        issue: &Issue,
        comment: &ReviewComment,
    ) -> Value {
        let url = self.repository_url(repository);
        let own = format!("{url}/pulls/comments/{}", comment.id);
        let pull = format!("{url}/pulls/{}", issue.number);
        let html = format!("{}/pull/{}#discussion_r{}", self.repository_page(repository), issue.number, comment.id);
        let mut object = json!({
            "url": own,
            "pull_request_review_id": comment.review,
            "id": comment.id,
            "node_id": node_id("PullRequestReviewComment", comment.id),
            "diff_hunk": comment.diff_hunk,
            "path": comment.path,
            "commit_id": comment.commit,
            "original_commit_id": comment.commit,
            "user": self.render_simple_user(comment.author),
            "created_at": comment.created_at,
            "updated_at": comment.updated_at,
            "html_url": html,
            "pull_request_url": pull,
            "author_association": self.author_association(repository, comment.author),
            "_links": {"self": {"href": own}, "html": {"href": html}, "pull_request": {"href": pull}},
            "reactions": self.render_empty_reactions(&own),
            "side": comment.side,
            "subject_type": if comment.line.is_some() { "line" } else { "file" },
        });
        if let Some(line) = comment.line {
            extend_json_object(
                &mut object,
                json!({"line": line, "original_line": line, "position": line, "original_position": line}),
            );
        }
        if let Some(first) = comment.in_reply_to {
            object["in_reply_to_id"] = json!(first);
        }
        self.add_body_fields(&mut object, Some(&comment.body));
        object
    }
}
