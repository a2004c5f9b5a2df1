//! Any requests in any order: never a panic, never a 5xx that nobody asked for, a refusal changes nothing, and what must
//! always hold does.

use crate::lab;
use std::collections::BTreeSet;

use gradus_github_sim::state::{IssueState, WorldState};
use gradus_github_sim::{RequestMethod, SimulatedRequest, World};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use serde_json::{Value, json};

const TOKENS: [&str; 6] = [lab::OCTO, lab::MONA, lab::MALLORY, lab::READER, "unknown", ""];
const METHODS: [RequestMethod; 6] = [
    RequestMethod::Get,
    RequestMethod::Post,
    RequestMethod::Put,
    RequestMethod::Patch,
    RequestMethod::Delete,
    RequestMethod::Head,
];

/// Segments that mean something, and some that do not.
const WORDS: [&str; 61] = [
    "repos",
    "octo",
    "demo",
    "mallory",
    "lib",
    "user",
    "users",
    "orgs",
    "acme",
    "issues",
    "pulls",
    "comments",
    "labels",
    "bug",
    "milestones",
    "contents",
    "README.md",
    "src",
    "app.py",
    "git",
    "refs",
    "ref",
    "heads",
    "main",
    "tags",
    "v0.9.0",
    "trees",
    "blobs",
    "commits",
    "branches",
    "merge",
    "merges",
    "reviews",
    "events",
    "releases",
    "latest",
    "forks",
    "starred",
    "gists",
    "search",
    "repositories",
    "code",
    "statuses",
    "status",
    "compare",
    "main...shout",
    "files",
    "assignees",
    "lock",
    "topics",
    "5",
    "22",
    "23",
    "1007",
    "999999999999999999999",
    "%00",
    "..",
    "",
    "secrets",
    "requested_reviewers",
    "collaborators",
];

/// Paths of real operations, with names filled in.
const PATHS: [&str; 44] = [
    "/user",
    "/user/repos",
    "/repos/octo/demo",
    "/repos/octo/secrets",
    "/repos/octo/new",
    "/repos/mallory/lib/forks",
    "/repos/octo/demo/contents/README.md",
    "/repos/octo/demo/contents/a/b.txt",
    "/repos/octo/demo/contents/src",
    "/repos/octo/demo/contents/README.md/x",
    "/repos/octo/demo/git/refs",
    "/repos/octo/demo/git/refs/heads/main",
    "/repos/octo/demo/git/refs/heads/shout",
    "/repos/octo/demo/git/refs/heads/x",
    "/repos/octo/demo/git/trees",
    "/repos/octo/demo/git/trees/main",
    "/repos/octo/demo/git/blobs",
    "/repos/octo/demo/git/commits",
    "/repos/octo/demo/commits",
    "/repos/octo/demo/commits/main",
    "/repos/octo/demo/compare/main...goodbye",
    "/repos/octo/demo/merges",
    "/repos/octo/demo/issues",
    "/repos/octo/demo/issues/5",
    "/repos/octo/demo/issues/22",
    "/repos/octo/demo/issues/5/comments",
    "/repos/octo/demo/issues/5/labels",
    "/repos/octo/demo/issues/5/labels/bug",
    "/repos/octo/demo/issues/5/assignees",
    "/repos/octo/demo/labels",
    "/repos/octo/demo/labels/bug",
    "/repos/octo/demo/milestones",
    "/repos/octo/demo/milestones/1",
    "/repos/octo/demo/pulls",
    "/repos/octo/demo/pulls/22",
    "/repos/octo/demo/pulls/23",
    "/repos/octo/demo/pulls/23/merge",
    "/repos/octo/demo/pulls/22/reviews",
    "/repos/octo/demo/pulls/22/files",
    "/repos/octo/demo/releases",
    "/repos/octo/demo/statuses/main",
    "/user/starred/mallory/lib",
    "/gists",
    "/search/issues",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z#/.: \n]{0,12}".prop_map(Value::from),
        prop::sample::select(
            &[
                "main",
                "shout",
                "goodbye",
                "octo",
                "mona",
                "mallory",
                "bug",
                "refs/heads/x",
                "refs/heads/main/y",
                "closed",
                "open",
                "squash",
                "rebase",
                "APPROVE",
                "aGVsbG8=",
                "100644",
                "a/b.txt",
                "README.md",
                "blob",
                "Fixes #5",
                "../x",
                "new",
                "2026-01-01T00:00:00Z",
                "ff0000",
                "v1",
                "octo:shout",
            ][..]
        )
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..4).prop_map(|pairs| pairs.into_iter().collect()),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(
        &[
            "name",
            "title",
            "body",
            "head",
            "base",
            "sha",
            "ref",
            "message",
            "content",
            "branch",
            "labels",
            "assignees",
            "state",
            "path",
            "mode",
            "type",
            "tree",
            "base_tree",
            "parents",
            "force",
            "draft",
            "private",
            "auto_init",
            "archived",
            "default_branch",
            "merge_method",
            "event",
            "comments",
            "tag_name",
            "files",
            "color",
            "new_name",
            "milestone",
            "reviewers",
            "q",
            "encoding",
            "state_reason",
            "description",
            "commit_title",
            "author",
            "visibility",
            "line",
            "due_on",
        ][..],
    )
    .prop_map(str::to_owned)
}

/// Requests that are right in themselves, so that more than the first check is met.
fn sensible() -> Vec<(RequestMethod, &'static str, Value)> {
    use RequestMethod::{Delete, Patch, Post, Put};
    let demo = |rest: &str| -> &'static str { Box::leak(format!("/repos/octo/demo{rest}").into_boxed_str()) };
    let world = lab::world("w3");
    let repository =
        world.state().repository_by_name("octo", "demo").and_then(|id| world.state().repository(id)).unwrap();
    let (main, shout) = (repository.branch_head("main").unwrap(), repository.branch_head("shout").unwrap());
    let tree = world.state().objects(repository).commit(main).unwrap().tree;
    vec![
        (Post, "/user/repos", json!({"name": "new", "auto_init": true, "private": true})),
        (Post, "/user/repos", json!({"name": "empty"})),
        (Patch, "/repos/octo/demo", json!({"name": "renamed", "description": null, "default_branch": "shout"})),
        (Put, "/repos/octo/empty/contents/a", json!({"message": "m", "content": "aGk=", "branch": "first"})),
        (Put, demo("/contents/a/b.txt"), json!({"message": "m", "content": "aGk=", "branch": "main"})),
        (Put, demo("/contents/a"), json!({"message": "m", "content": "aGk=", "branch": "shout"})),
        (Post, demo("/git/refs"), json!({"ref": "refs/heads/x", "sha": main.to_string()})),
        (Patch, demo("/git/refs/heads/main"), json!({"sha": shout.to_string(), "force": true})),
        (Patch, demo("/git/refs/heads/shout"), json!({"sha": main.to_string(), "force": true})),
        (Delete, demo("/git/refs/heads/shout"), json!({})),
        (Post, demo("/git/blobs"), json!({"content": "aGk=", "encoding": "base64"})),
        (
            Post,
            demo("/git/trees"),
            json!({"base_tree": tree.to_string(), "tree": [{"path": "src", "mode": "040000", "type": "tree", "sha": tree.to_string()}]}),
        ),
        (
            Post,
            demo("/git/commits"),
            json!({"message": "m", "tree": tree.to_string(), "parents": [shout.to_string(), main.to_string()]}),
        ),
        (Post, demo("/merges"), json!({"base": "main", "head": "goodbye"})),
        (Post, demo("/merges"), json!({"base": "shout", "head": "main"})),
        (
            Post,
            demo("/issues"),
            json!({"title": "t", "body": "Fixes #5", "labels": ["bug", "new"], "assignees": ["mona"], "milestone": 1}),
        ),
        (Patch, demo("/issues/5"), json!({"state": "closed", "state_reason": "duplicate", "labels": []})),
        (Patch, demo("/issues/22"), json!({"state": "closed"})),
        (Patch, demo("/issues/22"), json!({"state": "open"})),
        (Post, demo("/issues/5/comments"), json!({"body": "b"})),
        (Post, demo("/labels"), json!({"name": "new", "color": "ff0000"})),
        (Patch, demo("/labels/bug"), json!({"new_name": "new"})),
        (Post, demo("/milestones"), json!({"title": "v1"})),
        (Delete, demo("/milestones/1"), json!({})),
        (Post, demo("/pulls"), json!({"title": "t", "head": "translations", "base": "shout", "body": "Closes #6"})),
        (Patch, demo("/pulls/23"), json!({"base": "shout", "state": "closed"})),
        (Patch, demo("/pulls/23"), json!({"state": "open"})),
        (Put, demo("/pulls/23/merge"), json!({"merge_method": "rebase"})),
        (Put, demo("/pulls/23/merge"), json!({"merge_method": "squash"})),
        (Put, demo("/pulls/22/update-branch"), json!({})),
        (
            Post,
            demo("/pulls/22/reviews"),
            json!({"event": "REQUEST_CHANGES", "body": "b", "comments": [{"path": "src/app.py", "line": 1, "body": "c"}]}),
        ),
        (Post, demo("/pulls/22/requested_reviewers"), json!({"reviewers": ["octo"]})),
        (Post, demo("/releases"), json!({"tag_name": "v1", "target_commitish": "shout", "draft": false})),
        (Post, "/repos/mallory/lib/forks", json!({"name": "demo-lib"})),
        (Post, "/gists", json!({"files": {"a": {"content": "x"}}, "public": true})),
        (Delete, "/repos/octo/demo", json!({})),
        (Patch, "/repos/octo/demo", json!({"archived": true})),
    ]
}

/// One of those, sometimes with a field gone or not as it should be.
fn likely() -> impl Strategy<Value = (RequestMethod, String, Vec<u8>)> {
    let change =
        prop_oneof![3 => Just(None), 1 => (any::<prop::sample::Index>(), prop::option::of(value())).prop_map(Some)];
    (prop::sample::select(sensible()), change).prop_map(|((method, path, mut body), change)| {
        if let (Some((index, value)), Some(fields)) = (change, body.as_object_mut())
            && !fields.is_empty()
        {
            let name = fields.keys().nth(index.index(fields.len())).unwrap().clone();
            match value {
                Some(value) => drop(fields.insert(name, value)),
                None => drop(fields.remove(&name)),
            }
        }
        (method, path.to_owned(), body.to_string().into_bytes())
    })
}

fn request() -> impl Strategy<Value = SimulatedRequest> {
    let walked =
        prop::collection::vec(prop::sample::select(&WORDS[..]), 0..7).prop_map(|words| format!("/{}", words.join("/")));
    let path = prop_oneof![4 => prop::sample::select(&PATHS[..]).prop_map(str::to_owned), 1 => walked];
    let query = prop_oneof![
        3 => Just(String::new()),
        1 => prop::sample::select(&["q=crash+is:open", "state=all&per_page=2&page=3", "ref=shout", "recursive=1", "sha=x", "q=%22", "page=-1&per_page=x"][..])
            .prop_map(str::to_owned),
        1 => "[a-z=&%+:]{0,20}",
    ];
    let fields = prop::collection::vec((key(), value()), 0..8).prop_map(|pairs| pairs.into_iter().collect::<Value>());
    let body = prop_oneof![
        4 => fields.prop_map(|body| body.to_string().into_bytes()),
        1 => value().prop_map(|body| body.to_string().into_bytes()),
        1 => Just(Vec::new()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    let accept = prop::sample::select(
        &[
            "application/json",
            "application/vnd.github.raw+json",
            "application/vnd.github.diff",
            "application/vnd.github.full+json",
        ][..],
    );
    // Writers mostly: nobody else gets far.
    let token = prop_oneof![4 => Just(lab::OCTO), 1 => prop::sample::select(&TOKENS[..])];
    let wild = (prop::sample::select(&METHODS[..]), path, body);
    (prop_oneof![wild, likely()], query, accept, token).prop_map(|((method, path, body), query, accept, token)| {
        let mut request =
            SimulatedRequest::new(method, &path).with_header("accept", accept).with_header("host", "127.0.0.1:1");
        if !token.is_empty() {
            request = request.with_token(token);
        }
        request.query = query;
        request.body = body;
        request
    })
}

/// What must hold in every state.
fn check(state: &WorldState) -> Result<(), TestCaseError> {
    for repository in state.repositories.values() {
        let objects = state.objects(repository);
        prop_assert!(state.account(repository.owner).is_some());
        for (name, id) in &repository.refs {
            prop_assert!(objects.commit(*id).is_some(), "{name} leads nowhere");
        }
        prop_assert!(repository.is_empty() || repository.default_branch_head().is_some(), "no default branch");
        let names: BTreeSet<String> = repository.labels.values().map(|label| label.name.to_lowercase()).collect();
        prop_assert_eq!(names.len(), repository.labels.len(), "two labels of one name");
        for (number, issue) in &repository.issues {
            prop_assert_eq!(*number, issue.number);
            prop_assert_eq!(issue.closed_at.is_some(), issue.state == IssueState::Closed);
            prop_assert!(issue.labels.iter().all(|label| repository.labels.contains_key(label)));
            prop_assert!(issue.milestone.is_none_or(|number| repository.milestones.contains_key(&number)));
            prop_assert!(issue.updated_at >= issue.created_at);
            if let Some(pull) = &issue.pull {
                prop_assert!(objects.commit(state.pull_head(issue, pull)).is_some());
                prop_assert!(objects.commit(state.pull_base(repository, issue, pull)).is_some());
                prop_assert!(pull.merged.is_none() || issue.state == IssueState::Closed);
            }
        }
        prop_assert!(repository.comments.values().all(|comment| repository.issues.contains_key(&comment.issue)));
        prop_assert_eq!(state.repository_by_name(state.login(repository.owner), &repository.name), Some(repository.id));
    }
    Ok(())
}

/// Reading a seed takes longer than the requests: it is read once.
fn fresh() -> World {
    static WORLD: std::sync::OnceLock<World> = std::sync::OnceLock::new();
    WORLD.get_or_init(|| lab::world("w3")).clone()
}

proptest! {
    #[test]
    fn nothing_breaks_it(requests in prop::collection::vec(request(), 1..15)) {
        let mut world = fresh();
        for request in &requests {
            let before = world.snapshot();
            let response = world.handle(request);
            let told = format!("{} {}?{} {}", request.method.name(), request.path, request.query, String::from_utf8_lossy(&request.body));
            prop_assert!(response.status < 500 || response.status == 501, "{} on {told}", response.status);
            if response.status >= 300 || request.method.is_read() {
                prop_assert!(world.state() == before.state(), "{told} was answered with {} and changed something", response.status);
            }
            if response.status >= 400 && request.method != RequestMethod::Head {
                let body = response.json();
                prop_assert!(body["message"].is_string() && body["documentation_url"].is_string(), "{told}: {body}");
                prop_assert_eq!(&body["status"], &json!(response.status.to_string()));
            }
            check(world.state())?;
        }
    }
}

/// The test above says nothing if all its requests are refused at the door.
#[test]
fn random_requests_get_somewhere() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut world = fresh();
    let mut written = BTreeSet::new();
    let requests = request();
    for _ in 0..3_000 {
        let request = requests.new_tree(&mut runner).unwrap().current();
        let response = world.handle(&request);
        if response.status < 300 && !request.method.is_read() {
            written.extend(world.recent_requests().last().and_then(|entry| entry.operation));
            world.reset();
        }
    }
    assert!(written.len() >= 25, "only {} operations ever went well: {written:?}", written.len());
}
