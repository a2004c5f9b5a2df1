//! The help text of every command. Commands are found in the help itself, so that a new one needs no entry here.

use std::process::{Command, Stdio};

/// The help of a command at a width of 100 columns, whatever terminal the test runs in.
fn help_text(words: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
    command.args(words).arg("--help").stdin(Stdio::null()).env("COLUMNS", "100");
    let output = command.env_remove("CLICOLOR_FORCE").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The names below `Commands:`, without `help`, which clap adds.
fn subcommand_names(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A name is indented by two spaces, the lines of its description by more.
    let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    names.filter_map(|rest| rest.split(' ').next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// A text that is wrapped in the source as well has short lines in between.
fn check_exit_codes_wrapping(help: &str) {
    let lines: Vec<&str> = help.lines().skip_while(|line| !line.starts_with("Exit codes:")).collect();
    for pair in lines.windows(2).take_while(|pair| !pair[1].is_empty()) {
        let next = pair[1].split(' ').next().unwrap_or_default();
        assert!(pair[0].chars().count() + 1 + next.chars().count() > 100, "{:?} is wrapped early", pair[0]);
    }
}

#[test]
fn every_command_has_this_help() {
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    let mut shown = Vec::new();
    while let Some(words) = waiting.pop() {
        let help = help_text(&words);
        let subcommands = subcommand_names(&help).into_iter();
        waiting.extend(subcommands.map(|name| [words.clone(), vec![name]].concat()));
        let name = [vec!["gradus".to_owned()], words].concat().join("-");
        insta::assert_snapshot!(name.as_str(), help);
        check_exit_codes_wrapping(&help);
        shown.push(name);
    }
    for expected in ["gradus", "gradus-eval", "gradus-traces-show", "gradus-store-backup", "gradus-keys-revoke"] {
        assert!(shown.iter().any(|name| name == expected), "{expected} was not found: {shown:?}");
    }
}
