//! Issues, comments, labels and milestones.

use serde_json::{Value, json};

use super::{ApiView, escape_segment, node_id};
use crate::access::{account_permission, collect_collaborators};
use crate::state::{AccountId, Issue, IssueComment, IssueLabel, IssueStateReason, LabelId, Milestone, Repository};

impl ApiView<'_> {
    /// Renders a label. The URL contains the name, since GitHub's API addresses labels by name.
    pub(crate) fn render_label(&self, repository: &Repository, label: &IssueLabel) -> Value {
        json!({
            "id": label.id.0,
            "node_id": node_id("Label", label.id.0),
            "url": format!("{}/labels/{}", self.repository_url(repository), escape_segment(&label.name)),
            "name": label.name,
            "color": label.color,
            "default": label.is_default,
            "description": label.description,
        })
    }

    /// Ids of deleted labels are skipped.
    pub(crate) fn render_labels(&self, repository: &Repository, ids: &[LabelId]) -> Value {
        let known = ids.iter().filter_map(|id| repository.labels.get(id));
        Value::Array(known.map(|label| self.render_label(repository, label)).collect())
    }

    /// Counts of open and closed issues are computed on each request.
    pub(crate) fn render_milestone(&self, repository: &Repository, milestone: &Milestone) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let number = milestone.number;
        let inside = || repository.issues.values().filter(|issue| issue.milestone == Some(number));
        json!({
            "url": format!("{url}/milestones/{number}"),
            "html_url": format!("{page}/milestone/{number}"),
            "labels_url": format!("{url}/milestones/{number}/labels"),
            "id": milestone.id,
            "node_id": node_id("Milestone", milestone.id),
            "number": number,
            "title": milestone.title,
            "description": milestone.description,
            "creator": self.render_simple_user(milestone.creator),
            "open_issues": inside().filter(|issue| issue.is_open()).count(),
            "closed_issues": inside().filter(|issue| !issue.is_open()).count(),
            "state": milestone.state.name(),
            "created_at": milestone.created_at,
            "updated_at": milestone.updated_at,
            "due_on": milestone.due_on,
            "closed_at": milestone.closed_at,
        })
    }

    /// Renders the milestone of an issue; null without one.
    pub(crate) fn render_issue_milestone(&self, repository: &Repository, issue: &Issue) -> Value {
        let found = issue.milestone.and_then(|number| repository.milestones.get(&number));
        found.map_or(Value::Null, |milestone| self.render_milestone(repository, milestone))
    }

    pub(crate) fn render_simple_users(&self, ids: &[AccountId]) -> Value {
        Value::Array(ids.iter().map(|id| self.render_simple_user(*id)).collect())
    }

    /// Returns the relation of an account to the repository: the first of owner, member, collaborator and contributor
    /// that applies. A contributor has a merged pull request.
    pub(crate) fn author_association(&self, repository: &Repository, account: AccountId) -> &'static str {
        if repository.owner == account {
            return "OWNER";
        }
        if self.state.account(repository.owner).is_some_and(|owner| owner.members.contains_key(&account)) {
            return "MEMBER";
        }
        if collect_collaborators(self.state, repository).contains_key(&account) {
            return "COLLABORATOR";
        }
        // Commits without a pull request do not count here, unlike on GitHub.
        let merged =
            |issue: &Issue| issue.author == account && issue.pull.as_ref().is_some_and(|pull| pull.merged.is_some());
        if account_permission(self.state, account, repository).is_some() && repository.issues.values().any(merged) {
            return "CONTRIBUTOR";
        }
        "NONE"
    }

    /// Renders an issue, or a pull request in its form as an issue, with a `pull_request` object.
    pub(crate) fn render_issue(&self, repository: &Repository, issue: &Issue) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let number = issue.number;
        let own = format!("{url}/issues/{number}");
        let html =
            if issue.pull.is_some() { format!("{page}/pull/{number}") } else { format!("{page}/issues/{number}") };
        let mut object = json!({
            "url": own,
            "repository_url": url,
            "labels_url": format!("{own}/labels{{/name}}"),
            "comments_url": format!("{own}/comments"),
            "events_url": format!("{own}/events"),
            "html_url": html,
            "id": issue.id,
            "node_id": node_id(if issue.pull.is_some() { "PullRequest" } else { "Issue" }, issue.id),
            "number": number,
            "title": issue.title,
            "user": self.render_simple_user(issue.author),
            "labels": self.render_labels(repository, &issue.labels),
            "state": issue.state.name(),
            "locked": issue.locked,
            "assignee": issue.assignees.first().map_or(Value::Null, |id| self.render_simple_user(*id)),
            "assignees": self.render_simple_users(&issue.assignees),
            "milestone": self.render_issue_milestone(repository, issue),
            "comments": repository.list_comments(number).count(),
            "created_at": issue.created_at,
            "updated_at": issue.updated_at,
            "closed_at": issue.closed_at,
        });
        super::extend_json_object(
            &mut object,
            json!({
                "author_association": self.author_association(repository, issue.author),
                "active_lock_reason": issue.lock_reason,
                "closed_by": issue.closed_by.map_or(Value::Null, |id| self.render_simple_user(id)),
                "reactions": self.render_empty_reactions(&own),
                "timeline_url": format!("{own}/timeline"),
                "performed_via_github_app": null,
                "state_reason": issue.state_reason.map(IssueStateReason::name),
                "sub_issues_summary": {"total": 0, "completed": 0, "percent_completed": 0},
            }),
        );
        self.add_body_fields(&mut object, issue.body.as_deref());
        if let Some(pull) = &issue.pull {
            object["draft"] = json!(pull.draft);
            object["pull_request"] = json!({
                "url": format!("{url}/pulls/{number}"),
                "html_url": html,
                "diff_url": format!("{html}.diff"),
                "patch_url": format!("{html}.patch"),
                "merged_at": pull.merged.as_ref().map(|merged| merged.at),
            });
        }
        object
    }

    /// Reactions are not simulated; clients require the object.
    pub(crate) fn render_empty_reactions(&self, above: &str) -> Value {
        json!({
            "url": format!("{above}/reactions"),
            "total_count": 0, "+1": 0, "-1": 0, "laugh": 0, "hooray": 0, "confused": 0, "heart": 0, "rocket": 0, "eyes": 0,
        })
    }

    /// Renders a comment. Its page URL depends on whether it is on an issue or a pull request.
    pub(crate) fn render_issue_comment(&self, repository: &Repository, comment: &IssueComment) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let own = format!("{url}/issues/comments/{}", comment.id);
        let folder = match repository.issues.get(&comment.issue) {
            Some(issue) if issue.pull.is_some() => "pull",
            _ => "issues",
        };
        let mut object = json!({
            "url": own,
            "html_url": format!("{page}/{folder}/{}#issuecomment-{}", comment.issue, comment.id),
            "issue_url": format!("{url}/issues/{}", comment.issue),
            "id": comment.id,
            "node_id": node_id("IssueComment", comment.id),
            "user": self.render_simple_user(comment.author),
            "created_at": comment.created_at,
            "updated_at": comment.updated_at,
            "author_association": self.author_association(repository, comment.author),
            "reactions": self.render_empty_reactions(&own),
            "performed_via_github_app": null,
        });
        self.add_body_fields(&mut object, Some(&comment.body));
        object
    }
}
