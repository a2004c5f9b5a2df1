//! Results of MCP servers as observations: text as it is, and a description of everything else.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::tools::{CallObservation, truncate_text};

/// Maximum size of an observation in bytes.
const MAX_MCP_OBSERVATION_BYTES: usize = 100_000;
/// Maximum size in bytes of a server's text in our messages.
const MAX_SERVER_LINE_BYTES: usize = 300;

/// Joins all content blocks into an observation. Structured content is used only if there are none, as servers should
/// send both.
pub(super) fn observation_from_result(result: CallToolResult) -> CallObservation {
    let blocks: Vec<_> = result.content.iter().map(format_content_block).collect();
    let text = match (blocks.is_empty(), result.structured_content) {
        (true, Some(value)) => value.to_string(),
        _ => blocks.join("\n"),
    };
    CallObservation {
        text: truncate_text(&text, MAX_MCP_OBSERVATION_BYTES),
        is_error: result.is_error == Some(true),
        retry_after: None,
    }
}

/// Formats one block. Binary data is described by type and size, since the model cannot read it.
fn format_content_block(block: &ContentBlock) -> String {
    let binary = |kind: &str, mime: &str, data: &str| format!("[{kind}, {mime}, {} bytes]", data.len() / 4 * 3);
    match block {
        ContentBlock::Text(one) => one.text.clone(),
        ContentBlock::Image(one) => binary("an image", &one.mime_type, &one.data),
        ContentBlock::Audio(one) => binary("a sound", &one.mime_type, &one.data),
        ContentBlock::Resource(one) => match &one.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, blob, .. } => binary(uri, "binary", blob),
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(one) => format!("[a link to {}: {}]", one.name, one.uri),
        _ => "[something of an unknown kind]".to_owned(),
    }
}

/// Shortens a text of a server for a message and removes control characters.
pub(super) fn clean_short_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    truncate_text(plain.trim(), MAX_SERVER_LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(result: serde_json::Value) -> CallObservation {
        observation_from_result(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn all_kinds_of_content() {
        let result = seen(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAAAAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ]}));
        assert_eq!(
            result.text,
            "one\n[an image, image/png, 3 bytes]\n[a sound, audio/wav, 6 bytes]\n[file:///a]\ntwo\n[a link to b: file:///b]"
        );
        assert!(!result.is_error);
        let result = seen(json!({"content": [], "structuredContent": {"n": 1}, "isError": true}));
        assert_eq!((result.text.as_str(), result.is_error), ("{\"n\":1}", true));
        let long = seen(json!({"content": [{"type": "text", "text": "x".repeat(200_000)}]}));
        assert!(long.text.ends_with("[cut: 100000 of 200000 bytes are shown]"));
    }

    #[test]
    fn messages_are_one_plain_line() {
        assert_eq!(clean_short_line("\u{1b}[31mred\r\nnext\n"), "[31mred  next");
    }
}
