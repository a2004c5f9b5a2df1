//! Every tool on a simulated GitHub: what it says, and what it changed in the world.

use std::collections::BTreeSet;

use crate::hands::{self, Hands};
use gradus_github_agent::tools::{ToolEffect, ToolFamily, ToolSet as _, all_tools};
use gradus_github_sim::{RequestMethod, SimulatedRequest};
use serde_json::{Value, json};

fn numbers(list: &Value) -> Vec<u64> {
    list["items"].as_array().unwrap().iter().map(|one| one["number"].as_u64().unwrap()).collect()
}

fn values<'v>(list: &'v Value, field: &str) -> Vec<&'v str> {
    list["items"].as_array().unwrap().iter().map(|one| one[field].as_str().unwrap()).collect()
}

#[tokio::test]
async fn repositories() {
    let hands = Hands::new("w3");
    assert_eq!(hands.call("get_me", json!({})).await["login"], "octo");
    let mine = hands.call("list_my_repos", json!({"visibility": "private"})).await;
    assert_eq!(values(&mine, "full_name"), ["octo/secrets"]);
    let one = hands.call("list_my_repos", json!({"per_page": 1})).await;
    assert_eq!((one["items"].as_array().unwrap().len(), &one["next_page"]), (1, &json!(2)));

    let made = hands
        .call("create_repo", json!({"name": "notes", "description": "D", "private": true, "auto_init": true}))
        .await;
    assert_eq!((&made["full_name"], &made["default_branch"]), (&json!("octo/notes"), &json!("main")));
    let there = hands.changed("repos/octo/notes");
    assert_eq!((&there["private"], &there["description"]), (&json!(true), &json!("D")));
    assert_eq!(hands.call("get_repo", json!({"owner": "octo", "repo": "notes"})).await["private"], true);
    hands.call("update_repo", json!({"owner": "octo", "repo": "notes", "description": "E"})).await;
    assert_eq!(hands.changed("repos/octo/notes")["description"], "E");
    let deleted = hands.call("delete_repo", json!({"owner": "octo", "repo": "notes"})).await;
    assert_eq!(deleted, json!({"deleted": "octo/notes"}));
    assert!(!hands.changes().iter().any(|(path, _)| path.starts_with("repos/octo/notes")));
    hands.call("create_repo", json!({"name": "tools", "org": "acme"})).await;
    hands.changed("repos/acme/tools");

    let lib = json!({"owner": "mallory", "repo": "lib"});
    // A repository that was renamed is found by its old name.
    hands.call("update_repo", json!({"owner": "octo", "repo": "secrets", "name": "safe"})).await;
    let found = hands.call("get_repo", json!({"owner": "octo", "repo": "secrets"})).await;
    assert_eq!(found["full_name"], "octo/safe");
    let told = hands.call("update_repo", json!({"owner": "octo", "repo": "secrets", "description": "S"})).await;
    assert_eq!((&told["full_name"], &told["description"]), (&json!("octo/safe"), &json!("S")));

    let fork = hands.call("fork_repo", lib.clone()).await;
    assert_eq!((&fork["full_name"], &fork["parent"]), (&json!("octo/lib"), &json!("mallory/lib")));
    assert_eq!(hands.changed("repos/octo/lib")["fork_of"], "mallory/lib");
    hands.call("star_repo", lib.clone()).await;
    hands.changed("stars/octo/mallory/lib");
    assert_eq!(values(&hands.call("list_starred", json!({})).await, "full_name"), ["mallory/lib"]);
    hands.call("unstar_repo", lib).await;
    assert!(!hands.changes().iter().any(|(path, _)| path.starts_with("stars/")));
    hands.used_all(&[ToolFamily::Repos]);
}

#[tokio::test]
async fn files() {
    let hands = Hands::new("w1");
    let demo = |more: Value| {
        let mut all = json!({"owner": "octo", "repo": "demo"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let listed = hands.call("list_directory", demo(json!({}))).await;
    assert_eq!(values(&listed, "path"), ["README.md", "src", "tests"]);
    let listed = hands.call("list_directory", demo(json!({"path": "/src/"}))).await;
    assert_eq!(values(&listed, "type"), ["file"]);
    let file = hands.call("read_file", demo(json!({"path": "src/app.py"}))).await;
    assert!(file["content"].as_str().unwrap().contains("wonderful world"));
    let old = hands.call("read_file", demo(json!({"path": "src/app.py", "ref": "v0.9.0"}))).await;
    assert!(!old["content"].as_str().unwrap().contains("wonderful"));
    let wrong = hands.fail("read_file", demo(json!({"path": "src"}))).await;
    assert_eq!(wrong["error"], "src is a directory; use list_directory");
    let wrong = hands.fail("list_directory", demo(json!({"path": "README.md"}))).await;
    assert_eq!(wrong["error"], "README.md is not a directory; use read_file");

    let made = hands
        .call("commit_file", demo(json!({"path": "docs/ä b.md", "content": "# Ä\n", "message": "docs: add"})))
        .await;
    let there = hands.changed("repos/octo/demo/files/main:docs/ä b.md");
    assert!(there.to_string().contains(made["sha"].as_str().unwrap()), "{there} {made}");
    let again = hands.call("read_file", demo(json!({"path": "docs/ä b.md"}))).await;
    assert_eq!((&again["content"], &again["sha"]), (&json!("# Ä\n"), &made["sha"]));
    let changed = hands
        .call(
            "update_file_content",
            demo(json!({"path": "docs/ä b.md", "content": "B\n", "message": "m", "sha": made["sha"]})),
        )
        .await;
    assert_ne!(changed["commit_sha"], made["commit_sha"]);
    let stale = hands
        .fail(
            "update_file_content",
            demo(json!({"path": "docs/ä b.md", "content": "C\n", "message": "m", "sha": made["sha"]})),
        )
        .await;
    assert_eq!(stale["status"], 409);
    let gone =
        hands.call("delete_file", demo(json!({"path": "docs/ä b.md", "message": "m", "sha": changed["sha"]}))).await;
    assert!(gone["commit_sha"].is_string());
    assert!(!hands.changes().iter().any(|(path, _)| path.ends_with("b.md")));

    let before = hands.call("get_branch", demo(json!({"branch": "main"}))).await;
    let requests = hands.requests();
    let files = json!([{"path": "a/x.txt", "content": "x"}, {"path": "README.md", "content": "new\n"}]);
    let pushed =
        hands.call("push_files", demo(json!({"branch": "main", "message": "feat: two at once", "files": files}))).await;
    assert_eq!(hands.requests(), requests + 5);
    let after = hands.call("get_branch", demo(json!({"branch": "main"}))).await;
    assert_eq!((&after["sha"], &after["commit"]["parents"]), (&pushed["commit_sha"], &json!([before["sha"]])));
    assert_eq!(hands.call("read_file", demo(json!({"path": "README.md"}))).await["content"], "new\n");
    assert!(hands.call("read_file", demo(json!({"path": "src/app.py"}))).await["sha"] == file["sha"]);
    hands.used_all(&[ToolFamily::Files]);
}

#[tokio::test]
async fn long_and_strange_files_are_told() {
    let hands = Hands::new("w1");
    let long = "é".repeat(60_000);
    let place = json!({"owner": "octo", "repo": "demo", "path": "long.txt"});
    let mut commit = place.clone();
    commit["content"] = long.into();
    commit["message"] = "m".into();
    hands.call("commit_file", commit).await;
    let seen = hands.call("read_file", place).await;
    assert_eq!((seen["content"].as_str().unwrap().len(), &seen["size"]), (100_000, &json!(120_000)));
    assert!(seen["note"].as_str().unwrap().contains("first 100000 of 120000 bytes"), "{}", seen["note"]);

    let body = json!({"message": "m", "content": "/wD/"});
    let url = "/repos/octo/demo/contents/b.bin";
    let request = SimulatedRequest::new(RequestMethod::Put, url).with_token(hands::OCTO).with_json(&body);
    assert_eq!(hands.server.world().lock().unwrap().handle(&request).status, 201);
    let seen = hands.call("read_file", json!({"owner": "octo", "repo": "demo", "path": "b.bin"})).await;
    assert_eq!((&seen["note"], seen.get("content")), (&json!("This is not a text file, so it is not shown."), None));
}

#[tokio::test]
async fn branches_tags_and_commits() {
    let hands = Hands::new("w2");
    let demo = |more: Value| {
        let mut all = json!({"owner": "octo", "repo": "demo"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let branches = hands.call("list_branches", demo(json!({"per_page": 100}))).await;
    assert!(values(&branches, "name").contains(&"shout"));
    let main = hands.call("get_branch", demo(json!({"branch": "main"}))).await;
    assert_eq!(main["protected"], false);
    let (sha, parent) = (&main["sha"], &main["commit"]["parents"][0]);
    let made = hands.call("create_branch", demo(json!({"branch": "feature/x", "sha": parent}))).await;
    assert_eq!(made, json!({"branch": "feature/x", "ref": "refs/heads/feature/x", "sha": parent}));
    let there = hands.call("get_branch", demo(json!({"branch": "feature/x"}))).await;
    assert_eq!(&there["sha"], parent);
    hands.call("update_branch", demo(json!({"branch": "feature/x", "sha": sha}))).await;
    assert!(hands.changed("repos/octo/demo/branches/feature/x").to_string().contains(sha.as_str().unwrap()));
    let back = demo(json!({"branch": "feature/x", "sha": parent}));
    assert_eq!(hands.fail("update_branch", back.clone()).await["status"], 422);
    let mut forced = back;
    forced["force"] = true.into();
    assert_eq!(&hands.call("update_branch", forced).await["sha"], parent);

    let listed = hands.call("list_commits", demo(json!({"per_page": 2}))).await;
    assert_eq!((&listed["items"][0]["sha"], &listed["next_page"]), (sha, &json!(2)));
    let of_mona = hands.call("list_commits", demo(json!({"author": "mona", "path": "README.md"}))).await;
    assert!(values(&of_mona, "author").iter().all(|author| *author == "mona"));
    let commit = hands.call("get_commit", demo(json!({"ref": "shout"}))).await;
    assert_eq!(commit["files"][0]["filename"], "src/app.py");
    assert!(commit["files"][0]["patch"].as_str().unwrap().contains("+    if loud:"), "{commit}");
    let undone = hands
        .call(
            "create_commit",
            demo(json!({"message": "revert", "tree": main["commit"]["tree_sha"], "parents": [parent]})),
        )
        .await;
    hands.call("update_branch", demo(json!({"branch": "feature/x", "sha": undone["sha"]}))).await;
    let compared = hands.call("compare_commits", demo(json!({"base": "main", "head": "feature/x"}))).await;
    assert_eq!(
        (&compared["status"], &compared["ahead_by"], &compared["behind_by"], &compared["merge_base_sha"]),
        (&json!("diverged"), &json!(1), &json!(1), parent)
    );
    let merged = hands
        .call("merge_branches", demo(json!({"base": "feature/x", "head": "goodbye", "message": "merge it"})))
        .await;
    assert_eq!((&merged["merged"], &merged["message"]), (&json!(true), &json!("merge it")));
    let again = hands.call("merge_branches", demo(json!({"base": "feature/x", "head": "goodbye"}))).await;
    assert_eq!(again["merged"], false);
    hands.call("delete_branch", demo(json!({"branch": "feature/x"}))).await;
    assert!(!hands.changes().iter().any(|(path, _)| path.contains("branches/feature")));

    hands.call("create_tag", demo(json!({"tag": "v1.0.0", "sha": sha}))).await;
    assert!(hands.changed("repos/octo/demo/tags/v1.0.0").to_string().contains(sha.as_str().unwrap()));
    let tags = hands.call("list_tags", demo(json!({}))).await;
    assert_eq!(values(&tags, "name"), ["v1.0.0", "v0.9.0"]);
    let release =
        hands.call("create_release", demo(json!({"tag_name": "v1.0.0", "name": "One", "body": "notes"}))).await;
    assert_eq!((&release["draft"], &release["tag_name"]), (&json!(false), &json!("v1.0.0")));
    assert_eq!(hands.changed("repos/octo/demo/releases/v1.0.0")["body"], "notes");
    let releases = hands.call("list_releases", demo(json!({}))).await;
    assert_eq!(values(&releases, "tag_name"), ["v1.0.0", "v0.9.0"]);
    hands.used_all(&[ToolFamily::Branches, ToolFamily::Commits, ToolFamily::Releases]);
}

#[tokio::test]
async fn issues_labels_and_milestones() {
    let hands = Hands::new("w2");
    let demo = |more: Value| {
        let mut all = json!({"owner": "octo", "repo": "demo"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let bugs = hands.call("list_issues", demo(json!({"labels": ["bug"], "state": "open"}))).await;
    assert!(numbers(&bugs).contains(&5), "{bugs}");
    let all = hands.call("list_issues", demo(json!({"state": "all", "per_page": 100}))).await;
    assert_eq!(numbers(&all).len(), 28);
    let pulls = all["items"].as_array().unwrap().iter().filter(|one| one["is_pull_request"] == true);
    assert_eq!(pulls.count(), 4);
    assert_eq!(hands.call("get_issue", demo(json!({"issue_number": 5}))).await["title"], "Crash on empty name");

    let opened = hands
        .call(
            "open_issue",
            demo(json!({"title": "T", "body": "B", "labels": ["bug"], "assignees": ["mona"], "milestone": 1})),
        )
        .await;
    let number = &opened["number"];
    let path = format!("repos/octo/demo/issues/{number}");
    let there = hands.changed(&path);
    assert_eq!(
        (&there["title"], &there["labels"], &there["assignees"], &there["milestone"]),
        (&json!("T"), &json!(["bug"]), &json!(["mona"]), &json!(1))
    );
    let issue = |more: Value| {
        let mut all = demo(json!({"issue_number": number}));
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    hands.call("update_issue", issue(json!({"title": "U", "labels": []}))).await;
    assert_eq!(
        (&hands.changed(&path)["title"], &hands.changed(&path)["labels"]),
        (&json!("U"), &json!([])),
        "what is not given stays"
    );
    assert_eq!(hands.changed(&path)["body"], "B");
    let labels = hands.call("add_labels", issue(json!({"labels": ["bug", "documentation"]}))).await;
    assert_eq!(labels["labels"], json!(["bug", "documentation"]));
    let labels = hands.call("remove_label", issue(json!({"label": "bug"}))).await;
    assert_eq!(labels, json!({"issue_number": number, "labels": ["documentation"]}));
    let people = hands.call("add_assignees", issue(json!({"assignees": ["octo"]}))).await;
    assert_eq!(people["assignees"], json!(["mona", "octo"]));
    let people = hands.call("remove_assignees", issue(json!({"assignees": ["mona"]}))).await;
    assert_eq!(people, json!({"issue_number": number, "assignees": ["octo"]}));
    let comment = hands.call("comment_on_issue", issue(json!({"body": "logs?"}))).await;
    assert_eq!(hands.changed(&format!("{path}/comments/{}", comment["id"]))["body"], "logs?");
    let comments = hands.call("list_issue_comments", issue(json!({}))).await;
    assert_eq!(values(&comments, "body"), ["logs?"]);
    let closed = hands.call("close_issue", issue(json!({"reason": "not_planned"}))).await;
    assert_eq!((&closed["state"], &closed["state_reason"]), (&json!("closed"), &json!("not_planned")));
    assert_eq!(hands.changed(&path)["state_reason"], "not_planned");

    hands.call("create_label", demo(json!({"name": "p 0/x", "color": "#ff0000", "description": "D"}))).await;
    assert_eq!(hands.changed("repos/octo/demo/labels/p 0/x")["color"], "ff0000");
    hands.call("update_label", demo(json!({"name": "p 0/x", "new_name": "p0"}))).await;
    assert_eq!(hands.changed("repos/octo/demo/labels/p0")["description"], "D");
    let labels = hands.call("list_labels", demo(json!({"per_page": 100}))).await;
    assert!(values(&labels, "name").contains(&"p0"));
    hands.call("delete_label", demo(json!({"name": "p0"}))).await;
    assert!(!hands.changes().iter().any(|(path, _)| path.contains("/labels/")));

    let made = hands.call("create_milestone", demo(json!({"title": "v1", "due_on": "2026-12-24T00:00:00Z"}))).await;
    assert_eq!(made["number"], 2);
    hands.call("update_milestone", demo(json!({"milestone_number": 2, "state": "closed"}))).await;
    assert_eq!(hands.changed("repos/octo/demo/milestones/2")["state"], "closed");
    let milestones = hands.call("list_milestones", demo(json!({"state": "all"}))).await;
    assert_eq!(values(&milestones, "title"), ["v1", "1.1"], "what is due first");
    hands.used_all(&[ToolFamily::Issues, ToolFamily::Labels]);
}

#[tokio::test]
async fn pull_requests_and_search() {
    let hands = Hands::new("w3");
    let demo = |more: Value| {
        let mut all = json!({"owner": "octo", "repo": "demo"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let open = hands.call("list_pull_requests", demo(json!({"base": "main"}))).await;
    assert_eq!(numbers(&open).len(), 3);
    let pull = hands.call("get_pull_request", demo(json!({"pull_number": 23}))).await;
    assert_eq!((&pull["mergeable"], &pull["merged"]), (&json!(true), &json!(false)));
    let files = hands.call("list_pull_request_files", demo(json!({"pull_number": 23}))).await;
    assert!(files["items"][0]["patch"].is_string());
    let reviews = hands.call("list_reviews", demo(json!({"pull_number": 23}))).await;
    assert_eq!(values(&reviews, "state"), ["APPROVED"]);
    let stale = demo(json!({"pull_number": 23, "sha": "0000000000000000000000000000000000000000"}));
    assert_eq!(hands.fail("merge_pull_request", stale).await["status"], 409);
    let merged = hands
        .call(
            "merge_pull_request",
            demo(json!({"pull_number": 23, "merge_method": "squash", "sha": pull["head"]["sha"]})),
        )
        .await;
    assert_eq!(hands.changed("repos/octo/demo/pulls/23")["merged"]["commit"], merged["sha"]);

    let main = hands.call("get_branch", demo(json!({"branch": "main"}))).await;
    hands.call("create_branch", demo(json!({"branch": "b", "sha": main["sha"]}))).await;
    let file = demo(json!({"path": "NEW", "content": "n\n", "message": "feat: n", "branch": "b"}));
    hands.call("commit_file", file).await;
    let made = hands
        .call(
            "create_pull_request",
            demo(json!({"title": "N", "head": "b", "base": "main", "body": "Fixes #5", "draft": false})),
        )
        .await;
    let number = &made["number"];
    assert_eq!(hands.changed(&format!("repos/octo/demo/pulls/{number}"))["head"], "octo:b");
    assert!(made.get("mergeable").is_some(), "null is told: {made}");
    hands.call("update_pull_request", demo(json!({"pull_number": number, "title": "M"}))).await;
    assert_eq!(hands.changed(&format!("repos/octo/demo/issues/{number}"))["title"], "M");
    let own = demo(json!({"pull_number": number, "event": "APPROVE"}));
    assert_eq!(hands.fail("create_review", own).await["status"], 422);
    let review =
        hands.call("create_review", demo(json!({"pull_number": number, "event": "COMMENT", "body": "see NEW"}))).await;
    let path = format!("repos/octo/demo/pulls/{number}/reviews/{}", review["id"]);
    assert_eq!(hands.changed(&path)["body"], "see NEW");

    let code = hands.call("search_code", json!({"query": "legacy_auth org:acme"})).await;
    assert_eq!((&code["total_count"], values(&code, "repository")), (&json!(1), vec!["acme/billing"]));
    let found = hands
        .call("search_issues", json!({"query": "crash repo:octo/demo is:open", "sort": "created", "order": "asc"}))
        .await;
    assert_eq!((&found["total_count"], &found["items"][0]["repository"]), (&json!(3), &json!("octo/demo")));
    let found = hands.call("search_repositories", json!({"query": "library user:mallory"})).await;
    assert_eq!(values(&found, "full_name"), ["mallory/lib"]);
    let unrouted = hands.server.world().lock().unwrap().counters().unrouted.clone();
    assert!(unrouted.is_empty(), "{unrouted:?}");
    hands.used_all(&[ToolFamily::Pulls, ToolFamily::Search]);
}

/// Tools and families have one name each, the destructive ones are known, and every schema is closed.
#[test]
fn the_list_of_tools() {
    let tools: Vec<_> = all_tools().collect();
    let names: BTreeSet<_> = tools.iter().map(|(_, tool)| tool.definition.name.to_string()).collect();
    assert_eq!(names.len(), tools.len());
    let destructive: Vec<_> = tools.iter().filter(|(_, tool)| tool.effect == ToolEffect::Destructive).collect();
    let destructive: Vec<_> = destructive.iter().map(|(_, tool)| &*tool.definition.name).collect();
    assert_eq!(destructive, ["delete_repo", "delete_file", "delete_branch", "delete_label"]);
    for family in ToolFamily::ALL {
        assert!(tools.iter().any(|(one, _)| *one == family), "{family}");
    }
    for (_, tool) in &tools {
        let schema = &tool.definition.parameters;
        assert_eq!(schema["additionalProperties"], false, "{}", tool.definition.name);
        assert!(!tool.definition.description.is_empty(), "{}", tool.definition.name);
        only_known_words(schema);
    }
}

/// The checker must know all that schemas say.
fn only_known_words(schema: &Value) {
    const KNOWN: [&str; 11] = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "minimum",
        "maximum",
        "minLength",
        "minItems",
        "description",
    ];
    for word in schema.as_object().unwrap().keys() {
        assert!(KNOWN.contains(&word.as_str()), "{word} in {schema}");
    }
    schema["properties"].as_object().into_iter().flatten().for_each(|(_, one)| only_known_words(one));
    schema.get("items").into_iter().for_each(only_known_words);
}

/// What models are shown. `GRADUS_BLESS=1` writes it anew.
#[test]
fn schemas_are_as_they_were() {
    let shown: Vec<_> = all_tools()
        .map(|(family, tool)| {
            let definition = &tool.definition;
            json!({
                "name": definition.name, "family": family.name(), "effect": format!("{:?}", tool.effect),
                "description": definition.description, "parameters": definition.parameters,
            })
        })
        .collect();
    let shown = serde_json::to_string_pretty(&shown).unwrap() + "\n";
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/tools.json");
    if std::env::var_os("GRADUS_BLESS").is_some() {
        std::fs::write(file, &shown).unwrap();
    }
    let kept = std::fs::read_to_string(file).unwrap();
    assert!(kept == shown, "the tools changed; if that is right, run again with GRADUS_BLESS=1");
}

#[tokio::test]
async fn what_a_call_does_depends_on_its_arguments() {
    let hands = Hands::new("w0");
    let effect = |name: &str, more: Value| {
        let mut all = json!({"owner": "octo", "repo": "demo"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        hands.tools.classify_effect(name, &all)
    };
    assert_eq!(effect("get_repo", json!({})), ToolEffect::Read);
    assert_eq!(effect("update_branch", json!({"branch": "b", "sha": "s"})), ToolEffect::Write);
    assert_eq!(effect("update_branch", json!({"branch": "b", "sha": "s", "force": null})), ToolEffect::Write);
    assert_eq!(effect("update_branch", json!({"branch": "b", "sha": "s", "force": true})), ToolEffect::Destructive);
    assert_eq!(effect("update_repo", json!({"private": true})), ToolEffect::Write);
    assert_eq!(effect("update_repo", json!({"private": false})), ToolEffect::Destructive);
    assert_eq!(effect("update_repo", json!({"archived": true})), ToolEffect::Destructive);
    assert_eq!(effect("update_issue", json!({"issue_number": 1, "body": ""})), ToolEffect::Destructive);
    assert_eq!(effect("delete_repo", json!({"nonsense": 1})), ToolEffect::Destructive);
    assert_eq!(effect("no_such_tool", json!({})), ToolEffect::Read);
}
