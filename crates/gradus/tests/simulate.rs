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
        let address = self.lines[0].strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: sim.test\r\nauthorization: token {token}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
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
        (
            vec!["--seed", "w9"],
            "there is no seed \"w9\": give a file (.toml or .json) or one of w0, w1, w2, w3, w4",
        ),
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
