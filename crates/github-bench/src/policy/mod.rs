//! Scripted agents: the oracle, which takes the shortest solution, and flawed policies that make one known mistake
//! each. Their runs have a known truth, so that the verifier, the rules, replays and judges can be measured against it
//! without a model.

mod flaw;
mod flaw_context;
mod flaws;
mod scripted;
mod truth;

use crate::suite::{AgentScript, BenchTask};
use gradus_github_agent::tools::AgentTool;
use gradus_github_sim::{SimulatedFault, World};

pub use flaw::PolicyFlaw;
pub use scripted::ScriptedModel;
pub use truth::{ExpectedBreach, RedundantSteps, RunAssessment, RunTruth, StepTruth, TruthComparison};

use flaw_context::FlawContext;

/// A scripted agent, by the mistake that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScriptedPolicy {
    Oracle,
    Flawed(PolicyFlaw),
}

impl ScriptedPolicy {
    /// Returns the oracle, then all flaws in the order of [`PolicyFlaw::ALL`].
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

/// A script with the faults that it needs and the truth about the run that results.
#[derive(Clone, Debug)]
pub struct ScriptedRun {
    pub script: AgentScript,
    /// Faults in addition to those of the task's own seed. A refusal has to be planted before it can be ignored.
    pub faults: Vec<SimulatedFault>,
    pub truth: RunTruth,
}

/// A mistake that cannot be made in a task. It is reported instead of replaced by another mistake, so that the counts
/// of a benchmark say how many runs a flaw really had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flaw} cannot be made in {task}: {reason}")]
pub struct NotApplicable {
    pub flaw: &'static str,
    pub task: String,
    pub reason: String,
}

/// Builds the script of a policy for one trial. Deterministic: the same trial number gives the same script. Trials go
/// through the variants of the mistake in turn. `world` is the initial world of the task, `tools` are those that the
/// agent is offered.
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

/// Builds all variants of a mistake in a task; at least one, or [`NotApplicable`].
pub fn list_flaw_variants(
    flaw: PolicyFlaw,
    task: &BenchTask,
    world: &World,
    tools: &[AgentTool],
) -> Result<Vec<ScriptedRun>, NotApplicable> {
    let context = FlawContext { task, world, tools };
    let mut plays = flaws::build_flawed_runs(flaw, &context).map_err(|reason| NotApplicable {
        flaw: flaw.name(),
        task: task.id.clone(),
        reason: reason.to_owned(),
    })?;
    // Sorted by hash rather than by position, so that already the first trials differ in position and kind. The order
    // is the same on every machine.
    plays.sort_by_cached_key(|play| {
        *blake3::hash(format!("{} {} {}", task.id, flaw.name(), play.truth.variant).as_bytes()).as_bytes()
    });
    Ok(plays)
}

/// Whether a value is taken from an observation, so that its text is not known beforehand.
fn is_template(value: &serde_json::Value) -> bool {
    !crate::suite::list_referenced_steps(value).is_empty()
}

/// Builds the oracle's run, with the truth that nothing is wrong.
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
