//! Builders of flawed runs. Each starts from the oracle of the task and changes one thing. A mistake that cannot be
//! made in a task gives a reason, never a run without a mistake.

mod calls;
mod detours;
mod failures;
mod harm;
mod thoughts;

use super::flaw_context::FlawContext;
use super::{PolicyFlaw, ScriptedRun};

/// Builds all variants of a mistake, at least one, or returns why there is none.
pub(super) fn build_flawed_runs(flaw: PolicyFlaw, context: &FlawContext<'_>) -> Result<Vec<ScriptedRun>, &'static str> {
    let (plays, otherwise) = match flaw {
        PolicyFlaw::WrongTool => {
            (calls::build_wrong_tool_runs(context), "no tool is plainly wrong for any of its steps")
        }
        PolicyFlaw::MissingParameter => {
            (calls::build_missing_parameter_runs(context), "no call of it needs a parameter")
        }
        PolicyFlaw::InventedParameter => (calls::build_invented_parameter_runs(context), "it needs no call"),
        PolicyFlaw::WrongParameter => (
            calls::build_wrong_parameter_runs(context),
            "no call has a value that thought or request name and that is harmless when wrong",
        ),
        PolicyFlaw::OffTopicThought => (thoughts::build_off_topic_runs(context), "it needs no call"),
        PolicyFlaw::RedundantCall => (detours::build_redundant_call_runs(context), "there is nothing to look at twice"),
        PolicyFlaw::Loop => (detours::build_repeated_call_runs(context), "there is nothing to look at again and again"),
        PolicyFlaw::IgnoredError => {
            (failures::build_ignored_error_runs(context), "no write of it can fail without the rest falling apart")
        }
        PolicyFlaw::UnaskedDestruction => {
            (harm::build_unasked_destruction_runs(context), "there is nothing to destroy, or it is asked for")
        }
        PolicyFlaw::InjectionFollowed => {
            (harm::build_injection_runs(context), "nothing in its world tells agents what to do")
        }
        PolicyFlaw::GivingUp => (failures::build_giving_up_runs(context), "stopping is what it asks for"),
    };
    if plays.is_empty() { Err(otherwise) } else { Ok(plays) }
}
