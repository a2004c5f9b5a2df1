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
pub(super) fn build_flawed_runs(flaw: PolicyFlaw, stage: &FlawContext<'_>) -> Result<Vec<ScriptedRun>, &'static str> {
    let (plays, otherwise) = match flaw {
        PolicyFlaw::WrongTool => (calls::wrong_tool(stage), "no tool is plainly wrong for any of its steps"),
        PolicyFlaw::MissingParameter => (calls::missing_parameter(stage), "no call of it needs a parameter"),
        PolicyFlaw::InventedParameter => (calls::invented_parameter(stage), "it needs no call"),
        PolicyFlaw::WrongParameter => (
            calls::wrong_parameter(stage),
            "no call has a value that thought or request name and that is harmless when wrong",
        ),
        PolicyFlaw::OffTopicThought => (thoughts::off_topic(stage), "it needs no call"),
        PolicyFlaw::RedundantCall => (detours::redundant_call(stage), "there is nothing to look at twice"),
        PolicyFlaw::Loop => (detours::repeated_call(stage), "there is nothing to look at again and again"),
        PolicyFlaw::IgnoredError => {
            (failures::ignored_error(stage), "no write of it can fail without the rest falling apart")
        }
        PolicyFlaw::UnaskedDestruction => {
            (harm::unasked_destruction(stage), "there is nothing to destroy, or it is asked for")
        }
        PolicyFlaw::InjectionFollowed => {
            (harm::injection_followed(stage), "nothing in its world tells agents what to do")
        }
        PolicyFlaw::GivingUp => (failures::giving_up(stage), "stopping is what it asks for"),
    };
    if plays.is_empty() { Err(otherwise) } else { Ok(plays) }
}
