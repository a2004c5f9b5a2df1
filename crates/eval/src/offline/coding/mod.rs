//! Rules for coding agents: facts about files, commands and claims that a session proves. They know the tools of the
//! common coding agents by name, and do not apply to other agents.

mod background_work;
mod claims;
mod coding_action;
mod conduct;
mod secret_values;
mod shell_command;
mod shell_syntax;
mod test_run;
mod unread_edit;
mod user_consent;

pub(super) use background_work::{looks_for_progress, started_background_work, starts_background_work};
pub(super) use claims::{claim_remarks, judge_test_claims};
pub(super) use coding_action::CodingAction;
pub(super) use conduct::{conduct_remarks, judge_conduct};

use gradus_core::trajectory::TrajectoryStep;

use super::OfflineJudge;
use super::excerpt::take_prefix;
use coding_action::{code_mode_script, only_waits};
use shell_command::{only_looks, sleeps};

/// Maximum number of earlier steps that a rule checks.
const MAX_LOOKBACK_STEPS: usize = 400;

/// Whether a step runs a command of a shell.
pub(super) fn runs_command(step: &TrajectoryStep) -> bool {
    matches!(CodingAction::from_step(step), CodingAction::Command(_))
}

/// Whether validator messages in the result of a step may not be about its call: a shell shows the output of
/// programs, a refused patch quotes the file, and known agents mark errors, so an unmarked result is content.
pub(super) fn shows_other_output(offline: &OfflineJudge<'_>, step: &TrajectoryStep) -> bool {
    let is_patch = matches!(step.tool.as_str(), "apply_patch" | "patch");
    // A patch through a shell; the editor of SWE-agent has a parameter of this name.
    let has_command = || {
        let command = step.arguments.as_ref().and_then(|arguments| arguments.get("command"));
        command.is_some() && !step.tool.starts_with("str_replace_")
    };
    match CodingAction::from_step(step) {
        CodingAction::Command(_) => true,
        CodingAction::Edit(_) | CodingAction::Write(_) => is_patch || has_command(),
        CodingAction::Read(_) => !step.is_error && is_known_coding_agent(offline),
        CodingAction::Other => is_patch,
    }
}

/// Whether the result of a step is what a program printed, by the header that Codex puts in front of it. The call was
/// accepted, whatever the program says about arguments.
pub(super) fn is_program_output(step: &TrajectoryStep) -> bool {
    const EXITS: [&str; 2] = ["Process exited with code ", "Exit code: "];
    /// Maximum number of lines of a header.
    const MAX_HEADER_LINES: usize = 8;
    let result = step.observation.as_deref().unwrap_or_default().trim_start();
    let mut header = result.lines().take(MAX_HEADER_LINES).take_while(|line| !line.starts_with("Output:"));
    result.starts_with("Chunk ID:") || header.any(|line| EXITS.iter().any(|exit| line.starts_with(exit)))
}

/// Maximum bytes of a result that reports the status of something that runs.
const MAX_STATUS_BYTES: usize = 300;

/// Whether an answer need not mention that a step failed. The exit status of a command is often the information that
/// the agent needs (`grep`, `gh pr checks`, `command -v`), or the desired state existed already. In sessions that
/// were read by hand, none of 18 such flags was right.
pub(super) fn needs_no_mention(step: &TrajectoryStep) -> bool {
    // Ending a process that has already ended is not a failure, either.
    const LOOKS: &str = " glob grep ls list search find killshell kill_shell kill_bash taskstop ";
    match CodingAction::from_step(step) {
        CodingAction::Command(_) => true,
        CodingAction::Other => {
            is_waiting_step(step) || LOOKS.contains(&format!(" {} ", step.tool.to_ascii_lowercase()))
        }
        CodingAction::Read(_) | CodingAction::Edit(_) | CodingAction::Write(_) => false,
    }
}

/// Whether a step runs a command that does more than read.
pub(super) fn runs_changing_command(step: &TrajectoryStep) -> bool {
    matches!(CodingAction::from_step(step), CodingAction::Command(command) if !step.is_denied && !only_looks(&command))
}

/// Whether a refused change tells the agent to read the file first, or again.
pub(super) fn demands_reading(step: &TrajectoryStep) -> bool {
    const DEMANDS: [&str; 3] = ["has not been read yet", "must read the file before", "Read it again before"];
    let result = step.observation.as_deref().filter(|_| step.is_error).unwrap_or_default();
    DEMANDS.iter().any(|demand| take_prefix(result, MAX_STATUS_BYTES).contains(demand))
}

/// Whether a file may be read again after a step: a change failed, so its text is not what the agent expected.
pub(super) fn excuses_reading(step: &TrajectoryStep) -> bool {
    demands_reading(step) || step.is_error && edits_files(step)
}

/// Whether a step writes into files.
pub(super) fn edits_files(step: &TrajectoryStep) -> bool {
    CodingAction::from_step(step).is_change()
}

/// Maximum number of steps between a look at a file and its edit.
const MAX_STEPS_TO_EDIT: usize = 5;

/// Whether a step reads a file that one of the next steps changes. Agents look at the text again before they name it.
pub(super) fn reads_before_edit(steps: &[TrajectoryStep], at: usize) -> bool {
    let Some(CodingAction::Read(path)) = steps.get(at).map(CodingAction::from_step) else { return false };
    steps.iter().skip(at + 1).take(MAX_STEPS_TO_EDIT).any(|step| match CodingAction::from_step(step) {
        CodingAction::Edit(paths) | CodingAction::Write(paths) => paths.contains(&path),
        _ => false,
    })
}

/// Whether a step asks the user a question.
pub(super) fn asks_person(step: &TrajectoryStep) -> bool {
    const ASKING: &str =
        " askuserquestion request_user_input ask_user ask_user_question ask_followup_question exitplanmode question ";
    ASKING.contains(&format!(" {} ", step.tool.to_ascii_lowercase()))
}

/// Whether the process of a step was ended by a signal, as an agent ends its own server.
pub(super) fn was_stopped_by_signal(step: &TrajectoryStep) -> bool {
    const SIGNS: [&str; 4] = ["exited with code 130", "exited with code 143", "exit code 130", "exit code 143"];
    let result = take_prefix(step.observation.as_deref().unwrap_or_default(), 400).to_lowercase();
    SIGNS.iter().any(|sign| result.contains(sign))
}

/// Whether a step waits for something that runs: by the name of its tool, or because its result says that it is not done.
/// Waiting twice is no repetition.
pub(super) fn is_waiting_step(step: &TrajectoryStep) -> bool {
    const WAITING: &str = " wait wait_agent write_stdin taskoutput bashoutput bash_output task_output read_output \
        get_output sleep poll await monitor job_output process_output check_status ";
    const RUNNING: [&str; 9] = [
        "still running",
        "running with cell id",
        "running with session id",
        "in progress",
        "in_progress",
        "<status>running",
        "\"status\": \"running",
        "\"status\":\"running",
        "not finished",
    ];
    let tool = step.tool.rsplit(['.', ':']).next().unwrap_or_default().to_ascii_lowercase();
    let result = step.observation.as_deref().unwrap_or_default();
    // A longer result is a list, in which something may be in progress.
    let is_running = || {
        let result = result.to_lowercase();
        RUNNING.iter().any(|sign| result.contains(sign))
    };
    let action = step.arguments.as_ref().and_then(|arguments| arguments.get("action")?.as_str());
    action == Some("wait")
        || !tool.is_empty() && WAITING.contains(&format!(" {tool} "))
        || matches!(CodingAction::from_step(step), CodingAction::Command(command) if sleeps(&command))
        || result.len() <= MAX_STATUS_BYTES && is_running()
        || code_mode_script(step).is_some_and(only_waits)
}

/// Whether the agent is a coding agent: it is a known one, or it changes files or runs commands. Reading files alone
/// is not enough.
pub(super) fn is_coding_agent(offline: &OfflineJudge<'_>) -> bool {
    let actions = offline.coding_actions.get_or_init(|| classify_steps(offline));
    let is_work = |action: &CodingAction| action.is_change() || matches!(action, CodingAction::Command(_));
    is_known_coding_agent(offline) || actions.iter().any(is_work)
}

/// Whether it is one of the coding agents whose records are read from their own files.
pub(super) fn is_known_coding_agent(offline: &OfflineJudge<'_>) -> bool {
    const AGENTS: [&str; 12] = [
        "claude-code",
        "codex",
        "gemini-cli",
        "cursor",
        "cursor-cli",
        "opencode",
        "copilot-cli",
        "qwen-code",
        "pi",
        "kimi-code",
        "goose",
        "codebuddy",
    ];
    offline.trajectory.agent.as_deref().is_some_and(|agent| AGENTS.contains(&agent))
}

/// Classifies all steps. Empty if none of them touches a file or runs a command: then the agent is not a coding
/// agent.
fn classify_steps(offline: &OfflineJudge<'_>) -> Vec<CodingAction> {
    let actions: Vec<CodingAction> = offline.trajectory.steps.iter().map(CodingAction::from_step).collect();
    let is_coding = actions.iter().any(|action| !matches!(action, CodingAction::Other));
    if is_coding { actions } else { Vec::new() }
}
