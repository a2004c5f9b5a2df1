//! The text of a tool's result, without the envelopes that frameworks put around it.

use serde_json::Value as Json;

/// The text of a tool's result: unwraps the envelopes frameworks put around it, else writes it as JSON.
pub fn result_text(json: Json) -> String {
    match json {
        Json::String(text) => text,
        Json::Null => String::new(),
        Json::Array(items) if !items.is_empty() && items.iter().all(is_text_block) => {
            let texts: Vec<String> = items.into_iter().filter_map(plain_text).collect();
            texts.join("\n")
        }
        Json::Object(mut object) => {
            // {"type": "text", "value": ...} (Vercel) and {"type": "text", "text": ...} (MCP, Anthropic).
            if object.get("type").is_some_and(Json::is_string) && object.len() == 2 {
                for key in ["value", "text"] {
                    if let Some(inner) = object.remove(key) {
                        return result_text(inner);
                    }
                }
            }
            // {"result": ...}: how Gemini's protocol wraps what a function returned. An {"error": ...} stays whole.
            if object.len() == 1 {
                for key in ["result", "output"] {
                    if let Some(inner) = object.remove(key) {
                        return result_text(inner);
                    }
                }
            }
            Json::Object(object).to_string()
        }
        other => other.to_string(),
    }
}

fn is_text_block(json: &Json) -> bool {
    json.as_object().is_some_and(|object| {
        object.get("text").is_some_and(Json::is_string)
            && object.keys().all(|key| {
                matches!(key.as_str(), "type" | "block_type" | "text" | "annotations" | "meta" | "_meta" | "id")
            })
    })
}

/// The text in a string, a text block, or a list of those.
pub fn plain_text(json: Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text),
        Json::Object(mut object) => ["text", "content", "value", "parts", "thinking"]
            .iter()
            .find_map(|key| object.remove(*key))
            .and_then(plain_text),
        Json::Array(items) => {
            let texts: Vec<String> = items.into_iter().filter_map(plain_text).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        _ => None,
    }
}
