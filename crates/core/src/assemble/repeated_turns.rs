//! The turns before a traced request: those that its first model call repeats, and those of the same group of traces.

use std::collections::HashMap;
use std::sync::Arc;

use crate::message::{ChatMessage, MessageRole};
use crate::trajectory::{DefectKind, EarlierTurn, ExtractionDefect, Trajectory};

use super::agent_run::RequestSpans;
use super::budget::AssemblyBudget;
use super::messages;
use super::turns::is_user_turn;

/// Sets the earlier turns that the first request of a run repeats. `asked` is the position of the user's request among
/// the messages. Costs nothing where the assistant did not speak before it.
pub(super) fn set_repeated_turns(
    input: &[ChatMessage<'_>],
    asked: usize,
    is_nested: bool,
    budget: &AssemblyBudget,
    trajectory: &mut Trajectory,
) {
    let before = &input[..asked.min(input.len())];
    if !before.iter().any(|message| message.role == MessageRole::Assistant) {
        // The model was sent nothing but this request, so nothing came before it.
        if !is_nested && asked < input.len() && trajectory.session_id.is_some() {
            trajectory.turn_index = Some(1);
        }
        return;
    }
    // Consecutive messages of the user are one request.
    let own = before.iter().rev().take_while(|message| is_user_turn(message)).count();
    let before = &before[..before.len() - own];
    let starts = turn_starts(before);
    // An agent that another one called works for it, and is no turn of the conversation.
    if !is_nested {
        trajectory.turn_index = u32::try_from(starts.len() + 1).ok();
    }
    let first = starts[starts.len().saturating_sub(EarlierTurn::MAX_TURNS)..].first().copied().unwrap_or_default();
    let Some(last) = messages::assemble_messages(&before[first..], &[]).pop() else { return };
    let turn = Arc::new(EarlierTurn::from_trajectory(&last));
    let turns: Vec<_> = latest_turns(&last.earlier_turns).iter().cloned().chain([turn]).collect();
    if budget.try_charge_turn(turns.iter().map(|turn| turn.text_bytes()).sum()) {
        trajectory.earlier_turns = turns;
    } else {
        let detail = "earlier turns were left out: requests repeat more than is kept of one trace";
        trajectory.defects.push(ExtractionDefect::new(DefectKind::TooLarge, detail, None));
    }
}

/// The turns that stay when one more is added.
fn latest_turns(turns: &[Arc<EarlierTurn>]) -> &[Arc<EarlierTurn>] {
    &turns[(turns.len() + 1).saturating_sub(EarlierTurn::MAX_TURNS)..]
}

/// Where the turns of a message list begin: at the first of consecutive messages of the user, or where the assistant
/// speaks before any user.
fn turn_starts(messages: &[ChatMessage<'_>]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut was_user = false;
    for (at, message) in messages.iter().enumerate() {
        let is_user = is_user_turn(message);
        let is_opening = starts.is_empty() && message.role == MessageRole::Assistant;
        if is_user && !was_user || is_opening {
            starts.push(at);
        }
        was_user = is_user;
    }
    starts
}

/// Links the turns of a conversation, which are in order of time: those that share a session id, and those of a plain
/// client whose requests continue each other. An agent that another one called is no turn, and neither is a request
/// that began before the answer to the last one.
pub(super) fn link_turns(runs: &[RequestSpans], trajectories: &mut [Trajectory]) {
    if trajectories.len() < 2 {
        return;
    }
    #[derive(PartialEq, Eq, Hash)]
    enum ConversationKey {
        Session(String),
        Thread(usize),
    }
    let mut last: HashMap<ConversationKey, usize> = HashMap::new();
    let mut own_turns: Vec<Option<Arc<EarlierTurn>>> = vec![None; trajectories.len()];
    for at in 0..trajectories.len() {
        let trajectory = &trajectories[at];
        if trajectory.parent_trajectory_id.is_some() || runs[at].below.is_some() {
            continue;
        }
        let session = trajectory.session_id.clone().map(ConversationKey::Session);
        let Some(key) = session.or_else(|| runs[at].thread.map(ConversationKey::Thread)) else { continue };
        let previous = last.insert(key, at);
        let Some(previous) = previous else { continue };
        if trajectories[previous].end > trajectory.start {
            continue;
        }
        let needs_turns = trajectory.earlier_turns.is_empty();
        let number = *trajectories[previous].turn_index.get_or_insert(1);
        let earlier_turns = needs_turns.then(|| {
            let turn = own_turns[previous]
                .get_or_insert_with(|| Arc::new(EarlierTurn::from_trajectory(&trajectories[previous])));
            latest_turns(&trajectories[previous].earlier_turns).iter().chain([&*turn]).cloned().collect()
        });
        let id = trajectories[previous].trajectory_id.clone();
        let trajectory = &mut trajectories[at];
        trajectory.previous_trajectory_id = Some(id);
        trajectory.turn_index = trajectory.turn_index.max(Some(number.saturating_add(1)));
        if let Some(earlier_turns) = earlier_turns {
            trajectory.earlier_turns = earlier_turns;
        }
    }
}
