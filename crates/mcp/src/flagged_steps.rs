//! Collects the steps with the most wrong verdicts, in bounded memory.

use gradus_core::trajectory::TrajectoryStep;
use gradus_eval::report::FailureGroup;

use crate::archived_run::{ArchivedRun, ArchivedVerdict};

/// Maximum characters stored of each text. They are cut further when they are shown.
const MAX_TEXT_CHARS: usize = 1_000;
/// The list may grow to this many times its size before it is sorted and cut.
const SPARE_FACTOR: usize = 4;

/// A step with its wrong verdicts.
#[derive(Clone, Debug)]
pub(crate) struct FlaggedStep {
    pub(crate) run_id: String,
    pub(crate) step_index: u32,
    /// `None` for the thought before the answer.
    pub(crate) tool: Option<String>,
    pub(crate) request: Option<String>,
    pub(crate) thought: Option<String>,
    pub(crate) arguments: Option<String>,
    pub(crate) observation: Option<String>,
    pub(crate) is_error: bool,
    pub(crate) verdicts: Vec<ArchivedVerdict>,
    /// The order in which steps were found, which decides between equals.
    position: u64,
}

/// Which wrong verdicts count.
#[derive(Clone, Debug, Default)]
pub(crate) struct VerdictSelection {
    pub(crate) evaluator: Option<String>,
    pub(crate) tool: Option<String>,
}

impl VerdictSelection {
    /// Whether a group is selected. A group about whole runs has no tool.
    pub(crate) fn selects_group(&self, group: &FailureGroup) -> bool {
        self.evaluator.as_ref().is_none_or(|name| *name == group.evaluator)
            && self.tool.as_ref().is_none_or(|tool| group.tool.as_ref() == Some(tool))
    }

    /// Returns the selected wrong verdicts of a run. A verdict on a whole run is selected for a tool if the run calls
    /// it.
    pub(crate) fn select<'r>(&'r self, run: &'r ArchivedRun) -> impl Iterator<Item = &'r ArchivedVerdict> {
        run.verdicts.iter().filter(move |verdict| {
            let is_about_tool = |tool: &String| match verdict.line.step_index {
                Some(index) => find_step(run, index).is_some_and(|step| step.tool == *tool),
                None => run.trajectory.steps.iter().any(|step| step.tool == *tool),
            };
            verdict.is_wrong
                && self.evaluator.as_ref().is_none_or(|name| **name == *verdict.line.evaluator)
                && self.tool.as_ref().is_none_or(is_about_tool)
        })
    }
}

fn find_step(run: &ArchivedRun, index: u32) -> Option<&TrajectoryStep> {
    let steps = &run.trajectory.steps;
    steps.binary_search_by_key(&index, |step| step.index).ok().map(|at| &steps[at])
}

/// The worst steps so far.
#[derive(Debug)]
pub(crate) struct FlaggedStepList {
    steps: Vec<FlaggedStep>,
    /// How many of them are needed.
    max_steps: usize,
    pub(crate) total: u64,
}

impl FlaggedStepList {
    pub(crate) fn new(max_steps: usize) -> FlaggedStepList {
        FlaggedStepList { steps: Vec::new(), max_steps, total: 0 }
    }

    /// Adds the steps of a run that have wrong verdicts.
    pub(crate) fn add_run(&mut self, run: &ArchivedRun, selection: &VerdictSelection) {
        let mut indexes: Vec<u32> = selection.select(run).filter_map(|verdict| verdict.line.step_index).collect();
        indexes.sort_unstable();
        indexes.dedup();
        for index in indexes {
            let verdicts = selection.select(run).filter(|verdict| verdict.line.step_index == Some(index)).cloned();
            let step = find_step(run, index);
            let cut = |text: &str| text.chars().take(MAX_TEXT_CHARS).collect::<String>();
            let thought = match step {
                Some(step) => &step.thought,
                None => &run.trajectory.final_thought,
            };
            self.steps.push(FlaggedStep {
                run_id: run.trajectory.trajectory_id.clone(),
                step_index: index,
                tool: step.map(|step| step.tool.clone()),
                request: run.trajectory.query.as_deref().map(cut),
                thought: thought.as_deref().map(cut),
                arguments: step.and_then(|step| step.arguments_text().map(|text| cut(&text))),
                observation: step.and_then(|step| step.observation.as_deref().map(cut)),
                is_error: step.is_some_and(|step| step.is_error),
                verdicts: verdicts.collect(),
                position: self.total,
            });
            self.total += 1;
            if self.steps.len() > self.max_steps * SPARE_FACTOR {
                self.keep_worst();
            }
        }
    }

    fn keep_worst(&mut self) {
        self.steps.sort_by_key(|step| (std::cmp::Reverse(step.verdicts.len()), step.position));
        self.steps.truncate(self.max_steps);
    }

    /// The worst first.
    pub(crate) fn into_steps(mut self) -> Vec<FlaggedStep> {
        self.keep_worst();
        self.steps
    }
}
