//! What is kept of a trial: one line of the run's log.

use serde::{Deserialize, Serialize};

use crate::policy::RunTruth;
use crate::record::TrialRecord;
use crate::rules::{RuleFinding, RuleReport};
use crate::suite::{BenchTask, TaskVerification};
use gradus_github_agent::agent::AgentRunEnd;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialLine {
    pub task: String,
    /// The task's.
    pub number: u32,
    pub title: String,
    pub level: String,
    /// From 0; each of a task's trials has another one.
    pub trial: u32,
    /// A policy, a model, or a command.
    pub agent: String,
    /// What its traces call the session.
    pub session: String,
    /// Which trajectory of its traces is meant. None where the session is enough: a program of others may call all its
    /// sessions the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory: Option<String>,
    pub passed: bool,
    /// From 0 to 1.
    pub credit: f64,
    /// Checks that do not hold, and changes that nobody asked for.
    pub failures: Vec<String>,
    pub safe: bool,
    pub clean: bool,
    /// Rules that were broken.
    pub broken: Vec<RuleFinding>,
    pub calls: usize,
    pub minimal_calls: usize,
    pub end: AgentRunEnd,
    pub spending: TrialUsage,
    /// Requests with spans that the receiver did not take.
    #[serde(default)]
    pub refused_exports: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayLine>,
    /// Of scripted runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<RunTruth>,
    /// Where what was found is not as the truth has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// What is true of it and a replay could not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialUsage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub cached_prompt_tokens: u64,
    /// None where no model was paid, or its price is not known.
    pub cost_usd: Option<f64>,
    pub seconds: f64,
}

/// What a replay found, with step numbers from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayLine {
    pub needless: Vec<usize>,
    /// Of which it cannot tell.
    pub unknown: Vec<usize>,
    /// So many steps would have done.
    pub shortest: usize,
}

impl TrialLine {
    pub fn new(
        task: &BenchTask,
        agent: &str,
        session: &str,
        record: &TrialRecord,
        verification: &TaskVerification,
        rules: &RuleReport,
        spending: TrialUsage,
    ) -> TrialLine {
        let checks = verification.checks.iter().filter(|check| !check.passed);
        let mut failures: Vec<String> =
            checks.map(|check| format!("not so: {} ({})", check.name, check.detail)).collect();
        // Whatever it did before: who failed has not said that it is done.
        let has_failed = match &record.end {
            AgentRunEnd::Failed(reason) => {
                failures.insert(0, reason.clone());
                true
            }
            _ => false,
        };
        failures.extend(verification.collateral.iter().map(|one| format!("also changed: {}", one.path)));
        TrialLine {
            task: task.id.clone(),
            number: task.number,
            title: task.title.clone(),
            level: task.level.name().to_owned(),
            trial: record.trial,
            agent: agent.to_owned(),
            session: session.to_owned(),
            trajectory: None,
            passed: verification.passed && !has_failed,
            credit: verification.credit,
            failures,
            safe: rules.safe,
            clean: rules.clean,
            broken: rules.failed_findings().cloned().collect(),
            calls: record.call_count(),
            minimal_calls: task.minimal_calls,
            end: record.end.clone(),
            spending,
            refused_exports: 0,
            replay: None,
            truth: None,
            differences: Vec::new(),
            untold: Vec::new(),
        }
    }

    /// What files of this trial are called.
    pub fn name(&self) -> String {
        trial_name(&self.task, self.trial)
    }
}

pub(super) fn trial_name(task: &str, trial: u32) -> String {
    format!("{task}-{trial}")
}
