//! `gradus trust`: the user's consent to keys of a found settings file. The command shows every key that needs consent
//! with its value, and records the digest of exactly the bytes that it has shown.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;

use super::{CommandExit, print_diagnostic};
use crate::config::{
    CONFIG_FILE_NAME, ConfigError, EnvironmentVariables, TrustError, TrustStore, UncheckedFile, canonical_name,
    digest_bytes,
};
use gradus_core::visible::printable_line;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TrustArguments {
    /// The settings file [default: gradus.toml].
    #[arg(value_name = "FILE", conflicts_with_all = ["list", "remove"])]
    file: Option<PathBuf>,
    /// Trust it without asking.
    #[arg(long, conflicts_with_all = ["list", "remove"])]
    yes: bool,
    /// List the trusted files.
    #[arg(long, conflicts_with = "remove")]
    list: bool,
    /// Trust a file no longer.
    #[arg(long, value_name = "FILE")]
    remove: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gradus trust                          show what ./gradus.toml asks for, and ask whether to allow it
  gradus trust --yes shop/gradus.toml   allow it without asking
  gradus trust --list                   the trusted files
  gradus trust --remove gradus.toml     trust it no longer

A gradus.toml that is found in the working directory, and not named with --config or GRADUS_CONFIG, may not run programs,
name addresses or models, listen for other machines, leave its folder or delete traces until it is trusted. A file that is
changed has to be trusted again. GRADUS_TRUST_CONFIG=1 trusts whatever is found.

Exit codes: 0 trusted, listed or removed, 2 not trusted, or the file cannot be read.";

/// Why a file was not trusted, listed or removed; printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
enum TrustCommandError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("{}: not trusted before; hint: `gradus trust --list` lists the trusted files", path.display())]
    NotInList { path: PathBuf },
    /// The user answered no.
    #[error("{}: not trusted", path.display())]
    Declined { path: PathBuf },
    /// A pipe must not be able to consent by accident.
    #[error("not trusted: nobody can be asked, as standard input is no terminal; hint: --yes")]
    NoTerminal,
    #[error("standard input: {0}")]
    Input(#[source] std::io::Error),
}

/// Entry point of the command. Declining is exit code 2, so that a script does not go on without trust.
pub(super) fn run_trust_command(arguments: &TrustArguments) -> anyhow::Result<CommandExit> {
    Ok(run_trust_action(arguments).unwrap_or_else(|error| {
        print_diagnostic(&printable_line(&error.to_string()));
        CommandExit::BadInput
    }))
}

fn run_trust_action(arguments: &TrustArguments) -> Result<CommandExit, TrustCommandError> {
    let store = EnvironmentVariables::read().trust_store()?;
    if arguments.list {
        return list_files(&store);
    }
    if let Some(path) = &arguments.remove {
        return match store.remove(path)? {
            true => {
                anstream::println!("{} is trusted no longer", format_path(&canonical_name(path)));
                Ok(CommandExit::Pass)
            }
            false => Err(TrustCommandError::NotInList { path: path.clone() }),
        };
    }
    let path = arguments.file.as_deref().unwrap_or(Path::new(CONFIG_FILE_NAME));
    let file = UncheckedFile::read(path)?;
    let name = canonical_name(path);
    if file.requests.is_empty() {
        anstream::println!("{} asks for nothing that needs trust", format_path(&name));
        return Ok(CommandExit::Pass);
    }
    anstream::println!("{} asks for:", format_path(&name));
    for request in &file.requests {
        let target = match &request.resolved {
            Some(target) => format!(" (leads to {})", format_path(target)),
            None => String::new(),
        };
        // The value comes from a file that nobody trusts: control characters could hide or repaint other lines.
        let value = printable_line(&gradus_http::mask_secrets(&request.value));
        anstream::println!("  {}: {}: {value}{target}", request.key, request.effect);
    }
    if !arguments.yes && !is_confirmed()? {
        return Err(TrustCommandError::Declined { path: path.to_owned() });
    }
    store.add(path, file.digest, &file.requests)?;
    anstream::println!("{} is trusted as it is now", format_path(&name));
    Ok(CommandExit::Pass)
}

/// Asks on the terminal; anything but `y` or `yes` is a no.
fn is_confirmed() -> Result<bool, TrustCommandError> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(TrustCommandError::NoTerminal);
    }
    anstream::eprint!("Trust this file as it is now? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(TrustCommandError::Input)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Prints one line per file, separated by tabs: path, state, time of consent, grants.
fn list_files(store: &TrustStore) -> Result<CommandExit, TrustCommandError> {
    for file in store.load()? {
        let state = match std::fs::read(&file.path) {
            Ok(bytes) if digest_bytes(&bytes) == file.digest => "trusted",
            Ok(_) => "changed since",
            Err(_) => "missing",
        };
        let trusted_at = file.trusted_at.round(jiff::Unit::Second).unwrap_or(file.trusted_at);
        anstream::println!(
            "{}\t{state}\t{trusted_at}\t{}",
            format_path(&file.path),
            printable_line(&file.grants.join(", "))
        );
    }
    Ok(CommandExit::Pass)
}

/// Formats a path for the terminal: names of files are untrusted text as well.
fn format_path(path: &Path) -> String {
    printable_line(&path.display().to_string())
}
