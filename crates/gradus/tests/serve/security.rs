//! Who may do what, and what is never written down.

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use crate::lab::{LOGS_SERVICE, Lab, Request, Server, TRACE_SERVICE, eventually, frame, grpc};
use crate::spans::{Visit, attributes, export, log, span, trace_id};

fn add_key(lab: &Lab, name: &str, scopes: &str) -> String {
    let ran = lab.run(&["keys", "add", name, "--scopes", scopes]).exits_with(0);
    let key = ran.out.trim().to_owned();
    assert!(key.len() >= 30 && !key.contains(char::is_whitespace), "{key}");
    key
}

fn with_key(server: &Server, method: &str, path: &str, key: &str) -> Request {
    server.request(method, path).header("authorization", &format!("Bearer {key}"))
}

#[test]
fn a_server_that_others_can_reach_needs_keys() {
    let lab = Lab::new();
    for arguments in
        [["--http", "0.0.0.0:0", "--grpc", "127.0.0.1:0"], ["--http", "127.0.0.1:0", "--grpc", "0.0.0.0:0"]]
    {
        let ran = lab.serve_in_vain(&arguments);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains("gradus keys add") && ran.err.lines().count() == 1, "{}", ran.err);
    }
    let key = add_key(&lab, "all", "admin");
    let server = lab.serve_with(&["--http", "0.0.0.0:0", "--grpc", "0.0.0.0:0"]);
    let to = ([127, 0, 0, 1], server.http.port()).into();
    assert_eq!(Request::new(to, "GET", "/api/v1/projects").send().status, 401);
    let asked = Request::new(to, "GET", "/api/v1/projects").header("authorization", &format!("Bearer {key}"));
    assert_eq!(asked.send().status, 200);
    // Whoever looks after it may ask whether it lives.
    assert_eq!(Request::new(to, "GET", "/healthz").send().status, 200);
    drop(server);
    // A key that was revoked is none.
    lab.run(&["keys", "revoke", "all"]).exits_with(0);
    assert_eq!(lab.serve_in_vain(&["--http", "0.0.0.0:0"]).code, Some(2));
}

#[test]
fn keys_open_what_their_scope_names() {
    let lab = Lab::with("require_key = true", "");
    let keys: HashMap<&str, String> =
        ["ingest", "read", "admin"].map(|scope| (scope, add_key(&lab, scope, scope))).into();
    let server = lab.serve();
    let body = export("p", vec![span(1, 1, "s")]);
    let note = json!({"items": [{"target": "span:0000000000000001", "name": "n", "label": "good"}]});
    let ask = |key: &str| {
        let request = |method: &str, path: &str| with_key(&server, method, path, key);
        [
            request("POST", "/v1/traces").header("content-type", "application/x-protobuf").body(&body).send(),
            request("POST", "/v1/logs").header("content-type", "application/x-protobuf").send(),
            request("POST", "/api/v1/annotations").json(&note).send(),
            request("GET", "/api/v1/traces").send(),
            request("GET", "/metrics").send(),
            request("GET", "/openapi.json").send(),
            request("DELETE", "/api/v1/annotations/9").send(),
        ]
        .map(|reply| reply.status)
    };
    assert_eq!(ask(&keys["ingest"]), [200, 200, 200, 403, 403, 403, 403]);
    assert_eq!(ask(&keys["read"]), [403, 403, 403, 200, 200, 200, 403]);
    assert_eq!(ask(&keys["admin"]), [200, 200, 200, 200, 200, 200, 404]);
    assert_eq!(ask("grd_0000000000000000000000000000000000000000000"), [401; 7]);
    assert_eq!(ask(""), [401; 7]);
    let reply = server.post_traces(&body);
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
    // As OTLP asks for it: a status in the request's own encoding.
    assert_eq!(reply.header("content-type"), Some("application/x-protobuf"));
    assert!(reply.text().contains("gradus keys add"), "{}", reply.text());
    let reply = server.request("POST", "/v1/logs").json(&json!({})).send();
    assert_eq!((reply.status, &reply.json()["code"]), (401, &json!(16)));
    assert!(server.get("/api/v1/traces").error().contains("gradus keys add"));
    // A key must be right to its last character, and nothing else may stand there.
    let good = &keys["read"];
    let mut last = good.clone();
    let end = if last.pop() == Some('a') { 'b' } else { 'a' };
    last.push(end);
    for wrong in [&last, &good[..good.len() - 1], &format!("{good}a"), &good.to_uppercase()] {
        assert_eq!(with_key(&server, "GET", "/api/v1/traces", wrong).send().status, 401, "{wrong}");
    }
    // As exporters and other clients send it.
    for name in ["api_key", "x-api-key"] {
        assert_eq!(server.request("GET", "/api/v1/traces").header(name, good).send().status, 200, "{name}");
    }
    // Who annotates is known by the name of the key.
    let notes = with_key(&server, "GET", "/api/v1/annotations", good).send().json();
    let authors = notes["items"].as_array().unwrap().iter().map(|note| note["author"].as_str().unwrap());
    assert_eq!(authors.collect::<Vec<_>>(), ["ingest", "admin"], "{notes}");
    for (service, headers, wanted) in [
        (TRACE_SERVICE, vec![], 16),
        (LOGS_SERVICE, vec![], 16),
        (TRACE_SERVICE, vec![("authorization", "Bearer wrong".to_owned())], 16),
        (TRACE_SERVICE, vec![("authorization", format!("Bearer {}", keys["read"]))], 7),
        (TRACE_SERVICE, vec![("authorization", format!("Bearer {}", keys["ingest"]))], 0),
        (TRACE_SERVICE, vec![("api_key", keys["ingest"].clone())], 0),
    ] {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let message = if service == TRACE_SERVICE { body.as_slice() } else { &[] };
        let reply = grpc(server.grpc, service, &headers, frame(false, message));
        assert_eq!((reply.http_status, reply.status()), (200, wanted), "{reply:?}");
    }
    let (_, log) = server.stop();
    let listed = lab.run(&["keys", "list"]).exits_with(0);
    let stored = lab.stored_bytes();
    for (scope, key) in &keys {
        assert!(listed.out.contains(scope));
        let parts = [key.as_str(), &key[key.len() / 2..]];
        for part in parts {
            assert!(!listed.out.contains(part) && !log.contains(part), "{scope}");
            assert!(!holds(&stored, part), "{scope}: the key itself is on disk");
        }
    }
}

#[test]
fn a_revoked_key_is_refused_at_once() {
    let lab = Lab::with("require_key = true", "");
    let (first, second) = (add_key(&lab, "first", "ingest,read"), add_key(&lab, "second", "read"));
    let server = lab.serve();
    let status = |key: &str| with_key(&server, "GET", "/api/v1/traces", key).send().status;
    assert_eq!((status(&first), status(&second)), (200, 200));
    // One that is made while the server runs works at once.
    let third = add_key(&lab, "third", "read");
    assert_eq!(status(&third), 200);
    lab.run(&["keys", "revoke", "first"]).exits_with(0);
    assert_eq!(status(&first), 401);
    assert_eq!((status(&second), status(&third)), (200, 200));
    let listed = lab.run(&["keys", "list"]).exits_with(0).out;
    let states: Vec<bool> = listed.lines().map(|line| line.ends_with("revoked")).collect();
    assert_eq!(states, [true, false, false], "{listed}");
    for (arguments, wanted) in [
        (["keys", "revoke", "first"], "no valid key"),
        (["keys", "revoke", "nobody"], "no valid key"),
        (["keys", "add", "first"], "choose another name"),
        (["keys", "add", ""], "needs a name"),
    ] {
        let ran = lab.run(&arguments).exits_with(2);
        assert!(ran.err.contains(wanted) && ran.err.lines().count() == 1, "{}", ran.err);
    }
    let ran = lab.run(&["keys", "add", "x", "--scopes", "all"]).exits_with(2);
    assert!(ran.err.contains("ingest, read and admin"), "{}", ran.err);
}

/// A page from elsewhere may have its name point to this machine: it is known by the name it asks for.
#[test]
fn without_keys_only_this_machine_is_answered() {
    let lab = Lab::new();
    let server = lab.serve();
    let status = |host: &str, path: &str| server.request("GET", path).header("host", host).send().status;
    let port = server.http.port();
    for host in ["evil.example", "evil.example:4318", "localhost.evil.example", "10.0.0.1", "[2001:db8::1]:80"] {
        assert_eq!(status(host, "/api/v1/traces"), 403, "{host}");
        let sent = server
            .request("POST", "/v1/traces")
            .header("host", host)
            .header("content-type", "application/json")
            .body(b"{}");
        assert_eq!(sent.send().status, 403, "{host}");
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]", "[::1]:4318", &format!("a.localhost:{port}")] {
        assert_eq!(status(host, "/api/v1/traces"), 200, "{host}");
    }
}

#[test]
fn every_answer_has_its_headers_and_none_opens_it_to_others() {
    let lab = Lab::new();
    let server = lab.serve();
    for path in ["/", "/api/v1/projects", "/nothing", "/healthz", "/openapi.json", "/metrics"] {
        let reply = server.request("GET", path).header("origin", "https://evil.example").send();
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("x-frame-options"), Some("DENY"), "{path}");
        // With less, a browser would not even tell ourselves where a form comes from.
        let referrer = if path == "/" { "same-origin" } else { "no-referrer" };
        assert_eq!(reply.header("referrer-policy"), Some(referrer), "{path}");
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src") && policy.contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(reply.header("access-control-allow-origin"), None, "{path}");
        assert_eq!(reply.header("server"), None, "{path}");
    }
    let preflight = server
        .request("OPTIONS", "/v1/traces")
        .header("origin", "https://evil.example")
        .header("access-control-request-method", "POST")
        .send();
    assert_eq!(preflight.header("access-control-allow-origin"), None);
    drop(server);
    lab.configure("cors_origins = [\"https://page.example\"]", "");
    let server = lab.serve();
    for (origin, wanted) in
        [("https://page.example", Some("https://page.example")), ("https://evil.example", None), ("null", None)]
    {
        let reply = server.request("GET", "/api/v1/projects").header("origin", origin).send();
        assert_eq!(reply.header("access-control-allow-origin"), wanted, "{origin}");
    }
    drop(server);
    // A page with a key asks first, and without the key.
    lab.configure("cors_origins = [\"https://page.example\"]\nrequire_key = true", "");
    let key = add_key(&lab, "page", "read");
    let server = lab.serve();
    let preflight = |origin: &str| {
        let request = server.request("OPTIONS", "/api/v1/projects").header("origin", origin);
        request.header("access-control-request-method", "GET").send()
    };
    let allowed = preflight("https://page.example");
    assert_eq!(allowed.status, 204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://page.example"));
    assert!(allowed.header("access-control-allow-headers").unwrap().contains("authorization"));
    assert!(allowed.header("access-control-allow-methods").unwrap().contains("PATCH"));
    assert_eq!(preflight("https://evil.example").status, 401);
    let asked = with_key(&server, "GET", "/api/v1/projects", &key).header("origin", "https://page.example").send();
    assert_eq!((asked.status, asked.header("access-control-allow-origin")), (200, Some("https://page.example")));
}

#[test]
fn too_many_requests_are_told_when_to_come_again() {
    let lab = Lab::with("requests_per_second = 0.5\nrequire_key = true", "");
    let (first, second) = (add_key(&lab, "first", "ingest,read"), add_key(&lab, "second", "read"));
    let server = lab.serve();
    let refused = eventually("the rate is reached", || {
        let reply = with_key(&server, "GET", "/api/v1/projects", &first).send();
        (reply.status != 200).then_some(reply)
    });
    assert_eq!(refused.status, 429);
    assert!((1..=2).contains(&refused.header("retry-after").unwrap().parse::<u32>().unwrap()));
    let bearer = format!("Bearer {first}");
    let call = eventually("the rate is reached over gRPC", || {
        let reply = grpc(server.grpc, TRACE_SERVICE, &[("authorization", &bearer)], frame(false, &[]));
        (reply.status() != 0).then_some(reply)
    });
    assert!(matches!(call.status(), 8 | 14), "{call:?}");
    assert!(call.headers.contains_key("grpc-status-details-bin"), "it says when to come again");
    // Others have their own share, and health is always told.
    assert_eq!(with_key(&server, "GET", "/api/v1/projects", &second).send().status, 200);
    for _ in 0..5 {
        assert_eq!(server.get("/healthz").status, 200);
    }
    eventually("it passes", || {
        (with_key(&server, "GET", "/api/v1/projects", &first).send().status == 200).then_some(())
    });
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// What must not be kept is nowhere: not in the file, not in its log, not in what is shown or taken out.
#[test]
fn what_is_redacted_is_nowhere() {
    const TOKEN: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    const EMAIL: &str = "jane.doe@corp.example";
    const ORDER: &str = "ORDER-4711-secret";
    const CUSTOMER: &str = "771234567890";
    const SECRETS: [&str; 4] = [TOKEN, EMAIL, ORDER, CUSTOMER];
    let lab = Lab::with(
        "redact = [{ builtin = [\"github_tokens\", \"emails\"] }, { name = \"orders\", pattern = \"ORDER-[0-9]+-[a-z]+\" }, { name = \"customers\", pattern = \"77[0-9]{10}\" }]",
        "",
    );
    let server = lab.serve();
    let mut visit = Visit::new(5);
    visit.query = format!("Mail {EMAIL} about {ORDER} with {TOKEN}");
    visit.thought = format!("The token is {TOKEN}, and I use it.");
    visit.arguments = json!({"path": ORDER, "auth": {"token": TOKEN}}).to_string();
    let mut spans = visit.spans();
    spans[0].name = format!("call with {TOKEN}");
    spans[2].name = format!("agent of {EMAIL}");
    spans[1].status = Some(opentelemetry_proto::tonic::trace::v1::Status { code: 2, message: format!("no {ORDER}") });
    spans[1].events.push(opentelemetry_proto::tonic::trace::v1::span::Event {
        time_unix_nano: 5,
        name: format!("told {EMAIL}"),
        attributes: attributes(&[("exception.message", TOKEN)]),
        ..Default::default()
    });
    let mut request = crate::spans::request("p", spans);
    let resource = request.resource_spans[0].resource.as_mut().unwrap();
    resource.attributes.extend(attributes(&[("host.owner", EMAIL)]));
    request.resource_spans[0].scope_spans[0].scope =
        Some(opentelemetry_proto::tonic::common::v1::InstrumentationScope {
            name: format!("scope.{TOKEN}"),
            attributes: attributes(&[("owner", EMAIL)]),
            ..Default::default()
        });
    request.resource_spans[0].schema_url = format!("https://schema/{TOKEN}");
    request.resource_spans[0].scope_spans[0].schema_url = format!("https://schema/{ORDER}");
    server.export(&prost::Message::encode_to_vec(&request));
    server.export(&with_secrets_beside_texts(EMAIL, TOKEN, CUSTOMER.parse().unwrap()));
    // The same by JSON, and in a log record.
    let json = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": trace_id(6),
        "spanId": "0000000000000061", "name": TOKEN, "startTimeUnixNano": "5", "endTimeUnixNano": "6",
        "attributes": [{"key": "input.value", "value": {"arrayValue": {"values": [{"kvlistValue": {"values": [
            {"key": "deep", "value": {"stringValue": EMAIL}}]}}]}}}]}]}]}]});
    assert_eq!(server.request("POST", "/v1/traces").json(&json).send().status, 200);
    assert_eq!(server.post_logs(&log("p", 5, 5 << 8 | 2, "gen_ai.choice", &format!("I say {ORDER}"))).status, 200);
    // The project's name in a header, and what people say.
    let named = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
    let named = named.header("x-project-name", &format!("desk of {EMAIL}"));
    assert_eq!(named.body(&export("p", vec![span(7, 7, "s")])).send().status, 200);
    let note = json!({"target": format!("trace:{}", trace_id(7)), "name": "n", "explanation": format!("see {ORDER}"),
        "author": EMAIL, "metadata": {"token": TOKEN}});
    assert_eq!(server.request("POST", "/api/v1/annotations").json(&json!({"items": [note]})).send().status, 200);
    // What Phoenix's clients name and describe.
    let project = json!({"name": format!("of {EMAIL}"), "description": format!("about {ORDER}")});
    let made = server.request("POST", "/v1/projects").json(&project).send();
    assert_eq!(made.status, 200, "{}", made.text());
    let made: Json = serde_json::from_slice(&made.body).unwrap();
    let id = made["data"]["id"].as_str().unwrap().to_owned();
    let described = server.request("PUT", &format!("/v1/projects/{id}")).json(&json!({"description": TOKEN})).send();
    assert_eq!(described.status, 200, "{}", described.text());
    let said = json!({"data": [{"name": format!("by {EMAIL}"), "annotator_kind": "HUMAN", "session_id": ORDER,
        "identifier": TOKEN, "result": {"label": CUSTOMER}}]});
    let said = server.request("POST", "/v1/session_annotations").json(&said).send();
    assert_eq!(said.status, 200, "{}", said.text());
    // A request that is refused is not quoted, either.
    let bad = server.request("POST", "/v1/traces").header("content-type", "application/json");
    let refused = bad.body(format!("{{\"resourceSpans\": [{{\"{TOKEN}\": ").as_bytes()).send();
    assert_eq!(refused.status, 400);
    server.assembled();
    for path in [
        "/api/v1/traces".to_owned(),
        format!("/api/v1/traces/{}", trace_id(5)),
        "/api/v1/projects/p/spans".to_owned(),
        "/api/v1/projects/p/otlp".to_owned(),
        "/api/v1/projects/default/spans".to_owned(),
        "/api/v1/projects".to_owned(),
        "/api/v1/annotations".to_owned(),
        "/metrics".to_owned(),
    ] {
        let body = server.get(&path).body;
        for secret in SECRETS {
            assert!(!holds(&body, secret), "{secret} in {path}: {}", String::from_utf8_lossy(&body));
        }
    }
    let trajectory = &server.trace(&trace_id(5))["trajectories"][0];
    assert_eq!(trajectory["query"], "Mail [redacted:emails] about [redacted:orders] with [redacted:github_tokens]");
    assert_eq!(server.json("/api/v1/traces?q=4711")["items"], json!([]));
    // While it runs the write-ahead log is there, after it the file alone.
    let running = lab.stored_bytes();
    assert!(lab.path(".gradus/gradus.db-wal").exists());
    lab.run(&["store", "export", "all.zst"]).exits_with(0);
    let exported = zstd::decode_all(std::fs::File::open(lab.path("all.zst")).unwrap()).unwrap();
    let (_, log) = server.stop();
    // What is packed cannot hide it: blocks are read, too.
    let packed = exported_bodies(&exported);
    let places = [
        ("folder while running", running),
        ("folder", lab.stored_bytes()),
        ("export", exported),
        ("bodies", packed),
        ("log", log.into_bytes()),
        ("refusal", refused.body),
    ];
    for (place, bytes) in places {
        for secret in SECRETS {
            assert!(!holds(&bytes, secret), "{secret} in the {place}");
        }
    }
}

/// A request with secrets where there is no text: in a number, in bytes that are none, in keys, and in fields that no
/// message has.
fn with_secrets_beside_texts(email: &str, token: &str, customer: i64) -> Vec<u8> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    let mut one = span(8, 8, "s");
    let binary = [&[0xff, 0xfe][..], token.as_bytes()].concat();
    let values = [
        ("customer", Any::IntValue(customer)),
        ("customer.float", Any::DoubleValue(customer as f64)),
        ("raw", Any::BytesValue(binary)),
        (email, Any::BoolValue(true)),
    ];
    one.attributes.extend(values.into_iter().map(|(key, value)| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..Default::default()
    }));
    let mut body = prost::Message::encode_to_vec(&one);
    prost::encoding::string::encode(900, &token.to_owned(), &mut body);
    prost::encoding::int64::encode(901, &customer, &mut body);
    let inner = [&[0x0a, email.len() as u8][..], email.as_bytes(), &[0x12, 0x01, 0xff]].concat();
    prost::encoding::bytes::encode(902, &inner, &mut body);
    let mut request = Vec::new();
    for field in [2, 2, 1] {
        request.clear();
        prost::encoding::bytes::encode(field, &body, &mut request);
        body.clone_from(&request);
    }
    request
}

/// Whatever in an export is packed or written in base 64, as it is.
fn exported_bodies(exported: &[u8]) -> Vec<u8> {
    use base64::Engine as _;
    fn visit(value: &Json, out: &mut Vec<u8>) {
        match value {
            Json::String(text) => {
                if let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(text) {
                    out.extend(zstd::decode_all(bytes.as_slice()).unwrap_or(bytes));
                }
            }
            Json::Array(items) => items.iter().for_each(|item| visit(item, out)),
            Json::Object(entries) => entries.values().for_each(|value| visit(value, out)),
            _ => {}
        }
    }
    let mut out = Vec::new();
    crate::lab::json_lines(exported).iter().for_each(|line| visit(line, &mut out));
    out
}

#[test]
fn secrets_of_the_settings_are_in_no_log() {
    let lab = Lab::with(
        "",
        "[[rule]]\njudge = \"gpt-4o\"\nbase_url = \"http://user:hunter2@127.0.0.1:9/v1\"\n\
         [[alert]]\nname = \"a\"\nwhen = \"error_rate > 0.1 over 1h\"\n\
         webhook = \"http://127.0.0.1:9/hook-T0PSECRET?key=T0PSECRET\"\nslack = \"http://127.0.0.1:9/services/T0PSECRET\"\n\
         command = [\"/nonexistent/program\", \"--key=T0PSECRET\"]",
    );
    let mut command = lab.command(&["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--log-format", "json"]);
    command.env("OPENAI_API_KEY", "sk-T0PSECRET");
    let server = Server::start(command);
    for number in 1..=40 {
        let mut visit = Visit::new(number);
        visit.is_error = true;
        server.export(&visit.export("p"));
    }
    eventually("the command and the judge have failed", || {
        let log = server.log();
        (log.contains("/nonexistent/program") && log.contains("the judge")).then_some(())
    });
    let mut shown = server.get("/api/v1/alerts").text();
    shown += &server.get("/api/v1/rules").text();
    shown += &server.get("/api/v1/runs").text();
    shown += &server.get("/metrics").text();
    let (_, log) = server.stop();
    // Notices that were under way are told to be lost, with the address as far as it is no secret.
    assert!(log.contains("webhook http://127.0.0.1") && log.contains("slack http://127.0.0.1"), "{log}");
    for secret in ["T0PSECRET", "hunter2"] {
        assert!(!log.contains(secret), "{log}");
        assert!(!shown.contains(secret), "{shown}");
    }
}
