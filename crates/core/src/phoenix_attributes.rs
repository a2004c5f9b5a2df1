//! Undoes what Phoenix does to attributes when it stores spans, as far as possible: a span that is read from Phoenix
//! should have the attributes that it was sent with.
//!
//! Phoenix parses a few JSON texts and flattens their contents, and it derives OpenInference attributes from GenAI
//! ones. What it derives is less than the original: calls are rewritten, and where a reply has no recorded text, the id
//! and the model of the reply become its output. Tool definitions lose nothing, so they stay.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use crate::bounded_json;
use crate::span::{AttributeList, AttributeValue};

/// Restores the attributes of one span. Does nothing to spans that Phoenix did not change.
pub(crate) fn restore_phoenix_attributes(attributes: &mut AttributeList<'static>) {
    for name in JSON_TEXTS {
        gather_json_attribute(name, attributes);
    }
    if attributes.0.iter().any(|(key, _)| key.starts_with("gen_ai.")) {
        drop_derived_openinference(attributes);
    }
}

/// Attributes that are JSON texts by the OpenInference conventions, and that Phoenix flattens.
const JSON_TEXTS: [&str; 3] = ["metadata", "tool.parameters", "llm.prompt_template.variables"];
/// Maximum depth of a key that is restored. No schema is deeper, and a key can have a thousand dots.
const MAX_KEY_DEPTH: usize = 64;

/// Collects `name.a.b` and all others below `name` into one JSON text under `name`, at the position of the first.
fn gather_json_attribute(name: &str, attributes: &mut AttributeList<'static>) {
    let path_of = |key: &str| {
        let path: Vec<String> = key.strip_prefix(name)?.strip_prefix('.')?.split('.').map(str::to_owned).collect();
        (path.len() <= MAX_KEY_DEPTH).then_some(path)
    };
    if attributes.get(name).is_some() || !attributes.0.iter().any(|(key, _)| path_of(key).is_some()) {
        return;
    }
    let mut whole = Map::new();
    let mut kept = Vec::with_capacity(attributes.0.len());
    let mut place = None;
    for (key, value) in std::mem::take(&mut attributes.0) {
        match path_of(&key) {
            Some(path) => {
                place.get_or_insert(kept.len());
                insert_at_path(&mut whole, &path, value.to_json());
            }
            None => kept.push((key, value)),
        }
    }
    let text = restore_lists(Json::Object(whole)).to_string();
    kept.insert(place.unwrap_or_default(), (Cow::Owned(name.to_owned()), AttributeValue::Str(Cow::Owned(text))));
    attributes.0 = kept;
}

/// Inserts a value at a path. Where two paths disagree, the later one wins.
fn insert_at_path(object: &mut Map<String, Json>, path: &[String], value: Json) {
    let mut object = object;
    for (at, key) in path.iter().enumerate() {
        let slot = object.entry(key.clone()).or_insert_with(|| Json::Object(Map::new()));
        if at + 1 == path.len() {
            *slot = value;
            return;
        }
        if !slot.is_object() {
            *slot = Json::Object(Map::new());
        }
        let Json::Object(next) = slot else { return };
        object = next;
    }
}

/// Restores lists of objects, which Phoenix flattened by index.
fn restore_lists(json: Json) -> Json {
    let Json::Object(object) = json else { return json };
    let is_list = !object.is_empty()
        && object.iter().enumerate().all(|(at, (key, value))| *key == at.to_string() && value.is_object());
    if is_list {
        return Json::Array(object.into_iter().map(|(_, value)| restore_lists(value)).collect());
    }
    Json::Object(object.into_iter().map(|(key, value)| (key, restore_lists(value))).collect())
}

/// Removes attributes that Phoenix derived from GenAI attributes that are present themselves.
fn drop_derived_openinference(attributes: &mut AttributeList<'static>) {
    let sources = SentGenAiAttributes::from_attributes(attributes);
    let derived: Vec<bool> = attributes.0.iter().map(|(key, value)| sources.is_phoenix_derived(key, value)).collect();
    let made_kind = sources.derived_span_kind();
    let mut derived = derived.into_iter();
    attributes.0.retain(|_| !derived.next().unwrap_or_default());
    // The derived kind is removed as well, if OpenInference has nothing else to say about the span. Another dialect
    // decides then.
    let says_more = attributes.0.iter().any(|(key, _)| {
        ["llm.", "input.", "output.", "tool.", "agent.", "graph."].iter().any(|prefix| key.starts_with(prefix))
    });
    if !says_more && made_kind.is_some() && attributes.get_text(KIND) == made_kind {
        attributes.0.retain(|(key, _)| key != KIND);
    }
}

/// OpenInference's attribute for the kind of a span.
const KIND: &str = "openinference.span.kind";

/// The GenAI attributes of a span by key, because a hostile span can have many, and facts about the others.
struct SentGenAiAttributes<'a> {
    by_key: HashMap<&'a str, &'a AttributeValue<'static>>,
    has_request: bool,
    /// System instructions alone become the first message and nothing else.
    has_first_input_only: bool,
    output: Option<&'a AttributeValue<'static>>,
}

impl<'a> SentGenAiAttributes<'a> {
    /// One pass over the attributes for each question; nothing is copied.
    fn from_attributes(attributes: &'a AttributeList<'static>) -> SentGenAiAttributes<'a> {
        let all = || attributes.0.iter().map(|(key, value)| (key.as_ref(), value));
        let mut inputs = all().filter_map(|(key, _)| key.strip_prefix("llm.input_messages."));
        SentGenAiAttributes {
            by_key: all().filter(|(key, _)| key.starts_with("gen_ai.")).collect(),
            has_request: all().any(|(key, _)| key.starts_with("gen_ai.request.")),
            has_first_input_only: inputs.all(|rest| rest.starts_with("0.")),
            output: attributes.get("output.value"),
        }
    }

    fn has(&self, source: &str) -> bool {
        self.by_key.contains_key(source)
    }

    fn get_text(&self, source: &str) -> Option<&str> {
        self.by_key.get(source).and_then(|value| value.as_str()).filter(|text| !text.is_empty())
    }

    /// Whether Phoenix derived this attribute, by the rules of its GenAI conversion. A value that differs from its
    /// source was recorded.
    fn is_phoenix_derived(&self, key: &str, value: &AttributeValue<'static>) -> bool {
        let is = |source: &str| self.by_key.get(source).is_some_and(|known| *known == value);
        let counts = |source: &str| self.by_key.get(source).is_some_and(|known| known.as_u64() == value.as_u64());
        match key {
            "llm.model_name" => is("gen_ai.request.model"),
            "llm.provider" | "llm.system" => self.has("gen_ai.provider.name") || self.has("gen_ai.system"),
            "llm.finish_reason" => self.has("gen_ai.response.finish_reasons"),
            "llm.invocation_parameters" => {
                self.has_request && !value.as_str().is_some_and(|text| text.contains("previous_response_id"))
            }
            "llm.token_count.prompt" => counts("gen_ai.usage.input_tokens"),
            "llm.token_count.completion" => counts("gen_ai.usage.output_tokens"),
            "llm.token_count.total" => self.has("gen_ai.usage.input_tokens") && self.has("gen_ai.usage.output_tokens"),
            "llm.token_count.prompt_details.cache_read" => counts("gen_ai.usage.cache_read.input_tokens"),
            "llm.token_count.prompt_details.cache_write" => counts("gen_ai.usage.cache_creation.input_tokens"),
            "session.id" => is("gen_ai.conversation.id"),
            "tool.name" => is("gen_ai.tool.name"),
            "tool.id" => is("gen_ai.tool.call.id"),
            "tool.description" => is("gen_ai.tool.description"),
            "tool.parameters" => self.has("gen_ai.tool.call.arguments"),
            "output.value" => is("gen_ai.tool.call.result") || self.is_response_identity(value),
            "output.mime_type" => self.output.is_some_and(|output| self.is_phoenix_derived("output.value", output)),
            _ if key.starts_with("llm.output_messages.") => self.get_text("gen_ai.output.messages").is_some(),
            _ if key.starts_with("llm.input_messages.") => {
                self.get_text("gen_ai.input.messages").is_some()
                    || (self.get_text("gen_ai.system_instructions").is_some() && self.has_first_input_only)
            }
            _ => false,
        }
    }

    /// Whether an output says only which reply it was: its id and its model.
    fn is_response_identity(&self, value: &AttributeValue<'_>) -> bool {
        // An output that is longer contains more than an id and a model.
        const MAX_IDENTITY_BYTES: usize = 1_000;
        let text = value.as_str().filter(|text| text.len() <= MAX_IDENTITY_BYTES && text.starts_with('{'));
        let Some(Json::Object(said)) = text.and_then(bounded_json::parse_bounded_json) else { return false };
        let is = |key: &str, source: &str| said.get(key).and_then(Json::as_str) == self.get_text(source);
        !said.is_empty()
            && said.keys().all(|key| matches!(key.as_str(), "id" | "model"))
            && is("id", "gen_ai.response.id")
            && is("model", "gen_ai.response.model")
    }

    /// The kind that Phoenix derives for a GenAI span.
    fn derived_span_kind(&self) -> Option<&'static str> {
        const CONTENT: [&str; 3] = ["gen_ai.request.model", "gen_ai.input.messages", "gen_ai.output.messages"];
        Some(match self.get_text("gen_ai.operation.name") {
            Some("chat" | "text_completion" | "generate_content") => "LLM",
            Some("embeddings") => "EMBEDDING",
            Some("execute_tool") => "TOOL",
            Some("retrieval") => "RETRIEVER",
            Some("invoke_agent" | "create_agent") => "AGENT",
            Some(_) => return None,
            None if self.has("gen_ai.tool.call.id") || self.has("gen_ai.tool.name") => "TOOL",
            None if CONTENT.iter().any(|source| self.has(source)) => "LLM",
            None => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn restored(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut attributes = AttributeList(
            pairs
                .iter()
                .map(|(key, text)| (Cow::Owned((*key).to_owned()), AttributeValue::Str(Cow::Owned((*text).to_owned()))))
                .collect(),
        );
        restore_phoenix_attributes(&mut attributes);
        let text = |value: &AttributeValue<'_>| value.as_str().unwrap_or_default().to_owned();
        attributes.iter().map(|(key, value)| (key.to_owned(), text(value))).collect()
    }

    fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
        wanted.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn json_texts_are_put_together_again() {
        let taken_apart = [
            ("tool.name", "search"),
            ("tool.parameters.properties.q.type", "string"),
            ("tool.parameters.any.0.type", "a"),
            ("tool.parameters.any.1.type", "b"),
            ("metadata.thread", "t1"),
            ("ai.telemetry.metadata.user", "u"),
        ];
        assert_eq!(
            restored(&taken_apart),
            pairs(&[
                ("tool.name", "search"),
                ("tool.parameters", r#"{"properties":{"q":{"type":"string"}},"any":[{"type":"a"},{"type":"b"}]}"#),
                ("metadata", r#"{"thread":"t1"}"#),
                ("ai.telemetry.metadata.user", "u"),
            ])
        );
        let whole = [("metadata", "{\"a\":1}"), ("metadata.b", "2")];
        assert_eq!(restored(&whole), pairs(&whole));
    }

    #[test]
    fn what_is_made_of_genai_attributes_is_left_out() {
        let recorded = [
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.request.model", "m"),
            ("gen_ai.response.id", "r1"),
            ("gen_ai.response.model", "m"),
            ("gen_ai.output.messages", "[]"),
            ("gen_ai.conversation.id", "c"),
        ];
        let made = [
            ("openinference.span.kind", "LLM"),
            ("llm.model_name", "m"),
            ("llm.output_messages.0.message.content", "x"),
            ("output.value", r#"{"id": "r1", "model": "m"}"#),
            ("output.mime_type", "application/json"),
            ("session.id", "c"),
        ];
        assert_eq!(restored(&[recorded.as_slice(), &made].concat()), pairs(&recorded));
    }

    #[test]
    fn what_was_recorded_beside_genai_attributes_stays() {
        let recorded = [
            ("gen_ai.request.model", "m"),
            ("gen_ai.response.id", "r1"),
            ("gen_ai.system_instructions", "[]"),
            ("openinference.span.kind", "LLM"),
            ("llm.input_messages.0.message.role", "system"),
            ("llm.input_messages.1.message.role", "user"),
            ("output.value", r#"{"id": "r2"}"#),
            ("output.mime_type", "application/json"),
            ("session.id", "other"),
        ];
        assert_eq!(restored(&recorded), pairs(&recorded));
        let openinference = [("llm.model_name", "m"), ("output.value", "{}"), ("session.id", "s")];
        assert_eq!(restored(&openinference), pairs(&openinference));
    }

    proptest! {
        /// Whatever is listed comes back as JSON, and nothing is looped or nested without a bound.
        #[test]
        fn any_keys_can_be_gathered(keys in prop::collection::vec("(tool\\.parameters|metadata)(\\.[0-2a-b]?){0,80}", 0..20)) {
            let given: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
            for (key, text) in restored(&given) {
                let is_whole = !given.iter().any(|(known, _)| *known == key);
                prop_assert!(!is_whole || serde_json::from_str::<Json>(&text).is_ok(), "{key}: {text}");
            }
        }
    }
}
