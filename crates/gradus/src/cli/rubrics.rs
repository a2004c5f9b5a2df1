//! `gradus rubrics`: which evaluations there are, what they ask, and whether a user's own are sound.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_eval::judge_selection::rubric_library;
use gradus_eval::rubric::{Library, Origin, Piece, Rubric, Subject};

use super::Exit;
use super::sources::complain;
use crate::config::{Environment, File};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the rubrics: those that are built in, and those of the given folders.
    List(Paths),
    /// Prints a rubric's file; a copy of it is a good start for one's own.
    Show {
        /// The rubric's name.
        name: String,
        #[command(flatten)]
        paths: Paths,
    },
    /// Checks files and folders of rubrics.
    Check {
        /// Files or folders.
        #[arg(required = true, value_name = "PATH")]
        files: Vec<PathBuf>,
    },
}

#[derive(Args)]
struct Paths {
    /// A rubric's file or a folder of them.
    #[arg(long, value_name = "PATH")]
    rubrics: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let file = match File::read(Environment::read().config.as_deref()) {
        Ok(file) => file,
        Err(reason) => return Ok(refuse(&reason)),
    };
    match &arguments.command {
        Command::List(paths) => match rubric_library(file.eval.rubrics.iter().chain(&paths.rubrics)) {
            Ok(library) => list(&library),
            Err(reason) => Ok(refuse(&reason)),
        },
        Command::Show { name, paths } => match rubric_library(file.eval.rubrics.iter().chain(&paths.rubrics))
        {
            Ok(library) => show(&library, name),
            Err(reason) => Ok(refuse(&reason)),
        },
        Command::Check { files } => check(files),
    }
}

fn list(library: &Library) -> anyhow::Result<Exit> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{:<24}{:<12}{:<24}{:<18}asks", "name", "of", "labels", "from")?;
    for rubric in library.iter() {
        let from = match &rubric.origin {
            Origin::BuiltIn => "built in".to_owned(),
            Origin::File(path) => path.display().to_string(),
        };
        let labels = rubric.labels.names().collect::<Vec<_>>().join(", ");
        let about = gradus_core::visible::printable_line(&rubric.about);
        writeln!(out, "{:<24}{:<12}{labels:<24}{from:<18}{about}", rubric.name, subject(rubric))?;
    }
    let about = "Can the tool take this call? Rules; no model is asked.";
    writeln!(out, "{CALL_VALIDITY:<24}{:<12}{:<24}{:<18}{about}", "step", "correct, incorrect", "built in")?;
    Ok(Exit::Pass)
}

fn show(library: &Library, name: &str) -> anyhow::Result<Exit> {
    let Some(rubric) = library.find(name) else {
        let known: Vec<&str> = library.iter().map(|rubric| rubric.name.as_str()).collect();
        return Ok(refuse(&format!("there is no rubric {name:?}; there are {}", known.join(", "))));
    };
    let text = match &rubric.origin {
        Origin::BuiltIn => Library::built_in_text(name).unwrap_or_default().to_owned(),
        Origin::File(path) => std::fs::read_to_string(path)?,
    };
    let mut out = std::io::stdout().lock();
    out.write_all(gradus_core::visible::printable(&text).as_bytes())?;
    Ok(Exit::Pass)
}

fn check(files: &[PathBuf]) -> anyhow::Result<Exit> {
    let mut out = anstream::stdout().lock();
    let mut refused = 0;
    for path in files {
        for checked in Library::check_path(path) {
            match checked {
                Ok(rubric) => {
                    let variables: Vec<&str> = rubric
                        .template
                        .pieces
                        .iter()
                        .filter_map(|piece| {
                            if let Piece::Variable(variable) = piece { Some(variable.name()) } else { None }
                        })
                        .collect();
                    let scores: Vec<String> =
                        rubric.labels.iter().map(|(label, score)| format!("{label} = {score}")).collect();
                    writeln!(
                        out,
                        "{}: sound; of a {}, {}, uses {}",
                        rubric.name,
                        subject(&rubric),
                        scores.join(", "),
                        variables.join(", ")
                    )?;
                }
                Err(error) => {
                    complain(&error.to_string());
                    refused += 1;
                }
            }
        }
    }
    Ok(if refused > 0 { Exit::BadInput } else { Exit::Pass })
}

fn subject(rubric: &Rubric) -> &'static str {
    match rubric.subject {
        Subject::Step => "step",
        Subject::Trajectory => "trajectory",
    }
}

fn refuse(reason: &str) -> Exit {
    complain(reason);
    Exit::BadInput
}
