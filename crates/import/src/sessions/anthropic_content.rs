//! Messages in Anthropic's form, as Claude Code writes them: typed and borrowed, because session files are large.

use std::borrow::Cow;
use std::fmt;

use gradus_core::trajectory::TokenUsage;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::field_types::{CountField, FlagField, TextField};
use crate::base64_text::decode_base64_text;
use crate::json_fields::content_text;

/// Maximum number of blocks that are read of one message. A parsed block takes much more memory than a short one on
/// disk.
const MAX_MESSAGE_BLOCKS: usize = 10_000;
/// How a proxy passes readable reasoning of other models through a field that is otherwise encrypted.
const OPENROUTER_REASONING: &str = "openrouter.reasoning:";

/// A message of a user or of the model.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct AnthropicMessage<'a> {
    #[serde(borrow)]
    pub(crate) id: TextField<'a>,
    #[serde(borrow)]
    pub(crate) model: TextField<'a>,
    #[serde(borrow)]
    pub(crate) content: AnthropicContent<'a>,
    pub(crate) usage: Option<AnthropicMessageUsage>,
}

/// The content of a message: a text or blocks.
#[derive(Debug, Default)]
pub(crate) struct AnthropicContent<'a> {
    pub(crate) blocks: Vec<AnthropicBlock<'a>>,
    /// Whether there were more blocks than are read.
    pub(crate) is_cut: bool,
}

/// A block of any type. Fields of other types stay empty.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct BlockFields<'a> {
    #[serde(rename = "type", borrow)]
    kind: TextField<'a>,
    #[serde(borrow)]
    text: TextField<'a>,
    #[serde(borrow)]
    thinking: TextField<'a>,
    #[serde(borrow)]
    data: TextField<'a>,
    #[serde(borrow)]
    id: TextField<'a>,
    #[serde(borrow)]
    name: TextField<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use_id: TextField<'a>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    is_error: FlagField,
}

/// One block of a message.
#[derive(Debug)]
pub(crate) enum AnthropicBlock<'a> {
    Text(Cow<'a, str>),
    Thinking(Cow<'a, str>),
    ToolUse { id: TextField<'a>, name: TextField<'a>, input: Option<&'a RawValue> },
    ToolResult { id: TextField<'a>, content: Option<&'a RawValue>, is_error: bool },
}

impl<'a> BlockFields<'a> {
    /// Returns the block; `None` for one without text to read: images, documents, encrypted reasoning.
    fn into_block(self) -> Option<AnthropicBlock<'a>> {
        match self.kind.get()? {
            "text" => Some(AnthropicBlock::Text(self.text.0?)),
            "thinking" | "reasoning" => Some(AnthropicBlock::Thinking(self.thinking.0.or(self.text.0)?)),
            "redacted_thinking" => {
                Some(AnthropicBlock::Thinking(Cow::Owned(passed_through_reasoning(self.data.get()?)?)))
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                Some(AnthropicBlock::ToolUse { id: self.id, name: self.name, input: self.input })
            }
            kind if kind.ends_with("tool_result") => Some(AnthropicBlock::ToolResult {
                id: self.tool_use_id,
                content: self.content,
                is_error: self.is_error.0,
            }),
            _ => None,
        }
    }
}

struct BlockVisitor;

impl<'de> Visitor<'de> for BlockVisitor {
    type Value = Option<AnthropicBlock<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block of a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        BlockFields::deserialize(MapAccessDeserializer::new(map)).map(BlockFields::into_block)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(AnthropicBlock::Text(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(AnthropicBlock::Text(Cow::Owned(text.to_owned()))))
    }
}

/// A block, or `None` for one without text to read.
struct OptionalBlock<'a>(Option<AnthropicBlock<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for OptionalBlock<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BlockVisitor).map(OptionalBlock)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = AnthropicContent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of blocks")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(AnthropicContent { blocks: vec![AnthropicBlock::Text(Cow::Borrowed(text))], is_cut: false })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(AnthropicContent { blocks: vec![AnthropicBlock::Text(Cow::Owned(text.to_owned()))], is_cut: false })
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(AnthropicContent::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut content = AnthropicContent::default();
        while content.blocks.len() < MAX_MESSAGE_BLOCKS {
            match seq.next_element::<OptionalBlock<'de>>()? {
                Some(OptionalBlock(block)) => content.blocks.extend(block),
                None => return Ok(content),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            content.is_cut = true;
        }
        Ok(content)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for AnthropicContent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// Tokens of one reply.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct AnthropicMessageUsage {
    input_tokens: CountField,
    output_tokens: CountField,
    cache_read_input_tokens: CountField,
    cache_creation_input_tokens: CountField,
}

impl AnthropicMessageUsage {
    /// Counts all input tokens, including those that were read from or written to the cache.
    pub(crate) fn token_usage(self) -> TokenUsage {
        let cached = self.cache_read_input_tokens.0;
        TokenUsage {
            prompt: self.input_tokens.0.saturating_add(cached).saturating_add(self.cache_creation_input_tokens.0),
            completion: self.output_tokens.0,
            cached_prompt: cached,
        }
    }
}

/// Returns the text of a tool's result.
pub(crate) fn result_content_text(content: Option<&RawValue>) -> String {
    let Some(content) = content else { return String::new() };
    if content.get().starts_with('"') {
        return serde_json::from_str(content.get()).unwrap_or_default();
    }
    match serde_json::from_str(content.get()) {
        Ok(json) => content_text(without_image_data(json)),
        // Nested deeper than the parser allows: kept as it is written.
        Err(_) => content.get().to_owned(),
    }
}

/// Replaces images by a short note. They are megabytes of base64 that no agent reads as text.
fn without_image_data(content: serde_json::Value) -> serde_json::Value {
    let serde_json::Value::Array(mut items) = content else { return content };
    for item in &mut items {
        if item.get("type").and_then(serde_json::Value::as_str) == Some("image") {
            *item = serde_json::json!({"type": "text", "text": "[image]"});
        }
    }
    serde_json::Value::Array(items)
}

/// Decodes reasoning that a proxy passed through the field of encrypted reasoning: JSON in base64.
fn passed_through_reasoning(data: &str) -> Option<String> {
    let bytes = decode_base64_text(data.strip_prefix(OPENROUTER_REASONING)?)?;
    let json: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    Some(json.get("text")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_blocks(content: &str) -> Vec<String> {
        let content: AnthropicContent<'_> = serde_json::from_str(content).unwrap();
        content.blocks.iter().map(|block| format!("{block:?}")).collect()
    }

    #[test]
    fn content_is_a_text_or_blocks_of_any_kind() {
        assert_eq!(read_blocks("\"hi\""), ["Text(\"hi\")"]);
        assert_eq!(read_blocks("null"), [""; 0]);
        let blocks = r#"["a\n", 5e0, {"type": "image"}, {"type": 7}, {"type": "thinking", "thinking": "hm"}]"#;
        assert!(serde_json::from_str::<AnthropicContent<'_>>(blocks).is_err(), "a number is no block");
        let blocks = r#"["a\n", {"type": "image"}, {"type": 7}, {"type": "thinking", "thinking": "hm"}]"#;
        assert_eq!(read_blocks(blocks), ["Text(\"a\\n\")", "Thinking(\"hm\")"]);
    }

    #[test]
    fn readable_reasoning_is_found_in_redacted_blocks() {
        let data = "openrouter.reasoning:eyJ0ZXh0IjoiaMOkPyJ9";
        assert_eq!(passed_through_reasoning(data).as_deref(), Some("hä?"));
        assert_eq!(passed_through_reasoning("EuYBCkQYBCJA"), None, "really encrypted");
        assert_eq!(passed_through_reasoning("openrouter.reasoning:%%"), None);
    }

    #[test]
    fn results_are_texts_lists_or_objects() {
        let text = |json: &str| result_content_text(Some(serde_json::from_str(json).unwrap()));
        assert_eq!(text("\"a\\tb\""), "a\tb");
        assert_eq!(text(r#"[{"type":"text","text":"a"},{"type":"image","source":{"data":"AAAA"}}]"#), "a\n[image]");
        assert_eq!(text(r#"{"x":1}"#), r#"{"x":1}"#);
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(text(&deep), deep);
        assert_eq!(result_content_text(None), "");
    }
}
