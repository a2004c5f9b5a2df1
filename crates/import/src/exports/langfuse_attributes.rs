//! The attributes of OpenTelemetry spans that Langfuse received over OTLP.

use std::borrow::Cow;

use gradus_core::span::AttributeValue;
use serde_json::{Map, Value as Json};

use super::span_record::{SpanRecord, decode_json_text, take_field, text_under};

/// The attributes of a span that came over OTLP. Langfuse keeps them in the metadata, except those that it
/// understands itself.
#[derive(Debug, Default)]
pub(super) struct RecordedAttributes(Map<String, Json>);

impl RecordedAttributes {
    pub(super) fn from_metadata(metadata: Json) -> RecordedAttributes {
        let Json::Object(mut metadata) = metadata else { return RecordedAttributes::default() };
        match decode_json_text(take_field(&mut metadata, &["attributes"])) {
            Json::Object(attributes) => RecordedAttributes(attributes),
            _ => RecordedAttributes::default(),
        }
    }

    pub(super) fn text(&self, names: &[&str]) -> Option<&str> {
        text_under(&self.0, names)
    }

    /// Whether the messages of the request (`input`) or of the reply (`output`) are among the attributes.
    pub(super) fn has_messages(&self, side: &str) -> bool {
        let (list, genai) = (format!("llm.{side}_messages."), format!("gen_ai.{side}.messages"));
        self.0.keys().any(|key| key.starts_with(&list) || *key == genai)
    }

    /// Whether the span is marked as the run of a tool without the name of one. BeeAI records events around a run
    /// like that; as steps they would be calls that nobody made.
    pub(super) fn is_nameless_tool(&self) -> bool {
        self.text(&["openinference.span.kind"]) == Some("TOOL")
            && self.text(&["gen_ai.tool.name", "tool.name"]).is_none()
    }

    /// Adds the attributes of known conventions. Those that Langfuse parsed become JSON text again.
    pub(super) fn add_to(self, span: &mut SpanRecord) {
        const CONVENTIONS: [&str; 9] = [
            "gen_ai.",
            "llm.",
            "tool.",
            "tool_call.",
            "traceloop.",
            "openinference.",
            "agent_name",
            "final_result",
            "logfire.",
        ];
        // Langfuse made input and output of these.
        const CONTENT: [&str; 2] = ["gen_ai.prompt", "gen_ai.completion"];
        let is_nameless_tool = self.is_nameless_tool();
        for (key, value) in self.0 {
            let is_event = key == "openinference.span.kind" && is_nameless_tool;
            if is_event || CONTENT.iter().any(|prefix| key.starts_with(prefix)) {
                continue;
            }
            let value = match value {
                Json::Null => continue,
                value @ (Json::Object(_) | Json::Array(_)) => AttributeValue::Str(Cow::Owned(value.to_string())),
                other => AttributeValue::from_json(other),
            };
            if CONVENTIONS.iter().any(|prefix| key.starts_with(prefix)) {
                span.push_attribute(Cow::Owned(key), value);
            }
        }
    }
}
