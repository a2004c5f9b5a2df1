//! Rules for coding agents: facts about files, commands and claims that a session proves. They know the tools of the
//! common coding agents by name, and do not apply to other agents.

mod claims;
mod coding_action;
mod conduct;
mod secret_values;
mod shell_command;
mod shell_syntax;
mod test_run;

pub(super) use claims::{claim_remarks, judge_test_claims};
pub(super) use coding_action::CodingAction;
pub(super) use conduct::judge_conduct;

use gradus_core::trajectory::TrajectoryStep;

use super::OfflineJudge;

/// Whether a step runs a command of a shell.
pub(super) fn runs_command(step: &TrajectoryStep) -> bool {
    matches!(CodingAction::from_step(step), CodingAction::Command(_))
}

/// Whether the agent works on the files of a project: it is one of the known coding agents, or it changes files or runs
/// commands. Reading files alone makes no coding agent.
pub(super) fn is_coding_agent(offline: &OfflineJudge<'_>) -> bool {
    const AGENTS: [&str; 11] = [
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
    ];
    let actions = offline.coding_actions.get_or_init(|| classify_steps(offline));
    let is_work = |action: &CodingAction| action.is_change() || matches!(action, CodingAction::Command(_));
    offline.trajectory.agent.as_deref().is_some_and(|agent| AGENTS.contains(&agent)) || actions.iter().any(is_work)
}

/// The actions of all steps. Empty if none of them touches a file or runs a command: then the agent is no coding agent.
fn classify_steps(offline: &OfflineJudge<'_>) -> Vec<CodingAction> {
    let actions: Vec<CodingAction> = offline.trajectory.steps.iter().map(CodingAction::from_step).collect();
    let is_coding = actions.iter().any(|action| !matches!(action, CodingAction::Other));
    if is_coding { actions } else { Vec::new() }
}
