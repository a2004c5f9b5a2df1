//! Links the turns of conversations that arrive one by one: lines of our own format by the id of the turn before, and
//! traces by their session.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gradus_core::trajectory::{DefectKind, EarlierTurn, ExtractionDefect, Trajectory};

/// Maximum number of cached turns for later ones to refer to.
const MAX_CACHED_TURNS: usize = 4096;
/// Maximum bytes of their texts.
const MAX_CACHED_BYTES: usize = 32 << 20;

/// One turn that a later one may continue.
struct CachedTurn {
    key: TurnKey,
    trajectory_id: String,
    turn_index: Option<u32>,
    end: Option<String>,
    turn: Arc<EarlierTurn>,
    bytes: usize,
    /// Number of the turn before. Always smaller than the own number, so a chain of turns cannot be a circle.
    previous: Option<u64>,
}

/// The key by which a later turn finds the previous one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TurnKey {
    /// The id as a line states it. It may have been numbered since, because ids of several files can collide.
    StatedId(String),
    /// The conversation, whose latest turn counts. The same name in two projects is two conversations.
    Session { project: Option<String>, session: String },
}

/// The latest turns of all conversations, the oldest of which are dropped first. A turn refers to the one before by its
/// number, so that memory is bounded however conversations are interleaved.
#[derive(Default)]
pub(crate) struct TurnCache {
    turns: VecDeque<CachedTurn>,
    /// Number of the first element of `turns`.
    first_number: u64,
    bytes: usize,
    latest: HashMap<TurnKey, u64>,
}

impl TurnCache {
    /// Links a line of our own format to the turn that it names. `stated_id` is its id as it was written, and
    /// `was_read` says whether an id occurred before. A line that names a turn which was not read before it gets a
    /// defect: nothing is guessed.
    pub(crate) fn link_line(
        &mut self,
        trajectory: &mut Trajectory,
        stated_id: String,
        was_read: impl Fn(&str) -> bool,
    ) {
        let mut previous = None;
        if let Some(named) = trajectory.previous_trajectory_id.take() {
            previous = self.latest.get(&TurnKey::StatedId(named.clone())).copied();
            match previous {
                Some(number) => self.set_previous(trajectory, number),
                None => {
                    // A line may name itself.
                    let is_dropped = named != trajectory.trajectory_id && was_read(&named);
                    add_missing_turn(trajectory, &named, is_dropped);
                    trajectory.previous_trajectory_id = Some(named);
                }
            }
        }
        self.insert(TurnKey::StatedId(stated_id), previous, trajectory);
    }

    /// Links a traced turn to the one before in its session. Trajectories must come in the order of their start. An agent
    /// that another one called is no turn, and neither is a request that began before the answer to the last one.
    pub(crate) fn link_session(&mut self, trajectory: &mut Trajectory) {
        let Some(session) = trajectory.session_id.clone().filter(|_| trajectory.parent_trajectory_id.is_none()) else {
            return;
        };
        let key = TurnKey::Session { project: trajectory.project.clone(), session };
        let latest = self.latest.get(&key).copied();
        let is_over = |number| self.turn(number).is_some_and(|turn| turn.end.is_some() && turn.end <= trajectory.start);
        let previous = latest.filter(|number| is_over(*number));
        // Turns of one group of traces know each other already.
        if let (Some(number), None) = (previous, &trajectory.previous_trajectory_id) {
            self.set_previous(trajectory, number);
        }
        self.insert(key, previous, trajectory);
    }

    fn turn(&self, number: u64) -> Option<&CachedTurn> {
        self.turns.get(usize::try_from(number.checked_sub(self.first_number)?).ok()?)
    }

    /// Links a trajectory to the previous turn with this number. Earlier turns that it already has stay.
    fn set_previous(&self, trajectory: &mut Trajectory, number: u64) {
        let Some(previous) = self.turn(number) else { return };
        trajectory.previous_trajectory_id = Some(previous.trajectory_id.clone());
        let next = previous.turn_index.unwrap_or(1).saturating_add(1);
        trajectory.turn_index = trajectory.turn_index.max(Some(next));
        if !trajectory.earlier_turns.is_empty() {
            return;
        }
        let mut at = Some(number);
        while let Some(turn) = at.and_then(|number| self.turn(number)) {
            if trajectory.earlier_turns.len() == EarlierTurn::MAX_TURNS {
                break;
            }
            trajectory.earlier_turns.push(Arc::clone(&turn.turn));
            at = turn.previous;
        }
        trajectory.earlier_turns.reverse();
    }

    /// Adds a turn, and drops the oldest ones beyond the limits.
    fn insert(&mut self, key: TurnKey, previous: Option<u64>, trajectory: &Trajectory) {
        let turn = Arc::new(EarlierTurn::from_trajectory(trajectory));
        let bytes = turn.text_bytes();
        self.bytes += bytes;
        self.latest.insert(key.clone(), self.first_number + self.turns.len() as u64);
        self.turns.push_back(CachedTurn {
            key,
            trajectory_id: trajectory.trajectory_id.clone(),
            turn_index: trajectory.turn_index,
            end: trajectory.end.clone(),
            turn,
            bytes,
            previous,
        });
        while self.turns.len() > MAX_CACHED_TURNS || self.bytes > MAX_CACHED_BYTES {
            let Some(oldest) = self.turns.pop_front() else { break };
            self.bytes -= oldest.bytes;
            if self.latest.get(&oldest.key) == Some(&self.first_number) {
                self.latest.remove(&oldest.key);
            }
            self.first_number += 1;
        }
    }
}

/// Reports that the previous turn is missing. A line that was written after an earlier reading already has the
/// defect.
fn add_missing_turn(trajectory: &mut Trajectory, named: &str, is_dropped: bool) {
    let (kind, why) = match is_dropped {
        true => (DefectKind::TooLarge, "is too far back to be kept"),
        false => (DefectKind::MissingTurn, "was not read before this one"),
    };
    let defect = ExtractionDefect::new(kind, format!("the turn before, {named:?}, {why}"), None);
    if !trajectory.defects.contains(&defect) {
        trajectory.defects.push(defect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, previous: Option<&str>) -> Trajectory {
        Trajectory {
            trajectory_id: id.to_owned(),
            query: Some(format!("question {id}")),
            session_id: Some("s".to_owned()),
            previous_trajectory_id: previous.map(str::to_owned),
            ..Trajectory::default()
        }
    }

    fn queries(trajectory: &Trajectory) -> Vec<&str> {
        trajectory.earlier_turns.iter().filter_map(|turn| turn.query.as_deref()).collect()
    }

    #[test]
    fn a_line_gets_the_turns_that_it_continues() {
        let mut cache = TurnCache::default();
        let mut lines = [line("a", None), line("b", Some("a")), line("x", None), line("c", Some("b"))];
        for line in &mut lines {
            cache.link_line(line, line.trajectory_id.clone(), |_| false);
        }
        assert_eq!(queries(&lines[3]), ["question a", "question b"]);
        assert_eq!((lines[0].turn_index, lines[1].turn_index, lines[3].turn_index), (None, Some(2), Some(3)));
        assert!(Arc::ptr_eq(&lines[1].earlier_turns[0], &lines[3].earlier_turns[0]));
        assert!(lines.iter().all(|line| line.defects.is_empty()));
    }

    #[test]
    fn a_missing_turn_and_a_circle_are_reported_and_not_guessed() {
        let mut cache = TurnCache::default();
        // Each of two lines names the other, and one names itself.
        let mut lines = [line("a", Some("b")), line("b", Some("a")), line("c", Some("c"))];
        for line in &mut lines {
            cache.link_line(line, line.trajectory_id.clone(), |_| true);
        }
        assert!(lines[0].earlier_turns.is_empty() && lines[2].earlier_turns.is_empty());
        assert_eq!(lines[2].defects[0].kind, DefectKind::MissingTurn);
        assert_eq!(queries(&lines[1]), ["question a"]);
        assert_eq!(lines[0].previous_trajectory_id.as_deref(), Some("b"));
        // Read again, the line has its defect once.
        let mut again = lines[2].clone();
        TurnCache::default().link_line(&mut again, "c".to_owned(), |_| false);
        assert_eq!(again.defects.len(), 1);
    }

    #[test]
    fn traces_of_a_session_are_its_turns() {
        let traced = |id: &str, session: &str, start: &str, end: &str| Trajectory {
            session_id: Some(session.to_owned()),
            start: Some(start.to_owned()),
            end: Some(end.to_owned()),
            ..line(id, None)
        };
        let mut cache = TurnCache::default();
        let mut turns = [
            traced("a", "s", "10:00", "10:01"),
            traced("other", "t", "10:00", "10:01"),
            traced("b", "s", "10:02", "10:05"),
            traced("beside b", "s", "10:03", "10:04"),
            traced("c", "s", "10:06", "10:07"),
        ];
        turns[3].parent_trajectory_id = Some("b".to_owned());
        for turn in &mut turns {
            cache.link_session(turn);
        }
        assert_eq!(turns[2].previous_trajectory_id.as_deref(), Some("a"));
        assert_eq!(queries(&turns[4]), ["question a", "question b"]);
        assert_eq!((turns[2].turn_index, turns[4].turn_index), (Some(2), Some(3)));
        assert!(turns[1].previous_trajectory_id.is_none() && turns[3].previous_trajectory_id.is_none());
        // A request that began before the answer to the last one continues nothing.
        let mut early = traced("d", "s", "10:06", "10:09");
        cache.link_session(&mut early);
        assert!(early.previous_trajectory_id.is_none() && early.earlier_turns.is_empty());
        let mut elsewhere = Trajectory { project: Some("p".to_owned()), ..traced("e", "s", "11:00", "11:01") };
        cache.link_session(&mut elsewhere);
        assert!(elsewhere.previous_trajectory_id.is_none());
    }

    #[test]
    fn the_cache_is_bounded_by_turns_and_by_bytes() {
        let mut cache = TurnCache::default();
        let mut previous: Option<String> = None;
        for number in 0..MAX_CACHED_TURNS + 10 {
            let mut turn = line(&number.to_string(), previous.as_deref());
            cache.link_line(&mut turn, number.to_string(), |_| false);
            previous = Some(number.to_string());
            assert!(turn.earlier_turns.len() <= EarlierTurn::MAX_TURNS && turn.defects.is_empty());
        }
        assert_eq!((cache.turns.len(), cache.latest.len()), (MAX_CACHED_TURNS, MAX_CACHED_TURNS));
        let mut late = line("late", Some("0"));
        cache.link_line(&mut late, "late".to_owned(), |id| id == "0");
        assert_eq!(late.defects[0].kind, DefectKind::TooLarge);
        for number in 0..1000 {
            let mut large = line(&format!("large {number}"), None);
            large.final_answer = Some("x".repeat(64 << 10));
            cache.link_line(&mut large, format!("large {number}"), |_| false);
        }
        assert!(cache.bytes <= MAX_CACHED_BYTES);
    }
}
