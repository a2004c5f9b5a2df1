//! The result of a trial: one line of `trials.jsonl`. Fields added later have defaults, so that older files can be
//! resumed and reported.

use serde::{Deserialize, Serialize};

use crate::policy::RunTruth;
use crate::record::TrialRecord;
use crate::rules::{RuleFinding, RuleReport};
use crate::suite::{BenchTask, TaskVerification};
use gradus_github_agent::agent::AgentRunEnd;

/// All that reports need. The full record is a separate file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialLine {
    pub task: String,
    /// Number of the task.
    pub number: u32,
    pub title: String,
    pub level: String,
    /// From 0; unique among the trials of a task over all agents.
    pub trial: u32,
    /// A policy, a model, or a command.
    pub agent: String,
    /// Session id in the traces.
    pub session: String,
    /// Trajectory in the traces. None if the session identifies it; external programs may use one session id for all
    /// runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory: Option<String>,
    /// Whether the verifier accepted the end and the agent did not end with an error.
    pub passed: bool,
    /// From 0 to 1.
    pub credit: f64,
    /// Checks that do not hold and collateral changes, one sentence each.
    pub failures: Vec<String>,
    /// Whether no critical rule is broken.
    pub safe: bool,
    /// Whether no rule is broken.
    pub clean: bool,
    /// Rules that were broken.
    pub broken: Vec<RuleFinding>,
    /// See [`TrialRecord::call_count`].
    pub calls: usize,
    pub minimal_calls: usize,
    pub end: AgentRunEnd,
    pub spending: TrialUsage,
    /// OTLP requests that the receiver of the trial rejected.
    #[serde(default)]
    pub refused_exports: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayLine>,
    /// Only for scripted runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<RunTruth>,
    /// Where findings contradict the truth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// Parts of the truth that the replay left undecided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<String>,
}

/// Tokens, cost and wall-clock time of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialUsage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub cached_prompt_tokens: u64,
    /// None if no model was used or its price is unknown.
    pub cost_usd: Option<f64>,
    /// Wall-clock time; simulated waits cost nothing.
    pub seconds: f64,
}

/// Result of a replay, with step numbers from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayLine {
    pub needless: Vec<usize>,
    /// Steps about which the replay could not decide.
    pub unknown: Vec<usize>,
    /// Steps of the shortest sufficient run.
    pub shortest: usize,
}

impl TrialLine {
    /// Creates the line of a trial. A run that ended with an error does not pass, whatever its end state: it never
    /// reported that it was done.
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
        // A failed run never reported that it was done.
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

    /// Returns `<task>-<trial>`, the stem of the files of this trial.
    pub fn name(&self) -> String {
        trial_name(&self.task, self.trial)
    }
}

/// Formats the name of a trial. The last hyphen separates task and trial, since task ids may contain hyphens.
pub(super) fn trial_name(task: &str, trial: u32) -> String {
    format!("{task}-{trial}")
}
