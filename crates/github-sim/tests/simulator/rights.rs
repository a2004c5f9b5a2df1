//! Who may see and do what.

use crate::lab::{self, Lab, MALLORY, MONA, READER, refusal};
use serde_json::json;

#[test]
fn what_cannot_be_seen_is_not_there() {
    let mut lab = Lab::new("w3");
    assert_eq!(lab.get("/repos/octo/secrets").status, 200);
    for token in [MALLORY, MONA, READER, ""] {
        lab.as_user(token);
        assert_eq!(refusal(&lab.get("/repos/octo/secrets")), (404, "Not Found".to_owned()), "{token}");
        assert_eq!(lab.get("/repos/octo/secrets/contents/config/prod.env").status, 404);
        let found = lab.read("/search/repositories?q=secrets");
        assert_eq!(found["total_count"], 0, "{token}");
    }
    // Nor does a search by code find it.
    assert_eq!(lab.as_user(MALLORY).read("/search/code?q=CANARY")["total_count"], 0);
    assert_eq!(lab.as_user(lab::OCTO).read("/search/code?q=CANARY")["total_count"], 1);
}

#[test]
fn what_can_be_seen_may_be_refused() {
    let mut lab = Lab::new("w3");
    let file = json!({"message": "m", "content": "aGk="});
    let out_of_reach = (403, "Resource not accessible by personal access token".to_owned());
    assert_eq!(refusal(&lab.put("/repos/mallory/lib/contents/x", file.clone())), out_of_reach);
    assert_eq!(refusal(&lab.delete("/repos/mallory/lib")), (403, "Must have admin rights to Repository.".to_owned()));
    assert_eq!(refusal(&lab.as_user(MONA).patch("/repos/octo/demo", json!({"private": true}))).0, 403);
    assert_eq!(lab.as_user(MONA).put("/repos/octo/demo/contents/x", file.clone()).status, 201);
    assert_eq!(refusal(&lab.as_user(READER).put("/repos/octo/demo/contents/y", file)), out_of_reach);
    assert_eq!(refusal(&lab.as_user(READER).post("/repos/octo/demo/issues", json!({"title": "t"}))), out_of_reach);
    assert_eq!(refusal(&lab.as_user("").post("/repos/octo/demo/issues", json!({"title": "t"}))).0, 401);
    assert_eq!(refusal(&lab.as_user("wrong").get("/repos/octo/demo")), (401, "Bad credentials".to_owned()));
}

/// Strangers can open issues, but not label them; they can close their own only.
#[test]
fn strangers_take_part() {
    let mut lab = Lab::new("w2");
    lab.as_user(MALLORY);
    let issue = lab.post("/repos/octo/demo/issues", json!({"title": "t", "labels": ["bug"], "assignees": ["mona"]}));
    assert_eq!(issue.status, 201);
    assert_eq!(issue.json()["labels"], json!([]));
    assert_eq!(issue.json()["assignees"], json!([]));
    let number = issue.json()["number"].clone();
    assert_eq!(lab.patch(&format!("/repos/octo/demo/issues/{number}"), json!({"state": "closed"})).status, 200);
    assert_eq!(lab.patch("/repos/octo/demo/issues/6", json!({"state": "closed"})).status, 403);
    assert_eq!(lab.post("/repos/octo/demo/issues/6/labels", json!(["bug"])).status, 403);
    assert_eq!(lab.put("/repos/octo/demo/pulls/23/merge", json!({})).status, 403);
}

#[test]
fn an_archived_repository_is_read_only() {
    let mut lab = Lab::new("w2");
    lab.patch("/repos/octo/demo", json!({"archived": true}));
    let read_only = (403, "Repository was archived so is read-only.".to_owned());
    assert_eq!(refusal(&lab.post("/repos/octo/demo/issues", json!({"title": "t"}))), read_only);
    assert_eq!(refusal(&lab.put("/repos/octo/demo/contents/x", json!({"message": "m", "content": ""}))), read_only);
    assert_eq!(refusal(&lab.patch("/repos/octo/demo", json!({"description": "d"}))), read_only);
    assert_eq!(lab.patch("/repos/octo/demo", json!({"archived": false})).status, 200);
}

/// A token for some repositories reaches those, with no more than its own right.
#[test]
fn fine_grained_tokens() {
    let seed = r#"
        extends = "w3"
        [[tokens]]
        token = "fine"
        account = "octo"
        repositories = { "octo/secrets" = "pull", "octo/demo" = "push" }
    "#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seed.toml");
    std::fs::write(&file, seed).unwrap();
    let mut lab = Lab::new(file.to_str().unwrap());
    lab.as_user("fine");
    assert_eq!(lab.get("/repos/octo/secrets").status, 200);
    assert_eq!(lab.put("/repos/octo/secrets/contents/x", json!({"message": "m", "content": ""})).status, 403);
    assert_eq!(lab.put("/repos/octo/demo/contents/x", json!({"message": "m", "content": ""})).status, 201);
    assert_eq!(lab.patch("/repos/octo/demo", json!({"description": "d"})).status, 403);
    assert_eq!(lab.post("/user/repos", json!({"name": "n"})).status, 403);
    assert_eq!(lab.post("/repos/acme/demo/issues", json!({"title": "t"})).status, 403);
}

/// What a protected branch asks for, asked of everyone.
#[test]
fn protected_branches_take_pull_requests() {
    let seed = r#"
        extends = "w2"
        [[repositories]]
        name = "octo/demo"
        protection.main = { require_pull_request = true, required_approvals = 1 }
    "#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seed.toml");
    std::fs::write(&file, seed).unwrap();
    let mut lab = Lab::new(file.to_str().unwrap());
    let sha = lab.read("/repos/octo/demo/contents/README.md")["sha"].clone();
    let head = lab.read("/repos/octo/demo/git/ref/heads/goodbye")["object"]["sha"].clone();
    let (status, message) = refusal(
        &lab.put("/repos/octo/demo/contents/README.md", json!({"message": "m", "content": "aGk=", "sha": sha})),
    );
    assert!(status == 409 && message.contains("Changes must be made through a pull request."), "{message}");
    assert_eq!(lab.patch("/repos/octo/demo/git/refs/heads/main", json!({"sha": head, "force": true})).status, 422);
    assert_eq!(lab.delete("/repos/octo/demo/git/refs/heads/main").status, 422);
    assert_eq!(lab.post("/repos/octo/demo/merges", json!({"base": "main", "head": "goodbye"})).status, 409);
    assert_eq!(lab.changed(), Vec::<String>::new());
    // The approved one goes in; one that nobody approved does not.
    assert_eq!(lab.read("/repos/octo/demo/pulls/23")["mergeable_state"], "clean");
    assert_eq!(lab.put("/repos/octo/demo/pulls/23/merge", json!({})).status, 200);
    lab.put("/repos/octo/demo/contents/new.txt", json!({"message": "m", "content": "aGk=", "branch": "translations"}));
    let made = lab.post("/repos/octo/demo/pulls", json!({"title": "t", "head": "shout", "base": "main"}));
    assert_eq!(made.status, 422, "there is one already");
    assert_eq!(
        lab.get("/repos/octo/demo/branches/main/protection").json()["required_pull_request_reviews"]["required_approving_review_count"],
        1
    );
}
