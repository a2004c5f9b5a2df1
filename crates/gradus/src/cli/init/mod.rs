//! `gradus init`: looks at the project in this folder and writes what a first run needs: a configuration file, a CI job
//! and a dataset. It asks nothing and replaces nothing.

mod dependency_files;
mod file_templates;
mod frameworks;
mod new_files;
mod project_scan;

use std::path::Path;

use clap::{Args, ValueEnum};
use gradus_core::visible::printable_line;
use gradus_report::format_counted_noun;

use super::{CommandExit, print_diagnostic};
use crate::config::{CONFIG_FILE_NAME, ConfigError, EnvironmentVariables, TrustError, UncheckedFile};
use file_templates::{PlannedFile, plan_files};
use new_files::{WrittenState, write_new_file};
use project_scan::{CiSystem, ProjectScan};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct InitArguments {
    /// The CI system to write a job for [default: GitLab if the repository uses it, else GitHub].
    #[arg(long, value_enum, value_name = "NAME")]
    ci: Option<CiOption>,
    /// Print what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// The values of `--ci`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CiOption {
    Github,
    Gitlab,
    None,
}

const EXAMPLES: &str = "\
Examples:
  gradus init                 gradus.toml, a CI job and evals/dataset.jsonl
  gradus init --ci none       no CI job
  gradus init --dry-run       only print them

Files that exist are left alone. The gradus.toml that it writes is trusted (`gradus trust --list`).

Exit codes: 0 everything is there, 2 something could not be written, or the gradus.toml that is there cannot be read.";

/// The commands that are printed at the end. They work as printed: `cat` answers with the request, and the first item
/// expects that.
const NEXT_COMMANDS: [(&str, &str); 3] = [
    ("Check the dataset", "gradus dataset check evals/dataset.jsonl"),
    (
        "Run an agent on it; put the command of yours in place of `cat`",
        "gradus experiment evals/dataset.jsonl --agent cat",
    ),
    ("Open the report of that run in a browser", "gradus report --html gradus-report.html"),
];

/// Why the new settings cannot be used.
#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("settings cannot be used: {0}; hint: correct the file, or move it away and run `gradus init` again")]
    Config(#[from] ConfigError),
    #[error("not trusted: {CONFIG_FILE_NAME}: {0}; hint: name the file with --config")]
    Trust(#[from] TrustError),
}

/// Entry point of the command.
pub(super) fn run_init_command(arguments: &InitArguments) -> CommandExit {
    let folder = Path::new(".");
    let mut scan = ProjectScan::read(folder);
    match arguments.ci {
        Some(CiOption::Github) => scan.ci = CiSystem::GitHub,
        Some(CiOption::Gitlab) => scan.ci = CiSystem::GitLab,
        Some(CiOption::None) => scan.ci = CiSystem::Nothing,
        None => {}
    }
    print_findings(&scan);
    let files = plan_files(&scan);
    if arguments.dry_run {
        for PlannedFile { path, text } in &files {
            anstream::println!("--- {path}\n{}", text.trim_end());
        }
        return CommandExit::Pass;
    }
    let mut exit = CommandExit::Pass;
    anstream::println!("Files");
    for file in &files {
        match write_new_file(folder, Path::new(&file.path), &file.text) {
            Ok(WrittenState::Written) => anstream::println!("  wrote {}", file.path),
            Ok(WrittenState::Kept) => anstream::println!("  kept {}, which exists", file.path),
            Err(error) => {
                print_diagnostic(&printable_line(&error.to_string()));
                exit = CommandExit::BadInput;
            }
        }
        if file.path == CONFIG_FILE_NAME && exit == CommandExit::Pass {
            exit = trust_planned_settings(file);
        }
    }
    scan.hints().iter().for_each(|hint| anstream::println!("  {hint}"));
    if exit == CommandExit::Pass {
        anstream::println!("Next");
        for (purpose, command) in NEXT_COMMANDS {
            anstream::println!("  {purpose}:\n    {command}");
        }
    }
    exit
}

/// Trusts the file if it is the one that was planned, byte for byte; otherwise reports why it cannot be used.
fn trust_planned_settings(file: &PlannedFile) -> CommandExit {
    let path = Path::new(CONFIG_FILE_NAME);
    let environment = EnvironmentVariables::read();
    let check = || -> Result<Option<String>, InitError> {
        if !path.is_file() {
            // Reading a pipe would wait for ever.
            let source = std::io::Error::other("it is no regular file");
            return Err(ConfigError::Unreadable { path: path.to_owned(), source }.into());
        }
        let found = UncheckedFile::read(path)?;
        if found.digest == crate::config::digest_bytes(file.text.as_bytes()) {
            return match environment.trust_store() {
                Ok(store) => {
                    store.add(path, found.digest, &found.requests)?;
                    Ok(None)
                }
                // Nothing in the file needs trust, so that a container without a home can go on.
                Err(TrustError::NoFolder) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
        Ok(found.check_trust(&environment).err().map(|error| error.to_string()))
    };
    match check() {
        Ok(None) => CommandExit::Pass,
        // The user's own file: it is complete, and the user decides about it.
        Ok(Some(refusal)) => {
            print_diagnostic(&printable_line(&refusal));
            CommandExit::Pass
        }
        Err(error) => {
            print_diagnostic(&printable_line(&error.to_string()));
            CommandExit::BadInput
        }
    }
}

fn print_findings(scan: &ProjectScan) {
    let mut lines = Vec::new();
    for found in &scan.frameworks {
        lines.push(format!("{} ({} in {})", found.framework.title, found.package, found.file));
    }
    for name in &scan.variables {
        lines.push(format!("{name} is set"));
    }
    for sessions in &scan.sessions {
        let count = format_counted_noun(sessions.file_count as u64, "session file", "session files");
        lines.push(format!("{count} of {}: gradus eval {}", sessions.tool, quote_word(&sessions.folder)));
    }
    if lines.is_empty() {
        lines.push("no agent framework, no tracing variables, no session files".to_owned());
    }
    anstream::println!("Found");
    lines.iter().for_each(|line| anstream::println!("  {}", printable_line(line)));
    scan.problems.iter().for_each(|problem| print_diagnostic(&printable_line(problem)));
}

/// Quotes a path as one word of a shell.
fn quote_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@".contains(letter);
    if text.chars().all(is_plain) && !text.is_empty() { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::file_templates::DATASET_PATH;
    use super::*;

    #[test]
    fn the_commands_name_the_dataset() {
        for (_, command) in &NEXT_COMMANDS[..2] {
            assert!(command.contains(DATASET_PATH), "{command}");
        }
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quote_word(Path::new("/home/a/.claude/projects")), "/home/a/.claude/projects");
        assert_eq!(quote_word(Path::new("/it's here")), "'/it'\\''s here'");
    }
}
