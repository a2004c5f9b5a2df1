//! Which steps of a run were needed. A run on the simulator is played again from its seed without some of its steps; a
//! step is unnecessary if the same end is reached without it and nothing later rests on what it told.
//!
//! What an agent thought is not known, so two things are looked at: the verified end state (`perform`), and where the
//! values in later arguments and in the final message come from (`trace`). `search` looks for the shortest run that keeps
//! both. `docs/explanation/replay.md` says what counts.

mod doubts;
mod facts;
mod kept_steps;
mod pages;
mod perform;
mod rebind;
mod search;
mod sources;
mod trace;

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::record::TrialRecord;
use gradus_github_agent::tools::ToolBox;
use gradus_github_sim::World;
use gradus_github_sim::state::WorldState;

/// Where a run is played again: tools that act on this world. The world is set anew for each attempt.
#[derive(Clone, Copy)]
pub struct ReplayEnvironment<'s> {
    pub tools: &'s dyn ToolBox,
    pub world: &'s Mutex<World>,
    /// By which requests are sent that no tool of ours made.
    pub token: &'s str,
}

impl std::fmt::Debug for ReplayEnvironment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayEnvironment").field("tools", &self.tools.tools().len()).finish_non_exhaustive()
    }
}

/// What is checked of an end: names, and whether they hold. The same names in the same order, whatever the end.
pub type CheckResults = Vec<(String, bool)>;

/// Says of a world as a run left it, and of the run, which checks hold.
pub type RunVerifier<'v> = dyn Fn(&WorldState, &TrialRecord) -> CheckResults + Sync + 'v;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepNecessity {
    Needed,
    Unnecessary,
    /// It cannot be told from what is recorded.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepVerdict {
    /// From 1.
    pub step: usize,
    pub tool: String,
    pub need: StepNecessity,
    /// One line.
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    pub task: String,
    pub trial: u32,
    /// As the record has it.
    #[serde(default)]
    pub agent: String,
    /// Whether all checks hold after the run as it was.
    pub passed: bool,
    pub steps: Vec<StepVerdict>,
    /// The shortest run that was found: numbers of its steps, from 1. Steps of which nothing can be told are in it.
    pub shortest: Vec<usize>,
    /// Length of the run ÷ length of the shortest; 1 if nothing can be left out.
    pub ratio: f64,
    /// So often the run was played, whole or in part.
    pub replays: usize,
    /// The search was ended before all was tried.
    pub cut_short: bool,
}

impl ReplayReport {
    pub fn steps_that_are(&self, need: StepNecessity) -> Vec<usize> {
        self.steps.iter().filter(|one| one.need == need).map(|one| one.step).collect()
    }
}

/// `seed` is the world in which the run began.
pub async fn replay_trial(
    seed: &World,
    record: &TrialRecord,
    stage: ReplayEnvironment<'_>,
    verify: &RunVerifier<'_>,
) -> ReplayReport {
    // What tools of others do is not known, but what they have asked GitHub for is.
    let by_requests = record.is_foreign.then(|| record.by_requests());
    let record = by_requests.as_ref().unwrap_or(record);
    search::ReplaySearch::new(seed, record, stage, verify).run().await
}
