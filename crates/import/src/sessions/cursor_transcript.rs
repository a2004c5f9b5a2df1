//! Transcripts of Cursor's editor (`projects/<folder>/agent-transcripts/<id>.jsonl`): messages with Anthropic's blocks,
//! without ids and times, and in most versions without the results of calls.

use serde::Deserialize;
use serde_json::Value as Json;

use super::anthropic_content::{AnthropicBlock, AnthropicMessage, result_content_text};
use super::claude_conversation::ClaudeConversation;
use super::claude_requests::classify_result;
use super::field_types::TextField;
use super::record_text::record_text;
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::turn_draft::ImportedResult;

const AGENT_NAME: &str = "cursor";

/// Whether the records are those of a transcript of Cursor.
pub(crate) fn is_cursor_transcript(records: &[Json]) -> bool {
    let is_message = |record: &Json| {
        let keys = record.as_object().is_some_and(|object| object.len() == 2);
        let is_block = |block: &Json| block["type"].is_string();
        keys && matches!(record["role"].as_str(), Some("user" | "assistant"))
            && record["message"].as_object().is_some_and(|message| message.len() == 1)
            && record["message"]["content"].as_array().is_some_and(|blocks| blocks.iter().all(is_block))
    };
    records.len() >= 2 && records.iter().all(is_message)
}

pub(crate) fn open_cursor_transcript() -> Box<dyn SessionReader> {
    Box::new(CursorTranscriptReader::default())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TranscriptLine<'a> {
    #[serde(borrow)]
    role: TextField<'a>,
    #[serde(borrow)]
    message: Option<AnthropicMessage<'a>>,
}

#[derive(Default)]
struct CursorTranscriptReader {
    chain: ClaudeConversation,
}

impl SessionReader for CursorTranscriptReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let text = record_text(record);
        let line: TranscriptLine<'_> = match serde_json::from_str(&text) {
            Ok(line) => line,
            Err(error) => {
                self.chain.builder.mark_unreadable_record();
                return sink.report_bad_record(&format!("not a line of a Cursor transcript: {error}"));
            }
        };
        self.chain.builder.set_agent(AGENT_NAME, None);
        let Some(message) = &line.message else { return sink.report_bad_record("a line without a message") };
        match line.role.get() {
            Some("assistant") => self.chain.add_reply(message, None, None),
            Some("user") => self.read_user_line(message, sink),
            _ => sink.report_bad_record("a message of an unknown role"),
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.chain.finish(sink);
    }
}

impl CursorTranscriptReader {
    fn read_user_line(&mut self, message: &AnthropicMessage<'_>, sink: &mut dyn ImportSink) {
        for block in &message.content.blocks {
            match block {
                AnthropicBlock::Text(text) => {
                    let request = asked_text(text);
                    if !request.trim().is_empty() {
                        self.chain.begin_request(request, None, sink);
                    }
                }
                AnthropicBlock::ToolResult { content, is_error, .. } => {
                    let content = result_content_text(*content);
                    let status = classify_result(*is_error, &content, None);
                    // Calls have no ids: results come in the order of the calls.
                    let result = ImportedResult { id: None, content: &content, status, at: None };
                    if !self.chain.builder.has_turn() || !self.chain.builder.add_result(&result) {
                        sink.report_bad_record("a result without a call");
                    }
                }
                AnthropicBlock::Thinking(_) | AnthropicBlock::ToolUse { .. } => {}
            }
        }
    }
}

/// Returns what the user asked, without the text that the editor added.
fn asked_text(text: &str) -> &str {
    let Some((_, rest)) = text.split_once("<user_query>") else { return text };
    rest.split_once("</user_query>").map_or(rest, |(request, _)| request).trim()
}
