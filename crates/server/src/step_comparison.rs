//! Two runs of one task with their steps aligned, for the page and for the API.

use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use gradus_eval::outcome::OutcomeLine;
use gradus_report::compare::{AlignedStep, StepRelation, align_steps};

use crate::http_error::ApiError;
use crate::recorded_verdict::{RecordedVerdict, load_verdicts, read_run_trajectory};
use crate::state::ServerState;

/// Two runs, and their steps in pairs.
pub(crate) struct StepComparison {
    pub(crate) runs: [ComparedRun; 2],
    pub(crate) pairs: Vec<StepPair>,
}

/// A run with its verdicts.
pub(crate) struct ComparedRun {
    pub(crate) trajectory: Trajectory,
    pub(crate) verdicts: Vec<RecordedVerdict>,
    /// The run of `gradus eval` that judged it. `None` if it is in the store.
    pub(crate) run: Option<String>,
}

/// A pair of aligned steps.
pub(crate) struct StepPair {
    pub(crate) aligned: AlignedStep,
    /// Names of the arguments that differ, sorted. Empty unless both calls of one tool have JSON objects as arguments.
    pub(crate) different_arguments: Vec<String>,
}

impl StepComparison {
    /// Loads both runs and aligns their steps. Each run is the id of a trajectory, and the run of `gradus eval` that
    /// judged it; without one, the store has it. 404 if a run or a trajectory does not exist.
    pub(crate) fn load(server: &ServerState, runs: [(&str, Option<&str>); 2]) -> Result<StepComparison, ApiError> {
        let [first, second] = runs.map(|(id, run)| ComparedRun::load(server, id, run));
        let runs = [first?, second?];
        let pairs = pair_steps(&runs[0].trajectory.steps, &runs[1].trajectory.steps);
        Ok(StepComparison { runs, pairs })
    }

    /// Returns the number of pairs that are not the same call.
    pub(crate) fn differing_count(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.aligned.relation != StepRelation::SameCall).count()
    }
}

impl ComparedRun {
    fn load(server: &ServerState, id: &str, run: Option<&str>) -> Result<ComparedRun, ApiError> {
        if let Some(run) = run.filter(|run| !run.is_empty()) {
            let (_, trajectory, verdicts) = read_run_trajectory(server, run, id)?;
            return Ok(ComparedRun { trajectory, verdicts, run: Some(run.to_owned()) });
        }
        let missing = || ApiError::not_found("No stored run has this id. Retention may have deleted it.");
        let json = server.store.trajectory_json(id)?.ok_or_else(missing)?;
        let trajectory: Trajectory = serde_json::from_slice(&json).map_err(|_| missing())?;
        Ok(ComparedRun { verdicts: load_verdicts(server, id)?, trajectory, run: None })
    }

    /// Returns the wrong verdicts on a step, or with `None` on the whole run.
    pub(crate) fn wrong_verdicts(&self, step: Option<u32>) -> impl Iterator<Item = &OutcomeLine> {
        let wrong = self.verdicts.iter().filter(move |given| given.is_wrong && given.line.step_index == step);
        wrong.map(|given| &given.line)
    }
}

fn pair_steps(first: &[TrajectoryStep], second: &[TrajectoryStep]) -> Vec<StepPair> {
    let pair = |aligned: AlignedStep| {
        let steps = (aligned.first.and_then(|at| first.get(at)), aligned.second.and_then(|at| second.get(at)));
        let different_arguments = match (aligned.relation, steps) {
            (StepRelation::OtherArguments, (Some(one), Some(other))) => list_different_arguments(one, other),
            _ => Vec::new(),
        };
        StepPair { aligned, different_arguments }
    };
    align_steps(first, second).into_iter().map(pair).collect()
}

/// Lists the names of arguments that differ; empty if the arguments are not JSON objects.
fn list_different_arguments(first: &TrajectoryStep, second: &TrajectoryStep) -> Vec<String> {
    let object = |step: &'_ TrajectoryStep| step.arguments.as_ref().and_then(|json| json.as_object().cloned());
    let (Some(one), Some(other)) = (object(first), object(second)) else { return Vec::new() };
    let mut keys: Vec<String> =
        one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key)).cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_differ_are_listed() {
        let step = |arguments: &str| TrajectoryStep {
            arguments: serde_json::from_str(arguments).ok(),
            ..TrajectoryStep::default()
        };
        let keys = |one: &str, other: &str| {
            let pairs = pair_steps(&[step(one)], &[step(other)]);
            pairs.into_iter().flat_map(|pair| pair.different_arguments).collect::<Vec<_>>()
        };
        assert_eq!(keys(r#"{"a":1,"b":2,"c":3}"#, r#"{"b":2,"a":2,"d":4}"#), ["a", "c", "d"]);
        assert!(keys("[1]", "{}").is_empty());
    }
}
