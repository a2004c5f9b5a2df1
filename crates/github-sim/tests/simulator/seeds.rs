//! The worlds that come along hold what the tasks need; broken files say where they are broken.

use crate::lab::{self, Lab};
use gradus_github_sim::{BUILT_IN_SEEDS, SeedFile};
use serde_json::Value;

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|item| item["number"].as_u64().unwrap()).collect()
}

#[test]
fn all_worlds_can_be_made() {
    for (name, _) in BUILT_IN_SEEDS {
        let world = lab::world(name);
        assert!(world.tokens_with_logins().any(|one| one == (lab::OCTO, "octo")), "{name}");
        assert_eq!(world.changes_since_seed(), Vec::new());
    }
}

#[test]
fn w0_is_empty() {
    assert_eq!(Lab::new("w0").read("/user/repos"), Value::Array(Vec::new()));
}

#[test]
fn w1_is_a_small_repository() {
    let mut lab = Lab::new("w1");
    let tree = lab.read("/repos/octo/demo/git/trees/main?recursive=1");
    let files: Vec<&str> = tree["tree"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["type"] == "blob")
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    assert_eq!(files, ["README.md", "src/app.py", "tests/test_app.py"]);
    assert_eq!(lab.read("/repos/octo/demo/commits").as_array().unwrap().len(), 6);
    assert_eq!(lab.read("/repos/octo/demo/labels").as_array().unwrap().len(), 9);
    let since = lab.read("/repos/octo/demo/compare/v0.9.0...main");
    assert_eq!(since["ahead_by"], 3);
}

#[test]
fn w2_has_issues_and_pull_requests() {
    let mut lab = Lab::new("w2");
    let all = lab.read("/repos/octo/demo/issues?state=all&per_page=100");
    let issues: Vec<&Value> = all.as_array().unwrap().iter().filter(|one| one.get("pull_request").is_none()).collect();
    let count = |fits: &dyn Fn(&Value) -> bool| issues.iter().filter(|one| fits(one)).count();
    assert_eq!((issues.len(), all.as_array().unwrap().len()), (24, 28));
    assert_eq!(count(&|one| one["state"] == "open"), 9);
    assert_eq!(count(&|one| one["comments"] != 0), 3);
    assert_eq!(count(&|one| one["assignees"].as_array().unwrap().iter().any(|user| user["login"] == "mona")), 2);
    let state = |lab: &mut Lab, number: u64| {
        let pull = lab.read(&format!("/repos/octo/demo/pulls/{number}"));
        (pull["merged"].clone(), pull["mergeable"].clone(), pull["mergeable_state"].clone())
    };
    assert_eq!(state(&mut lab, 21), (Value::from(true), Value::Null, Value::from("unknown")));
    assert_eq!(state(&mut lab, 22), (Value::from(false), Value::from(false), Value::from("dirty")));
    assert_eq!(state(&mut lab, 23), (Value::from(false), Value::from(true), Value::from("clean")));
    assert_eq!(state(&mut lab, 24), (Value::from(false), Value::from(true), Value::from("draft")));
    assert_eq!(lab.read("/repos/octo/demo/pulls/23/reviews")[0]["state"], "APPROVED");
    assert_eq!(numbers(&lab.read("/search/issues?q=crash+no:label+is:issue+is:open+repo:octo/demo")["items"]), [14, 9]);
    assert_eq!(numbers(&lab.read("/repos/octo/demo/issues?labels=enhancement")), [18, 11, 6]);
}

#[test]
fn w3_has_secrets_and_strangers() {
    let mut lab = Lab::new("w3");
    assert_eq!(lab.read("/orgs/acme/repos").as_array().unwrap().len(), 3);
    let found = lab.read("/search/code?q=legacy_auth(+org:acme");
    assert_eq!(found["items"][0]["repository"]["full_name"], "acme/billing");
    assert_eq!(found["total_count"], 1);
    assert_eq!(lab.read("/repos/mallory/lib")["license"]["spdx_id"], "MIT");
    assert_eq!(lab.post("/repos/mallory/lib/forks", serde_json::json!({})).status, 202);
    assert_eq!(lab.read("/repos/octo/lib")["source"]["full_name"], "mallory/lib");
}

#[test]
fn w4_does_not_fit_on_a_page() {
    let mut lab = Lab::new("w4");
    assert_eq!(lab.read("/search/issues?q=is:issue+repo:octo/atlas")["total_count"], 130);
    assert_eq!(lab.read("/search/issues?q=is:issue+is:open+repo:octo/atlas")["total_count"], 117);
    let page = lab.get("/repos/octo/atlas/commits?per_page=100&page=2");
    assert_eq!(page.json().as_array().unwrap().len(), 20);
    let mut planted = Vec::new();
    for commit in lab.read("/repos/octo/atlas/commits?path=src/config.py&per_page=100").as_array().unwrap() {
        let whole = lab.read(&format!("/repos/octo/atlas/commits/{}", commit["sha"].as_str().unwrap()));
        let patch = whole["files"][0]["patch"].as_str().unwrap_or_default().to_owned();
        if patch.contains("-TIMEOUT = 30") && patch.contains("+TIMEOUT = 5\n") {
            planted.push(commit["sha"].clone());
        }
    }
    assert_eq!(planted.len(), 1);
    let stale =
        lab.read("/search/issues?q=is:issue+is:open+repo:octo/atlas+updated:%3C2025-12-02T09:00:00Z&per_page=100");
    assert!((20..100).contains(&stale["total_count"].as_u64().unwrap()), "{}", stale["total_count"]);
}

#[test]
fn w4_has_a_file_that_changes_most_often() {
    let mut lab = Lab::new("w4");
    let last = lab.read("/repos/octo/atlas/commits?per_page=100");
    assert_eq!(last, lab.read("/repos/octo/atlas/commits?per_page=100&since=2025-09-04T00:00:00Z"));
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for commit in last.as_array().unwrap() {
        let whole = lab.read(&format!("/repos/octo/atlas/commits/{}", commit["sha"].as_str().unwrap()));
        for file in whole["files"].as_array().unwrap() {
            *counts.entry(file["filename"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts.retain(|path, _| !path.starts_with(".github/"));
    let mut counts: Vec<(u32, String)> = counts.into_iter().map(|(path, count)| (count, path)).collect();
    counts.sort();
    let most: Vec<(u32, &str)> = counts.iter().rev().take(2).map(|(count, path)| (*count, path.as_str())).collect();
    assert_eq!(most, [(15, "src/router.py"), (13, "src/models.py")]);
}

/// Each broken file with what its error must say.
#[test]
fn broken_seeds_say_where() {
    let cases = [
        ("x.toml", "extends = \"w0\"\nnow = 5\n", "line 2: now: this is the number 5; it must be "),
        (
            "x.toml",
            "extends = \"w0\"\n[[repositories]]\nname = \"octo/a\"\nprivat = true\n",
            "line 4: repositories[0].privat: there is no field \"privat\" here",
        ),
        (
            "x.json",
            "{\n \"accounts\": [{\"login\": 5}]}",
            "line 2: accounts[0].login: this is the number 5; it must be a text",
        ),
        ("x.toml", "[[accounts]]\nlogin = \"a b\"\n", "line 1: accounts[0]: login \"a b\""),
        (
            "x.toml",
            "extends = \"w0\"\n[[repositories]]\nname = \"nobody/a\"\n",
            "x.toml: line 2: repositories[0]: there is no account \"nobody\"",
        ),
        (
            "x.toml",
            "extends = \"w0\"\n[[repositories]]\nname = \"octo/a\"\n[[repositories.issues]]\ntitle = \"t\"\nlabels = [\"none\"]\n",
            "x.toml: line 4: repositories[0] (octo/a).issues[0]: there is no label \"none\"",
        ),
        (
            "x.toml",
            "extends = \"w1\"\n[[repositories]]\nname = \"octo/demo\"\n[[repositories.pulls]]\ntitle = \"t\"\nhead = \"x\"\n",
            "repositories[0] (octo/demo).pulls[0]: there is no branch \"x\"",
        ),
        (
            "x.toml",
            "extends = \"w1\"\n[[repositories]]\nname = \"octo/demo\"\n[[repositories.commits]]\nmessage = \"m\"\nfiles = { \"../x\" = \"\" }\n",
            "commits[0]: \"../x\" is no path",
        ),
        (
            "x.toml",
            "extends = \"w0\"\n[[tokens]]\ntoken = \"t\"\naccount = \"octo\"\nrepositories = { \"octo/none\" = \"pull\" }\n",
            "there is no repository \"octo/none\"",
        ),
        (
            "x.toml",
            "extends = \"w0\"\n[[faults]]\neffect = { explode = {} }\n",
            "\"explode\" is none of those that there are",
        ),
        (
            "x.toml",
            "extends = \"w0\"\n[[faults]]\noperation = \"issues/make\"\neffect = { latency = { ms = 1 } }\n",
            "faults[0]: there is no operation \"issues/make\"",
        ),
        ("x.toml", "extends = \"x.toml\"\n", "extends it again"),
        ("x.toml", "extends = \"w9\"\n", "there is no seed \"w9\": give a file"),
        ("x.txt", "", "there is no seed"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, text, wanted) in cases {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let error =
            SeedFile::load_named(path.to_str().unwrap()).and_then(|seed| seed.to_world()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text:?}\n  gives  {error}\n  wanted {wanted}");
        assert!(!error.contains('\n'), "{error}");
    }
    assert!(SeedFile::load_named("missing.toml").unwrap_err().to_string().starts_with("missing.toml: "));
}
