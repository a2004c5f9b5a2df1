//! The lines of a Codex rollout, as far as they are read (`codex-rs/history` and `codex-rs/protocol`).

use std::borrow::Cow;

use gradus_core::trajectory::TokenUsage;
use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::field_types::{CountField, FlagField, NumberField, TextField};

/// Whether the records are those of a Codex rollout.
pub(crate) fn is_codex_rollout(records: &[Json]) -> bool {
    let is_envelope = |record: &Json| {
        record["timestamp"].is_string()
            && record["payload"].is_object()
            && match record["type"].as_str() {
                Some("session_meta") => record["payload"]["id"].is_string(),
                Some("response_item" | "event_msg") => record["payload"]["type"].is_string(),
                Some("turn_context") => record["payload"].get("cwd").is_some(),
                _ => false,
            }
    };
    let is_item = |record: &Json| {
        matches!(
            record["type"].as_str(),
            Some("message" | "reasoning" | "function_call" | "function_call_output" | "local_shell_call")
        ) || record["record_type"] == "state"
    };
    // The first generation begins with a line that has no type.
    let is_first_generation = records.first().is_some_and(|first| {
        first["id"].is_string()
            && first["timestamp"].is_string()
            && first.get("instructions").is_some()
            && first.get("type").is_none()
    }) && (records.len() == 1 || records[1..].iter().all(is_item));
    is_first_generation || records.iter().any(is_envelope)
}

/// A line: an envelope, or in the first generation an item without one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CodexLine<'a> {
    #[serde(borrow)]
    pub(crate) timestamp: TextField<'a>,
    #[serde(rename = "type", borrow)]
    pub(crate) kind: TextField<'a>,
    #[serde(borrow)]
    pub(crate) payload: Option<&'a RawValue>,
    pub(crate) ordinal: NumberField,
    /// Of the first generation: a line that is neither an item nor the first one.
    #[serde(borrow)]
    pub(crate) record_type: TextField<'a>,
}

/// What a session says about itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CodexMeta<'a> {
    #[serde(borrow)]
    pub(crate) id: TextField<'a>,
    #[serde(borrow)]
    pub(crate) cwd: TextField<'a>,
    #[serde(borrow)]
    pub(crate) cli_version: TextField<'a>,
    #[serde(borrow)]
    pub(crate) parent_thread_id: TextField<'a>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
    #[serde(borrow)]
    base_instructions: Option<&'a RawValue>,
    /// Lines before this one are context that a subagent got from its parent.
    pub(crate) subagent_history_start_ordinal: NumberField,
}

impl CodexMeta<'_> {
    /// Returns the session whose agent started this one.
    pub(crate) fn parent_session(&self) -> Option<String> {
        if let Some(parent) = self.parent_thread_id.get() {
            return Some(parent.to_owned());
        }
        let source: Json = serde_json::from_str(self.source?.get()).ok()?;
        Some(source["subagent"]["thread_spawn"]["parent_thread_id"].as_str()?.to_owned())
    }

    pub(crate) fn system_prompt(&self) -> Option<String> {
        let instructions: Json = serde_json::from_str(self.base_instructions?.get()).ok()?;
        Some(instructions.as_str().or(instructions["text"].as_str())?.to_owned())
    }
}

/// An item of the conversation, or an event about it. Fields of other types stay empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CodexItem<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: TextField<'a>,
    #[serde(borrow)]
    pub(crate) role: TextField<'a>,
    #[serde(borrow)]
    pub(crate) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) summary: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) id: TextField<'a>,
    #[serde(borrow)]
    pub(crate) call_id: TextField<'a>,
    #[serde(borrow)]
    pub(crate) name: TextField<'a>,
    #[serde(borrow)]
    pub(crate) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) action: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) output: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) tools: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) revised_prompt: TextField<'a>,
    #[serde(borrow)]
    pub(crate) model: TextField<'a>,
    #[serde(borrow)]
    pub(crate) cwd: TextField<'a>,
    // Of events.
    #[serde(borrow)]
    pub(crate) message: TextField<'a>,
    #[serde(borrow)]
    pub(crate) last_agent_message: TextField<'a>,
    pub(crate) info: Option<CodexTokenInfo>,
    pub(crate) num_turns: CountField,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) success: Option<&'a RawValue>,
    pub(crate) exit_code: NumberField,
    #[serde(borrow)]
    pub(crate) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) event_id: TextField<'a>,
    #[serde(borrow)]
    pub(crate) agent_thread_id: TextField<'a>,
}

/// A turn item of newer sessions, which repeats a message in another form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CodexTurnItem<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: TextField<'a>,
    #[serde(borrow)]
    pub(crate) content: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CodexTokenInfo {
    /// Of the session so far.
    pub(crate) total_token_usage: Option<CodexTokens>,
    /// Of the last model call.
    pub(crate) last_token_usage: Option<CodexTokens>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CodexTokens {
    input_tokens: CountField,
    cached_input_tokens: CountField,
    output_tokens: CountField,
}

impl CodexTokens {
    /// Returns the usage. Input tokens contain the cached ones, output tokens those of reasoning.
    pub(crate) fn token_usage(self) -> TokenUsage {
        TokenUsage {
            prompt: self.input_tokens.0,
            completion: self.output_tokens.0,
            cached_prompt: self.cached_input_tokens.0,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TextPart<'a> {
    #[serde(borrow)]
    text: TextField<'a>,
}

/// Returns the texts of a list of parts, or of a plain text.
pub(crate) fn part_texts(content: Option<&RawValue>) -> Vec<Cow<'_, str>> {
    let Some(content) = content.map(RawValue::get) else { return Vec::new() };
    if content.starts_with('"') {
        return decode_json_string(content).into_iter().collect();
    }
    let parts: Vec<&RawValue> = serde_json::from_str(content).unwrap_or_default();
    let part_text = |part: &'_ RawValue| -> Option<String> {
        if part.get().starts_with('"') {
            return decode_json_string(part.get()).map(Cow::into_owned);
        }
        let part: TextPart<'_> = serde_json::from_str(part.get()).ok()?;
        part.text.0.map(Cow::into_owned)
    };
    parts.into_iter().filter_map(part_text).map(Cow::Owned).collect()
}

/// Decodes a text that is written as JSON.
pub(crate) fn decode_json_string(json: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str::<TextField<'_>>(json).ok()?.0
}

/// Whether a flag of an event is `false`.
pub(crate) fn is_false(flag: Option<&RawValue>) -> bool {
    flag.is_some_and(|flag| flag.get() == "false")
}

/// Whether a result of an MCP server is an error: `{"Err": ...}`, or marked as one.
pub(crate) fn is_failed_mcp_result(result: Option<&RawValue>) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Outcome<'a> {
        #[serde(rename = "Err", borrow)]
        error: Option<&'a RawValue>,
        #[serde(rename = "Ok")]
        content: Option<Content>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Content {
        #[serde(rename = "isError", alias = "is_error")]
        is_error: FlagField,
    }
    let outcome = result.and_then(|result| serde_json::from_str::<Outcome<'_>>(result.get()).ok());
    outcome.is_some_and(|outcome| outcome.error.is_some() || outcome.content.is_some_and(|content| content.is_error.0))
}
