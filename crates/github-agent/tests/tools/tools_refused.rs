//! What tools say when something is wrong: with the arguments, with what is allowed, with GitHub, with the address.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::hands::{Hands, OCTO, everything};
use gradus_github_agent::tools::{
    GitHubTools, ToolEffect, ToolFamily, ToolRestrictions, ToolSet as _, ToolsError, all_tools,
};
use gradus_github_sim::{FaultEffect, SeedFile, SimulatedFault, SimulatorServer, World};
use proptest::prelude::*;
use serde_json::{Value, json};

fn world(seed: &str) -> World {
    SeedFile::load_named(seed).unwrap().to_world().unwrap()
}

fn fault(operation: &str, effect: FaultEffect) -> SimulatedFault {
    SimulatedFault { method: None, path: None, operation: Some(operation.to_owned()), after: 0, times: 1, effect }
}

fn offered(tools: &GitHubTools) -> Vec<&str> {
    tools.tools().iter().map(|tool| &*tool.definition.name).collect()
}

#[tokio::test]
async fn arguments_that_do_not_fit_never_reach_github() {
    let hands = Hands::new("w1");
    let seen = hands.fail("get_issue", json!({"owner": "octo", "issue_number": "5", "repository": "demo"})).await;
    assert_eq!(
        seen,
        json!({"error": "the arguments do not fit", "problems": [
            "repo: missing, expected a string",
            "issue_number: expected a whole number, got the string \"5\"",
            "repository: no such argument; there are: owner, repo, issue_number",
        ]})
    );
    for (name, arguments) in [
        ("get_repo", json!({"owner": "octo/demo", "repo": "demo"})),
        ("get_repo", json!({"owner": "octo", "repo": "octo/demo"})),
        ("get_repo", json!({"owner": "..", "repo": "demo"})),
        ("get_repo", json!({"owner": "octo", "repo": ""})),
        ("get_repo", json!([])),
        ("get_repo", json!(null)),
        ("star_repo", json!({"owner": "octo", "repo": "a/b"})),
        ("delete_branch", json!({"owner": "octo", "repo": "demo", "branch": ""})),
        ("delete_branch", json!({"owner": "octo", "repo": "demo", "branch": "a//b"})),
        ("read_file", json!({"owner": "octo", "repo": "demo", "path": "../../../user"})),
        ("delete_file", json!({"owner": "octo", "repo": "demo", "path": "a/..", "message": "m", "sha": "s"})),
        ("remove_label", json!({"owner": "octo", "repo": "demo", "issue_number": 1, "label": "."})),
        ("list_issues", json!({"owner": "octo", "repo": "demo", "labels": "bug"})),
        ("list_issues", json!({"owner": "octo", "repo": "demo", "per_page": 101})),
        ("list_issues", json!({"owner": "octo", "repo": "demo", "page": 5_000_000_000_u64})),
        ("list_issues", json!({"owner": "octo", "repo": "demo", "state": "OPEN"})),
        ("push_files", json!({"owner": "octo", "repo": "demo", "branch": "main", "message": "m", "files": []})),
        ("no_such_tool", json!({})),
    ] {
        hands.fail(name, arguments).await;
    }
    assert_eq!(hands.requests(), 0);
    hands.call("list_issues", json!({"owner": "octo", "repo": "demo", "state": null, "page": null})).await;
}

#[tokio::test]
async fn read_only_means_that_no_write_is_sent() {
    let hands = Hands::with(
        world("w2"),
        ToolRestrictions { read_only: true, allow_destructive: true, ..ToolRestrictions::default() },
    );
    assert!(hands.tools.tools().iter().all(|tool| tool.effect == ToolEffect::Read));
    assert!(offered(&hands.tools).contains(&"read_file"));
    for (_, tool) in all_tools().filter(|(_, tool)| tool.effect != ToolEffect::Read) {
        let seen = hands.fail(&tool.definition.name, json!({})).await;
        let message = seen["error"].as_str().unwrap();
        assert!(message.ends_with("changes things, and only reading is allowed here"), "{message}");
    }
    assert_eq!((hands.requests(), hands.changes().len()), (0, 0));
}

#[tokio::test]
async fn what_cannot_be_undone_must_be_allowed() {
    let hands = Hands::with(world("w2"), ToolRestrictions::default());
    assert!(offered(&hands.tools).contains(&"commit_file"));
    assert!(!offered(&hands.tools).contains(&"delete_repo"));
    let demo = json!({"owner": "octo", "repo": "demo"});
    let seen = hands.fail("delete_repo", demo).await;
    let why = "with these arguments cannot be undone, which is not allowed here";
    assert_eq!(seen["error"], format!("delete_repo {why}"));
    let seen = hands.fail("update_repo", json!({"owner": "octo", "repo": "demo", "archived": true})).await;
    assert_eq!(seen["error"], format!("update_repo {why}"));
    let force = json!({"owner": "octo", "repo": "demo", "branch": "main", "sha": "0", "force": true});
    assert_eq!(hands.fail("update_branch", force).await["error"], format!("update_branch {why}"));
    assert_eq!(hands.requests(), 0);
    hands.call("update_repo", json!({"owner": "octo", "repo": "demo", "description": "D"})).await;
}

#[tokio::test]
async fn families_and_names_choose_tools() {
    let limits = ToolRestrictions { families: vec![ToolFamily::Search, ToolFamily::Releases], ..everything() };
    let hands = Hands::with(world("w0"), limits);
    assert_eq!(
        offered(&hands.tools),
        ["search_code", "search_issues", "search_repositories", "list_releases", "create_release"]
    );
    let seen = hands.fail("get_me", json!({})).await;
    assert_eq!(seen["error"], "get_me is not among the tools that are allowed here");
    let named = ToolRestrictions { allowed: vec!["get_me".to_owned()], ..everything() };
    assert_eq!(offered(&GitHubTools::new("http://127.0.0.1:1", None, named).unwrap()), ["get_me"]);
    let wrong =
        |limits: ToolRestrictions| GitHubTools::new("http://127.0.0.1:1", None, limits).unwrap_err().to_string();
    assert_eq!(
        wrong(ToolRestrictions { allowed: vec!["get_you".to_owned()], ..everything() }),
        "there is no tool called \"get_you\"; `gradus tools` lists them"
    );
    let nothing = ToolRestrictions { allowed: vec!["delete_repo".to_owned()], ..ToolRestrictions::default() };
    assert_eq!(wrong(nothing), "with these limits there are no tools left");
}

#[tokio::test]
async fn refusals_are_told_as_github_tells_them() {
    let hands = Hands::new("w2");
    let missing = hands.fail("get_repo", json!({"owner": "octo", "repo": "nothing"})).await;
    assert_eq!(missing, json!({"error": "Not Found", "status": 404}));
    let taken = hands.fail("create_repo", json!({"name": "demo"})).await;
    assert_eq!((&taken["status"], &taken["errors"][0]["field"]), (&json!(422), &json!("name")));
    let both = json!({"owner": "octo", "repo": "demo", "base": "fix-typo", "head": "main"});
    hands.call("merge_branches", both).await;
    let both = json!({"owner": "octo", "repo": "demo", "base": "shout", "head": "main"});
    assert_eq!(hands.fail("merge_branches", both).await, json!({"error": "Merge conflict", "status": 409}));
    let gone = hands.fail("read_file", json!({"owner": "octo", "repo": "demo", "path": "no/such"})).await;
    assert_eq!(gone["status"], 404);
}

/// Nothing is tried again: what came is what the agent sees, at once.
#[tokio::test]
async fn limits_and_trouble_are_not_hidden() {
    let hands = Hands::new("w2");
    let trouble = |operation: &str, effect: FaultEffect| {
        hands.server.world().lock().unwrap().add_fault(fault(operation, effect));
    };
    let issue = json!({"owner": "octo", "repo": "demo", "issue_number": 5});
    trouble("issues/get", FaultEffect::SecondaryLimit { retry_after_s: 60 });
    let started = Instant::now();
    let seen = hands.see("get_issue", issue.clone()).await;
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(seen.is_error && seen.retry_after == Some(Duration::from_secs(60)), "{seen:?}");
    let told: Value = serde_json::from_str(&seen.text).unwrap();
    assert_eq!((&told["status"], &told["retry_after_s"]), (&json!(403), &json!(60)));
    assert_eq!(hands.requests(), 1);

    trouble("issues/create", FaultEffect::LostAnswer { status: 502 });
    let lost = hands.fail("open_issue", json!({"owner": "octo", "repo": "demo", "title": "once"})).await;
    assert_eq!(lost["status"], 502);
    assert!(lost["note"].as_str().unwrap().contains("look before you try again"));
    assert_eq!(hands.requests(), 2);
    let opened = hands.changes().into_iter().filter(|(_, one)| one["title"] == "once").count();
    assert_eq!(opened, 1);
    trouble("issues/get", FaultEffect::Answer { status: 503, message: "busy".to_owned(), retry_after_s: None });
    let busy = hands.fail("get_issue", issue.clone()).await;
    assert_eq!((&busy["status"], busy.get("note")), (&json!(503), None), "nothing can have been carried out");
    let later = || FaultEffect::Answer { status: 503, message: "busy".to_owned(), retry_after_s: Some(5) };
    trouble("issues/get", later());
    assert_eq!(hands.see("get_issue", issue.clone()).await.retry_after, Some(Duration::from_secs(5)));
    trouble("issues/create", later());
    let unsure = hands.see("open_issue", json!({"owner": "octo", "repo": "demo", "title": "twice"})).await;
    assert_eq!(unsure.retry_after, None, "nobody makes it again without looking: {unsure:?}");

    trouble("issues/get", FaultEffect::Latency { ms: 3_000 });
    let hasty = Duration::from_millis(200);
    let hasty = GitHubTools::with_timeout(&hands.server.url(), Some(OCTO), everything(), hasty).unwrap();
    let seen = hasty.call("get_issue", &issue).await;
    assert_eq!(seen.text, "{\"error\":\"GitHub did not answer: nothing came within 0.2 s\"}");
}

/// When the allowance is used up, GitHub tells when it begins anew, by its own clock.
#[tokio::test]
async fn the_primary_limit_says_how_long() {
    let seed = "extends = \"w1\"\n[limits]\ncore = 2\nenforced = true\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limited.toml");
    std::fs::write(&file, seed).unwrap();
    let hands = Hands::with(world(file.to_str().unwrap()), everything());
    let demo = json!({"owner": "octo", "repo": "demo"});
    hands.call("get_repo", demo.clone()).await;
    hands.call("get_repo", demo.clone()).await;
    let seen = hands.see("get_repo", demo).await;
    let wait = seen.retry_after.unwrap().as_secs();
    assert!((1..=3600).contains(&wait), "{wait}");
}

/// A server that gives the same answer to whatever is asked.
fn always(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

async fn probed(url: &str, token: &str) -> String {
    let tools = GitHubTools::new(url, Some(token), everything()).unwrap();
    tools.check_connection().await.map_or_else(|error| error.to_string(), |()| "fine".to_owned())
}

#[tokio::test]
async fn what_is_not_github_is_recognised() {
    let server = SimulatorServer::start(world("w0"), 0).unwrap();
    assert_eq!(probed(&server.url(), OCTO).await, "fine");
    assert_eq!(probed(&format!("{}/api/v3/", server.url()), OCTO).await, "fine");
    let told = probed(&server.url(), "ghp_secret").await;
    assert!(told.contains("does not take the token (Bad credentials)") && !told.contains("ghp_"), "{told}");

    let told = probed("http://127.0.0.1:1", OCTO).await;
    assert!(told.starts_with("cannot reach GitHub at http://127.0.0.1:1: Connection refused"), "{told}");
    let page = always("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>");
    let told = probed(&page, OCTO).await;
    assert!(told.contains("is not GitHub's API: it answers with text/html; github.com's is"), "{told}");
    let page = always("HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>");
    let told = probed(&page, OCTO).await;
    assert!(told.contains("it answers 404 with text/html;"), "{told}");
    let other = always("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
    assert!(probed(&other, OCTO).await.contains("it answers with other JSON;"));
    let told = probed(&always("SSH-2.0-OpenSSH\r\n"), OCTO).await;
    assert!(told.starts_with("cannot reach GitHub at"), "{told}");

    let page = always("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>");
    let tools = GitHubTools::new(&page, None, everything()).unwrap();
    let seen = tools.call("get_me", &json!({})).await;
    assert_eq!(seen.text, "{\"error\":\"this is not GitHub's answer: not JSON but text/html\"}");
}

#[tokio::test]
async fn addresses_and_tokens_are_looked_at_first() {
    let wrong = |url: &str| GitHubTools::new(url, Some(OCTO), everything()).unwrap_err().to_string();
    for url in ["", "github.com", "ftp://github.com", "https://", "https://a?b", "not a url"] {
        assert!(wrong(url).contains("is no address of GitHub's API"), "{url}: {}", wrong(url));
    }
    let told = wrong("https://octo:hunter2@github.com");
    assert!(told.contains("a user name in it") && !told.contains("hunter2"), "{told}");
    let error = GitHubTools::new("http://127.0.0.1:1", Some("ghp_a\nb"), everything()).unwrap_err();
    assert!(matches!(error, ToolsError::BadToken));
    let tools = GitHubTools::new("http://127.0.0.1:1", Some("ghp_secret"), everything()).unwrap();
    assert!(!format!("{tools:?}").contains("ghp_secret"));
    // Machines without certificates are told so at once.
    match GitHubTools::new("https://127.0.0.1:1", Some("ghp_secret"), everything()) {
        Ok(tools) => {
            assert!(tools.check_connection().await.unwrap_err().to_string().contains("Connection refused"))
        }
        Err(error) => assert!(error.to_string().starts_with("no HTTPS here"), "{error}"),
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof!["\\PC{0,20}", "[a-z./ %?#\\\\\\n]{0,12}"].prop_map(Value::from),
        prop_oneof![Just("octo"), Just("demo"), Just("main"), Just("README.md"), Just("open")].prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-z_]{0,8}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Arguments with the right names, mostly, and any values.
fn any_call() -> impl Strategy<Value = (String, Value)> {
    let tools: Vec<_> = all_tools().collect();
    (0..tools.len(), proptest::collection::vec((any_json(), 0..10_u8), 12), any_json()).prop_map(
        move |(at, values, other)| {
            let definition = &tools[at].1.definition;
            let names = definition.parameters["properties"].as_object().unwrap().keys();
            let fields = names.zip(values).filter_map(|(name, (value, luck))| {
                let value = match (luck, definition.parameters["properties"][name]["type"].as_str()) {
                    (0, _) => return None,
                    (1..=3, _) | (_, None) => value,
                    (_, Some("string")) => match value {
                        Value::String(text) => text.into(),
                        other => other.to_string().into(),
                    },
                    (_, Some("integer")) => json!(luck),
                    (_, Some("boolean")) => json!(luck % 2 == 0),
                    (_, Some("array")) => json!([value]),
                    (_, Some(_)) => value,
                };
                Some((name.clone(), value))
            });
            let arguments = Value::Object(fields.collect());
            (definition.name.to_string(), if other == true { other } else { arguments })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever a model writes, there is an observation, it is JSON, and what is refused changes nothing.
    #[test]
    fn any_arguments_give_an_observation(calls in proptest::collection::vec(any_call(), 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let hands = Hands::new("w2");
            for (name, arguments) in calls {
                let (requests, changes) = (hands.requests(), hands.changes());
                hands.tools.classify_effect(&name, &arguments);
                let seen = hands.see(&name, arguments).await;
                let told: Value = serde_json::from_str(&seen.text).unwrap();
                assert_eq!(seen.is_error, told.get("error").is_some(), "{}", seen.text);
                if seen.is_error {
                    assert_eq!(hands.changes(), changes, "{name}: {}", seen.text);
                }
                if told.get("problems").is_some() {
                    assert_eq!(hands.requests(), requests);
                }
            }
            let unrouted = hands.server.world().lock().unwrap().counters().unrouted.clone();
            assert!(unrouted.is_empty(), "{unrouted:?}");
        });
    }
}
