//! `gradus tools` as a user meets it.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::process::Command;

/// Exit code, standard output, standard error.
fn tools(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
    let output = command.arg("tools").args(arguments).env_remove("CLICOLOR_FORCE").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn tools_are_listed_by_family() {
    let (code, listed, _) = tools(&[]);
    assert_eq!(code, Some(0));
    assert!(listed.starts_with("repos\n  get_me "), "{listed}");
    assert!(listed.contains("  delete_repo              destroys  Deletes a repository with everything in it."));
    let (_, listed, _) = tools(&["--tools", "search,files", "--read-only"]);
    let names: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert_eq!(names, ["read_file", "list_directory", "search_code", "search_issues", "search_repositories"]);
}

#[test]
fn one_tool_is_described() {
    let (code, told, _) = tools(&["close_issue"]);
    assert_eq!(code, Some(0));
    assert!(told.contains("  issue_number  integer  \n"), "{told}");
    assert!(told.contains("  reason  completed|not_planned|duplicate, optional  Why:"), "{told}");
    let (_, json, _) = tools(&["close_issue", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["parameters"]["required"], serde_json::json!(["owner", "repo", "issue_number"]));
    let (code, _, error) = tools(&["close_tissue"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("there is no tool called \"close_tissue\""), "{error}");
}

#[test]
fn what_is_not_there_is_told() {
    let (code, _, error) = tools(&["--tools", "wikis"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("there are no tools called \"wikis\"; there are: repos, files"), "{error}");
    let (code, _, error) = tools(&["--mcp", "/no/such/server --key secret"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("cannot be started: No such file") && !error.contains("secret"), "{error}");
}
