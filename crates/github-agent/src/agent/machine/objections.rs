//! Reasons not to make a call, and whether approval is needed.

use serde_json::{Value, json};

use super::super::nearest;
use super::super::state::{AgentToolCall, CallStage};
use super::{AgentStateMachine, MAX_CALLS_PER_REPLY};
use crate::tools::{CallObservation, ToolEffect};

/// Maximum number of characters of an unknown tool name that are repeated to the model.
const MAX_SHOWN_NAME_CHARS: usize = 100;

impl AgentStateMachine<'_> {
    /// Returns the observation for a call that is not made; none if it may be made. Every objection says what the
    /// model should do instead.
    pub(super) fn find_objection(&self, call: &AgentToolCall, stage: &CallStage) -> Option<CallObservation> {
        let refused = |body: Value| Some(CallObservation { text: body.to_string(), is_error: true, retry_after: None });
        match stage {
            CallStage::Unknown => {
                return refused(json!({
                    "error": "it is not known whether this call was carried out: the agent was stopped while it was under way. Look whether it was before you make it again."
                }));
            }
            CallStage::Refused(reason) => {
                return refused(json!({ "error": format!("not carried out: {reason}") }));
            }
            _ => {}
        }
        if call.is_surplus {
            return refused(json!({
                "error": format!("not carried out: one reply may have {MAX_CALLS_PER_REPLY} calls. Make it again if it is still needed")
            }));
        }
        // Tools that exist but may not be used get another message than those that do not exist.
        let exists = self.tool_set.tools().iter().any(|tool| *tool.definition.name == *call.name);
        let names = || self.offered.iter().map(|tool| &*tool.definition.name);
        if !exists {
            if let Some(reason) = self.tool_set.withheld_reason(&call.name) {
                return refused(json!({ "error": format!("not carried out: {reason}") }));
            }
            let near = nearest::find_nearest_names(&call.name, names());
            let written: String = call.name.chars().take(MAX_SHOWN_NAME_CHARS).collect();
            let error = format!("there is no tool {written:?}");
            return refused(if near.is_empty() {
                json!({ "error": error, "tools": names().collect::<Vec<_>>() })
            } else {
                json!({ "error": error, "nearest": near })
            });
        }
        if let Some(problem) = &call.problem {
            return refused(json!({ "error": problem }));
        }
        if self.settings.read_only && self.is_write_call(call) {
            return refused(json!({ "error": "not carried out: this session may only read" }));
        }
        if self.state.calls >= self.settings.max_calls {
            return refused(json!({ "error": "not carried out: the limit of calls is reached" }));
        }
        None
    }

    /// Whether the call needs approval: only destructive calls, judged by their arguments and not only by their tool.
    pub(super) fn must_confirm(&self, call: &AgentToolCall) -> bool {
        self.settings.confirm_destructive
            && call.approved != Some(true)
            && self.tool_set.classify_effect(&call.name, &call.arguments) == ToolEffect::Destructive
    }
}
