//! The lines of a Claude Code session, as far as they are read.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::anthropic_content::{AnthropicBlock, AnthropicMessage};
use super::field_types::{FlagField, NumberField, TextField};

/// One line. Fields that are not read are skipped by the parser without being copied.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClaudeLine<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: TextField<'a>,
    #[serde(borrow)]
    pub(crate) subtype: TextField<'a>,
    #[serde(borrow)]
    pub(crate) uuid: TextField<'a>,
    #[serde(borrow)]
    pub(crate) parent_uuid: TextField<'a>,
    #[serde(borrow)]
    pub(crate) session_id: TextField<'a>,
    #[serde(borrow)]
    pub(crate) agent_id: TextField<'a>,
    #[serde(borrow)]
    pub(crate) timestamp: TextField<'a>,
    #[serde(borrow)]
    pub(crate) cwd: TextField<'a>,
    #[serde(borrow)]
    pub(crate) version: TextField<'a>,
    pub(crate) is_sidechain: FlagField,
    pub(crate) is_meta: FlagField,
    pub(crate) is_compact_summary: FlagField,
    pub(crate) is_visible_in_transcript_only: FlagField,
    pub(crate) is_api_error_message: FlagField,
    #[serde(rename = "costUSD")]
    pub(crate) cost_usd: NumberField,
    #[serde(borrow)]
    pub(crate) message: Option<AnthropicMessage<'a>>,
    #[serde(borrow)]
    pub(crate) tool_use_result: ToolUseSummary<'a>,
    #[serde(borrow)]
    pub(crate) attachment: Option<&'a RawValue>,
    /// Of a failed request to the API.
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
    // Of a notice about a call that runs.
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(rename = "parentToolUseID", borrow)]
    parent_tool_use_id: TextField<'a>,
    #[serde(rename = "toolUseID", borrow)]
    tool_use_id: TextField<'a>,
}

/// A notice that repeats a line of a subagent while the call that started it runs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AgentProgress<'a> {
    #[serde(rename = "type", borrow)]
    kind: TextField<'a>,
    #[serde(rename = "agentId", borrow)]
    agent_id: TextField<'a>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

impl<'a> ClaudeLine<'a> {
    /// Returns the first text of the message.
    pub(crate) fn first_text(&self) -> Option<&str> {
        self.blocks().find_map(|block| match block {
            AnthropicBlock::Text(text) => Some(text.as_ref()),
            _ => None,
        })
    }

    /// Returns id, name and arguments of the calls.
    pub(crate) fn tool_uses(&self) -> impl Iterator<Item = (&str, &str, Option<&'a RawValue>)> {
        self.blocks().filter_map(|block| match block {
            AnthropicBlock::ToolUse { id, name, input } => Some((id.get()?, name.get()?, *input)),
            _ => None,
        })
    }

    /// Returns the ids of the calls whose results the line carries.
    pub(crate) fn result_ids(&self) -> impl Iterator<Item = &str> {
        self.blocks().filter_map(|block| match block {
            AnthropicBlock::ToolResult { id, .. } => id.get(),
            _ => None,
        })
    }

    /// Returns the ids that may be that of the call which a notice is about.
    pub(crate) fn running_call_ids(&self) -> impl Iterator<Item = &str> {
        [&self.parent_tool_use_id, &self.tool_use_id].into_iter().filter_map(TextField::get)
    }

    /// Returns the line of a subagent that a notice repeats, with the fields that it leaves out; `None` for other
    /// notices. Fails if the repeated line cannot be parsed.
    pub(crate) fn repeated_line(&self) -> Result<Option<ClaudeLine<'a>>, serde_json::Error> {
        let progress: AgentProgress<'a> = match self.data.map(|data| serde_json::from_str(data.get())) {
            Some(progress) => progress?,
            None => return Ok(None),
        };
        if progress.kind.get() != Some("agent_progress") || progress.agent_id.get().is_none() {
            return Ok(None);
        }
        let Some(message) = progress.message else { return Ok(None) };
        let line = serde_json::from_str::<ClaudeLine<'a>>(message.get())?;
        Ok(Some(ClaudeLine {
            agent_id: progress.agent_id,
            session_id: self.session_id.clone(),
            cwd: self.cwd.clone(),
            version: self.version.clone(),
            ..line
        }))
    }

    fn blocks(&self) -> impl Iterator<Item = &AnthropicBlock<'a>> {
        self.message.iter().flat_map(|message| &message.content.blocks)
    }
}

/// What Claude Code itself records about a result, in addition to what the model saw: a text, or an object that
/// depends on the tool and mostly repeats the content.
#[derive(Debug, Default)]
pub(crate) struct ToolUseSummary<'a> {
    pub(crate) text: TextField<'a>,
    /// The subagent that the call started.
    pub(crate) agent_id: TextField<'a>,
    /// Whether the command was stopped, by the user or because it took too long.
    pub(crate) is_interrupted: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SummaryFields<'a> {
    #[serde(rename = "agentId", borrow)]
    agent_id: TextField<'a>,
    interrupted: FlagField,
}

struct SummaryVisitor;

impl<'de> Visitor<'de> for SummaryVisitor {
    type Value = ToolUseSummary<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the summary of a result")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let fields = SummaryFields::deserialize(MapAccessDeserializer::new(map))?;
        let SummaryFields { agent_id, interrupted } = fields;
        Ok(ToolUseSummary { agent_id, is_interrupted: interrupted.0, ..ToolUseSummary::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(ToolUseSummary::default())
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(ToolUseSummary { text: TextField(Some(text.into())), ..ToolUseSummary::default() })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(ToolUseSummary { text: TextField(Some(text.to_owned().into())), ..ToolUseSummary::default() })
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(ToolUseSummary::default())
    }

    fn visit_bool<E>(self, _flag: bool) -> Result<Self::Value, E> {
        Ok(ToolUseSummary::default())
    }

    fn visit_u64<E>(self, _number: u64) -> Result<Self::Value, E> {
        Ok(ToolUseSummary::default())
    }

    fn visit_i64<E>(self, _number: i64) -> Result<Self::Value, E> {
        Ok(ToolUseSummary::default())
    }

    fn visit_f64<E>(self, _number: f64) -> Result<Self::Value, E> {
        Ok(ToolUseSummary::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ToolUseSummary<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SummaryVisitor)
    }
}

/// A request that waited until the model could take it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct QueuedCommand<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: TextField<'a>,
    #[serde(borrow)]
    pub(crate) prompt: TextField<'a>,
    #[serde(rename = "commandMode", borrow)]
    pub(crate) command_mode: TextField<'a>,
}
