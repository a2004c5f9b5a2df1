//! Assigns outcomes to spans, and distinguishes several outcomes on one span by an identifier. Phoenix, OTLP export
//! and `gradus serve` use the same assignment, so an annotation that is sent again replaces the earlier one.

use std::collections::HashMap;

use gradus_core::trajectory::Trajectory;

use super::OutcomeTarget;
use crate::annotation::TrajectoryTarget;

/// Assigns keys to trajectories. Keys depend on the order of trajectories, so a run must be annotated in its own order
/// and by one allocator: only then does a second export produce the same identifiers.
#[derive(Debug)]
pub struct AnnotationKeyAllocator {
    trajectory_target: TrajectoryTarget,
    /// Number of steps and of trajectories assigned to each span or trace so far. The map grows with the run, so only
    /// a digest of each target is stored.
    taken: HashMap<u64, u32>,
}

/// A target, and the identifier that distinguishes this annotation from others on the same target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationKey {
    pub target: OutcomeTarget,
    /// `gradus`, or `gradus:N` from the second one on. Name, target and identifier are the primary key of an annotation
    /// in Phoenix: sending it again replaces the earlier one.
    pub identifier: String,
}

/// The keys of one trajectory and of its steps.
#[derive(Debug)]
pub struct TrajectoryAnnotationKeys {
    /// By step number, ascending; the final thought comes last. `None` where the trace has no span to attach to.
    steps: Vec<(u32, Option<AnnotationKey>)>,
    whole: Option<AnnotationKey>,
}

/// Prefix of all identifiers, by which annotations of Gradus are recognised.
pub const IDENTIFIER_PREFIX: &str = "gradus";

impl AnnotationKeyAllocator {
    /// `trajectory_target` decides whether verdicts on whole trajectories go to the root span or to the trace.
    pub fn new(trajectory_target: TrajectoryTarget) -> AnnotationKeyAllocator {
        AnnotationKeyAllocator { trajectory_target, taken: HashMap::new() }
    }

    /// Assigns keys to all steps of the next trajectory and to the trajectory itself, whether they were judged or not.
    pub fn assign_keys(&mut self, trajectory: &Trajectory) -> TrajectoryAnnotationKeys {
        // Identifiers count recorded steps, not judged ones, so they do not depend on the evaluators that run.
        let steps = (0..trajectory.steps.len()).map(|at| {
            let target = step_target(trajectory, at);
            (trajectory.steps[at].index, target.map(|target| self.allocate_key(true, target)))
        });
        let mut steps: Vec<_> = steps.collect();
        if let Some(index) = trajectory.final_thought_index() {
            let target = final_thought_target(trajectory);
            steps.push((index, target.map(|target| self.allocate_key(true, target))));
        }
        let whole = self.whole_target(trajectory).map(|target| self.allocate_key(false, target));
        TrajectoryAnnotationKeys { steps, whole }
    }

    /// Steps and trajectories are counted separately: a verdict on the only step of a trajectory and one on the whole
    /// may share a span.
    fn allocate_key(&mut self, is_step: bool, target: OutcomeTarget) -> AnnotationKey {
        let key = match &target {
            OutcomeTarget::Span { trace_id, span_id } => format!("{is_step}\0{trace_id}\0{span_id}"),
            OutcomeTarget::Trace { trace_id } => format!("{is_step}\0{trace_id}"),
        };
        let taken = self.taken.entry(gradus_core::stable_digest(key.as_bytes()) as u64).or_default();
        *taken += 1;
        let identifier = match *taken {
            1 => IDENTIFIER_PREFIX.to_owned(),
            number => format!("{IDENTIFIER_PREFIX}:{number}"),
        };
        AnnotationKey { target, identifier }
    }

    /// `None` for sources without spans, such as transcripts.
    fn whole_target(&self, trajectory: &Trajectory) -> Option<OutcomeTarget> {
        let trace_id = trajectory.trace_ids.first()?.clone();
        match self.trajectory_target {
            TrajectoryTarget::Trace => Some(OutcomeTarget::Trace { trace_id }),
            TrajectoryTarget::Span => Some(OutcomeTarget::Span { trace_id, span_id: trajectory.root_span_id.clone()? }),
        }
    }
}

impl TrajectoryAnnotationKeys {
    /// The key of a step, or of the whole trajectory for `None`. Returns `None` if the outcome has no span to attach
    /// to.
    pub fn find_key(&self, step: Option<u32>) -> Option<&AnnotationKey> {
        match step {
            Some(index) => self.steps.iter().find(|(known, _)| *known == index)?.1.as_ref(),
            None => self.whole.as_ref(),
        }
    }
}

/// Returns the target of a step: the model call with the thought, which comes first in `span_ids`, else the tool's
/// span, else the root span of the request.
fn step_target(trajectory: &Trajectory, at: usize) -> Option<OutcomeTarget> {
    let step = &trajectory.steps[at];
    let span_id = step.span_ids.first().or(trajectory.root_span_id.as_ref())?.clone();
    let trace_id = step.trace_id.as_ref().or(trajectory.trace_ids.first())?.clone();
    Some(OutcomeTarget::Span { trace_id, span_id })
}

/// Returns the target of the final thought: the model call that answered, else the root span of the request.
fn final_thought_target(trajectory: &Trajectory) -> Option<OutcomeTarget> {
    let span_id = trajectory.answer_span_ids.first().or(trajectory.root_span_id.as_ref())?.clone();
    // An answer belongs to the trace of the last step, where a trajectory is made of several traces.
    let of_steps = trajectory.steps.last().and_then(|step| step.trace_id.as_ref());
    let trace_id = of_steps.or(trajectory.trace_ids.first())?.clone();
    Some(OutcomeTarget::Span { trace_id, span_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_thought_is_annotated_on_the_call_that_answered() {
        let trajectory = Trajectory {
            trace_ids: vec!["t".to_owned()],
            root_span_id: Some("root".to_owned()),
            answer_span_ids: vec!["answer".to_owned()],
            final_thought: Some("I know enough.".to_owned()),
            ..Trajectory::default()
        };
        let keys = AnnotationKeyAllocator::new(TrajectoryTarget::Span).assign_keys(&trajectory);
        let target = OutcomeTarget::Span { trace_id: "t".to_owned(), span_id: "answer".to_owned() };
        assert_eq!(keys.find_key(Some(1)).map(|key| &key.target), Some(&target));
        assert_eq!(keys.find_key(Some(2)), None);
    }
}
