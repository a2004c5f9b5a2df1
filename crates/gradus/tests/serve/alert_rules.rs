//! Alert rules that people make on the page or with the API.

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Reply, Server, eventually};
use crate::spans::{SECOND_NS, Visit, now_ns};

const FILE: &str = "[[alert]]\nname = \"of the file\"\nwhen = \"error_rate > 0.9 over 1h\"\n";

fn ask(server: &Server, method: &str, path: &str, body: &Json) -> Reply {
    server.request(method, path).json(body).send()
}

fn rule(name: &str, webhook: &str) -> Json {
    json!({"name": name, "when": "call_validity < 1 over 1h, at least 5 steps", "webhook": webhook})
}

fn listed(server: &Server) -> Vec<Json> {
    server.json("/api/v1/alerts")["rules"].as_array().unwrap().clone()
}

#[test]
fn a_rule_is_made_changed_muted_exported_and_deleted() {
    let lab = Lab::with("alert_networks = [\"127.0.0.1\"]", FILE);
    let server = lab.serve();
    let hook = "http://127.0.0.1:9/hook?token=secret";
    assert_eq!(ask(&server, "POST", "/api/v1/alert-rules", &rule("calls / all", hook)).status, 201);
    assert_eq!(ask(&server, "POST", "/api/v1/alert-rules", &rule("calls / all", hook)).status, 409);
    let rules = listed(&server);
    let origins: Vec<&Json> = rules.iter().map(|rule| &rule["origin"]).collect();
    assert_eq!(origins, ["file", "page"]);
    assert!(!server.get("/api/v1/alerts").text().contains("secret"));
    assert!(!server.get("/alerts").text().contains("secret"));
    let export = server.get("/api/v1/alert-rules/export").text();
    assert!(export.contains("[[alert]]") && export.contains(hook) && !export.contains("of the file"), "{export}");
    // It stays after a restart, and the exported form is one that the settings take.
    server.kill();
    let server = lab.serve();
    assert_eq!(listed(&server)[1]["name"], "calls / all");
    let path = "/api/v1/alert-rules/calls%20%2F%20all";
    assert_eq!(ask(&server, "PUT", path, &rule("calls", hook)).status, 204);
    assert_eq!(
        listed(&server).iter().map(|rule| rule["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
        ["of the file", "calls"]
    );
    let path = "/api/v1/alert-rules/calls";
    assert_eq!(ask(&server, "PUT", &format!("{path}/mute"), &json!({"hours": 2})).status, 204);
    assert!(listed(&server)[1]["is_muted"] == true && listed(&server)[1]["muted_until"].is_string());
    assert_eq!(ask(&server, "PUT", "/api/v1/alert-rules/of%20the%20file/mute", &json!({"hours": null})).status, 204);
    assert_eq!(server.request("DELETE", &format!("{path}/mute")).send().status, 204);
    assert_eq!((&listed(&server)[0]["is_muted"], &listed(&server)[1]["is_muted"]), (&json!(true), &json!(false)));
    // Rules of the file are changed there.
    let other = "/api/v1/alert-rules/of%20the%20file";
    assert_eq!(ask(&server, "PUT", other, &rule("of the file", hook)).status, 409);
    assert_eq!(server.request("DELETE", other).send().status, 409);
    assert_eq!(server.request("DELETE", path).send().status, 204);
    assert_eq!((server.request("DELETE", path).send().status, listed(&server).len()), (404, 1));
    server.kill();
    lab.configure("", &export);
    lab.serve();
}

#[test]
fn an_alert_on_rules_that_only_give_flags_measures_the_share_without_a_flag() {
    let lab = Lab::new();
    let server = lab.serve();
    for (name, when) in [("flags", "thought_to_tool < 0.8 over 1h"), ("decided", "call_validity < 1 over 1h")] {
        assert_eq!(ask(&server, "POST", "/api/v1/alert-rules", &json!({"name": name, "when": when})).status, 201);
    }
    // One flag among judged steps is no reason for an alert at 0.8.
    for number in 1..=10_u128 {
        server.export(&Visit::new(number).export("p"));
    }
    server.assembled();
    let decided = server.json("/api/v1/metrics?evaluator=thought_to_tool")["items"][0].clone();
    let text = eventually("measured", || {
        let text = server.get("/alerts").text();
        text.contains("of 10 steps").then_some(text)
    });
    assert!(decided["abstained"].as_u64().unwrap() > 0, "{decided}");
    let row =
        |name: &str| text.split("<tr>").find(|row| row.contains(&format!("<bdi>{name}</bdi>"))).unwrap().to_owned();
    let flags = row("flags");
    assert!(flags.contains("share of judged cases without a flag") && flags.contains("<b>1.000</b>"), "{flags}");
    assert!(flags.contains("not firing") && row("decided").contains("mean score of decided cases"), "{text}");
}

#[test]
fn an_alert_on_two_kinds_of_judges_is_refused() {
    let rules = "[[rule]]\nname = \"by model\"\nproject = \"shop*\"\njudge = \"openai/gpt-4o\"\n\
                 base_url = \"http://127.0.0.1:9/v1\"\n[[rule]]\nname = \"by rules\"\n";
    let lab = Lab::with("", rules);
    let server = lab.serve();
    let create = |name: &str, project: Option<&str>, when: &str| {
        let body = json!({"name": name, "project": project, "when": when});
        let reply = ask(&server, "POST", "/api/v1/alert-rules", &body);
        (reply.status, reply.text())
    };
    let when = "thought_to_tool < 0.8 over 1h";
    let (status, text) = create("both", None, when);
    assert!(status == 422 && text.contains("there is no common score"), "{text}");
    for (name, project, when) in [
        ("of the model", Some("shop"), when),
        ("of the model in some projects", Some("shop-*"), when),
        ("of the rules", Some("web*"), when),
        ("facts", None, "call_validity < 1 over 1h"),
    ] {
        let (status, text) = create(name, project, when);
        assert_eq!(status, 201, "{name}: {text}");
    }
}

#[test]
fn what_the_page_may_not_do_is_refused() {
    let lab = Lab::with("", FILE);
    let server = lab.serve();
    let refused = |body: Json| {
        let reply = ask(&server, "POST", "/api/v1/alert-rules", &body);
        (reply.status, reply.text())
    };
    for private in
        ["http://127.0.0.1:9/secret", "http://localhost/secret", "http://169.254.169.254/secret", "http://[::1]/secret"]
    {
        let (status, text) = refused(rule("calls", private));
        assert!(status == 422 && text.contains("private address") && !text.contains("secret"), "{private}: {text}");
    }
    let mut with_command = rule("calls", "https://1.1.1.1/x");
    with_command["command"] = json!(["sh", "-c", "id"]);
    assert_eq!(refused(with_command).0, 400);
    let (status, text) = refused(json!({"name": "calls", "when": "call_validty < 1 over 1h"}));
    assert!(status == 422 && text.contains("call_validity"), "{text}");
    assert_eq!(listed(&server).len(), 1);
    // A page of another site cannot make one.
    let form = server.request("POST", "/alerts").header("origin", "https://evil.example");
    let form =
        form.header("content-type", "application/x-www-form-urlencoded").body(b"name=x&when=unseen_tool+over+7d");
    assert_eq!(form.send().status, 403);
}

#[test]
fn alerts_are_changed_with_the_scope_admin_only() {
    let lab = Lab::with("require_key = true", FILE);
    let key = |scopes: &str| {
        let ran = lab.run(&["keys", "add", scopes, "--scopes", scopes]).exits_with(0);
        format!("Bearer {}", ran.out.trim())
    };
    let (both, admin) = (key("ingest,read"), key("admin"));
    let server = lab.serve();
    let status = |key: &str, method: &str, path: &str, body: &Json| {
        server.request(method, path).header("authorization", key).json(body).send().status
    };
    let body = json!({"name": "calls", "when": "unseen_tool over 7d"});
    let name = "/api/v1/alert-rules/of%20the%20file";
    let attempts = [
        ("POST", "/api/v1/alert-rules".to_owned(), 201),
        ("PUT", "/api/v1/alert-rules/calls".to_owned(), 204),
        ("POST", format!("{name}/test"), 200),
        ("GET", "/api/v1/alert-rules/export".to_owned(), 200),
        ("GET", "/alerts/export".to_owned(), 200),
        ("GET", "/alerts/edit".to_owned(), 200),
    ];
    for (method, path, wanted) in attempts {
        assert_eq!(status(&both, method, &path, &body), 403, "{method} {path}");
        assert_eq!(status(&admin, method, &path, &body), wanted, "{method} {path}");
    }
    let page = |key: &str| server.request("GET", "/alerts").header("authorization", key).send().text();
    assert!(page(&admin).contains("New alert") && !page(&both).contains("New alert"));
}

#[test]
fn a_firing_rule_is_on_every_page() {
    let lab = Lab::with("", "");
    let server = lab.serve();
    let body = json!({"name": "calls", "when": "call_validity < 1 over 1h, at least 5 steps"});
    assert_eq!(ask(&server, "POST", "/api/v1/alert-rules", &body).status, 201);
    for number in 1..12 {
        let mut visit = Visit::new(number);
        visit.start_ns = now_ns() - 3 * SECOND_NS;
        visit.arguments = json!({"file": 7}).to_string();
        server.export(&visit.export("p"));
    }
    server.assembled();
    let has_badge = |path: &str| server.get(path).text().contains("class=\"nav-badge\">1<");
    // Pages that stay open ask for the number.
    eventually("it is counted", || (server.get("/alerts/firing").text() == "1").then_some(()));
    for path in ["/", "/traces", "/review", "/runs", "/rubrics", "/server", "/alerts", "/start"] {
        eventually("the badge is there", || has_badge(path).then_some(()));
    }
    eventually("the chart shows it", || server.get("/?range=24h").text().contains("class=\"fired\"").then_some(()));
    assert_eq!(server.metric("gradus_alert_firing{rule=\"calls\"}"), Some(1.0));
    assert_eq!(ask(&server, "PUT", "/api/v1/alert-rules/calls/mute", &json!({"hours": null})).status, 204);
    eventually("the badge is gone", || (!has_badge("/traces")).then_some(()));
    assert_eq!(server.metric("gradus_alert_muted{rule=\"calls\"}"), Some(1.0));
}
