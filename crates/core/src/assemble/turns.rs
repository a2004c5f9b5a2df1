//! The conversation around a request: the standing instructions, and the turns before it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::message::{ChatMessage, MessageRole};
use crate::trajectory::{DefectKind, EarlierTurn, ExtractionDefect, Trajectory};

use super::agent_run::RequestSpans;
use super::budget::AssemblyBudget;
use super::request_and_answer;
use super::tree::SpanTree;

/// Maximum bytes of a system prompt.
pub(super) const MAX_SYSTEM_PROMPT_BYTES: usize = 256 << 10;

/// Maximum number of model calls of a run, and of spans around it, that are searched for a system prompt.
const MAX_PROMPT_SPANS: usize = 4;

/// Whether this is a message in which the user really speaks.
pub(super) fn is_user_turn(message: &ChatMessage<'_>) -> bool {
    request_and_answer::find_last_user_message(std::slice::from_ref(message)).is_some()
}

/// The latest turns of a conversation, shared by the turns behind them.
#[derive(Debug, Default)]
pub(super) struct TurnWindow(VecDeque<Arc<EarlierTurn>>);

impl TurnWindow {
    /// Adds a turn and drops the oldest one if there are more than a trajectory refers to.
    pub(super) fn push_turn(&mut self, turn: Arc<EarlierTurn>) {
        if self.0.len() == EarlierTurn::MAX_TURNS {
            self.0.pop_front();
        }
        self.0.push_back(turn);
    }

    /// The turns for the next trajectory, oldest first. Copies references only.
    pub(super) fn to_turns(&self) -> Vec<Arc<EarlierTurn>> {
        self.0.iter().cloned().collect()
    }
}

/// The system prompt while a message list is read: the text of all system messages so far. It is built again only when
/// a message was added, so that turns share it.
#[derive(Debug, Default)]
pub(super) struct SystemPromptBuilder {
    text: String,
    built: Option<Arc<str>>,
    is_stale: bool,
    is_cut: bool,
}

impl SystemPromptBuilder {
    /// Adds the system messages among these.
    pub(super) fn add_messages(&mut self, messages: &[ChatMessage<'_>]) {
        for message in messages.iter().filter(|message| message.role == MessageRole::System) {
            let text = message.joined_text();
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            self.is_stale |= !self.is_cut;
            let separator = if self.text.is_empty() { "" } else { "\n\n" };
            let left = MAX_SYSTEM_PROMPT_BYTES.saturating_sub(self.text.len() + separator.len());
            self.is_cut |= text.len() > left;
            let kept = &text[..text.floor_char_boundary(left)];
            if !kept.is_empty() {
                self.text.push_str(separator);
                self.text.push_str(kept);
            }
        }
    }

    /// The prompt so far, with a defect if it was cut. A prompt that changes in every turn is charged to the budget;
    /// beyond it, the last one stays.
    pub(super) fn current_prompt(
        &mut self,
        budget: &AssemblyBudget,
        defects: &mut Vec<ExtractionDefect>,
    ) -> Option<Arc<str>> {
        if std::mem::take(&mut self.is_stale) && (self.built.is_none() || budget.try_charge_turn(self.text.len())) {
            self.built = Some(self.text.as_str().into());
        }
        if self.is_cut {
            defects.push(prompt_cut_defect());
        }
        self.built.clone()
    }
}

fn prompt_cut_defect() -> ExtractionDefect {
    let detail = format!("the system prompt is longer than {MAX_SYSTEM_PROMPT_BYTES} bytes and was cut");
    ExtractionDefect::new(DefectKind::TooLarge, detail, None)
}

/// The last system prompt that was read. Runs of one agent have the same one, and share it.
#[derive(Clone, Debug, Default)]
pub(super) struct SystemPromptCache(Option<Arc<str>>);

impl SystemPromptCache {
    /// Sets the system prompt of a run: that of its first model call that has one, otherwise that of a span around it.
    pub(super) fn set_system_prompt(&mut self, tree: &SpanTree<'_>, run: &RequestSpans, trajectory: &mut Trajectory) {
        let spans = run.calls.iter().take(MAX_PROMPT_SPANS).chain(run.frames.iter().take(MAX_PROMPT_SPANS));
        let Some(text) = spans.map(|at| &tree.nodes[*at].facts.input).find_map(|input| join_system_texts(input)) else {
            return;
        };
        let kept = text.trim();
        let is_cut = kept.len() > MAX_SYSTEM_PROMPT_BYTES;
        let kept = &kept[..kept.floor_char_boundary(MAX_SYSTEM_PROMPT_BYTES)];
        if kept.is_empty() {
            return;
        }
        if is_cut {
            trajectory.defects.push(prompt_cut_defect());
        }
        if self.0.as_deref() != Some(kept) {
            self.0 = Some(kept.into());
        }
        trajectory.system_prompt.clone_from(&self.0);
    }
}

/// The texts of the system messages that a request begins with; `None` if there are none. Borrowed if there is only
/// one.
fn join_system_texts<'m>(input: &'m [ChatMessage<'_>]) -> Option<Cow<'m, str>> {
    let is_head = |message: &&ChatMessage<'_>| message.role != MessageRole::Assistant;
    let mut all: Option<Cow<'m, str>> = None;
    for message in input.iter().take_while(is_head).filter(|message| message.role == MessageRole::System) {
        let text = message.joined_text();
        match &mut all {
            None => all = Some(text),
            Some(joined) => {
                let joined = joined.to_mut();
                joined.push_str("\n\n");
                joined.push_str(&text);
            }
        }
    }
    all
}
