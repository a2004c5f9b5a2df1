//! Which steps of a run were needed. A run is repeated on the simulator from its seed without some of its steps. A step
//! is unnecessary if the verified end is the same without it and no later value comes from it.
//!
//! Thoughts of an agent cannot be checked, so two things are: the verified end state (`perform`), and where values in
//! later arguments and in the final message come from (`provenance`). `search` looks for the shortest run that keeps both.
//! `docs/explanation/replay.md` defines what counts.

mod pages;
mod perform;
mod provenance;
mod rebind;
mod search;
mod sources;
mod step_selection;
mod traced_facts;
mod uncertainty;

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::record::TrialRecord;
use gradus_github_agent::tools::ToolSet;
use gradus_github_sim::World;
use gradus_github_sim::state::WorldState;

/// Tools that act on a shared world. The world is replaced before each attempt, so that one environment can serve one
/// replay at a time only.
#[derive(Clone, Copy)]
pub struct ReplayEnvironment<'s> {
    pub tools: &'s dyn ToolSet,
    pub world: &'s Mutex<World>,
    /// Token for requests that are sent directly, because the run was made with tools that are not ours.
    pub token: &'s str,
}

impl std::fmt::Debug for ReplayEnvironment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayEnvironment").field("tools", &self.tools.tools().len()).finish_non_exhaustive()
    }
}

/// Names of checks and whether they hold. The same names in the same order for every end of the same task, so that two
/// lists can be compared by position.
pub type CheckResults = Vec<(String, bool)>;

/// Evaluates the checks of a task on a state and a record. `Sync`, since replays run on the threads of the trial pool.
pub type RunVerifier<'v> = dyn Fn(&WorldState, &TrialRecord) -> CheckResults + Sync + 'v;

/// Whether a run needed a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepNecessity {
    Needed,
    Unnecessary,
    /// The records do not decide it.
    Unknown,
}

/// The verdict on one step, with a one-line reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepVerdict {
    /// From 1.
    pub step: usize,
    pub tool: String,
    pub need: StepNecessity,
    /// One line.
    pub why: String,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    pub task: String,
    pub trial: u32,
    /// Name of the agent, as in the record.
    #[serde(default)]
    pub agent: String,
    /// Whether all checks hold after the run as it was.
    pub passed: bool,
    pub steps: Vec<StepVerdict>,
    /// Step numbers (from 1) of the shortest sufficient run that was found. It contains steps whose necessity is
    /// unknown, so that detours are never overstated.
    pub shortest: Vec<usize>,
    /// Length of the run divided by the length of the shortest; 1 if no step can be left out.
    pub ratio: f64,
    /// How many times the run was repeated, whole or in part.
    pub replays: usize,
    /// Whether the limit on replays was reached before all candidates were tried.
    pub cut_short: bool,
}

impl ReplayReport {
    /// Returns the numbers (from 1) of the steps with this verdict.
    pub fn list_steps(&self, need: StepNecessity) -> Vec<usize> {
        self.steps.iter().filter(|one| one.need == need).map(|one| one.step).collect()
    }
}

/// Replays a run. `seed` is the initial world, with its faults.
pub async fn replay_trial(
    seed: &World,
    record: &TrialRecord,
    environment: ReplayEnvironment<'_>,
    verify: &RunVerifier<'_>,
) -> ReplayReport {
    // The tools of an external program are unknown, but their requests are recorded and can be repeated.
    let with_steps_by_request = record.is_foreign.then(|| record.with_steps_by_request());
    let record = with_steps_by_request.as_ref().unwrap_or(record);
    search::ReplaySearch::new(seed, record, environment, verify).run().await
}
