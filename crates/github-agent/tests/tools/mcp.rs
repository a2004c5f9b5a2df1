//! Tools of a real MCP server, `examples/mcp_server.rs`, over both ways to reach one.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::hands::{Hands, everything};
use gradus_github_agent::mcp::{McpServerSpec, McpTools};
use gradus_github_agent::tools::{CombinedToolSet, ToolEffect, ToolRestrictions, ToolSet};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// Built with the tests, beside them.
fn peer() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let peer = tests.parent().unwrap().parent().unwrap().join("examples/mcp_server");
    assert!(peer.exists(), "cargo build -p gradus-github --example mcp_server comes first");
    peer
}

fn server(more: &str) -> McpServerSpec {
    format!("SECRET_FOR_IT=1 '{}' {more}", peer().display()).parse().unwrap()
}

async fn started(limits: ToolRestrictions, timeout: Duration) -> McpTools {
    McpTools::connect(&server(""), limits, timeout).await.unwrap()
}

fn names(tools: &dyn ToolSet) -> Vec<&str> {
    tools.tools().iter().map(|tool| &*tool.definition.name).collect()
}

async fn call(tools: &dyn ToolSet, name: &str, arguments: Value) -> (bool, String) {
    let seen = tools.call(name, &arguments).await;
    (seen.is_error, seen.text)
}

#[tokio::test]
async fn a_server_that_is_started() {
    let tools = started(everything(), PATIENCE).await;
    assert_eq!(tools.name(), "test_peer");
    assert_eq!(names(&tools), ["math_add", "get_me", "environment", "sleep", "die", "wipe"]);
    let effects: Vec<_> = tools.tools().iter().map(|tool| tool.effect).collect();
    let (reads, writes) = (ToolEffect::Read, ToolEffect::Write);
    assert_eq!(effects, [reads, reads, reads, writes, writes, ToolEffect::Destructive]);
    assert_eq!(tools.tools()[0].definition.parameters["properties"]["a"]["type"], "integer");

    assert_eq!(call(&tools, "math_add", json!({"a": 2, "b": 40})).await, (false, "42".to_owned()));
    let (is_error, told) = call(&tools, "math_add", json!({"a": "two"})).await;
    let problem = "a: expected a whole number, got the string \\\"two\\\"";
    let unfit = format!("{{\"error\":\"the arguments do not fit\",\"problems\":[\"{problem}\"]}}");
    assert_eq!((is_error, told), (true, unfit), "it is not sent at all");
    let (_, told) = call(&tools, "math_add", json!({"a": 2.0, "b": 4e1})).await;
    assert_eq!(told, "42", "to JSON Schema these are whole numbers");
    // It gets what was checked: no null where null does not fit.
    let (_, told) = call(&tools, "get_me", json!({"page": null, "note": null, "x": 1.0})).await;
    assert_eq!(told, "the peer, given {\"note\":null,\"x\":1.0}");
    // What its schema does not demand, the server may.
    let (is_error, told) = call(&tools, "math_add", json!({"a": 2, "b": null})).await;
    assert_eq!((is_error, told.as_str()), (true, "{\"error\":\"a and b must be numbers\"}"));
    assert_eq!(call(&tools, "wipe", json!({})).await, (true, "it would not go away".to_owned()));
    let (_, told) = call(&tools, "math_add", json!([1, 2])).await;
    assert_eq!(told, "{\"error\":\"the arguments: expected a JSON object\"}");
    let (_, told) = call(&tools, "get_me", Value::Null).await;
    assert_eq!(told, "{\"error\":\"the arguments: expected a JSON object\"}");
    let (_, told) = call(&tools, "math.add", json!({})).await;
    assert_eq!(told, "{\"error\":\"there is no tool called \\\"math.add\\\"\"}");

    // What it gets of our environment: what it was given, and no keys.
    let (_, environment) = call(&tools, "environment", json!({})).await;
    let has = |name: &str| environment.split(' ').any(|one| one == name);
    assert!(has("PATH") && has("SECRET_FOR_IT"), "{environment}");
    assert!(!environment.contains("CARGO"), "{environment}");
}

#[tokio::test]
async fn limits_hold_for_others_tools() {
    let careful = started(ToolRestrictions::default(), PATIENCE).await;
    assert_eq!(names(&careful), ["math_add", "get_me", "environment", "sleep", "die"]);
    let (is_error, told) = call(&careful, "wipe", json!({})).await;
    assert!(is_error && told.contains("cannot be undone, which is not allowed here"), "{told}");
    let reading = started(ToolRestrictions { read_only: true, ..everything() }, PATIENCE).await;
    assert_eq!(names(&reading), ["math_add", "get_me", "environment"]);
    let one = ToolRestrictions { allowed: vec!["wipe".to_owned()], ..ToolRestrictions::default() };
    let error = McpTools::connect(&server(""), one, PATIENCE).await.unwrap_err().to_string();
    assert!(error.ends_with("offers no tools that are allowed here"), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_or_dies_is_an_observation() {
    let hasty = Duration::from_secs(2);
    let tools = started(everything(), hasty).await;
    let began = Instant::now();
    let (is_error, told) = call(&tools, "sleep", json!({"ms": 60_000})).await;
    assert!(is_error && began.elapsed() < Duration::from_secs(10));
    assert!(told.contains("the MCP server test_peer did not answer within 2 s"), "{told}");
    assert!(told.contains("look before you try again"), "{told}");
    assert_eq!(call(&tools, "sleep", json!({"ms": 1})).await, (false, "awake".to_owned()), "it is still there");

    let (is_error, told) = call(&tools, "die", json!({})).await;
    assert!(is_error && told.contains("the MCP server test_peer has ended"), "{told}");
    let (is_error, told) = call(&tools, "get_me", json!({})).await;
    assert!(is_error, "{told}");
    assert_eq!(told, "{\"error\":\"the MCP server test_peer has ended (it said: [31mout of memory)\"}");
}

/// Does not outlive us.
#[tokio::test]
async fn servers_end_with_their_tools() {
    let tools = started(everything(), PATIENCE).await;
    let alive = || std::fs::read_dir("/proc").is_ok().then(children).unwrap_or_default();
    let before = alive();
    assert!(!cfg!(target_os = "linux") || !before.is_empty());
    drop(tools);
    let deadline = Instant::now() + PATIENCE;
    while !before.is_empty() && alive().iter().any(|one| before.contains(one)) {
        assert!(Instant::now() < deadline, "still there: {:?}", alive());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Process ids of servers that this test process started; other tests in this process can have theirs.
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    let ids = std::fs::read_dir("/proc").unwrap().filter_map(|one| one.unwrap().file_name().into_string().ok());
    ids.filter(|id| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // After the name in parentheses: the state, then the parent.
        let rest: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        rest.first() != Some(&"Z") && rest.get(1) == Some(&own.as_str())
    })
    .collect()
}

#[tokio::test]
async fn what_is_not_a_server_is_told_in_a_line() {
    let told = async |text: &str| {
        let server: McpServerSpec = text.parse().unwrap();
        let error = McpTools::connect(&server, everything(), Duration::from_secs(3)).await.unwrap_err().to_string();
        assert!(!error.contains('\n') && error.len() < 600, "{error}");
        error
    };
    let error = told("/no/such/program --with secret").await;
    assert!(error.starts_with("the MCP server \"/no/such/program\" cannot be started: No such file"), "{error}");
    let error = told(&format!("'{}' --broken", peer().display())).await;
    assert!(error.contains("does not answer as an MCP server") && error.contains("it said: no such table"), "{error}");
    let error = told(&format!("'{}' --silent", peer().display())).await;
    assert!(error.ends_with("did not answer within 3 s"), "{error}");
    let error = told("echo hello").await;
    assert!(error.contains("does not answer as an MCP server"), "{error}");
    let error = told("http://127.0.0.1:1/mcp").await;
    assert!(error.starts_with("http://127.0.0.1:1/mcp does not answer as an MCP server"), "{error}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>");
        }
    });
    let error = told(&url).await;
    assert!(error.contains("does not answer as an MCP server") && error.contains("text/html"), "{error}");
}

struct Listening(Child, String);

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listening() -> Listening {
    let mut child = Command::new(peer()).arg("--http").stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    Listening(child, format!("http://127.0.0.1:{}/mcp", port.trim()))
}

#[tokio::test]
async fn a_server_that_listens() {
    let mut there = listening();
    let server: McpServerSpec = there.1.parse().unwrap();
    let tools = McpTools::connect(&server, everything(), Duration::from_secs(3)).await.unwrap();
    assert_eq!(tools.name(), "test_peer");
    assert_eq!(call(&tools, "math_add", json!({"a": 1, "b": 2})).await, (false, "3".to_owned()));
    let (is_error, told) = call(&tools, "sleep", json!({"ms": 60_000})).await;
    assert!(is_error && told.contains("did not answer within 3 s"), "{told}");
    there.0.kill().unwrap();
    there.0.wait().unwrap();
    let (is_error, told) = call(&tools, "math_add", json!({"a": 1, "b": 2})).await;
    assert!(is_error && told.contains("the MCP server test_peer"), "{told}");
}

/// GitHub's tools and another's, one of which has the same name.
#[tokio::test]
async fn github_and_a_server_together() {
    let hands = Hands::new("w0");
    let others = started(everything(), PATIENCE).await;
    let name = others.name().to_owned();
    let boxes = CombinedToolSet::new(vec![("github".to_owned(), Arc::new(hands.tools)), (name, Arc::new(others))]);
    assert!(names(&boxes).contains(&"test_peer_get_me"));
    let (_, told) = call(&boxes, "get_me", json!({})).await;
    assert!(told.contains("\"login\":\"octo\""), "{told}");
    assert_eq!(call(&boxes, "test_peer_get_me", json!({})).await, (false, "the peer".to_owned()));
}
