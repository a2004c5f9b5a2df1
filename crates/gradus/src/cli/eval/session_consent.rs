//! Sessions of coding agents are records of what a person does on this machine. They are judged by rules unless a
//! judge is named, and nothing is sent before the user has seen its size and has agreed.

use std::io::{self, BufRead, IsTerminal, Write};

use gradus_eval::evaluator_selection::{CODING_SET, CORE_SET};

use super::super::CommandExit;
use super::super::sources::print_diagnostic;
use super::arguments::EvalArguments;
use super::dry_run::run_dry_run;
use super::settings::EvalSettings;
use crate::known_sources::find_personal_session;

/// Returns the options for sources that hold sessions of coding agents; `None` if they hold none, or if nothing
/// changes.
pub(super) fn adapt_to_sessions(arguments: &EvalArguments) -> Option<EvalArguments> {
    // The search reads the beginning of every file.
    if arguments.grading.judge.asks_no_model() && !arguments.grading.evaluators.is_empty() {
        return None;
    }
    let tool = find_personal_session(&arguments.sources)?;
    let mut adapted = arguments.clone();
    if arguments.grading.judge.judge.is_empty() {
        print_diagnostic(&format!("{tool}: judging with `offline`, which is rules and no model; --judge asks a model"));
    }
    adapted.grading.judge.judge_offline_by_default();
    if adapted.grading.evaluators.is_empty() {
        adapted.grading.evaluators = vec![CORE_SET.to_owned(), CODING_SET.to_owned()];
    }
    Some(adapted)
}

/// Shows size and price of what would be sent, and asks the user. `None` means consent.
pub(super) fn ask_before_sending(
    arguments: &EvalArguments,
    settings: &EvalSettings,
) -> anyhow::Result<Option<CommandExit>> {
    if arguments.yes || settings.judge.is_none() {
        return Ok(None);
    }
    run_dry_run(arguments, settings)?;
    if !io::stdin().is_terminal() {
        print_diagnostic(&format!(
            "these are sessions of a person: nothing was sent to {}\nhint: look at the table above, then add --yes",
            settings.judge_name()
        ));
        return Ok(Some(CommandExit::BadInput));
    }
    let mut out = io::stderr().lock();
    write!(out, "Send these sessions to {}? [y/N] ", settings.judge_name())?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(None);
    }
    print_diagnostic("nothing was sent");
    Ok(Some(CommandExit::BadInput))
}
