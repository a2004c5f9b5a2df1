//! Runs that are known to be right: the material of a judge test.

use std::sync::Arc;

use gradus_core::trajectory::{DefectKind, TokenUsage, Trajectory};
use serde::{Deserialize, Serialize};

use crate::run_text::has_thought;

/// Where a right run comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunMaterial {
    /// The oracle's run on a task of the benchmark: right by construction, and checked by the simulator.
    Bench,
    /// A run that the user names as right.
    Own,
}

/// How the agent wrote its run, as far as a judge can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunForm {
    /// ReAct text: a thought before each call and before the answer, and instructions that ask for this form.
    React,
    /// Native tool calls, each with a sentence of text.
    Native,
    /// Native tool calls alone.
    WithoutThoughts,
    /// As the user recorded it, with thoughts.
    Recorded,
}

/// A right run. Its trajectory has no spans, times or costs: they say nothing about the work, and would give the same
/// case a different id each time.
#[derive(Clone, Debug)]
pub struct RightRun {
    pub trajectory: Trajectory,
    /// Runs of one task are alike, whatever their form, and so are verdicts on them: intervals are computed over these
    /// clusters.
    pub cluster: String,
    pub material: RunMaterial,
    pub form: RunForm,
}

/// Why a recorded run cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnusableRun {
    NoQuery,
    NoSteps,
    NoAnswer,
    RunFailed,
}

impl UnusableRun {
    pub fn reason(self) -> &'static str {
        match self {
            UnusableRun::NoQuery => "no request",
            UnusableRun::NoSteps => "no tool call",
            UnusableRun::NoAnswer => "no final answer",
            UnusableRun::RunFailed => "it ended in an error",
        }
    }
}

impl RightRun {
    pub fn new(trajectory: Trajectory, cluster: &str, material: RunMaterial, form: RunForm) -> RightRun {
        RightRun { trajectory: strip_volatile_fields(trajectory), cluster: cluster.to_owned(), material, form }
    }

    /// A run that the user names as right. It needs a request, a call and an answer to plant something into.
    pub fn from_recording(trajectory: Trajectory) -> Result<RightRun, UnusableRun> {
        let is_blank = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
        let has_failed = trajectory.defects.iter().any(|defect| defect.kind == DefectKind::RunFailed);
        if trajectory.is_error || has_failed {
            return Err(UnusableRun::RunFailed);
        }
        if is_blank(&trajectory.query) {
            return Err(UnusableRun::NoQuery);
        }
        if trajectory.steps.is_empty() {
            return Err(UnusableRun::NoSteps);
        }
        if is_blank(&trajectory.final_answer) {
            return Err(UnusableRun::NoAnswer);
        }
        let form = if trajectory.steps.iter().any(has_thought) { RunForm::Recorded } else { RunForm::WithoutThoughts };
        let cluster = trajectory.trajectory_id.clone();
        Ok(RightRun::new(trajectory, &cluster, RunMaterial::Own, form))
    }

    pub fn has_thoughts(&self) -> bool {
        self.form != RunForm::WithoutThoughts
    }

    /// Returns the same run without thoughts, as agents with native tool calls record it.
    #[must_use]
    pub fn without_thoughts(&self) -> RightRun {
        let mut run = self.clone();
        run.form = RunForm::WithoutThoughts;
        run.trajectory.final_thought = None;
        run.trajectory.steps.iter_mut().for_each(|step| step.thought = None);
        run
    }
}

/// Removes everything that differs between two recordings of the same run.
fn strip_volatile_fields(mut trajectory: Trajectory) -> Trajectory {
    for (number, step) in (1..).zip(&mut trajectory.steps) {
        step.index = number;
        step.span_ids.clear();
        (step.trace_id, step.start, step.end) = (None, None, None);
        step.tokens = TokenUsage::default();
        if step.arguments.is_some() {
            step.arguments_raw = None;
        }
    }
    Trajectory {
        trajectory_id: String::new(),
        trace_ids: Vec::new(),
        session_id: None,
        turn_index: None,
        previous_trajectory_id: None,
        project: None,
        model: None,
        agent_version: None,
        tokens: TokenUsage::default(),
        model_usage: Vec::new(),
        cost_usd: None,
        parent_trajectory_id: None,
        parent_step_index: None,
        answer_span_ids: Vec::new(),
        root_span_id: None,
        start: None,
        end: None,
        ..trajectory
    }
}

/// Sets the id to a digest of the content: equal runs have equal ids.
pub(crate) fn with_content_id(mut trajectory: Trajectory) -> Trajectory {
    trajectory.trajectory_id.clear();
    let turns = format!("{:?}", trajectory.earlier_turns);
    let text = serde_json::to_string(&trajectory).unwrap_or_default() + &turns;
    trajectory.trajectory_id = format!("{:032x}", gradus_core::stable_digest(text.as_bytes()));
    trajectory
}

/// Sets the system prompt.
pub(crate) fn set_system_prompt(trajectory: &mut Trajectory, text: &str) {
    trajectory.system_prompt = Some(Arc::from(text));
}
