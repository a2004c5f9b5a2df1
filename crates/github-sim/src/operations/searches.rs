//! Search for repositories, issues and code.
//!
//! | search | qualifiers |
//! |---|---|
//! | all | `repo`, `user`, `org` |
//! | repositories | `in` (name, description), `is`, `language`, `topic`, `archived`, `fork`, `stars`, |
//! | | `created`, `pushed` |
//! | issues | `in` (title, body, comments), `is`, `state`, `type`, `label`, `author`, `assignee`, `commenter`, |
//! | | `mentions`, `involves`, `milestone`, `no`, `reason`, `head`, `base`, `draft`, `comments`, `created`, |
//! | | `updated`, `closed` |
//! | code | `in` (path), `filename`, `extension`, `path`, `language`, `size` |
//!
//! Other qualifiers are accepted and restrict nothing, where GitHub would often answer with 422. Search needs no index:
//! worlds are small.

use serde_json::{Value, json};

use crate::access;
use crate::call::{OperationBody, OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{GitFileMode, list_tree_entries};
use crate::http::RequestMethod::Get;
use crate::page::RequestedPage;
use crate::route::{OperationRoute, define_route};
use crate::search::{SearchQualifier, SearchTerms, is_in_range, tokenize_text};
use crate::state::{Issue, Repository};
use crate::time::SimulatedTime;
use crate::view::{ApiView, repository::count_language_bytes};

/// Search for users, commits, topics and labels is not simulated. These routes have their own rate limits.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(Get, "/search/repositories", "search/repos", "search/search#search-repositories", search_repositories),
    define_route(
        Get,
        "/search/issues",
        "search/issues-and-pull-requests",
        "search/search#search-issues-and-pull-requests",
        search_issues,
    ),
    define_route(Get, "/search/code", "search/code", "search/search#search-code", search_code),
];

/// Maximum number of results, as on GitHub; `total_count` still counts all.
const MAX_RESULTS: usize = 1000;
/// Maximum size of a searched file in bytes: GitHub does not index larger ones.
const MAX_SEARCHED_BYTES: usize = 384 << 10;

/// Parses `q`. 422 without it, and beyond the first 1000 results.
fn parse_search_query(call: &OperationCall<'_>) -> Result<SearchTerms, OperationError> {
    let text = call.query.get("q").map(str::trim).filter(|text| !text.is_empty());
    let missing = || OperationError::validation("Search", "q", "missing");
    let search = SearchTerms::parse(text.ok_or_else(missing)?);
    if RequestedPage::from_query(&call.query).start_index() >= MAX_RESULTS {
        return Err(OperationError::new(422, "Only the first 1000 search results are available"));
    }
    Ok(search)
}

/// Builds a reply with `total_count`, `incomplete_results` and `items`.
fn build_search_reply<T>(
    call: &OperationCall<'_>,
    found: &[T],
    view: impl Fn(&ApiView<'_>, &T) -> Value,
) -> OperationReply {
    let total = found.len();
    let mut reply = call.reply_with_page(&found[..total.min(MAX_RESULTS)], view);
    let items = match reply.body {
        OperationBody::Json(items) => items,
        OperationBody::None | OperationBody::Bytes(..) => Value::Null,
    };
    reply.body = OperationBody::Json(json!({"total_count": total, "incomplete_results": false, "items": items}));
    reply
}

/// Finds visible repositories, restricted by `repo:`, `user:` and `org:`. 422 if one of these does not exist or is
/// invisible, so a search reveals nothing about private repositories.
fn find_searched_repositories<'c>(
    call: &'c OperationCall<'_>,
    search: &SearchTerms,
) -> Result<Vec<&'c Repository>, OperationError> {
    let state = &*call.state;
    let visible = |one: &&Repository| access::can_see(state, call.actor.as_ref(), one);
    // Only positive qualifiers must exist: excluding an unknown repository is harmless.
    let named = |one: &&SearchQualifier| !one.negated && ["repo", "user", "org"].contains(&one.name.as_str());
    for qualifier in search.qualifiers.iter().filter(named) {
        let known = match (qualifier.name.as_str(), qualifier.value.split_once('/')) {
            ("repo", Some((owner, name))) => {
                let found = state.repository_by_name(owner, name).and_then(|id| state.repository(id));
                found.is_some_and(|one| visible(&one))
            }
            ("repo", None) => false,
            _ => state.account_by_login(&qualifier.value).is_some(),
        };
        if !known {
            let message = "The listed users and repositories cannot be searched either because the resources do not exist or you do not have permission to view them.";
            let error = json!({"message": message, "resource": "Search", "field": "q", "code": "invalid"});
            return Err(OperationError::validation_with_detail(error));
        }
    }
    let fits = |repository: &&Repository| {
        let is = |qualifier: &SearchQualifier| match qualifier.name.as_str() {
            "repo" => state.full_name(repository).eq_ignore_ascii_case(&qualifier.value),
            _ => state.login(repository.owner).eq_ignore_ascii_case(&qualifier.value),
        };
        let mut wanted = search.qualifiers.iter().filter(named).peekable();
        let inside = wanted.peek().is_none() || wanted.any(is);
        let unwanted = |one: &&SearchQualifier| one.negated && ["repo", "user", "org"].contains(&one.name.as_str());
        inside && !search.qualifiers.iter().filter(unwanted).any(is)
    };
    Ok(state.repositories.values().filter(visible).filter(fits).collect())
}

/// Words are searched in name, owner, description and topics, or where `in:` says. There is no relevance: the default
/// order is by id.
fn search_repositories(call: &mut OperationCall<'_>) -> OperationResult {
    let search = parse_search_query(call)?;
    let state = &*call.state;
    let stars =
        |one: &Repository| state.accounts.values().filter(|account| account.starred.contains_key(&one.id)).count();
    let fits = |one: &&Repository| {
        let places: Vec<&str> = search.qualifiers_named("in").flat_map(|one| one.value.split(',')).collect();
        let looks_in = |place: &str| places.is_empty() || places.contains(&place);
        let name = [one.name.as_str(), state.login(one.owner)];
        let named = name.into_iter().filter(|_| looks_in("name"));
        let described = one.description.as_deref().filter(|_| looks_in("description"));
        // Part of a name counts as well: `sim-1` is two words and one name.
        let is_name = |word: &String| looks_in("name") && one.name.to_lowercase().contains(word.as_str());
        let texts: Vec<&str> = named.chain(described).chain(one.topics.iter().map(String::as_str)).collect();
        let found: Vec<String> = texts.iter().flat_map(|text| tokenize_text(text)).collect();
        let matches_words = search.words.iter().all(|word| found.contains(word) || is_name(word))
            && !search.not_words.iter().any(|word| found.contains(word));
        matches_words
            && search
                .qualifiers
                .iter()
                .all(|qualifier| qualifier.negated != matches_repository_qualifier(call, one, qualifier, stars(one)))
    };
    let mut found: Vec<_> = find_searched_repositories(call, &search)?.into_iter().filter(fits).collect();
    match call.query.get("sort") {
        Some("stars") => found.sort_by_key(|one| (stars(one), std::cmp::Reverse(one.id))),
        Some("updated") => found.sort_by_key(|one| (one.updated_at, one.id)),
        _ => found.sort_by_key(|one| std::cmp::Reverse(one.id)),
    }
    if call.query.get("order") != Some("asc") {
        found.reverse();
    }
    Ok(build_search_reply(call, &found, |view, one| {
        let mut object = view.render_repository(one);
        object["score"] = json!(1.0);
        object
    }))
}

/// Whether a repository matches one qualifier; the caller applies the negation.
fn matches_repository_qualifier(
    call: &OperationCall<'_>,
    one: &Repository,
    qualifier: &SearchQualifier,
    stars: usize,
) -> bool {
    let value = qualifier.value.as_str();
    match qualifier.name.as_str() {
        "is" => match value {
            "public" => !one.private,
            "private" => one.private,
            _ => false,
        },
        "language" => count_language_bytes(call.state.objects(one), one)
            .first()
            .is_some_and(|(name, _)| name.eq_ignore_ascii_case(value)),
        "topic" => one.topics.iter().any(|topic| topic == value),
        "archived" => one.archived.to_string() == value,
        "fork" => value == "true" || (value == "only") == one.fork_of.is_some(),
        "stars" => is_in_range(value, &stars, |text| text.parse().ok()),
        "created" => is_in_range(value, &one.created_at, SimulatedTime::parse),
        "pushed" => is_in_range(value, &one.pushed_at, SimulatedTime::parse),
        // `repo`, `user` and `org` are handled before, and unknown qualifiers restrict nothing.
        _ => !qualifier.negated,
    }
}

/// Issues and pull requests of all visible repositories. Words are searched in title, body and comments.
fn search_issues(call: &mut OperationCall<'_>) -> OperationResult {
    let search = parse_search_query(call)?;
    let places: Vec<&str> = search.qualifiers_named("in").flat_map(|one| one.value.split(',')).collect();
    let looks_in = |place: &str| places.is_empty() || places.contains(&place);
    let fits = |(repository, issue): &(&Repository, &Issue)| {
        let title = looks_in("title").then_some(issue.title.as_str());
        let body = issue.body.as_deref().filter(|_| looks_in("body"));
        let comments = repository
            .list_comments(issue.number)
            .map(|comment| comment.body.as_str())
            .filter(|_| looks_in("comments"));
        search.matches_words(title.into_iter().chain(body).chain(comments))
            && search.qualifiers.iter().all(|one| one.negated != matches_issue_qualifier(call, repository, issue, one))
    };
    let mut found: Vec<_> = find_searched_repositories(call, &search)?
        .into_iter()
        .filter(|repository| repository.has_issues || repository.issues.values().any(|issue| issue.pull.is_some()))
        .flat_map(|repository| repository.issues.values().map(move |issue| (repository, issue)))
        .filter(fits)
        .collect();
    match call.query.get("sort") {
        Some("updated") => found.sort_by_key(|(_, issue)| (issue.updated_at, issue.id)),
        Some("comments") => {
            found.sort_by_key(|(repository, issue)| (repository.list_comments(issue.number).count(), issue.id))
        }
        _ => found.sort_by_key(|(_, issue)| (issue.created_at, issue.id)),
    }
    if call.query.get("order") != Some("asc") {
        found.reverse();
    }
    let mut reply = build_search_reply(call, &found, |view, (repository, issue)| {
        let mut object = view.render_issue(repository, issue);
        object["score"] = json!(1.0);
        object
    });
    if let OperationBody::Json(body) = &mut reply.body {
        body["search_type"] = json!("lexical");
    }
    Ok(reply)
}

/// Whether an issue matches one qualifier. `@me` is the caller.
fn matches_issue_qualifier(
    call: &OperationCall<'_>,
    repository: &Repository,
    issue: &Issue,
    qualifier: &SearchQualifier,
) -> bool {
    let value = qualifier.value.as_str();
    let state = &*call.state;
    let me = call.actor.as_ref().map(|actor| actor.account);
    let account = |login: &str| match login.trim_start_matches('@') {
        "me" => me,
        login => state.account_by_login(login).map(|account| account.id),
    };
    let labelled = |name: &str| {
        issue
            .labels
            .iter()
            .filter_map(|id| repository.labels.get(id))
            .any(|label| label.name.to_lowercase() == name.to_lowercase())
    };
    match qualifier.name.as_str() {
        "is" | "state" | "type" => match value {
            "open" => issue.is_open(),
            "closed" => !issue.is_open(),
            "issue" => issue.pull.is_none(),
            "pr" | "pull-request" => issue.pull.is_some(),
            "merged" => issue.pull.as_ref().is_some_and(|pull| pull.merged.is_some()),
            "unmerged" => issue.pull.as_ref().is_some_and(|pull| pull.merged.is_none()),
            "draft" => issue.pull.as_ref().is_some_and(|pull| pull.draft),
            "locked" => issue.locked,
            "public" => !repository.private,
            "private" => repository.private,
            _ => false,
        },
        "label" => value.split(',').any(|name| labelled(name.trim())),
        "author" => account(value).is_some_and(|one| issue.author == one),
        "assignee" => account(value).is_some_and(|one| issue.assignees.contains(&one)),
        "commenter" => account(value)
            .is_some_and(|one| repository.list_comments(issue.number).any(|comment| comment.author == one)),
        "mentions" => {
            issue.body.as_ref().is_some_and(|body| body.to_lowercase().contains(&format!("@{}", value.to_lowercase())))
        }
        "involves" => account(value).is_some_and(|one| issue.author == one || issue.assignees.contains(&one)),
        "milestone" => {
            let of = issue.milestone.and_then(|number| repository.milestones.get(&number));
            of.is_some_and(|milestone| milestone.title.eq_ignore_ascii_case(value))
        }
        "no" => match value {
            "label" => issue.labels.is_empty(),
            "assignee" => issue.assignees.is_empty(),
            "milestone" => issue.milestone.is_none(),
            _ => false,
        },
        "reason" => issue.state_reason.is_some_and(|reason| reason.name() == value.replace(' ', "_")),
        "head" => issue.pull.as_ref().is_some_and(|pull| pull.head.branch == value),
        "base" => issue.pull.as_ref().is_some_and(|pull| pull.base == value),
        "draft" => issue.pull.as_ref().is_some_and(|pull| pull.draft.to_string() == value),
        "comments" => is_in_range(value, &repository.list_comments(issue.number).count(), |text| text.parse().ok()),
        "created" => is_in_range(value, &issue.created_at, SimulatedTime::parse),
        "updated" => is_in_range(value, &issue.updated_at, SimulatedTime::parse),
        "closed" => issue.closed_at.is_some_and(|at| is_in_range(value, &at, SimulatedTime::parse)),
        _ => !qualifier.negated,
    }
}

/// Requires authentication, as on GitHub. Only default branches are searched, and whole words are matched.
fn search_code(call: &mut OperationCall<'_>) -> OperationResult {
    call.require_account()?;
    let search = parse_search_query(call)?;
    let mut found = Vec::new();
    for repository in find_searched_repositories(call, &search)? {
        let objects = call.state.objects(repository);
        let Some(head) = repository.default_branch_head().and_then(|head| objects.commit(head)) else {
            continue;
        };
        for (path, entry) in list_tree_entries(objects, head.tree).0 {
            let bytes = objects.blob(entry.id).unwrap_or_default();
            if !matches!(entry.mode, GitFileMode::File | GitFileMode::Executable) || bytes.len() > MAX_SEARCHED_BYTES {
                continue;
            }
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            // `in:path` searches paths instead of contents.
            let in_path = search.qualifiers_named("in").any(|one| one.value == "path");
            let texts = [text].into_iter().filter(|_| !in_path).chain(in_path.then_some(path.as_str()));
            if search.matches_words(texts)
                && search.qualifiers.iter().all(|one| one.negated != matches_file_qualifier(&path, text, one))
            {
                found.push((repository, path, entry));
            }
        }
    }
    Ok(build_search_reply(call, &found, |view, (repository, path, entry)| {
        let shown = view.render_content_entry(repository, path, entry, &repository.default_branch);
        json!({
            "name": shown["name"],
            "path": path,
            "sha": entry.id,
            "url": shown["url"],
            "git_url": shown["git_url"],
            "html_url": shown["html_url"],
            "repository": view.render_repository(repository),
            "score": 1.0,
        })
    }))
}

/// Whether a file matches one qualifier. Languages are recognised by extension.
fn matches_file_qualifier(path: &str, text: &str, qualifier: &SearchQualifier) -> bool {
    let value = qualifier.value.to_lowercase();
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match qualifier.name.as_str() {
        "filename" => name == value || name.starts_with(&format!("{value}.")),
        "extension" => ending == value.trim_start_matches('.'),
        "path" => {
            let folder = value.trim_matches('/');
            path == folder || path.starts_with(&format!("{folder}/"))
        }
        "language" => match value.as_str() {
            "python" => ending == "py",
            "rust" => ending == "rs",
            "javascript" => ending == "js",
            "typescript" => ending == "ts",
            "markdown" => ending == "md",
            "yaml" => ending == "yml" || ending == "yaml",
            "shell" => ending == "sh",
            other => ending == other,
        },
        "size" => is_in_range(&value, &text.len(), |text| text.parse().ok()),
        _ => !qualifier.negated,
    }
}
