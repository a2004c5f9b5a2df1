//! Gives trajectories the earlier turns of their session, which are other traces of the store.
//!
//! The store knows which turns came before. Their content is mostly in memory, since the turns of a conversation
//! follow each other, and is otherwise read from the store. A turn that arrives after a later one was graded is not
//! linked to it; the rules then abstain instead of guessing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use gradus_core::span::TraceId;
use gradus_core::trajectory::{EarlierTurn, Trajectory};
use gradus_store::{EarlierTurnRow, StoreError, StoreSnapshot};

use crate::record_keys::{parse_timestamp_ns, sanitize_name};

/// Maximum number of earlier turns of a trajectory; the latest. Rules abstain where older turns could matter.
const MAX_LINKED_TURNS: usize = 16;
/// Maximum number of trajectories of the session that are examined. Agents that others called are not turns.
const MAX_CANDIDATES: usize = 24;
/// Maximum number of turns that are read from the store for one trajectory.
const MAX_READ_TURNS: usize = 8;
/// Maximum size of one of them. Several times as much is held while it is read, for each reader of a page.
const MAX_READ_BYTES: u64 = 4 << 20;
/// Maximum number of remembered turns, and of bytes of their texts.
const MAX_REMEMBERED: usize = 4_096;
const MAX_REMEMBERED_BYTES: usize = 16 << 20;

/// The parts of a trajectory that later turns need.
#[derive(Clone, Debug)]
struct RememberedTurn {
    /// Whether another agent called this one, which is then not a turn of the conversation.
    is_nested: bool,
    turn_index: Option<u32>,
    turn: Arc<EarlierTurn>,
}

impl RememberedTurn {
    fn from_trajectory(trajectory: &Trajectory) -> RememberedTurn {
        RememberedTurn {
            is_nested: trajectory.parent_trajectory_id.is_some(),
            turn_index: trajectory.turn_index,
            turn: Arc::new(EarlierTurn::from_trajectory(trajectory)),
        }
    }
}

/// A session of a project.
type SessionKey = (String, String);

#[derive(Debug, Default)]
struct RememberedTurns {
    turns: HashMap<String, RememberedTurn>,
    /// The latest turns of a session, which may not be stored yet, in the order of assembly.
    by_session: HashMap<SessionKey, VecDeque<EarlierTurnRow>>,
    /// Oldest first, the order in which turns are dropped.
    order: VecDeque<(String, SessionKey)>,
    bytes: usize,
}

/// The latest turns that were assembled.
#[derive(Debug, Default)]
pub(crate) struct SessionMemory(Mutex<RememberedTurns>);

impl SessionMemory {
    /// Links the trajectories of a group to the turns before them, and remembers them for the turns that follow.
    pub(crate) fn link_group(
        &self,
        store: &StoreSnapshot<'_>,
        trajectories: &mut [Trajectory],
    ) -> Result<(), StoreError> {
        for trajectory in trajectories {
            self.link_trajectory(store, trajectory)?;
            self.remember(trajectory);
        }
        Ok(())
    }

    fn link_trajectory(&self, store: &StoreSnapshot<'_>, trajectory: &mut Trajectory) -> Result<(), StoreError> {
        let Some(session) = trajectory.session_id.as_deref().map(sanitize_name) else { return Ok(()) };
        // Turns of one trace group are linked already.
        if session.is_empty()
            || trajectory.parent_trajectory_id.is_some()
            || trajectory.previous_trajectory_id.is_some()
        {
            return Ok(());
        }
        let start_ns = parse_timestamp_ns(trajectory.start.as_deref());
        let trace = trajectory.trace_ids.first().map(|id| TraceId::parse(id)).unwrap_or_default();
        let mut rows = store.earlier_session_turns(trace, &session, start_ns, MAX_CANDIDATES)?;
        rows.extend(self.unstored_rows(&session_key(trajectory, session), start_ns));
        rows.sort_by(|one, other| (other.start_ns, &other.trajectory_id).cmp(&(one.start_ns, &one.trajectory_id)));
        rows.dedup();
        let mut left_to_read = MAX_READ_TURNS;
        let mut turns: Vec<Arc<EarlierTurn>> = Vec::new();
        for row in rows.iter().take(MAX_CANDIDATES) {
            let Some(found) = self.find_turn(store, &row.trajectory_id, &mut left_to_read)? else { break };
            if found.is_nested {
                continue;
            }
            if turns.is_empty() {
                // A request that began before the answer to the previous one does not continue it.
                if row.end_ns > start_ns {
                    return Ok(());
                }
                trajectory.previous_trajectory_id = Some(row.trajectory_id.clone());
                let next = found.turn_index.unwrap_or(1).saturating_add(1);
                trajectory.turn_index = trajectory.turn_index.max(Some(next));
                // The messages sent to the model are more reliable than earlier records.
                if !trajectory.earlier_turns.is_empty() {
                    return Ok(());
                }
            }
            turns.push(found.turn);
            if turns.len() == MAX_LINKED_TURNS {
                break;
            }
        }
        turns.reverse();
        if !turns.is_empty() {
            trajectory.earlier_turns = turns;
        }
        Ok(())
    }

    /// Returns the turns of a session that began before this time and may not be in the store yet.
    fn unstored_rows(&self, key: &SessionKey, start_ns: i64) -> Vec<EarlierTurnRow> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = known.by_session.get(key).into_iter().flat_map(|rows| rows.iter().rev());
        rows.filter(|row| row.start_ns < start_ns).take(MAX_CANDIDATES).cloned().collect()
    }

    /// Finds a turn in memory or in the store; `None` if too much would have to be read, or if it is gone. Nothing
    /// before it is linked then.
    fn find_turn(
        &self,
        store: &StoreSnapshot<'_>,
        id: &str,
        left_to_read: &mut usize,
    ) -> Result<Option<RememberedTurn>, StoreError> {
        if let Some(turn) = self.0.lock().unwrap_or_else(PoisonError::into_inner).turns.get(id) {
            return Ok(Some(turn.clone()));
        }
        if *left_to_read == 0 {
            return Ok(None);
        }
        *left_to_read -= 1;
        let json = store.trajectory_json_within(id, MAX_READ_BYTES)?;
        let stored = json.and_then(|json| serde_json::from_slice::<Trajectory>(&json).ok());
        Ok(stored.map(|trajectory| RememberedTurn::from_trajectory(&trajectory)))
    }

    fn remember(&self, trajectory: &Trajectory) {
        let Some(session) = trajectory.session_id.as_deref().map(sanitize_name).filter(|name| !name.is_empty()) else {
            return;
        };
        let row = EarlierTurnRow {
            trajectory_id: trajectory.trajectory_id.clone(),
            start_ns: parse_timestamp_ns(trajectory.start.as_deref()),
            end_ns: parse_timestamp_ns(trajectory.end.as_deref()),
        };
        let turn = RememberedTurn::from_trajectory(trajectory);
        let key = session_key(trajectory, session);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(row, turn, key);
    }
}

fn session_key(trajectory: &Trajectory, session: String) -> SessionKey {
    (trajectory.project.clone().unwrap_or_default(), session)
}

impl RememberedTurns {
    /// Adds a turn, or replaces it if its trace was assembled again, and drops the oldest ones beyond the limits.
    fn insert(&mut self, row: EarlierTurnRow, turn: RememberedTurn, key: SessionKey) {
        self.bytes += turn.turn.text_bytes();
        let rows = self.by_session.entry(key.clone()).or_default();
        rows.retain(|known| known.trajectory_id != row.trajectory_id);
        rows.push_back(row.clone());
        if rows.len() > MAX_CANDIDATES {
            rows.pop_front();
        }
        match self.turns.insert(row.trajectory_id.clone(), turn) {
            Some(replaced) => self.bytes -= replaced.turn.text_bytes(),
            None => self.order.push_back((row.trajectory_id, key)),
        }
        while self.order.len() > MAX_REMEMBERED || self.bytes > MAX_REMEMBERED_BYTES {
            let Some((id, key)) = self.order.pop_front() else { break };
            self.bytes -= self.turns.remove(&id).map_or(0, |turn| turn.turn.text_bytes());
            if let Some(rows) = self.by_session.get_mut(&key) {
                rows.retain(|row| row.trajectory_id != id);
                if rows.is_empty() {
                    self.by_session.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered(memory: &SessionMemory) -> (usize, usize, usize, usize) {
        let known = memory.0.lock().unwrap();
        (known.turns.len(), known.order.len(), known.by_session.values().map(VecDeque::len).sum(), known.bytes)
    }

    #[test]
    fn what_is_remembered_is_bounded_by_turns_and_by_bytes() {
        let memory = SessionMemory::default();
        let turn = |number: usize, session: &str, answer: &str| Trajectory {
            trajectory_id: number.to_string(),
            session_id: Some(session.to_owned()),
            final_answer: Some(answer.to_owned()),
            ..Trajectory::default()
        };
        // The same session for everything, as a client with a constant sends it.
        for number in 0..MAX_REMEMBERED + 50 {
            memory.remember(&turn(number, "always", "yes"));
        }
        memory.remember(&turn(MAX_REMEMBERED, "always", "no"));
        assert_eq!(remembered(&memory), (MAX_REMEMBERED, MAX_REMEMBERED, MAX_CANDIDATES, 3 * MAX_REMEMBERED - 1));
        let long = "x".repeat(64 << 10);
        for number in 0..2_000 {
            memory.remember(&turn(number + 10_000, &format!("s{number}"), &long));
        }
        let (turns, order, rows, bytes) = remembered(&memory);
        assert!(bytes <= MAX_REMEMBERED_BYTES && turns == order && turns == rows, "{turns} {order} {rows} {bytes}");
        memory.remember(&Trajectory { session_id: None, ..turn(1, "", "") });
        assert_eq!(remembered(&memory).0, turns, "without a session there is nothing to continue");
    }
}
