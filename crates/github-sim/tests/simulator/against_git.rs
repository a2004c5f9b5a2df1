//! Names of objects, merges and patches, held against a real git.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::lab::Lab;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gradus_github_sim::git::{EMPTY_TREE, merge_texts};
use serde_json::json;

fn git(folder: &Path, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// The same content, author, committer and date give the same blob, tree and commit.
#[test]
fn objects_have_the_names_that_git_gives_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    git(folder, &["init", "--quiet", "--initial-branch=main"], "");
    let mut lab = Lab::new("w0");
    lab.post("/user/repos", json!({"name": "r"}));
    let files = [
        ("README.md", "# R\n"),
        ("src/lib/a b.py", "print('ü')\n"),
        ("src/lib.py", "x = 1\n"),
        ("src-x", ""),
        ("README.md", "# R2"),
    ];
    for (number, (path, text)) in files.into_iter().enumerate() {
        let message = format!("commit {number}\n\nwith a body");
        let before = lab.get(&format!("/repos/octo/r/contents/{}", path.replace(' ', "%20"))).json();
        let body = json!({"message": message, "content": STANDARD.encode(text), "sha": before["sha"].as_str()});
        let mut body = body;
        if body["sha"].is_null() {
            body.as_object_mut().unwrap().remove("sha");
        }
        let made = lab.put(&format!("/repos/octo/r/contents/{}", path.replace(' ', "%20")), body).json();

        std::fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        std::fs::write(folder.join(path), text).unwrap();
        git(folder, &["add", "--all"], "");
        assert_eq!(made["content"]["sha"], git(folder, &["hash-object", path], ""), "{path}");
        let tree = git(folder, &["write-tree"], "");
        assert_eq!(made["commit"]["tree"]["sha"], tree);
        let who = &made["commit"]["author"];
        let date = who["date"].as_str().unwrap();
        let name = format!("user.name={}", who["name"].as_str().unwrap());
        let email = format!("user.email={}", who["email"].as_str().unwrap());
        let parent = made["commit"]["parents"][0]["sha"].as_str().map(str::to_owned);
        let mut command = Command::new("git");
        command.args(["-c", &name, "-c", &email, "commit-tree", &tree]);
        if let Some(parent) = &parent {
            command.args(["-p", parent]);
        }
        let mut child = command
            .current_dir(folder)
            .env("GIT_AUTHOR_DATE", date)
            .env("GIT_COMMITTER_DATE", date)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(message.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(made["commit"]["sha"], String::from_utf8(output.stdout).unwrap().trim_end());
    }
    assert_eq!(EMPTY_TREE.to_string(), git(folder, &["hash-object", "-t", "tree", "/dev/null"], ""));
}

/// Both merge the same texts, with the same result, or both refuse.
#[test]
fn merges_agree_with_git() {
    let folder = tempfile::tempdir().unwrap();
    let mut chance = 7_u64;
    let mut next = |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    let (mut clean, mut conflicts) = (0, 0);
    for round in 0..300 {
        // Lines differ from each other, so that both sides' differences have one reading only.
        let base: Vec<String> = (0..12).map(|line| format!("line {line}\n")).collect();
        let mut side = |name: &str| {
            let mut lines = base.clone();
            for _ in 0..=next(2) {
                let at = next(12) as usize % lines.len();
                match next(3) {
                    0 => lines[at] = format!("{name} {}\n", next(3)),
                    1 => lines.insert(at, format!("{name} new {}\n", next(3))),
                    _ => drop(lines.remove(at)),
                }
            }
            lines.concat()
        };
        let (ours, theirs, base) = (side("a"), side("a"), base.concat());
        for (name, text) in [("base", &base), ("ours", &ours), ("theirs", &theirs)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let output = Command::new("git")
            .args(["merge-file", "-p", "ours", "base", "theirs"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let wanted = output.status.success().then(|| String::from_utf8(output.stdout).unwrap());
        let got = merge_texts(&base, &ours, &theirs);
        assert_eq!(got, wanted, "round {round}\n--- ours\n{ours}--- theirs\n{theirs}");
        if got.is_some() { clean += 1 } else { conflicts += 1 }
    }
    assert!(clean > 50 && conflicts > 50, "{clean} clean, {conflicts} conflicts");
}

#[test]
fn patches_are_those_of_git() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let old: String = (1..40).map(|line| format!("line {line}\n")).collect();
    let new = old.replace("line 3\n", "line three\n").replace("line 20\n", "").replace("line 39\n", "line 39\nthe end");
    let mut lab = Lab::new("w0");
    lab.post("/user/repos", json!({"name": "r"}));
    let made = lab.put("/repos/octo/r/contents/f", json!({"message": "a", "content": STANDARD.encode(&old)})).json();
    let sha = made["content"]["sha"].clone();
    let made =
        lab.put("/repos/octo/r/contents/f", json!({"message": "b", "content": STANDARD.encode(&new), "sha": sha}));
    let commit = made.json()["commit"]["sha"].as_str().unwrap().to_owned();
    let patch = lab.read(&format!("/repos/octo/r/commits/{commit}"))["files"][0]["patch"].as_str().unwrap().to_owned();
    std::fs::write(folder.join("a"), old).unwrap();
    std::fs::write(folder.join("b"), new).unwrap();
    let output = Command::new("git").args(["diff", "--no-index", "a", "b"]).current_dir(folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(patch, text[text.find("@@").unwrap()..].trim_end_matches('\n'));
}
