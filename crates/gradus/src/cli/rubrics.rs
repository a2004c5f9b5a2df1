//! `gradus rubrics`: lists and prints rubrics, and checks a user's own files.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use gradus_eval::evaluator_selection::{RULE_EVALUATORS, rubric_library};
use gradus_eval::rubric::{Rubric, RubricLibrary, RubricOrigin, RubricSubject, RubricTemplatePiece};

use super::CommandExit;
use super::sources::print_diagnostic;
use crate::config::{ConfigFile, EnvironmentVariables};

#[derive(Args)]
pub(super) struct RubricArguments {
    #[command(subcommand)]
    command: RubricCommand,
}

#[derive(Subcommand)]
enum RubricCommand {
    /// Lists the rubrics: those that are built in, and those of the given folders.
    List(RubricPaths),
    /// Prints a rubric's file; a copy of it is a good start for one's own.
    Show {
        /// The rubric's name.
        name: String,
        #[command(flatten)]
        paths: RubricPaths,
    },
    /// Checks files and folders of rubrics.
    Check {
        /// Files or folders.
        #[arg(required = true, value_name = "PATH")]
        files: Vec<PathBuf>,
    },
}

#[derive(Args)]
struct RubricPaths {
    /// A rubric's file or a folder of them.
    #[arg(long, value_name = "PATH")]
    rubrics: Vec<PathBuf>,
}

/// Entry point of the command. Rubrics of the settings file are listed and shown as well.
pub(super) fn run_rubrics_command(arguments: &RubricArguments) -> anyhow::Result<CommandExit> {
    let file = match ConfigFile::read(EnvironmentVariables::read().config.as_deref()) {
        Ok(file) => file,
        Err(error) => return Ok(reject_rubrics_input(&error.to_string())),
    };
    match &arguments.command {
        RubricCommand::List(paths) => match rubric_library(file.eval.rubrics.iter().chain(&paths.rubrics)) {
            Ok(library) => print_rubric_list(&library),
            Err(reason) => Ok(reject_rubrics_input(&reason.to_string())),
        },
        RubricCommand::Show { name, paths } => match rubric_library(file.eval.rubrics.iter().chain(&paths.rubrics)) {
            Ok(library) => show_rubric(&library, name),
            Err(reason) => Ok(reject_rubrics_input(&reason.to_string())),
        },
        RubricCommand::Check { files } => check_rubric_files(files),
    }
}

/// Prints a table of all rubrics, and of the evaluators that have no rubric because they are rules only.
fn print_rubric_list(library: &RubricLibrary) -> anyhow::Result<CommandExit> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{:<24}{:<12}{:<24}{:<18}asks", "name", "of", "labels", "from")?;
    for rubric in library.iter() {
        let from = match &rubric.origin {
            RubricOrigin::BuiltIn => "built in".to_owned(),
            RubricOrigin::File(path) => path.display().to_string(),
        };
        let labels = rubric.labels.names().collect::<Vec<_>>().join(", ");
        let about = gradus_core::visible::printable_line(&rubric.about);
        writeln!(out, "{:<24}{:<12}{labels:<24}{from:<18}{about}", rubric.name, subject_name(rubric))?;
    }
    for evaluator in RULE_EVALUATORS.iter().map(|make| make()) {
        let subject = if evaluator.subject == RubricSubject::Step { "step" } else { "trajectory" };
        let labels = evaluator.labels.names().collect::<Vec<_>>().join(", ");
        writeln!(out, "{:<24}{subject:<12}{labels:<24}{:<18}Rules; no model is asked.", evaluator.name, "built in")?;
    }
    Ok(CommandExit::Pass)
}

/// Prints the file of a rubric as it is, so that `gradus rubrics show NAME > mine.md` is a copy to edit.
fn show_rubric(library: &RubricLibrary, name: &str) -> anyhow::Result<CommandExit> {
    let Some(rubric) = library.find(name) else {
        let known: Vec<&str> = library.iter().map(|rubric| rubric.name.as_str()).collect();
        return Ok(reject_rubrics_input(&format!("there is no rubric {name:?}; there are {}", known.join(", "))));
    };
    let text = match &rubric.origin {
        RubricOrigin::BuiltIn => RubricLibrary::built_in_text(name).unwrap_or_default().to_owned(),
        RubricOrigin::File(path) => std::fs::read_to_string(path)?,
    };
    let mut out = std::io::stdout().lock();
    out.write_all(gradus_core::visible::make_printable(&text).as_bytes())?;
    Ok(CommandExit::Pass)
}

/// Checks every file and reports all errors, not only the first. A valid rubric is listed with its labels, scores and
/// variables, as they were parsed: a misspelled variable is often visible only there.
fn check_rubric_files(files: &[PathBuf]) -> anyhow::Result<CommandExit> {
    let mut out = anstream::stdout().lock();
    let mut refused = 0;
    for path in files {
        for checked in RubricLibrary::check_path(path) {
            match checked {
                Ok(rubric) => {
                    let variables: Vec<&str> = rubric
                        .template
                        .pieces
                        .iter()
                        .filter_map(|piece| {
                            if let RubricTemplatePiece::Variable(variable) = piece {
                                Some(variable.name())
                            } else {
                                None
                            }
                        })
                        .collect();
                    let scores: Vec<String> =
                        rubric.labels.iter().map(|(label, score)| format!("{label} = {score}")).collect();
                    writeln!(
                        out,
                        "{}: sound; of a {}, {}, uses {}",
                        rubric.name,
                        subject_name(&rubric),
                        scores.join(", "),
                        variables.join(", ")
                    )?;
                }
                Err(error) => {
                    print_diagnostic(&error.to_string());
                    refused += 1;
                }
            }
        }
    }
    Ok(if refused > 0 { CommandExit::BadInput } else { CommandExit::Pass })
}

/// Returns what a rubric judges, as users write it in the file.
fn subject_name(rubric: &Rubric) -> &'static str {
    match rubric.subject {
        RubricSubject::Step => "step",
        RubricSubject::Trajectory => "trajectory",
    }
}

fn reject_rubrics_input(reason: &str) -> CommandExit {
    print_diagnostic(reason);
    CommandExit::BadInput
}
