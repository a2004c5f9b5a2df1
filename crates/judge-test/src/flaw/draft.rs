//! A flawed run under construction. Steps and their sources are changed together, so that they stay consistent.

use gradus_core::raw_json::RawJson;
use gradus_core::trajectory::{ToolDefinition, Trajectory, TrajectoryStep};
use serde_json::{Map, Value};

use super::PlantedFlaw;
use super::planted_run::{FlawExpectation, FlawedRun, StepSource};
use crate::right_run::{RightRun, with_content_id};

/// The right run that a flaw is planted into, and other right runs whose steps may be borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlantingSite<'a> {
    pub(super) run: &'a RightRun,
    pub(super) donors: &'a [RightRun],
    pub(super) flaw: PlantedFlaw,
}

impl<'a> PlantingSite<'a> {
    pub(super) fn steps(&self) -> &'a [TrajectoryStep] {
        &self.run.trajectory.steps
    }

    /// Returns the offered tools. For recordings without definitions: the tool names that other runs use.
    pub(super) fn offered_tools(&self) -> Vec<ToolDefinition> {
        if !self.run.trajectory.tools.is_empty() {
            return self.run.trajectory.tools.to_vec();
        }
        let used = self.donors.iter().chain([self.run]).flat_map(|donor| &donor.trajectory.steps);
        let mut names: Vec<String> = used.map(|step| step.tool.clone()).collect();
        names.sort();
        names.dedup();
        names.into_iter().map(|name| ToolDefinition { name, description: None, schema: None }).collect()
    }

    pub(super) fn is_offered(&self, tool: &str) -> bool {
        let tools = &self.run.trajectory.tools;
        tools.is_empty() || tools.iter().any(|offered| offered.name == tool)
    }

    /// Returns successful steps of runs on other tasks whose tool is offered here and not used here.
    pub(super) fn foreign_steps(&self) -> Vec<&'a TrajectoryStep> {
        let others = self.donors.iter().filter(|donor| donor.cluster != self.run.cluster);
        let steps = others.flat_map(|donor| &donor.trajectory.steps).filter(|step| {
            !step.is_error
                && step.observation.is_some()
                && self.is_offered(&step.tool)
                && self.steps().iter().all(|own| own.tool != step.tool)
        });
        steps.collect()
    }

    /// Fills the arguments of another tool with values of arguments of the same name in this and other runs. `None`
    /// if a required one has no value.
    pub(super) fn fill_arguments(&self, tool: &ToolDefinition, step: &TrajectoryStep) -> Option<Value> {
        let own = step.arguments.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        let Some(schema) = tool.schema.as_ref().map(RawJson::to_value) else {
            return Some(Value::Object(own));
        };
        let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut filled: Map<String, Value> =
            own.into_iter().filter(|(name, _)| properties.contains_key(name)).collect();
        let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        for name in required.iter().filter_map(Value::as_str) {
            if !filled.contains_key(name) {
                filled.insert(name.to_owned(), self.find_argument(&tool.name, name)?);
            }
        }
        Some(Value::Object(filled))
    }

    fn find_argument(&self, tool: &str, name: &str) -> Option<Value> {
        let value = |step: &TrajectoryStep| step.arguments.as_ref()?.get(name).cloned();
        let of_run = self.steps().iter().find_map(value);
        let of_donors = || {
            let steps = self.donors.iter().flat_map(|donor| &donor.trajectory.steps);
            steps.filter(|step| step.tool == tool).find_map(value)
        };
        of_run.or_else(of_donors)
    }
}

/// A run whose steps are being changed.
#[derive(Clone, Debug)]
pub(super) struct RunDraft {
    pub(super) trajectory: Trajectory,
    sources: Vec<StepSource>,
}

impl RunDraft {
    pub(super) fn new(run: &RightRun) -> RunDraft {
        let sources = (0..run.trajectory.steps.len()).map(StepSource::Unchanged).collect();
        RunDraft { trajectory: run.trajectory.clone(), sources }
    }

    /// Replaces the call of step `at` (from 0); thought and result stay.
    pub(super) fn change_call(&mut self, at: usize, tool: &str, arguments: Value) {
        let step = &mut self.trajectory.steps[at];
        tool.clone_into(&mut step.tool);
        (step.arguments, step.arguments_raw) = (Some(arguments), None);
        self.sources[at] = StepSource::Changed(at);
    }

    pub(super) fn insert_step(&mut self, at: usize, step: TrajectoryStep) {
        self.trajectory.steps.insert(at, TrajectoryStep { parallel_with_previous: false, ..step });
        self.sources.insert(at, StepSource::Inserted);
    }

    pub(super) fn remove_step(&mut self, at: usize) {
        self.trajectory.steps.remove(at);
        self.sources.remove(at);
    }

    pub(super) fn truncate_steps(&mut self, count: usize) {
        self.trajectory.steps.truncate(count);
        self.sources.truncate(count);
    }

    /// Makes step `at` (from 0) fail with this result.
    pub(super) fn fail_step(&mut self, at: usize, result: &str) {
        let step = &mut self.trajectory.steps[at];
        (step.observation, step.is_error) = (Some(result.to_owned()), true);
        if let StepSource::Unchanged(source) = self.sources[at] {
            self.sources[at] = StepSource::Failed(source);
        }
    }

    /// The number of step `at`, which is an index from 0.
    pub(super) fn number(at: usize) -> Option<u32> {
        u32::try_from(at + 1).ok()
    }

    /// Builds the flawed run. `original` is the right run, with the additions that both share.
    pub(super) fn finish(
        mut self,
        site: &PlantingSite<'_>,
        original: RunDraft,
        step: Option<u32>,
        original_step: Option<u32>,
        note: String,
    ) -> FlawedRun {
        number_steps(&mut self.trajectory);
        let mut original = original.trajectory;
        number_steps(&mut original);
        FlawedRun {
            flaw: site.flaw,
            trajectory: with_content_id(self.trajectory),
            original: with_content_id(original),
            note,
            sources: self.sources,
            expectations: Vec::new(),
            step,
            original_step,
            cluster: site.run.cluster.clone(),
            material: site.run.material,
            form: site.run.form,
        }
    }
}

impl FlawedRun {
    /// Adds an evaluator of steps that must notice the flaw at its step.
    #[must_use]
    pub(super) fn with_step_expectation(mut self, rubric: &'static str, is_visible: bool) -> FlawedRun {
        if is_visible {
            let (step, original_step) = (self.step, self.original_step);
            self.expectations.push(FlawExpectation { rubric, step, original_step });
        }
        self
    }

    /// Adds an evaluator of whole trajectories that must notice the flaw.
    #[must_use]
    pub(super) fn with_trajectory_expectation(mut self, rubric: &'static str, is_visible: bool) -> FlawedRun {
        if is_visible {
            self.expectations.push(FlawExpectation { rubric, step: None, original_step: None });
        }
        self
    }
}

fn number_steps(trajectory: &mut Trajectory) {
    for (number, step) in (1..).zip(&mut trajectory.steps) {
        step.index = number;
    }
}
