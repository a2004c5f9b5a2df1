//! A model call as a conversation: its messages, the tools on offer, and the reply.

use gradus_core::dialect::{NormalizedSpan, OperationKind};
use gradus_core::message::{ArgumentsText, ChatMessage, MessagePart, MessageRole};
use gradus_report::html::number;
use gradus_report::html::text::{self, DisplayText};

use super::span_scan::read_offered_tools;

/// Maximum number of messages and tools of one call that are shown.
const MAX_MESSAGES: usize = 200;
const MAX_TOOLS: usize = 200;
/// Number of messages before the reply that are shown unfolded: the latest input of the model.
const UNFOLDED_MESSAGES: usize = 2;

/// A model call, ready to be displayed.
pub(super) struct ModelCallView {
    /// Model and tokens, as far as they are recorded.
    pub(super) facts: Vec<String>,
    /// How many tools are on offer, in words.
    pub(super) tool_count: Option<String>,
    pub(super) tools: Vec<OfferedToolView>,
    /// The conversation before the latest messages, which is folded.
    pub(super) earlier: Vec<ChatMessageView>,
    pub(super) earlier_count: String,
    pub(super) latest: Vec<ChatMessageView>,
    pub(super) reply: Vec<ChatMessageView>,
}

/// A tool that the model could call.
pub(super) struct OfferedToolView {
    pub(super) name: String,
    pub(super) description: Option<DisplayText>,
    pub(super) schema: Option<DisplayText>,
}

/// A message.
pub(super) struct ChatMessageView {
    /// `system`, `user`, `assistant` or `tool`: the CSS class and the word.
    pub(super) role: &'static str,
    pub(super) parts: Vec<ChatPartView>,
}

/// A part of a message.
pub(super) struct ChatPartView {
    /// The kind of the part. Empty for plain text.
    pub(super) title: String,
    pub(super) text: DisplayText,
    /// Shown with a fixed-width font.
    pub(super) is_code: bool,
}

impl ModelCallView {
    /// Builds the view; None for other operations, and for a call that recorded no message.
    pub(super) fn from_span(facts: &NormalizedSpan<'_>) -> Option<ModelCallView> {
        let is_empty = facts.input.is_empty() && facts.output.is_empty();
        if facts.kind != OperationKind::Model || is_empty {
            return None;
        }
        let tools = read_offered_tools(&facts.offered_tools);
        let input: Vec<ChatMessageView> = facts.input.iter().take(MAX_MESSAGES).map(build_message).collect();
        let mut earlier = input;
        let latest = earlier.split_off(earlier.len().saturating_sub(UNFOLDED_MESSAGES));
        let mut about: Vec<String> = facts.model.iter().map(|model| text::format_display_line(model)).collect();
        let tokens = |count: u64, word: &str| format!("{} tokens {word}", number::format_count(count));
        about.extend(facts.prompt_tokens.map(|count| tokens(count, "in")));
        about.extend(facts.completion_tokens.map(|count| tokens(count, "out")));
        about.extend(facts.cost_usd.map(number::format_usd));
        Some(ModelCallView {
            facts: about,
            tool_count: (!tools.is_empty())
                .then(|| number::format_counted_noun(tools.len() as u64, "tool on offer", "tools on offer")),
            tools: tools
                .iter()
                .take(MAX_TOOLS)
                .map(|tool| OfferedToolView {
                    name: text::format_display_line(&tool.name),
                    description: tool.description.as_deref().map(text::format_display_block),
                    schema: tool.schema.as_ref().map(|schema| text::format_display_json(schema.as_str())),
                })
                .collect(),
            earlier_count: number::format_counted_noun(earlier.len() as u64, "earlier message", "earlier messages"),
            earlier,
            latest,
            reply: facts.output.iter().take(MAX_MESSAGES).map(build_message).collect(),
        })
    }
}

/// Builds a message without its empty parts.
fn build_message(message: &ChatMessage<'_>) -> ChatMessageView {
    ChatMessageView {
        role: match message.role {
            MessageRole::System => "system",
            MessageRole::User => "user",
            MessageRole::Assistant => "assistant",
            MessageRole::Tool => "tool",
        },
        parts: message.parts.iter().map(build_part).filter(|part| !part.text.text.is_empty()).collect(),
    }
}

fn build_part(part: &MessagePart<'_>) -> ChatPartView {
    let name = |name: &str| text::format_display_line(name);
    match part {
        MessagePart::Text(given) => {
            ChatPartView { title: String::new(), text: text::format_display_block(given), is_code: false }
        }
        MessagePart::Reasoning(given) => {
            ChatPartView { title: "reasoning".to_owned(), text: text::format_display_block(given), is_code: false }
        }
        MessagePart::ToolCall(call) => ChatPartView {
            title: format!("calls {}", name(&call.name)),
            text: match &call.arguments {
                Some(ArgumentsText::Text(given) | ArgumentsText::Json(given)) => format_payload(given),
                None => text::format_display_block("without arguments"),
            },
            is_code: true,
        },
        MessagePart::ToolResult(result) => ChatPartView {
            title: match (result.name.as_deref(), result.is_error) {
                (Some(tool), true) => format!("error of {}", name(tool)),
                (Some(tool), false) => format!("result of {}", name(tool)),
                (None, true) => "error of the tool".to_owned(),
                (None, false) => "result".to_owned(),
            },
            text: format_payload(&result.content),
            is_code: true,
        },
    }
}

/// Formats a payload, indented if it is JSON.
fn format_payload(given: &str) -> DisplayText {
    if given.trim_start().starts_with(['{', '[']) {
        let shown = text::format_display_json(given);
        // Invalid JSON is shown without a remark, because results may be any text.
        return DisplayText { note: shown.note.filter(|note| !note.starts_with("Not valid JSON")), ..shown };
    }
    text::format_display_block(given)
}

#[cfg(test)]
mod tests {
    use gradus_core::dialect::OfferedTools;
    use gradus_core::message::ToolCall;

    use super::*;

    #[test]
    fn a_call_is_its_latest_messages_and_the_reply() {
        let mut facts = NormalizedSpan { kind: OperationKind::Model, ..NormalizedSpan::default() };
        assert!(ModelCallView::from_span(&facts).is_none());
        facts.input = ["Be brief.", "Hello", "Hi", "Where is order 7?"]
            .into_iter()
            .zip([MessageRole::System, MessageRole::User, MessageRole::Assistant, MessageRole::User])
            .map(|(text, role)| ChatMessage::from_text(role, text))
            .collect();
        let call = ToolCall {
            name: "get_order".into(),
            arguments: Some(ArgumentsText::Text("{\"order\":7}".into())),
            ..ToolCall::default()
        };
        facts.output = vec![ChatMessage { role: MessageRole::Assistant, parts: vec![MessagePart::ToolCall(call)] }];
        facts.offered_tools =
            vec![OfferedTools::Function { name: "get_order", description: None, parameters: Some("{}") }];
        facts.prompt_tokens = Some(1_200);
        let shown = ModelCallView::from_span(&facts).unwrap();
        assert_eq!((shown.earlier.len(), shown.earlier_count.as_str()), (2, "2 earlier messages"));
        assert_eq!(shown.latest[1].parts[0].text.text, "Where is order 7?");
        let part = &shown.reply[0].parts[0];
        assert_eq!((part.title.as_str(), part.text.text.as_str()), ("calls get_order", "{\n  \"order\": 7\n}"));
        assert_eq!(shown.tool_count.as_deref(), Some("1 tool on offer"));
        assert_eq!(shown.facts, ["1,200 tokens in"]);
        facts.kind = OperationKind::Tool;
        assert!(ModelCallView::from_span(&facts).is_none());
    }
}
