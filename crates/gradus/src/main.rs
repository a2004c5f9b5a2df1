//! The `gradus` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gradus::cli::run(std::env::args_os())
}
