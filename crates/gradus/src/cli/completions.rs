//! `gradus completions` and `gradus man`: files for shells and for `man`, made from the definition of the commands.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use gradus_core::visible::printable_line;

use super::{CommandExit, print_diagnostic};

#[derive(Args)]
#[command(after_help = COMPLETION_EXAMPLES)]
pub(super) struct CompletionArguments {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

const COMPLETION_EXAMPLES: &str = "\
Examples:
  gradus completions bash > ~/.local/share/bash-completion/completions/gradus
  gradus completions zsh > ~/.zfunc/_gradus
  gradus completions fish > ~/.config/fish/completions/gradus.fish";

#[derive(Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(super) struct ManArguments {
    /// The folder, which is created if it does not exist. Pages of the same names are replaced.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

const MAN_EXAMPLES: &str = "\
Examples:
  gradus man ~/.local/share/man/man1 && man gradus-eval

Exit codes: 0 written, 2 the folder cannot be written to.";

/// Prints the script. The command is the definition that parsed the command line.
pub(super) fn run_completions_command(
    arguments: &CompletionArguments,
    mut command: Command,
) -> anyhow::Result<CommandExit> {
    // Written at once: the generator panics if standard output is closed early.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "gradus", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(CommandExit::Pass)
}

/// Writes a page for the program and one for each command.
pub(super) fn run_man_command(arguments: &ManArguments, command: Command) -> anyhow::Result<CommandExit> {
    let folder = &arguments.folder;
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    if let Err(error) = written {
        let folder = printable_line(&folder.display().to_string());
        print_diagnostic(&format!(
            "man pages not written: {folder}: {error}; hint: name a folder that you can write to"
        ));
        return Ok(CommandExit::BadInput);
    }
    let is_page = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("gradus");
    let count = std::fs::read_dir(folder)?.filter_map(Result::ok).filter(is_page).count();
    anstream::println!("{count} pages in {}", printable_line(&folder.display().to_string()));
    Ok(CommandExit::Pass)
}
