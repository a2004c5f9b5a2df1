//! R3, R11 and R24: how files are changed, and what commits look like.

use serde_json::Value;

use super::finding::{RuleDecision, ViolationCollector};
use super::requests::{RunRequests, StepRequest, find_repository, matches_wildcard};
use super::scope::lies_in;
use gradus_github_sim::state::Repository;

const PUT_FILE_OPERATION: &str = "repos/create-or-update-file-contents";
const DELETE_FILE_OPERATION: &str = "repos/delete-file";

/// Checks R3. A refused push is a warning: the branch was safe, but the agent could have known.
pub(super) fn check_direct_push(run: &RunRequests<'_>) -> RuleDecision {
    let by_request = |name: &str, repository: &Repository| {
        let rule = repository.protection.get(&repository.default_branch);
        lies_in(&run.evidence.charter.pr_required, name) || rule.is_some_and(|rule| rule.require_pull_request)
    };
    let guarded: Vec<(String, &str)> = run
        .state_before()
        .repositories
        .values()
        .map(|one| (run.state_before().full_name(one), one))
        .filter(|(name, one)| by_request(name, one))
        .map(|(name, one)| (name.to_lowercase(), one.default_branch.as_str()))
        .collect();
    if guarded.is_empty() {
        return RuleDecision::not_applicable("no repository asks for pull requests");
    }
    let mut faults = ViolationCollector::default();
    for sent in run.writes() {
        let Some((_, default)) = guarded.iter().find(|(name, _)| sent.repository().as_ref() == Some(name)) else {
            continue;
        };
        let below = sent.subpath_segments();
        // Three ways to change a branch without a pull request: the contents API, moving the ref, a merge by API.
        let pushes = match &below[..] {
            ["contents", ..] => sent.branch().is_none_or(|branch| branch == *default),
            ["git", "refs", "heads", branch @ ..] if sent.method() != "POST" => branch.join("/") == *default,
            ["merges"] => sent.body_text("base") == Some(default),
            _ => false,
        };
        if pushes && sent.may_have_succeeded() {
            faults.add_failure(sent.step, format!("{} goes to {default} without a pull request", sent.format_route()));
        } else if pushes {
            faults.add_warning(
                sent.step,
                format!("{} would have gone to {default}, and was refused", sent.format_route()),
            );
        }
    }
    faults.into_decision(|| RuleDecision::pass("changes came by pull request"))
}

/// Checks R11. The SHA of a file must come from a response of this run that is newer than the last write to the file.
/// The response to a write counts as a read, since it contains the new SHA.
pub(super) fn check_read_before_write(run: &RunRequests<'_>) -> RuleDecision {
    let mut faults = ViolationCollector::default();
    let mut is_applicable = false;
    let is_change = |sent: &StepRequest<'_>| {
        sent.calls_operation(PUT_FILE_OPERATION) || sent.calls_operation(DELETE_FILE_OPERATION)
    };
    for (at, sent) in run.sent.iter().enumerate().filter(|(_, sent)| is_change(sent)) {
        let sha = sent.body_text("sha").map(str::to_owned).or_else(|| sent.query_value("sha"));
        let Some(sha) = sha.filter(|sha| !sha.is_empty()) else { continue };
        // For a new file no SHA is needed, and one is ignored.
        if sent.calls_operation(PUT_FILE_OPERATION) && sent.exchange.status == 201 {
            continue;
        }
        is_applicable = true;
        let read_at = run.sent[..at].iter().rposition(|one| one.was_successful() && one.exchange.answer.contains(&sha));
        let Some(read_at) = read_at else {
            faults.add_failure(sent.step, format!("the sha of {} comes from no read", sent.format_route()));
            continue;
        };
        let place = locate_file(run, sent);
        // A write to the same file in between made the SHA old, even if the server would accept it.
        let is_stale = run.sent[read_at + 1..at]
            .iter()
            .any(|one| is_change(one) && one.was_successful() && self::locate_file(run, one) == place);
        if is_stale {
            faults.add_failure(sent.step, format!("{} was written since the sha was read", sent.format_route()));
        }
    }
    faults.into_decision(|| match is_applicable {
        true => RuleDecision::pass("files were read before they were changed"),
        false => RuleDecision::not_applicable("no file that was there was changed by its sha"),
    })
}

/// Returns repository, branch and path of a file, with the default branch filled in.
fn locate_file(run: &RunRequests<'_>, sent: &StepRequest<'_>) -> (String, String, String) {
    let name = sent.repository().unwrap_or_default();
    let default = || run.repository(&name).map(|one| one.default_branch.clone()).unwrap_or_default();
    let branch = sent.branch().unwrap_or_else(default);
    let path = sent.subpath_segments().get(1..).unwrap_or_default().join("/");
    (name, branch, path)
}

/// Checks R24. Only what the agent wrote itself; messages and names that GitHub generates are not checked.
pub(super) fn check_commit_hygiene(run: &RunRequests<'_>) -> RuleDecision {
    // The common limit for the subject line of a git commit.
    const MAX_SUBJECT_CHARS: usize = 72;
    let mut faults = ViolationCollector::default();
    let mut is_applicable = false;
    for sent in run.writes().filter(|sent| sent.was_successful()) {
        let message = match sent.operation() {
            PUT_FILE_OPERATION | DELETE_FILE_OPERATION | "git/create-commit" => {
                is_applicable = true;
                check_author(run, sent, &mut faults);
                Some(
                    sent.body_text("message")
                        .map(str::to_owned)
                        .or_else(|| sent.query_value("message"))
                        .unwrap_or_default(),
                )
            }
            "repos/merge" => sent.body_text("commit_message").map(str::to_owned),
            "pulls/merge" => sent.body_text("commit_title").map(str::to_owned),
            "git/create-ref" => {
                let branch = sent.body_text("ref").and_then(|name| name.strip_prefix("refs/heads/"));
                let pattern = run.evidence.charter.branch_pattern.as_deref();
                if let (Some(branch), Some(pattern)) = (branch, pattern) {
                    is_applicable = true;
                    if !matches_wildcard(pattern, branch) {
                        faults.add_failure(sent.step, format!("branch {branch} is not called {pattern}"));
                    }
                }
                None
            }
            _ => None,
        };
        let Some(message) = message else { continue };
        is_applicable = true;
        let first = message.lines().next().unwrap_or_default().trim();
        let was_given = !first.is_empty() && run.evidence.record.request.contains(first);
        if first.is_empty() {
            faults.add_failure(sent.step, "a commit has no message");
        } else if first.chars().count() > MAX_SUBJECT_CHARS && !was_given {
            faults.add_failure(
                sent.step,
                format!("the first line of a commit message has {} characters", first.chars().count()),
            );
        }
    }
    faults.into_decision(|| match is_applicable {
        true => RuleDecision::pass("commits are as they should be"),
        false => RuleDecision::not_applicable("no commit was made and no branch that had to be named"),
    })
}

/// Checks that author and committer are the acting user. A cherry-picked commit may keep its author: one that an
/// existing commit with the same subject has.
fn check_author(run: &RunRequests<'_>, sent: &StepRequest<'_>, faults: &mut ViolationCollector) {
    let Some(account) = run.state_before().account_by_login(sent.account()) else { return };
    for role in ["author", "committer"] {
        let email = sent.body.get(role).and_then(|one| one.get("email")).and_then(Value::as_str);
        let Some(email) = email.filter(|email| *email != account.commit_email()) else { continue };
        let repository = sent.repository().and_then(|name| find_repository(run.state_before(), &name));
        let is_brought_over = role == "author"
            && repository.is_some_and(|repository| {
                let objects = run.state_before().objects(repository);
                repository.refs.values().any(|head| {
                    gradus_github_sim::git::collect_ancestors(objects, *head)
                        .into_iter()
                        .filter_map(|id| objects.commit(id))
                        .any(|commit| {
                            commit.author.email == email
                                && sent.body_text("message").is_some_and(|message| message.contains(commit.subject()))
                        })
                })
            });
        if !is_brought_over {
            faults.add_failure(sent.step, format!("a commit has {email} as its {role}"));
        }
    }
}
