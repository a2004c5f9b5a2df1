//! `gradus discover`: which sessions of coding agents are on this machine, and how to grade them. Reads no content.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use gradus_import::{FoundSessions, SESSION_LOCATIONS, find_session_folders};
use gradus_report::format_counted_noun;
use jiff::Timestamp;

use super::CommandExit;
use super::sources::print_diagnostic;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DiscoverArguments {
    /// Look below this folder instead of the home folder.
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gradus discover                     what is there?
  gradus eval ~/.claude/projects      grade the sessions of one tool

Exit codes: 0 found, 2 no such folder, 4 none found.";

/// Entry point of the command.
pub(super) fn run_discover_command(arguments: &DiscoverArguments) -> anyhow::Result<CommandExit> {
    let Some(home) = arguments.home.clone().or_else(std::env::home_dir) else {
        print_diagnostic("the home folder is not known\nhint: name it with --home");
        return Ok(CommandExit::BadInput);
    };
    if !home.is_dir() {
        print_diagnostic(&format!("{}: no such folder", home.display()));
        return Ok(CommandExit::BadInput);
    }
    // A home that was named is not this user's, so the user's variables do not apply to it.
    let variable = |name: &str| arguments.home.is_none().then(|| std::env::var_os(name)).flatten();
    let found = find_session_folders(&home, &variable);
    if found.is_empty() {
        let mut tools: Vec<&str> = SESSION_LOCATIONS.iter().map(|location| location.tool).collect();
        tools.dedup();
        print_diagnostic(&format!("no sessions below {}; looked for {}", home.display(), tools.join(", ")));
        return Ok(CommandExit::NothingFound);
    }
    let mut out = anstream::stdout().lock();
    if arguments.json {
        print_json(&found, &mut out)?;
    } else {
        print_table(&found, &mut out)?;
    }
    Ok(CommandExit::Pass)
}

fn print_table(found: &[FoundSessions], out: &mut dyn Write) -> io::Result<()> {
    let width = found.iter().map(|sessions| sessions.tool.len()).max().unwrap_or_default();
    for sessions in found {
        let more = if sessions.is_cut { "more than " } else { "" };
        let count = format!("{more}{}", format_counted_noun(sessions.file_count as u64, "file", "files"));
        let newest = sessions.newest_at.and_then(format_day).unwrap_or_default();
        writeln!(
            out,
            "{:<width$}  {count:>12}  {:>9}  {newest:<10}  {}",
            sessions.tool,
            format_bytes(sessions.bytes),
            sessions.folder.display()
        )?;
    }
    if let Some(first) = found.iter().max_by_key(|sessions| sessions.bytes) {
        writeln!(out, "\nGrade them with rules, on this machine:\n  gradus eval {}", first.folder.display())?;
    }
    Ok(())
}

fn print_json(found: &[FoundSessions], out: &mut dyn Write) -> io::Result<()> {
    for sessions in found {
        let line = serde_json::json!({
            "tool": sessions.tool,
            "folder": sessions.folder,
            "files": sessions.file_count,
            "bytes": sessions.bytes,
            "newest": sessions.newest_at.and_then(|at| Timestamp::try_from(at).ok()).map(|at| at.to_string()),
            "is_cut": sessions.is_cut,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Formats the day in UTC.
fn format_day(at: SystemTime) -> Option<String> {
    let at = Timestamp::try_from(at).ok()?.to_string();
    at.split('T').next().map(str::to_owned)
}

fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
