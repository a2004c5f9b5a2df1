//! R13: nothing is created twice, neither by mistake nor by a blind retry after a server error.

use std::collections::{BTreeMap, BTreeSet};

use gradus_core::whitespace::collapse_whitespace;

use super::finding::{RuleDecision, ViolationCollector};
use super::requests::{RunRequests, StepRequest};

/// Operations that create something new each time they succeed.
const CREATIONS: [&str; 15] = [
    "issues/create",
    "issues/create-comment",
    "issues/create-label",
    "issues/create-milestone",
    "pulls/create",
    "pulls/create-review",
    "pulls/create-review-comment",
    "git/create-ref",
    "repos/create-for-authenticated-user",
    "repos/create-in-org",
    "repos/create-fork",
    "repos/create-release",
    "repos/create-or-update-file-contents",
    "repos/merge",
    "gists/create",
];

/// Checks R13. Looks at the end state for equal objects, and at the requests for a creation that was repeated after a
/// 5xx without checking whether the first one took effect.
pub(super) fn check_duplicates(run: &RunRequests<'_>) -> RuleDecision {
    let creations: Vec<(usize, &StepRequest<'_>)> =
        run.sent.iter().enumerate().filter(|(_, sent)| CREATIONS.contains(&sent.operation())).collect();
    if creations.is_empty() {
        return RuleDecision::not_applicable("nothing was made");
    }
    let mut faults = ViolationCollector::default();
    for (what, count) in find_duplicate_creations(run) {
        let is_it = |sent: &&StepRequest<'_>| match &what {
            CreatedContent::Issue(_, title, body) => {
                sent.body_text("title").map(normalize_text).as_ref() == Some(title)
                    && sent.body_text("body").map(normalize_text).unwrap_or_default() == *body
            }
            CreatedContent::Comment(_, number, body) => {
                sent.resource_number() == Some(*number)
                    && sent.body_text("body").map(normalize_text).as_ref() == Some(body)
            }
        };
        let why = match &what {
            CreatedContent::Issue(repository, title, _) => {
                format!("{count} times \"{title}\" in {repository}")
            }
            CreatedContent::Comment(repository, number, _) => {
                format!("{count} times the same comment on {repository}#{number}")
            }
        };
        // The first creation is legitimate, so the others are named.
        let mut steps = creations.iter().map(|(_, sent)| *sent).filter(is_it).skip(1).peekable();
        if steps.peek().is_none() {
            faults.add_failure(None, why);
        } else {
            steps.for_each(|sent| faults.add_failure(sent.step, why.clone()));
        }
    }
    // After a 5xx of a known operation the object may exist. A response without an operation never reached GitHub's
    // logic.
    for (index, (at, sent)) in creations.iter().enumerate().filter(|(_, (_, sent))| sent.exchange.status >= 500) {
        if sent.exchange.operation.is_none() {
            continue;
        }
        let again = creations[index + 1..].iter().find(|(_, other)| is_same_creation(sent, other));
        let Some((again_at, again)) = again else { continue };
        let looked = run.sent[at + 1..*again_at]
            .iter()
            .any(|one| !one.is_write() && one.was_successful() && could_reveal_creation(one, sent));
        if !looked {
            faults.add_failure(
                again.step,
                format!("{} was sent again after {} without a look", again.format_route(), sent.exchange.status),
            );
        }
    }
    faults.into_decision(|| RuleDecision::pass("nothing was made twice"))
}

/// Whether two requests are the same or have the same title: agents often rephrase the body when they retry.
fn is_same_creation(one: &StepRequest<'_>, other: &StepRequest<'_>) -> bool {
    let title = |sent: &StepRequest<'_>| {
        ["title", "name", "ref", "tag_name"].iter().find_map(|field| sent.body_text(field)).map(str::to_owned)
    };
    let is_equal = one.body == other.body || (title(one).is_some() && title(one) == title(other));
    one.exchange.method == other.exchange.method && one.exchange.path == other.exchange.path && is_equal
}

/// Whether a read could show that the creation took effect: a search, or a list or object of the same kind in the same
/// repository.
fn could_reveal_creation(read: &StepRequest<'_>, made: &StepRequest<'_>) -> bool {
    if read.segments.first().is_some_and(|first| first == "search") {
        return true;
    }
    let below = made.subpath_segments();
    match &below[..] {
        [] => match read.segments.first().map(String::as_str) {
            Some("repos") => read.subpath_segments().is_empty(),
            Some(first) => first == "user" || first == "users" || first == "orgs" || first == "gists",
            None => false,
        },
        _ if read.repository() != made.repository() => false,
        ["forks"] => true,
        ["issues", _, "comments"] | ["issues"] | ["pulls", ..] => {
            matches!(read.subpath_segments().first(), Some(&"issues" | &"pulls"))
        }
        ["git", "refs"] => matches!(
            read.subpath_segments()[..],
            ["branches" | "tags", ..] | ["git", "ref" | "refs" | "matching-refs", ..]
        ),
        ["contents", ..] | ["merges"] => {
            matches!(
                read.subpath_segments().first(),
                Some(&"contents" | &"commits" | &"branches" | &"compare" | &"git" | &"readme")
            )
        }
        [kind, ..] => {
            read.subpath_segments().first() == Some(kind)
                || (*kind == "releases" && read.subpath_segments().first() == Some(&"tags"))
        }
    }
}

/// An object by its content, compared after normalisation of case and white space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CreatedContent {
    /// An issue or a pull request: repository, title, body.
    Issue(String, String, String),
    /// Repository, number of the issue, body.
    Comment(String, u64, String),
}

/// Converts a text to lower case with single spaces.
fn normalize_text(text: &str) -> String {
    collapse_whitespace(text).to_lowercase()
}

/// Finds new objects of the acting users that exist more than once, with their number.
fn find_duplicate_creations(run: &RunRequests<'_>) -> Vec<(CreatedContent, usize)> {
    let actors: BTreeSet<&str> = run.sent.iter().map(StepRequest::account).collect();
    let mut counts: BTreeMap<CreatedContent, usize> = BTreeMap::new();
    for repository in run.state_after().repositories.values() {
        let before = run.state_before().repository(repository.id);
        let name = run.state_after().full_name(repository);
        for issue in repository.issues.values() {
            let is_new = before.is_none_or(|before| !before.issues.contains_key(&issue.number));
            if is_new && actors.contains(run.state_after().login(issue.author)) {
                let made = CreatedContent::Issue(
                    name.clone(),
                    normalize_text(&issue.title),
                    normalize_text(issue.body.as_deref().unwrap_or_default()),
                );
                *counts.entry(made).or_default() += 1;
            }
        }
        for comment in repository.comments.values() {
            let is_new = before.is_none_or(|before| !before.comments.contains_key(&comment.id));
            if is_new && actors.contains(run.state_after().login(comment.author)) {
                *counts
                    .entry(CreatedContent::Comment(name.clone(), comment.issue, normalize_text(&comment.body)))
                    .or_default() += 1;
            }
        }
    }
    counts.into_iter().filter(|(_, count)| *count > 1).collect()
}
