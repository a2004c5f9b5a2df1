//! Trials: runs tasks on the simulator, several at a time, and assesses each run by verifier, rules and replay.
//! `statistics` aggregates them.

mod endpoint;
mod folder;
mod line;
mod own_agent;
mod plan;
mod pool;
pub mod statistics;
mod trial_environment;

pub use folder::{BenchFolder, ExistingBenchAction, FolderError};
pub use line::{ReplayLine, TrialLine, TrialUsage};
pub use own_agent::{OwnAgent, TrialContestant, replay_in_environment};
pub use plan::TrialPlan;
pub use pool::{FinishedTrial, TrialConcurrency, TrialJob, TrialRunner, run_all, run_each};
pub use trial_environment::TrialEnvironment;

use gradus_llm::ModelCallFailure;

use crate::record::TrialRecord;
use crate::rules::{self, BudgetUsage, RuleEvidence, RuleReport};
use crate::suite::{BenchTask, TaskVerification};
use gradus_github_agent::agent::SessionError;
use gradus_github_agent::tools::{AgentTool, ToolsError};
use gradus_github_sim::ServeError;
use gradus_github_sim::state::WorldState;

/// Why a trial could not be run. It is not a result; a trial in which the agent fails is one.
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
    /// The command of an external agent does not exist or cannot be executed.
    #[error("the program cannot be run: {0}")]
    Program(String),
    /// The model endpoint did not answer, which says nothing about the agent.
    #[error("the model's endpoint gave no answer: {0}")]
    Endpoint(ModelCallFailure),
}

/// Verifies a run and checks the rules. `before` and `after` are states of the world, `tools` those that the agent was
/// offered (empty for external programs).
pub fn assess_trial(
    task: &BenchTask,
    record: &TrialRecord,
    before: &WorldState,
    after: &WorldState,
    tools: &[AgentTool],
    spent: BudgetUsage,
) -> (TaskVerification, RuleReport) {
    let verification = task.verify(before, after, record);
    let collateral: Vec<String> = verification.collateral.iter().map(|one| one.path.clone()).collect();
    let report = rules::check_conduct_rules(&RuleEvidence {
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
