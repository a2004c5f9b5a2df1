//! The inner span of LiteLLM's OpenTelemetry callback: what was sent to the provider and what came back, as Python prints
//! it, in `llm.PROVIDER.*`. Below a span of the application it is the only record of a call, because the callback writes
//! the attributes of the outer span onto that of the application, those of each call over those before.

use serde_json::Value as Json;

use crate::literal;
use crate::message::{ChatMessage, MessageRole, messages_from_json};
use crate::span::Span;

use super::{NormalizedSpan, OperationKind, fill_if_empty, read_text_attribute};

/// The scope of the callback.
pub(super) const SCOPE: &str = "litellm";

/// Reads a request with the messages and the reply of OpenAI's chat format, in which LiteLLM records most providers.
pub(super) fn read_litellm_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    if facts.kind != OperationKind::Other || span.name != "raw_gen_ai_request" {
        return;
    }
    let (mut request, mut reply, mut usage) = (None, None, None);
    for (key, value) in span.attributes.iter() {
        let field = key.strip_prefix("llm.").and_then(|rest| rest.split_once('.'));
        match field {
            Some((_, "messages")) => request = value.as_str(),
            Some((_, "choices")) => reply = value.as_str(),
            Some((_, "usage")) => usage = value.as_str(),
            Some((_, "model")) => fill_if_empty(&mut facts.model, read_text_attribute(value)),
            _ => {}
        }
    }
    let (Some(request), Some(reply)) = (request, reply) else { return };
    let read = |text: &str| literal::parse_lenient_json(text).map(messages_from_json).unwrap_or_default();
    let (input, mut output) = (read(request), read(reply));
    output.iter_mut().for_each(|message: &mut ChatMessage<'_>| message.role = MessageRole::Assistant);
    output.retain(|message| !message.is_empty());
    if input.is_empty() || output.is_empty() {
        return;
    }
    facts.kind = OperationKind::Model;
    let usage = usage.and_then(literal::parse_lenient_json).unwrap_or_default();
    let count = |key: &str| usage.get(key).and_then(Json::as_u64);
    fill_if_empty(&mut facts.prompt_tokens, count("prompt_tokens"));
    fill_if_empty(&mut facts.completion_tokens, count("completion_tokens"));
    facts.add_input(input);
    facts.add_output(output);
}
