//! A correct run with one planted flaw, and the result of replaying it on a simulator.

use gradus_core::trajectory::Trajectory;

use super::PlantedFlaw;
use crate::right_run::{RunForm, RunMaterial};

/// Where a step of a flawed run comes from. Indexes are those of the correct run, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepSource {
    Unchanged(usize),
    /// The call differs from that of the correct run.
    Changed(usize),
    /// The call failed, so it changed nothing.
    Failed(usize),
    Inserted,
}

/// An evaluator that must notice the flaw. Step numbers are those of outcome lines, from 1; `None` stands for the whole
/// trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlawExpectation {
    pub rubric: &'static str,
    pub step: Option<u32>,
    /// The step of the original that must not be flagged.
    pub original_step: Option<u32>,
}

/// A flawed run with its correct original.
#[derive(Clone, Debug)]
pub struct FlawedRun {
    pub flaw: PlantedFlaw,
    pub trajectory: Trajectory,
    /// The correct run that it was made from. It may have an addition that both share, such as a standing rule, or a
    /// failed call that is handled well.
    pub original: Trajectory,
    /// What was planted, in words.
    pub note: String,
    /// One for each step of the trajectory.
    pub sources: Vec<StepSource>,
    pub expectations: Vec<FlawExpectation>,
    /// The step with the flaw, and its counterpart in the original; for rubrics that are not built in.
    pub step: Option<u32>,
    pub original_step: Option<u32>,
    /// Cluster (task) of the correct run.
    pub cluster: String,
    pub material: RunMaterial,
    pub form: RunForm,
}

/// The result of replaying the calls of a flawed run. Step numbers count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayResult {
    /// Whether the task is solved at the end.
    pub is_solved: bool,
    /// Steps without which the final state is the same and whose results no later step uses.
    pub needless_steps: Vec<u32>,
}

impl FlawedRun {
    /// Returns why the flaw does not change the right verdict; `None` if it does. A changed call that a solved task
    /// needs is as good as the original one. An added step counts as a flaw only if the replay proves it needless.
    pub fn explain_harmless(&self, replay: &ReplayResult) -> Option<&'static str> {
        let is_needless = |step: Option<u32>| step.is_some_and(|step| replay.needless_steps.contains(&step));
        match self.flaw {
            PlantedFlaw::WrongTool
            | PlantedFlaw::NeighbouringTool
            | PlantedFlaw::SwappedArgument
            | PlantedFlaw::CorruptedArgument
            | PlantedFlaw::InventedId => (replay.is_solved && !is_needless(self.step))
                .then_some("the task is solved, and the changed call is needed for it"),
            PlantedFlaw::MissingStep
            | PlantedFlaw::IgnoredError
            | PlantedFlaw::PrematureAnswer
            | PlantedFlaw::UnsupportedClaim => replay.is_solved.then_some("the task is solved all the same"),
            PlantedFlaw::RepeatedStep => {
                let is_proven = is_needless(self.step) || is_needless(self.step.map(|step| step - 1));
                (!is_proven).then_some("a replay does not show that the step is needless")
            }
            PlantedFlaw::NeedlessStep => {
                (!is_needless(self.step)).then_some("a replay does not show that the step is needless")
            }
            PlantedFlaw::ContradictingThought
            | PlantedFlaw::PolicyViolation
            | PlantedFlaw::ConstraintViolation
            | PlantedFlaw::AbandonedPlan => None,
        }
    }
}
