//! Which span an outcome is about, and what tells it from others on the same one. The same wherever it is shown: in
//! Phoenix, over OTLP, and by `gradus serve`.

use std::collections::HashMap;

use gradus_core::trajectory::Trajectory;

use super::OutcomeTarget;
use crate::annotation::TrajectoryTarget;

/// Gives places to the outcomes of one trajectory after the other, in the order of the run.
#[derive(Debug)]
pub struct AnnotationKeyAllocator {
    trajectory_target: TrajectoryTarget,
    /// How many calls and trajectories each span or trace has been the target of so far. It grows with the run, as the
    /// reader's list of its outcomes does; of a target only a digest is kept.
    taken: HashMap<u64, u32>,
}

/// A target, and which of those that are about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationKey {
    pub target: OutcomeTarget,
    /// With the name and the target it says which annotation this is: one that is sent again takes the place of the
    /// earlier one.
    pub identifier: String,
}

/// The places of one trajectory.
#[derive(Debug)]
pub struct TrajectoryAnnotationKeys {
    /// By the numbers of steps, which grow.
    steps: Vec<(u32, Option<AnnotationKey>)>,
    whole: Option<AnnotationKey>,
}

/// What all identifiers begin with.
pub const IDENTIFIER: &str = "gradus";

impl AnnotationKeyAllocator {
    pub fn new(trajectory_target: TrajectoryTarget) -> AnnotationKeyAllocator {
        AnnotationKeyAllocator { trajectory_target, taken: HashMap::new() }
    }

    pub fn assign_keys(&mut self, trajectory: &Trajectory) -> TrajectoryAnnotationKeys {
        // Numbers go by the steps that are there, not by those that were judged: they stay when less or more is judged.
        let steps = (0..trajectory.steps.len()).map(|at| {
            let target = step_target(trajectory, at);
            (trajectory.steps[at].index, target.map(|target| self.allocate_key(true, target)))
        });
        let steps = steps.collect();
        let whole = self.whole_target(trajectory).map(|target| self.allocate_key(false, target));
        TrajectoryAnnotationKeys { steps, whole }
    }

    fn allocate_key(&mut self, is_step: bool, target: OutcomeTarget) -> AnnotationKey {
        let key = match &target {
            OutcomeTarget::Span { trace_id, span_id } => format!("{is_step}\0{trace_id}\0{span_id}"),
            OutcomeTarget::Trace { trace_id } => format!("{is_step}\0{trace_id}"),
        };
        let taken = self.taken.entry(gradus_core::stable_digest(key.as_bytes()) as u64).or_default();
        *taken += 1;
        let identifier = match *taken {
            1 => IDENTIFIER.to_owned(),
            number => format!("{IDENTIFIER}:{number}"),
        };
        AnnotationKey { target, identifier }
    }

    fn whole_target(&self, trajectory: &Trajectory) -> Option<OutcomeTarget> {
        let trace_id = trajectory.trace_ids.first()?.clone();
        match self.trajectory_target {
            TrajectoryTarget::Trace => Some(OutcomeTarget::Trace { trace_id }),
            TrajectoryTarget::Span => Some(OutcomeTarget::Span { trace_id, span_id: trajectory.root_span_id.clone()? }),
        }
    }
}

impl TrajectoryAnnotationKeys {
    /// The place of an outcome: of a step, or of the whole.
    pub fn find_key(&self, step: Option<u32>) -> Option<&AnnotationKey> {
        match step {
            Some(index) => self.steps.iter().find(|(known, _)| *known == index)?.1.as_ref(),
            None => self.whole.as_ref(),
        }
    }
}

/// The model call that held the thought; where there is none, the tool's span, and where there is no span of the step
/// at all, that of the whole request.
fn step_target(trajectory: &Trajectory, at: usize) -> Option<OutcomeTarget> {
    let step = &trajectory.steps[at];
    let span_id = step.span_ids.first().or(trajectory.root_span_id.as_ref())?.clone();
    let trace_id = step.trace_id.as_ref().or(trajectory.trace_ids.first())?.clone();
    Some(OutcomeTarget::Span { trace_id, span_id })
}
