//! Notes of the agent to the model, appended to an observation.

use super::super::state::AgentToolCall;
use super::AgentStateMachine;

/// Maximum number of calls that are remembered to detect loops.
const MAX_RECENT_CALLS: usize = 8;
/// Minimum number of equal calls with equal results among them that count as a loop.
const MIN_LOOP_CALLS: usize = 3;

impl AgentStateMachine<'_> {
    /// Notes on a call that returned: dropped calls, a loop, or the last reply before the limit.
    pub(super) fn collect_notices(&mut self, call: &AgentToolCall, text: &str, is_last: bool) -> Vec<String> {
        let mut notices = Vec::new();
        let (settings, state) = (&self.settings, &mut self.state);
        if call.has_more_behind {
            // One written Action can hold a list of calls; those beyond the limit are surplus.
            let notice = if call.is_written && !call.is_surplus {
                "your reply had more than one Action; only the first was carried out. One at a time"
            } else {
                "your reply had more calls than can be taken, or was cut off; the rest was left out"
            };
            notices.push(notice.to_owned());
        }
        let this = (hash_text(&format!("{} {}", call.name, call.arguments)), hash_text(text));
        if !call.is_surplus {
            state.recent.push_back(this);
        }
        if state.recent.len() > MAX_RECENT_CALLS {
            state.recent.pop_front();
        }
        let times = state.recent.iter().filter(|other| **other == this).count();
        if times >= MIN_LOOP_CALLS {
            notices.push(format!(
                "this same call has given the same result {times} times now; do something else, or answer"
            ));
        }
        if is_last && state.replies + 1 == settings.max_steps {
            notices.push("only one reply is left: give your answer now".to_owned());
        }
        notices
    }
}

/// Hashes a text. 64 bits suffice to distinguish a few calls, and keep the session file small.
fn hash_text(text: &str) -> u64 {
    let hash = blake3::hash(text.as_bytes());
    hash.as_bytes().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
