//! `gradus simulate` as a user meets it.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
    command.arg("simulate").args(arguments).env_remove("CLICOLOR_FORCE");
    command
}

/// Exit code and what was said on standard error.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// One that runs, what it printed first, and where it listens.
struct Running {
    child: Child,
    lines: Vec<String>,
}

impl Running {
    fn start(arguments: &[&str], lines: usize) -> Running {
        let mut child = command(arguments).args(["--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap()).lines().take(lines);
        Running { lines: printed.map(Result::unwrap).collect(), child }
    }

    fn get(&self, path: &str, token: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: token {token}\r\n"), "")
    }

    /// `head` without what tells of the body; the whole answer.
    fn send(&self, head: &str, body: &str) -> String {
        let address = self.lines[0].strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{head}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The status of a write to the simulator's own API, with these headers.
    fn control(&self, method: &str, path: &str, headers: &[&str], body: &str) -> String {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let answer = self.send(&format!("{method} /_gradus/{path} HTTP/1.1\r\n{headers}"), body);
        answer.split(' ').nth(1).unwrap().to_owned() + " " + answer.split("\r\n\r\n").nth(1).unwrap_or_default()
    }

    /// Told to stop, it stops.
    fn stop(mut self) {
        let ended = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(ended.success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_prints_where_it_is_and_answers_there() {
    let running = Running::start(&[], 5);
    assert!(running.lines[0].starts_with("http://127.0.0.1:"), "{:?}", running.lines);
    assert!(running.lines.contains(&"test_token_user1\tocto".to_owned()), "{:?}", running.lines);
    let answer = running.get("/user", "test_token_user1");
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"login\":\"octo\""), "{answer}");
    assert!(running.get("/user", "nobody").starts_with("HTTP/1.1 401"));
    assert!(running.get("/nothing", "test_token_user1").starts_with("HTTP/1.1 501"));
    assert!(running.get("/_gradus/counters", "").contains("\"GET /nothing\":1"));
    // The same request, the same bytes, on the wire as well.
    let other = Running::start(&[], 5);
    assert_eq!(other.get("/user", "test_token_user1"), answer);
    running.stop();
    other.stop();
}

#[test]
fn what_it_cannot_start_with_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    std::fs::write(&file, "extends = \"w0\"\n[[repositories]]\nname = \"nobody/x\"\n").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, wanted) in [
        (vec!["--seed", "w9"], "there is no seed \"w9\": give a file (.toml or .json) or one of w0, w1, w2, w3, w4"),
        (vec!["--seed", "missing.toml"], "missing.toml: "),
        (
            vec!["--seed", file.to_str().unwrap()],
            "repositories[0]: there is no account \"nobody\"; add it to [[accounts]]",
        ),
        (vec!["--port", &port], "choose another port with --port"),
    ] {
        let (code, said) = refused(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(wanted) && said.trim_end().lines().count() == 1, "{arguments:?}: {said}");
    }
}

#[test]
fn a_seed_can_be_looked_at() {
    let output = command(&["--seed", "w3", "--check"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(said.contains("octo/secrets\tprivate\t1 branches\t0 issues\t0 pull requests"), "{said}");
    assert!(said.contains("octo/demo\tpublic\t5 branches\t24 issues\t4 pull requests"), "{said}");
}

const JSON: &str = "content-type: application/json";

#[test]
fn a_seed_that_is_sent_reads_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret.toml");
    std::fs::write(&secret, "T0PSECRET = 1\n").unwrap();
    let running = Running::start(&[], 5);
    let before = running.get("/_gradus/state", "");
    let post = |seed: &str| running.control("POST", "seed", &["host: localhost", JSON], seed);
    let there = post(&serde_json::json!({"extends": secret}).to_string());
    let absent = post(&serde_json::json!({"extends": folder.path().join("absent.toml")}).to_string());
    assert!(there.starts_with("422") && !there.contains("T0PSECRET"), "{there}");
    // Nor does it tell whether there is such a file.
    assert_eq!(there, absent);
    for name in ["../x.toml", "x.json", "/dev/stdin", "w9"] {
        assert_eq!(post(&serde_json::json!({"extends": name}).to_string()), there, "{name}");
    }
    assert_eq!(running.get("/_gradus/state", ""), before);
    assert!(post("{\"extends\": \"w1\"}").starts_with("200"));
    running.stop();
}

#[test]
fn web_pages_cannot_reach_its_control() {
    let running = Running::start(&[], 5);
    let before = running.get("/_gradus/state", "");
    let writes = [
        ("POST", "seed", "{\"extends\":\"w1\"}"),
        ("POST", "clock", "{\"advance_s\":9}"),
        ("POST", "reset", ""),
        ("PUT", "snapshots/x", ""),
    ];
    for (method, path, body) in writes {
        for headers in [
            &["host: evil.example", JSON][..],
            &["host: evil.example:80", JSON],
            &["host: localhost", "host: evil.example", JSON],
            &["host: localhost", "sec-fetch-site: cross-site", JSON],
            &["host: localhost", "sec-fetch-site: same-site", "origin: http://localhost:1", JSON],
            &["host: localhost", "origin: https://evil.example", JSON],
            &["host: localhost", "origin: null", JSON],
            &["host: localhost", "referer: https://evil.example/", JSON],
        ] {
            let answer = running.control(method, path, headers, body);
            assert!(answer.starts_with("403"), "{path} {headers:?}: {answer}");
        }
        if !body.is_empty() {
            for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
                let answer =
                    running.control(method, path, &["host: localhost", &format!("content-type: {kind}")], body);
                assert!(answer.starts_with("415"), "{path} {kind}: {answer}");
            }
            assert!(running.control(method, path, &["host: localhost"], body).starts_with("415"), "{path}");
        }
    }
    assert!(running.control("GET", "state", &["host: evil.example"], "").starts_with("403"));
    assert_eq!(running.get("/_gradus/state", ""), before);
    for (method, path, body) in writes {
        assert!(running.control(method, path, &["host: 127.0.0.1:1", JSON], body).starts_with("200"), "{path}");
    }
    running.stop();
}
