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

use super::OfflineJudge;

/// The actions of all steps. Empty if none of them touches a file or runs a command: then the agent is no coding agent.
fn classify_steps(offline: &OfflineJudge<'_>) -> Vec<CodingAction> {
    let actions: Vec<CodingAction> = offline.trajectory.steps.iter().map(CodingAction::from_step).collect();
    let is_coding = actions.iter().any(|action| !matches!(action, CodingAction::Other));
    if is_coding { actions } else { Vec::new() }
}
