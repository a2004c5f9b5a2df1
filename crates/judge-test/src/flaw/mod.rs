//! Flaws that are planted into right runs: the catalogue, and which rubrics must notice them.
//!
//! Each flawed run has exactly one flaw. A flaw is planted only where the judge can see it in what a rubric shows, and
//! only for the rubrics whose text makes it wrong beyond doubt; see `docs/reference/judge-test.md`.

mod answer_flaws;
mod argument_flaws;
mod argument_slot;
mod draft;
mod error_flaws;
mod planted_run;
mod standing_flaws;
mod step_flaws;
mod thought_flaws;
mod tool_flaws;

pub use planted_run::{FlawExpectation, FlawedRun, ReplayResult, StepSource};

use serde::{Deserialize, Serialize};

use crate::right_run::RightRun;
use crate::seeded_choice::SeededChoice;
use draft::PlantingSite;

/// One kind of planted flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlantedFlaw {
    WrongTool,
    NeighbouringTool,
    SwappedArgument,
    CorruptedArgument,
    InventedId,
    MissingStep,
    RepeatedStep,
    NeedlessStep,
    ContradictingThought,
    IgnoredError,
    PrematureAnswer,
    UnsupportedClaim,
    PolicyViolation,
    ConstraintViolation,
    AbandonedPlan,
}

impl PlantedFlaw {
    /// In the order of reports.
    pub const ALL: [PlantedFlaw; 15] = [
        PlantedFlaw::WrongTool,
        PlantedFlaw::NeighbouringTool,
        PlantedFlaw::SwappedArgument,
        PlantedFlaw::CorruptedArgument,
        PlantedFlaw::InventedId,
        PlantedFlaw::MissingStep,
        PlantedFlaw::RepeatedStep,
        PlantedFlaw::NeedlessStep,
        PlantedFlaw::ContradictingThought,
        PlantedFlaw::IgnoredError,
        PlantedFlaw::PrematureAnswer,
        PlantedFlaw::UnsupportedClaim,
        PlantedFlaw::PolicyViolation,
        PlantedFlaw::ConstraintViolation,
        PlantedFlaw::AbandonedPlan,
    ];

    /// The name in options, reports and case files.
    pub fn name(self) -> &'static str {
        match self {
            PlantedFlaw::WrongTool => "wrong_tool",
            PlantedFlaw::NeighbouringTool => "neighbouring_tool",
            PlantedFlaw::SwappedArgument => "swapped_argument",
            PlantedFlaw::CorruptedArgument => "corrupted_argument",
            PlantedFlaw::InventedId => "invented_id",
            PlantedFlaw::MissingStep => "missing_step",
            PlantedFlaw::RepeatedStep => "repeated_step",
            PlantedFlaw::NeedlessStep => "needless_step",
            PlantedFlaw::ContradictingThought => "contradicting_thought",
            PlantedFlaw::IgnoredError => "ignored_error",
            PlantedFlaw::PrematureAnswer => "premature_answer",
            PlantedFlaw::UnsupportedClaim => "unsupported_claim",
            PlantedFlaw::PolicyViolation => "policy_violation",
            PlantedFlaw::ConstraintViolation => "constraint_violation",
            PlantedFlaw::AbandonedPlan => "abandoned_plan",
        }
    }

    pub fn from_name(name: &str) -> Option<PlantedFlaw> {
        PlantedFlaw::ALL.into_iter().find(|flaw| flaw.name() == name)
    }

    /// The built-in evaluators that must notice it. A planted run names those of them that can see it there.
    pub fn rubrics(self) -> &'static [&'static str] {
        match self {
            PlantedFlaw::WrongTool | PlantedFlaw::NeighbouringTool => &["thought_to_tool", "request_to_tool"],
            PlantedFlaw::SwappedArgument => &["parameter_quality", "thought_to_tool", "request_to_tool"],
            PlantedFlaw::CorruptedArgument | PlantedFlaw::InventedId => {
                &["parameter_quality", "argument_provenance", "thought_to_tool", "request_to_tool"]
            }
            PlantedFlaw::MissingStep => &["task_completion"],
            PlantedFlaw::RepeatedStep | PlantedFlaw::NeedlessStep => &["sequence_optimality", "request_to_tool"],
            PlantedFlaw::ContradictingThought => &["query_to_thought", "thought_to_tool"],
            PlantedFlaw::IgnoredError => {
                &["recovery_quality", "error_recovery", "task_completion", "misread_observation"]
            }
            PlantedFlaw::PrematureAnswer => &["task_completion", "thought_to_tool"],
            PlantedFlaw::UnsupportedClaim => &["misread_observation", "task_completion"],
            PlantedFlaw::PolicyViolation => &["policy"],
            PlantedFlaw::ConstraintViolation => &["user_alignment"],
            PlantedFlaw::AbandonedPlan => &["planning"],
        }
    }

    /// Returns the flaws that an evaluator must notice; empty for one that is not built in.
    pub fn list_for_rubric(rubric: &str) -> Vec<PlantedFlaw> {
        PlantedFlaw::ALL.into_iter().filter(|flaw| flaw.rubrics().contains(&rubric)).collect()
    }

    /// Whether a replay on the simulator can tell that the flaw is harmless. The others change a thought, an
    /// instruction or a plan, of which a simulator knows nothing.
    pub fn is_replayable(self) -> bool {
        !matches!(
            self,
            PlantedFlaw::ContradictingThought
                | PlantedFlaw::PolicyViolation
                | PlantedFlaw::ConstraintViolation
                | PlantedFlaw::AbandonedPlan
        )
    }
}

/// Plants a flaw into a right run. The seed and `attempt` choose position, variant and wording. `None` if the flaw
/// does not fit the run. `donors` are other right runs, whose steps and thoughts may be borrowed.
pub(crate) fn plant_flaw(
    flaw: PlantedFlaw,
    run: &RightRun,
    donors: &[RightRun],
    seed: u64,
    attempt: u32,
) -> Option<FlawedRun> {
    let form = format!("{:?}", run.form);
    let labels = [flaw.name(), run.cluster.as_str(), form.as_str(), &attempt.to_string()];
    let mut choice = SeededChoice::new(seed, &labels);
    let site = PlantingSite { run, donors, flaw };
    let choice = &mut choice;
    match flaw {
        PlantedFlaw::WrongTool => tool_flaws::plant_wrong_tool(&site, choice),
        PlantedFlaw::NeighbouringTool => tool_flaws::plant_neighbouring_tool(&site, choice),
        PlantedFlaw::SwappedArgument => argument_flaws::plant_swapped_argument(&site, choice),
        PlantedFlaw::CorruptedArgument => argument_flaws::plant_corrupted_argument(&site, choice),
        PlantedFlaw::InventedId => argument_flaws::plant_invented_id(&site, choice),
        PlantedFlaw::MissingStep => step_flaws::plant_missing_step(&site, choice),
        PlantedFlaw::RepeatedStep => step_flaws::plant_repeated_step(&site, choice),
        PlantedFlaw::NeedlessStep => step_flaws::plant_needless_step(&site, choice),
        PlantedFlaw::ContradictingThought => thought_flaws::plant_contradicting_thought(&site, choice),
        PlantedFlaw::IgnoredError => error_flaws::plant_ignored_error(&site, choice),
        PlantedFlaw::PrematureAnswer => answer_flaws::plant_premature_answer(&site, choice),
        PlantedFlaw::UnsupportedClaim => answer_flaws::plant_unsupported_claim(&site, choice),
        PlantedFlaw::PolicyViolation => standing_flaws::plant_policy_violation(&site, choice),
        PlantedFlaw::ConstraintViolation => standing_flaws::plant_constraint_violation(&site, choice),
        PlantedFlaw::AbandonedPlan => standing_flaws::plant_abandoned_plan(&site, choice),
    }
}

#[cfg(test)]
pub(crate) mod tests;
