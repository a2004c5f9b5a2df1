//! A server for one other process, and traces that are judged at once because somebody asks for it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value as Json, json};

use crate::lab::{Lab, Request, eventually};
use crate::spans::{Visit, trace_id};

/// A server as another process starts it: by its standard input and its one line of output.
struct EphemeralProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    line: Json,
}

impl EphemeralProcess {
    fn start(mut command: Command) -> EphemeralProcess {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let stdin = child.stdin.take();
        EphemeralProcess { child, stdin, line: serde_json::from_str(&line).unwrap() }
    }

    fn address(&self, name: &str) -> SocketAddr {
        self.line[name].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap()
    }

    fn folder(&self) -> &Path {
        Path::new(self.line["data"].as_str().unwrap())
    }

    fn settle(&self, timeout_s: &str) -> (u16, Json) {
        let reply = Request::new(self.address("http"), "POST", &format!("/api/v1/settle?timeout_s={timeout_s}"))
            .header("content-type", "application/json")
            .send();
        (reply.status, reply.json())
    }
}

impl Drop for EphemeralProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_ephemeral_server_prints_its_addresses_and_leaves_nothing() {
    let lab = Lab::new();
    let mut server = EphemeralProcess::start(lab.command(&["serve", "--ephemeral"]));
    assert_eq!(server.line["pid"], server.child.id());
    for name in ["http", "grpc"] {
        let reply = Request::new(server.address(name), "GET", "/readyz").send();
        assert_eq!(reply.status, 200, "{name}");
    }
    assert_ne!(server.address("http"), server.address("grpc"));
    assert!(server.folder().join("gradus.db").exists());
    // The folder of the project stays as it was.
    assert!(!lab.path(".gradus").exists());
    // Its starter closes the pipe, or ends, which closes it as well.
    drop(server.stdin.take());
    let status = eventually("the server stops", || server.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    assert!(!server.folder().exists());
}

#[test]
fn a_signal_stops_an_ephemeral_server_and_removes_its_folder() {
    let lab = Lab::new();
    let mut server = EphemeralProcess::start(lab.command(&["serve", "--ephemeral"]));
    kill_process(Pid::from_child(&server.child), Signal::HUP).unwrap();
    let status = eventually("the server stops", || server.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    assert!(!server.folder().exists());
}

/// Standard input is no pipe here, so the server has to notice by itself that it has another parent.
#[test]
fn an_ephemeral_server_ends_with_its_parent() {
    let lab = Lab::new();
    let gradus = lab.command(&["serve", "--ephemeral"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" serve --ephemeral < /dev/null > line.json 2> log.txt & wait"]).arg(gradus.get_program());
    shell.envs(gradus.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(lab.path("."));
    let mut shell = shell.spawn().unwrap();
    let line: Json = eventually("the server comes up", || {
        serde_json::from_str(&std::fs::read_to_string(lab.path("line.json")).ok()?).ok()
    });
    let server = Pid::from_raw(i32::try_from(line["pid"].as_i64().unwrap()).unwrap()).unwrap();
    test_kill_process(server).unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
    eventually("the server is gone", || (!Path::new(line["data"].as_str().unwrap()).exists()).then_some(()));
    eventually("its process is gone", || (!is_running(server)).then_some(()));
}

/// A process that has ended and that nobody waits for, as in some containers, still has a number.
fn is_running(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

/// The settings of a project could ask a model that costs money.
#[test]
fn an_ephemeral_server_uses_no_settings_that_it_was_not_given() {
    let lab = Lab::new();
    lab.write("gradus.toml", "[serve]\nquiet_s = \"broken\"\n");
    let server = EphemeralProcess::start(lab.command(&["serve", "--ephemeral"]));
    drop(server);
    let refused = lab.run(&["serve", "--ephemeral", "--config", "gradus.toml"]).exits_with(2);
    assert!(refused.err.contains("gradus.toml, line 2"), "{}", refused.err);
    lab.run(&["serve", "--ephemeral", "--data", "here"]).exits_with(2);
    lab.run(&["serve", "--ephemeral", "--http", "127.0.0.1:0"]).exits_with(2);
}

#[test]
fn settling_judges_what_was_received() {
    let lab = Lab::new();
    let server = EphemeralProcess::start(lab.command(&["serve", "--ephemeral"]));
    let (status, nothing) = server.settle("5");
    assert_eq!((status, &nothing["is_settled"]), (200, &json!(true)));
    let visit = Visit::new(21);
    let body = visit.export("shop");
    let post = Request::new(server.address("http"), "POST", "/v1/traces");
    assert_eq!(post.header("content-type", "application/x-protobuf").body(&body).send().status, 200);
    let (_, settled) = server.settle("30");
    assert_eq!(settled, json!({"is_settled": true, "waiting_traces": 0, "ungraded_trajectories": 0}));
    let trace = Request::new(server.address("http"), "GET", &format!("/api/v1/traces/{}", trace_id(21))).send().json();
    assert_eq!(trace["is_open"], false);
    assert!(!trace["outcomes"].as_array().unwrap().is_empty());
    let (status, refused) = server.settle("61");
    assert_eq!(status, 400);
    assert!(refused["error"].as_str().unwrap().contains("from 0 to 60"), "{refused}");
}

/// A server of the usual kind waits for more spans for an hour here, and for a root that never comes even longer.
#[test]
fn settling_does_not_wait_for_more_spans() {
    let lab = Lab::new();
    lab.write("gradus.toml", "[serve]\nquiet_s = 3600\ngive_up_s = 7200\n");
    let server = lab.serve();
    let (ended, open) = (Visit::new(31), Visit::new(32));
    server.export(&ended.export("shop"));
    server.export(&crate::spans::export("shop", vec![open.model_call(), open.tool_call()]));
    assert_eq!(server.trace(&trace_id(31))["is_open"], true);
    let reply = server.request("POST", "/api/v1/settle").header("content-type", "application/json").send();
    assert_eq!(reply.json()["is_settled"], true);
    for trace in [31, 32] {
        assert_eq!(server.trace(&trace_id(trace))["is_open"], false);
    }
    // The rest of the trace opens it again, and the next request settles it again.
    server.export(&crate::spans::export("shop", vec![open.root()]));
    assert_eq!(server.trace(&trace_id(32))["is_open"], true);
    let reply = server.request("POST", "/api/v1/settle").header("content-type", "application/json").send();
    assert_eq!(reply.json()["is_settled"], true);
    assert_eq!(server.trace(&trace_id(32))["is_open"], false);
}
