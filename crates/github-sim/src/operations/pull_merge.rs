//! Merging pull requests, and closing the issues that they resolve.
//!
//! | method | history | commit by |
//! |---|---|---|
//! | `merge` | a commit with two parents | the caller, committed by GitHub |
//! | `squash` | one commit on top of the base | the caller, committed by GitHub |
//! | `rebase` | copies of all commits on top of the base | their authors, committed by GitHub |
//!
//! The repository can forbid each method. Branch protection is checked for all of them.

use serde_json::json;

use super::{pulls, writing};
use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{GitCommit, GitObject, ObjectId};
use crate::http::RequestMethod::{Get, Put};
use crate::merging;
use crate::route::{OperationRoute, define_route};
use crate::state::{
    Issue, IssueStateReason, PullRequest, PullRequestMerge, Repository, RepositoryId, RepositoryPermission,
};

/// Auto-merge and merge queues are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls/{pull_number}/merge",
        "pulls/check-if-merged",
        "pulls/pulls#check-if-a-pull-request-has-been-merged",
        check_if_merged,
    ),
    define_route(
        Put,
        "/repos/{owner}/{repo}/pulls/{pull_number}/merge",
        "pulls/merge",
        "pulls/pulls#merge-a-pull-request",
        merge_pull_request,
    ),
    define_route(
        Put,
        "/repos/{owner}/{repo}/pulls/{pull_number}/update-branch",
        "pulls/update-branch",
        "pulls/pulls#update-a-pull-request-branch",
        update_branch,
    ),
];

/// 204 or 404, without a body.
fn check_if_merged(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (_, _, pull) = pulls::find_pull_request(call, id)?;
    if pull.merged.is_some() { Ok(OperationReply::no_content()) } else { Err(OperationError::not_found()) }
}

/// Builds GitHub's error for closed pull requests, drafts and conflicts alike.
fn not_mergeable_error() -> OperationError {
    OperationError::new(405, "Pull Request is not mergeable")
}

/// Merges by `merge`, `squash` or `rebase`. 405 if it cannot be merged or a rule forbids it, 409 if `sha` is not the
/// present head, so that a client does not merge unseen commits.
fn merge_pull_request(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let by = call.require_account()?;
    let fields = call.body_fields()?;
    let method = fields.text_one_of("merge_method", &["merge", "squash", "rebase"])?.unwrap_or("merge").to_owned();
    let title = fields.text("commit_title")?.map(str::to_owned);
    let text = fields.text("commit_message")?.map(str::to_owned);
    let sha = fields.text("sha")?.map(str::to_owned);
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    let (base, head) = (call.state.pull_base(repository, issue, pull), call.state.pull_head(issue, pull));
    if !issue.is_open() || pull.draft {
        return Err(not_mergeable_error());
    }
    // A client that names the reviewed head does not merge commits that were pushed since.
    if sha.is_some_and(|sha| sha != head.to_string()) {
        return Err(OperationError::new(409, "Head branch was modified. Review and try the merge again."));
    }
    let allowed = match method.as_str() {
        "squash" => repository.allow_squash_merge,
        "rebase" => repository.allow_rebase_merge,
        _ => repository.allow_merge_commit,
    };
    if !allowed {
        let name = match method.as_str() {
            "squash" => "Squash merges are",
            "rebase" => "Rebase merges are",
            _ => "Merge commits are",
        };
        return Err(OperationError::new(405, format!("{name} not allowed on this repository.")));
    }
    check_branch_protection(call, repository, issue, pull)?;
    // Planned before anything is written: a conflict must leave no trace.
    let plan = merging::plan_merge(call.objects(id)?, base, head).map_err(|_| not_mergeable_error())?;
    let messages = MergeMessageBuilder::for_pull_request(call, id, title, text)?;
    let (author, committer) =
        (writing::account_signature(call.state, by, call.now()), writing::build_github_signature(call.now()));
    let base_name = pull.base.clone();
    let number = issue.number;
    let objects = call.objects_mut(id)?;
    let made = match method.as_str() {
        "squash" => {
            let tree = plan.write(objects);
            let message = messages.build_squash_message();
            objects.insert(GitObject::Commit(GitCommit { tree, parents: vec![base], author, committer, message }))
        }
        "rebase" => merging::rebase_commits(objects, base, head, &committer).map_err(|_| not_mergeable_error())?,
        _ => merging::merge_commit(objects, plan, (base, head), (author, committer), messages.build_merge_message()),
    };
    // Recorded before the branch moves, so that the stored base is the one before the merge.
    close_as_merged(call, id, number, by, made)?;
    writing::move_branch(call.state, id, &base_name, made);
    close_issues(call, id, number, by, &base_name)?;
    delete_merged_branch(call, id, by)?;
    Ok(OperationReply::ok(json!({"sha": made, "merged": true, "message": "Pull Request successfully merged"})))
}

/// Checks branch protection, unless the caller is an exempt admin.
fn check_branch_protection(
    call: &OperationCall<'_>,
    repository: &Repository,
    issue: &Issue,
    pull: &PullRequest,
) -> Result<(), OperationError> {
    let bypass = repository.protection.get(&pull.base).is_some_and(|rule| rule.admins_bypass)
        && access::resolve_permission(call.state, call.actor.as_ref(), repository) >= Some(RepositoryPermission::Admin);
    match merging::find_merge_blocker(call.state, repository, issue, pull) {
        Some(reason) if !bypass => Err(OperationError::new(405, reason)),
        _ => Ok(()),
    }
}

/// Closes the pull request and stores the merge commit with the heads of both branches.
fn close_as_merged(
    call: &mut OperationCall<'_>,
    id: RepositoryId,
    number: u64,
    by: crate::state::AccountId,
    commit: ObjectId,
) -> Result<(), OperationError> {
    writing::close_issue_or_pull(call.state, id, number, by, None);
    let at = call.now();
    pulls::find_pull_request_mut(call, id)?.merged = Some(PullRequestMerge { at, by, commit });
    Ok(())
}

/// Builds the commit message with GitHub's defaults.
struct MergeMessageBuilder {
    number: u64,
    from: String,
    pull_title: String,
    /// Messages of the commits, oldest first.
    commits: Vec<String>,
    title: Option<String>,
    text: Option<String>,
}

impl MergeMessageBuilder {
    /// Collects everything before the objects are borrowed mutably.
    fn for_pull_request(
        call: &OperationCall<'_>,
        id: RepositoryId,
        title: Option<String>,
        text: Option<String>,
    ) -> Result<MergeMessageBuilder, OperationError> {
        let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
        let objects = call.objects(id)?;
        let commits = call.view().pull_commits(repository, issue, pull);
        Ok(MergeMessageBuilder {
            number: issue.number,
            from: format!("{}/{}", call.state.login(pull.head.owner), pull.head.branch),
            pull_title: issue.title.clone(),
            commits: commits.into_iter().filter_map(|id| Some(objects.commit(id)?.message.clone())).collect(),
            title,
            text,
        })
    }

    /// Builds "Merge pull request #N from owner/branch", with the title as the body.
    fn build_merge_message(self) -> String {
        let title = self.title.unwrap_or_else(|| format!("Merge pull request #{} from {}", self.number, self.from));
        let text = self.text.unwrap_or(self.pull_title);
        if text.is_empty() { title } else { format!("{title}\n\n{text}") }
    }

    /// Uses the message of a single commit; lists several below the title of the pull request.
    fn build_squash_message(self) -> String {
        let subject = |message: &String| message.lines().next().unwrap_or_default().to_owned();
        let only = (self.commits.len() == 1).then(|| self.commits[0].clone());
        let title = match &only {
            Some(message) => format!("{} (#{})", subject(message), self.number),
            None => format!("{} (#{})", self.pull_title, self.number),
        };
        let text = match &only {
            Some(message) => message.split_once('\n').map_or("", |(_, rest)| rest.trim()).to_owned(),
            None => {
                self.commits.iter().map(|message| format!("* {}", subject(message))).collect::<Vec<_>>().join("\n\n")
            }
        };
        let (title, text) = (self.title.unwrap_or(title), self.text.unwrap_or(text));
        if text.is_empty() { title } else { format!("{title}\n\n{text}") }
    }
}

/// Closes the issues that title, body or commits name with a closing keyword. Only merges into the default branch close
/// issues.
fn close_issues(
    call: &mut OperationCall<'_>,
    id: RepositoryId,
    number: u64,
    by: crate::state::AccountId,
    base: &str,
) -> Result<(), OperationError> {
    let repository = call.repo(id)?;
    if base != repository.default_branch {
        return Ok(());
    }
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    let objects = call.objects(id)?;
    let commits = call.view().pull_commits(repository, issue, pull);
    let messages = commits.into_iter().filter_map(|id| objects.commit(id)).map(|commit| commit.message.as_str());
    let texts: Vec<&str> = issue.body.as_deref().into_iter().chain([issue.title.as_str()]).chain(messages).collect();
    let full_name = call.state.full_name(repository);
    let mut named: Vec<u64> = texts.iter().flat_map(|text| parse_closing_numbers(text, &full_name)).collect();
    named.sort_unstable();
    named.dedup();
    let is_open_issue = |one: &u64| {
        *one != number && repository.issues.get(one).is_some_and(|issue| issue.pull.is_none() && issue.is_open())
    };
    named.retain(is_open_issue);
    for number in named {
        writing::close_issue_or_pull(call.state, id, number, by, Some(IssueStateReason::Completed));
    }
    Ok(())
}

/// Finds `Fixes #5`, `closes: octo/demo#5` and GitHub's other closing keywords, in any case. Issues of other
/// repositories are ignored.
fn parse_closing_numbers(text: &str, full_name: &str) -> Vec<u64> {
    const WORDS: [&str; 9] = ["close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let names = |word: &str| {
        let word = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        let (before, digits) = word.split_once('#')?;
        let fits = before.is_empty() || before.eq_ignore_ascii_case(full_name) || before.eq_ignore_ascii_case("GH-");
        fits.then(|| digits.parse().ok()).flatten()
    };
    let closes = |pair: &[&str]| {
        let word = pair[0].trim_start_matches(|c: char| !c.is_alphanumeric()).trim_end_matches(':').to_lowercase();
        WORDS.contains(&word.as_str()).then(|| names(pair[1])).flatten()
    };
    words.windows(2).filter_map(closes).collect()
}

/// Deletes the head branch if the repository is configured so. Branches of forks, default and protected branches
/// stay.
fn delete_merged_branch(
    call: &mut OperationCall<'_>,
    id: RepositoryId,
    by: crate::state::AccountId,
) -> Result<(), OperationError> {
    let (repository, _, pull) = pulls::find_pull_request(call, id)?;
    let branch = pull.head.branch.clone();
    let is_spare = pull.head.repository == Some(id)
        && branch != repository.default_branch
        && !repository.protection.contains_key(&branch);
    if repository.delete_branch_on_merge && is_spare {
        writing::delete_branch(call.state, id, &branch, by);
    }
    Ok(())
}

/// Merges the base into the head branch. 202, although it is done at once. 422 for conflicts, or if there is nothing to
/// merge.
fn update_branch(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let by = call.require_account()?;
    let expected = call.body_fields()?.text("expected_head_sha")?.map(str::to_owned);
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    let (base, head) = (call.state.pull_base(repository, issue, pull), call.state.pull_head(issue, pull));
    if expected.is_some_and(|sha| sha != head.to_string()) {
        return Err(OperationError::validation("PullRequest", "expected_head_sha", "invalid"));
    }
    let objects = call.objects(id)?;
    if !issue.is_open() || crate::git::is_ancestor(objects, base, head) {
        return Err(OperationError::new(422, "There are no new commits on the base branch."));
    }
    let from = pull.head.repository.ok_or_else(|| OperationError::new(422, "The head repository is gone."))?;
    access::check_access(call.state, call.actor.as_ref(), call.repo(from)?, RequiredAccess::Push)?;
    let plan = merging::plan_merge(objects, head, base)
        .map_err(|_| OperationError::new(422, "merge conflict between base and head"))?;
    let (branch, base_name) = (pull.head.branch.clone(), pull.base.clone());
    let message = format!("Merge branch '{base_name}' into {branch}");
    let (author, committer) =
        (writing::account_signature(call.state, by, call.now()), writing::build_github_signature(call.now()));
    let made = merging::merge_commit(call.objects_mut(id)?, plan, (head, base), (author, committer), message);
    writing::move_branch(call.state, from, &branch, made);
    let url = format!("{}/pulls/{}", call.view().repository_url(call.repo(id)?), call.path_argument("pull_number"));
    Ok(OperationReply::new(202, json!({"message": "Updating pull request branch.", "url": url})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_close() {
        let numbers = |text: &str| parse_closing_numbers(text, "octo/demo");
        assert_eq!(numbers("Fixes #5"), [5]);
        assert_eq!(numbers("This closes: #7, and resolves #8."), [7, 8]);
        assert_eq!(numbers("(fixed octo/demo#9)"), [9]);
        assert_eq!(numbers("fixes other/repo#9"), [] as [u64; 0]);
        assert_eq!(numbers("see #5, prefixes #6, Closes nothing"), [] as [u64; 0]);
    }
}
