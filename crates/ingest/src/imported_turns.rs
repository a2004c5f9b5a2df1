//! Turns that come from sessions of other tools: copies that a resumed session repeats, and subagents, whose sessions
//! are recorded apart from the step that started them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use gradus_core::span::{SpanId, TraceId};
use gradus_core::stable_digest;
use gradus_core::trajectory::{RecordedAnnotation, Trajectory, TrajectoryStep};
use gradus_import::ImportedTurn;

/// Maximum number of turns of subagents that wait for the step that started them, and of copies that wait for a
/// record of their own. Beyond it, the oldest ones are used without it.
const MAX_WAITING_TURNS: usize = 256;

/// Turns and subagents of the sessions that were read so far.
#[derive(Default)]
pub(crate) struct ImportedTurns {
    /// The id of the turns with times, by a digest of their content. A session that was resumed repeats turns of the one
    /// before, with their times.
    seen: HashMap<u128, String>,
    /// The id under which a repeated turn was read first.
    first_ids: HashMap<String, String>,
    /// The step that started each subagent: the id of its trajectory, and its number.
    starts: HashMap<String, (String, u32)>,
    waiting: VecDeque<ImportedTurn>,
    /// Turns of subagents that were copied from the session that started them. The files of subagents come later.
    copies: VecDeque<ImportedTurn>,
    /// The keys of subagents that have a record of their own.
    recorded: HashSet<String>,
}

impl ImportedTurns {
    /// Whether the same turn was read before, in another file.
    pub(crate) fn is_repeated(&mut self, turn: &ImportedTurn) -> bool {
        let Trajectory { start, end, query, steps, final_answer, .. } = &turn.trajectory;
        if start.is_none() {
            return false;
        }
        let calls: Vec<_> = steps
            .iter()
            .map(|step| (&step.tool, &step.tool_call_id, step.arguments_text(), &step.observation))
            .collect();
        // Not by whom it was started: an agent of a team that continues gets a new id, and a file with its earlier turns.
        let content = format!("{:?}", (start, end, query, calls, final_answer, turn.is_copy));
        let id = &turn.trajectory.trajectory_id;
        match self.seen.entry(stable_digest(content.as_bytes())) {
            Entry::Vacant(place) => {
                place.insert(id.clone());
                false
            }
            Entry::Occupied(first) => {
                self.first_ids.insert(id.clone(), first.get().clone());
                true
            }
        }
    }

    /// Links a turn to its previous turn if that one is known under another id.
    fn link_to_first(&self, trajectory: &mut Trajectory) {
        let previous = trajectory.previous_trajectory_id.as_ref();
        if let Some(first) = previous.and_then(|id| self.first_ids.get(id)) {
            trajectory.previous_trajectory_id = Some(first.clone());
        }
    }

    /// Adds a turn, and returns the turns that are complete now: the turn itself, unless the step that started it is
    /// not known yet, and turns that waited for a step of it. A copy waits until all sources are read, and is left
    /// out if the subagent has a record of its own.
    pub(crate) fn admit(&mut self, turn: ImportedTurn) -> Vec<Trajectory> {
        let Some(key) = turn.started_as.clone() else { return self.admit_once(turn) };
        if !turn.is_copy {
            self.copies.retain(|copy| copy.started_as.as_ref() != Some(&key));
            self.recorded.insert(key);
            return self.admit_once(turn);
        }
        if !self.recorded.contains(&key) {
            self.copies.push_back(turn);
        }
        if self.copies.len() <= MAX_WAITING_TURNS {
            return Vec::new();
        }
        self.copies.pop_front().map(|oldest| self.admit_once(oldest)).unwrap_or_default()
    }

    fn admit_once(&mut self, mut turn: ImportedTurn) -> Vec<Trajectory> {
        self.link_to_first(&mut turn.trajectory);
        for start in &turn.subagents {
            let step = (turn.trajectory.trajectory_id.clone(), start.step_index);
            self.starts.entry(start.key.clone()).or_insert(step);
        }
        let has_starts = !turn.subagents.is_empty();
        let mut complete = Vec::new();
        if turn.started_as.as_ref().is_some_and(|key| !self.starts.contains_key(key)) {
            self.waiting.push_back(turn);
        } else {
            complete.push(self.link_to_parent(turn));
        }
        if has_starts {
            let (started, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
                .into_iter()
                .partition(|turn| turn.started_as.as_ref().is_some_and(|key| self.starts.contains_key(key)));
            self.waiting = waiting.into();
            complete.extend(started.into_iter().map(|turn| self.link_to_parent(turn)));
        }
        if self.waiting.len() > MAX_WAITING_TURNS {
            complete.extend(self.waiting.pop_front().map(|turn| turn.trajectory));
        }
        complete
    }

    /// Returns the turns whose start was never found, and the copies without a record of their own, when all sources
    /// are read.
    pub(crate) fn take_waiting(&mut self) -> Vec<Trajectory> {
        let mut left = Vec::new();
        for copy in std::mem::take(&mut self.copies) {
            left.extend(self.admit_once(copy));
        }
        left.extend(std::mem::take(&mut self.waiting).into_iter().map(|turn| turn.trajectory));
        left
    }

    fn link_to_parent(&self, turn: ImportedTurn) -> Trajectory {
        let mut trajectory = turn.trajectory;
        if let Some((parent, step)) = turn.started_as.and_then(|key| self.starts.get(&key)) {
            trajectory.parent_trajectory_id = Some(parent.clone());
            trajectory.parent_step_index = Some(*step);
        }
        trajectory
    }
}

/// Annotations of spans and traces, until their trajectories are assembled.
#[derive(Default)]
pub(crate) struct SpanAnnotations {
    by_trace: HashMap<String, Vec<(Option<SpanId>, RecordedAnnotation)>>,
}

impl SpanAnnotations {
    pub(crate) fn add(&mut self, trace_id: TraceId, span_id: Option<SpanId>, annotation: RecordedAnnotation) {
        self.by_trace.entry(trace_id.to_string()).or_default().push((span_id, annotation));
    }

    /// Adds the annotations of its traces to a trajectory. An annotation of a span of a step belongs to the step. One
    /// of the trace, of the span of the whole request, or of the answer belongs to the run. Annotations of other
    /// spans, such as those of another turn, are left out.
    pub(crate) fn attach_to(&self, trajectory: &mut Trajectory) {
        let found = trajectory.trace_ids.iter().filter_map(|id| self.by_trace.get(id)).flatten();
        let annotate = |(span, annotation): &(Option<SpanId>, RecordedAnnotation)| {
            let Some(span) = span.map(|span| span.to_string()) else { return Some(annotation.clone()) };
            let is_of_step = |step: &&TrajectoryStep| step.span_ids.contains(&span);
            let step_index = trajectory.steps.iter().find(is_of_step).map(|step| step.index);
            let is_of_run =
                trajectory.root_span_id.as_ref() == Some(&span) || trajectory.answer_span_ids.contains(&span);
            (step_index.is_some() || is_of_run).then(|| RecordedAnnotation { step_index, ..annotation.clone() })
        };
        let mut annotations: Vec<RecordedAnnotation> = found.filter_map(annotate).collect();
        trajectory.annotations.append(&mut annotations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradus_import::SubagentStart;

    fn turn(id: &str, starts: &[(u32, &str)], started_as: Option<&str>) -> ImportedTurn {
        let trajectory = Trajectory { trajectory_id: id.to_owned(), ..Trajectory::default() };
        let start = |(step_index, key): &(u32, &str)| SubagentStart { step_index: *step_index, key: (*key).to_owned() };
        ImportedTurn {
            trajectory,
            subagents: starts.iter().map(start).collect(),
            started_as: started_as.map(str::to_owned),
            is_copy: false,
        }
    }

    fn links(found: &[Trajectory]) -> Vec<(&str, Option<&str>, Option<u32>)> {
        let link = |one: &Trajectory| (one.parent_step_index, one.parent_trajectory_id.is_some());
        assert!(found.iter().map(link).all(|(step, parent)| step.is_some() == parent));
        found
            .iter()
            .map(|one| (&*one.trajectory_id, one.parent_trajectory_id.as_deref(), one.parent_step_index))
            .collect()
    }

    #[test]
    fn subagents_wait_for_the_step_that_started_them() {
        let mut turns = ImportedTurns::default();
        assert!(turns.admit(turn("sub", &[], Some("s/a"))).is_empty());
        assert!(turns.admit(turn("lost", &[], Some("s/b"))).is_empty());
        let found = turns.admit(turn("main", &[(3, "s/a")], None));
        assert_eq!(links(&found), [("main", None, None), ("sub", Some("main"), Some(3))]);
        assert_eq!(links(&turns.admit(turn("sub-2", &[], Some("s/a")))), [("sub-2", Some("main"), Some(3))]);
        assert_eq!(links(&turns.take_waiting()), [("lost", None, None)]);
    }

    #[test]
    fn a_record_of_its_own_takes_the_place_of_copies() {
        let copy = |id: &str, key: &str| ImportedTurn { is_copy: true, ..turn(id, &[], Some(key)) };
        let mut turns = ImportedTurns::default();
        assert_eq!(links(&turns.admit(turn("main", &[(1, "s/a"), (2, "s/b")], None))), [("main", None, None)]);
        for (id, key) in [("copy", "s/a"), ("copy-2", "s/a"), ("other", "s/b")] {
            assert!(turns.admit(copy(id, key)).is_empty(), "{id}");
        }
        assert_eq!(links(&turns.admit(turn("whole", &[], Some("s/a")))), [("whole", Some("main"), Some(1))]);
        assert!(turns.admit(copy("late", "s/a")).is_empty());
        assert_eq!(links(&turns.take_waiting()), [("other", Some("main"), Some(2))]);
    }

    #[test]
    fn a_turn_that_another_file_repeats_is_recognised_by_its_times() {
        let mut turns = ImportedTurns::default();
        let at = |id: &str, start: Option<&str>| {
            let mut turn = turn(id, &[], None);
            turn.trajectory.start = start.map(str::to_owned);
            turn
        };
        let first = at("one", Some("2026-01-01T00:00:00Z"));
        assert!(!turns.is_repeated(&first));
        assert!(turns.is_repeated(&at("two", Some("2026-01-01T00:00:00Z"))));
        assert!(!turns.is_repeated(&at("three", Some("2026-01-01T00:00:01Z"))));
        assert!(!turns.is_repeated(&at("four", None)) && !turns.is_repeated(&at("four", None)));
        let continued = ImportedTurn { started_as: Some("s/b".to_owned()), ..first.clone() };
        assert!(turns.is_repeated(&continued), "an agent that continues has another id");
        let mut next = turn("next", &[], None);
        next.trajectory.previous_trajectory_id = Some("two".to_owned());
        assert_eq!(turns.admit(next)[0].previous_trajectory_id.as_deref(), Some("one"));
    }
}
