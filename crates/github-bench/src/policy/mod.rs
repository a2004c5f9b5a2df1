//! Who plays a task where no model is needed: the oracle, which takes the shortest way, and flawed ones that make one
//! known mistake each, so that all that is said of their runs can be held against the truth.

mod flaw;
mod flaws;
mod scripted;
mod stage;
mod truth;

use crate::suite::{AgentScript, BenchTask};
use gradus_github_agent::tools::AgentTool;
use gradus_github_sim::{SimulatedFault, World};

pub use flaw::PolicyFlaw;
pub use scripted::ScriptedModel;
pub use truth::{ExpectedBreach, RedundantSteps, RunAssessment, RunTruth, StepTruth, TruthComparison};

use stage::FlawContext;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScriptedPolicy {
    Oracle,
    Flawed(PolicyFlaw),
}

impl ScriptedPolicy {
    pub fn all() -> impl Iterator<Item = ScriptedPolicy> {
        [ScriptedPolicy::Oracle].into_iter().chain(PolicyFlaw::ALL.into_iter().map(ScriptedPolicy::Flawed))
    }

    pub fn name(self) -> &'static str {
        match self {
            ScriptedPolicy::Oracle => "oracle",
            ScriptedPolicy::Flawed(flaw) => flaw.name(),
        }
    }

    pub fn from_name(name: &str) -> Option<ScriptedPolicy> {
        ScriptedPolicy::all().find(|policy| policy.name() == name)
    }
}

/// What is played, in which trouble, and what is true of it.
#[derive(Clone, Debug)]
pub struct ScriptedRun {
    pub script: AgentScript,
    /// What goes wrong in the world beside what the task itself has in store.
    pub faults: Vec<SimulatedFault>,
    pub truth: RunTruth,
}

/// A mistake that cannot be made in a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flaw} cannot be made in {task}: {reason}")]
pub struct NotApplicable {
    pub flaw: &'static str,
    pub task: String,
    pub reason: String,
}

/// The play of a policy in a task, the same for the same trial. Trials differ in where the mistake is made, or how, as
/// far as the task has room for that. `world` is the task's as it begins, `tools` what the agent is offered.
pub fn build_scripted_run(
    policy: ScriptedPolicy,
    task: &BenchTask,
    world: &World,
    tools: &[AgentTool],
    trial: u32,
) -> Result<ScriptedRun, NotApplicable> {
    let ScriptedPolicy::Flawed(flaw) = policy else { return Ok(build_oracle_run(task, "the shortest way")) };
    let mut variants = list_flaw_variants(flaw, task, world, tools)?;
    let chosen = trial as usize % variants.len();
    Ok(variants.swap_remove(chosen))
}

/// All ways to make a mistake in a task that are known here; one at least.
pub fn list_flaw_variants(
    flaw: PolicyFlaw,
    task: &BenchTask,
    world: &World,
    tools: &[AgentTool],
) -> Result<Vec<ScriptedRun>, NotApplicable> {
    let stage = FlawContext { task, world, tools };
    let mut plays = flaws::build_flawed_runs(flaw, &stage).map_err(|reason| NotApplicable {
        flaw: flaw.name(),
        task: task.id.clone(),
        reason: reason.to_owned(),
    })?;
    // In no order of their own, so that a few trials see different places; but always in the same.
    plays.sort_by_cached_key(|play| {
        *blake3::hash(format!("{} {} {}", task.id, flaw.name(), play.truth.variant).as_bytes()).as_bytes()
    });
    Ok(plays)
}

/// Whether a value depends on what was seen.
fn is_template(value: &serde_json::Value) -> bool {
    !crate::suite::list_referenced_steps(value).is_empty()
}

fn build_oracle_run(task: &BenchTask, variant: impl Into<String>) -> ScriptedRun {
    ScriptedRun {
        script: task.oracle.clone(),
        faults: Vec::new(),
        truth: RunTruth {
            policy: ScriptedPolicy::Oracle.name().to_owned(),
            variant: variant.into(),
            steps: vec![StepTruth::correct(); task.oracle.steps.len()],
            passes: true,
            needless: Some(Vec::new()),
            ..RunTruth::default()
        },
    }
}
