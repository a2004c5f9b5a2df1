//! `gradus trust`: the user's consent to what a found settings file asks for.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;

use super::{CommandExit, print_diagnostic};
use crate::config::{EnvironmentVariables, FILE_NAME, TrustStore, UncheckedFile, canonical_name, digest_bytes};
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

pub(super) fn run_trust_command(arguments: &TrustArguments) -> anyhow::Result<CommandExit> {
    Ok(carry_out(arguments).unwrap_or_else(|reason| {
        print_diagnostic(&printable_line(&reason));
        CommandExit::BadInput
    }))
}

fn carry_out(arguments: &TrustArguments) -> Result<CommandExit, String> {
    let store = EnvironmentVariables::read().trust_store().map_err(|error| error.to_string())?;
    if arguments.list {
        return list_files(&store);
    }
    if let Some(path) = &arguments.remove {
        return match store.remove(path).map_err(|error| error.to_string())? {
            true => {
                anstream::println!("{} is trusted no longer", format_path(&canonical_name(path)));
                Ok(CommandExit::Pass)
            }
            false => Err(format!(
                "{}: not trusted before; hint: `gradus trust --list` lists the trusted files",
                path.display()
            )),
        };
    }
    let path = arguments.file.as_deref().unwrap_or(Path::new(FILE_NAME));
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
        let value = printable_line(&gradus_http::mask_secrets(&request.value));
        anstream::println!("  {}: {}: {value}{target}", request.key, request.effect);
    }
    if !arguments.yes && !is_confirmed()? {
        return Err(format!("{}: not trusted", path.display()));
    }
    store.add(path, file.digest, &file.requests).map_err(|error| error.to_string())?;
    anstream::println!("{} is trusted as it is now", format_path(&name));
    Ok(CommandExit::Pass)
}

fn is_confirmed() -> Result<bool, String> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err("not trusted: nobody can be asked, as standard input is no terminal; hint: --yes".to_owned());
    }
    anstream::eprint!("Trust this file as it is now? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(|error| format!("standard input: {error}"))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn list_files(store: &TrustStore) -> Result<CommandExit, String> {
    for file in store.load().map_err(|error| error.to_string())? {
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

fn format_path(path: &Path) -> String {
    printable_line(&path.display().to_string())
}
