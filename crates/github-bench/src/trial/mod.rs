//! Runs tasks on the simulator, as often as wanted, several at a time, and says of each run whether it did what was asked
//! for, kept to the rules, and how long its way was. What runs come to together is in `statistics`.

mod arena;
mod endpoint;
mod folder;
mod line;
mod own_agent;
mod plan;
mod pool;
pub mod statistics;

pub use arena::Arena;
pub use folder::{BenchFolder, Earlier, FolderError};
pub use line::{ReplayLine, Spending, TrialLine};
pub use own_agent::{Contestant, OwnAgent, replayed};
pub use plan::Plan;
pub use pool::{Finished, Job, Player, Pool, run_all, run_each};

use gradus_llm::Failure;

use crate::record::RunRecord;
use crate::rules::{self, Evidence, RuleReport, Spent};
use crate::suite::{Task, Verification};
use gradus_github_agent::agent::SessionError;
use gradus_github_agent::tools::{Tool, ToolsError};
use gradus_github_sim::ServeError;
use gradus_github_sim::state::State;

/// Why a trial could not be carried out at all. A trial that goes wrong is a result; this is none.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Tools(#[from] ToolsError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("the agent cannot be run: {0}")]
    Agent(String),
    /// A program that is not there, or is none.
    #[error("the program cannot be run: {0}")]
    Program(String),
    /// Nobody was there to think, which says nothing about the agent.
    #[error("the model's endpoint gave no answer: {0}")]
    Endpoint(Failure),
}

/// What a run comes to: is the task done, were the rules kept.
pub fn assess(
    task: &Task,
    record: &RunRecord,
    before: &State,
    after: &State,
    tools: &[Tool],
    spent: Spent,
) -> (Verification, RuleReport) {
    let verification = task.verify(before, after, record);
    let collateral: Vec<String> = verification.collateral.iter().map(|one| one.path.clone()).collect();
    let report = rules::check(&Evidence {
        charter: &task.charter,
        record,
        before,
        after,
        tools,
        collateral: Some(&collateral),
        spent,
    });
    (verification, report)
}
