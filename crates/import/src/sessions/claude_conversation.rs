//! One conversation of a Claude Code session: the main one, or that of a subagent. Shared with its stream JSON.

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::DefectKind;

use super::anthropic_content::{AnthropicBlock, AnthropicMessage, result_content_text};
use super::claude_lines::ClaudeLine;
use super::claude_requests::{
    UserLine, classify_result, classify_user_text, is_conversation_summary, is_session_message,
};
use super::field_types::TextField;
use super::record_text::{normalize_recorded_time, shorten_for_message};
use super::seen_ids::SeenIds;
use crate::import_sink::ImportSink;
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

pub(crate) const AGENT_NAME: &str = "claude-code";
/// The model of replies that Claude Code wrote itself.
pub(crate) const SYNTHETIC_MODEL: &str = "<synthetic>";

/// Whether a system line states that the context was compacted: replaced by a summary, or cleared of old results.
pub(crate) fn is_compaction(subtype: &TextField<'_>) -> bool {
    matches!(subtype.get(), Some("compact_boundary" | "microcompact_boundary"))
}

/// The request of subagents that Claude Code 2 starts by itself, so that the provider caches their prompts.
const WARMUP_REQUEST: &str = "Warmup";
/// Prefix of the request by which Claude Code asks a copy of the conversation what the user may type next. All tools are
/// refused to it.
const SUGGESTION_REQUEST_PREFIX: &str = "[SUGGESTION MODE";

/// Maximum number of results that are held until their calls are read.
const MAX_EARLY_RESULTS: usize = 16;

/// A result that was recorded before its call.
#[derive(Debug)]
struct EarlyResult {
    content: String,
    status: ResultStatus,
    at: Option<String>,
}

/// A conversation while it is read.
#[derive(Debug, Default)]
pub(crate) struct ClaudeConversation {
    pub(crate) builder: SessionBuilder,
    /// The id of the reply whose parts are read.
    reply_id: Option<String>,
    /// Replies that ended: their parts can be repeated after compaction.
    ended_replies: SeenIds,
    seen_calls: SeenIds,
    seen_results: SeenIds,
    /// Results whose calls are not read yet, by the ids of the calls.
    early_results: Vec<(String, EarlyResult)>,
    /// A slash command, with its time, until a reply shows that the model was asked.
    command: Option<(String, Option<String>)>,
    /// Why the last request to the API failed, until the agent goes on. Requests are retried, so only the last failure counts.
    api_error: Option<String>,
    version: Option<String>,
    project: Option<String>,
    /// Whether it is the conversation of a subagent.
    is_subagent: bool,
    /// Whether Claude Code started the current turn for itself: it answers no request.
    is_unrequested: bool,
}

impl ClaudeConversation {
    /// Begins the conversation of a subagent.
    pub(crate) fn new_subagent() -> Self {
        ClaudeConversation { is_subagent: true, ..ClaudeConversation::default() }
    }

    /// Records the version when it changes, and the first folder.
    pub(crate) fn update_details(&mut self, line: &ClaudeLine<'_>) {
        if let Some(version) = line.version.get()
            && self.version.as_deref() != Some(version)
        {
            self.builder.set_agent(AGENT_NAME, Some(version));
            self.version = Some(version.to_owned());
        } else if self.version.is_none() {
            self.builder.set_agent(AGENT_NAME, None);
            self.version = Some(String::new());
        }
        // The folder in which the session began: later lines follow the agent's `cd`.
        if let Some(folder) = line.cwd.get()
            && self.project.is_none()
        {
            self.builder.set_project(folder);
            self.project = Some(folder.to_owned());
        }
    }

    /// Reads a line of the user: a request, results, or text that Claude Code added.
    pub(crate) fn read_user_line(&mut self, line: &ClaudeLine<'_>, session_id: &str, sink: &mut dyn ImportSink) {
        let Some(message) = &line.message else {
            return sink.report_bad_record("a line of the user without a message");
        };
        let at = normalize_recorded_time(line.timestamp.get());
        let mut texts = Vec::new();
        for block in &message.content.blocks {
            match block {
                AnthropicBlock::ToolResult { id, content, is_error } => {
                    let content = result_content_text(*content);
                    let summary = &line.tool_use_result;
                    let mut status = classify_result(*is_error, &content, summary.text.get());
                    if status == ResultStatus::Success && summary.is_interrupted {
                        status = ResultStatus::Error;
                    }
                    if let (Some(call_id), Some(agent_id)) = (id.get(), summary.agent_id.get())
                        && self.builder.has_call(call_id)
                    {
                        self.builder.add_subagent(call_id, format!("{session_id}/{agent_id}"));
                    }
                    self.add_result(id, &content, status, at.as_deref(), sink);
                }
                AnthropicBlock::Text(text) => texts.push(text.as_ref()),
                AnthropicBlock::Thinking(_) | AnthropicBlock::ToolUse { .. } => {}
            }
        }
        if line.is_compact_summary.0 || texts.iter().any(|text| is_conversation_summary(text)) {
            if !self.builder.has_begun() {
                self.builder.mark_missing_context("the session continues another one, of which only a summary is here");
            }
            self.builder.mark_compaction();
        }
        let is_meta = line.is_meta.0 && !texts.iter().any(|text| is_session_message(text));
        let is_added = is_meta || line.is_compact_summary.0 || line.is_visible_in_transcript_only.0;
        if !is_added {
            self.apply_user_texts(&texts, at.as_deref(), sink);
        }
    }

    /// Reads the texts of a line of the user. Each is classified separately: the tool adds blocks of its own.
    pub(crate) fn apply_user_texts(&mut self, texts: &[&str], at: Option<&str>, sink: &mut dyn ImportSink) {
        let mut request = String::new();
        for text in texts {
            match classify_user_text(text) {
                UserLine::AgentMessage(_) if self.builder.has_turn() => {}
                UserLine::AgentMessage(text) => request.push_str(text),
                UserLine::Request(text) => {
                    if !request.is_empty() {
                        request.push('\n');
                    }
                    request.push_str(&text);
                }
                UserLine::Command(command) => self.command = Some((command, at.map(str::to_owned))),
                UserLine::CommandOutput => self.command = None,
                UserLine::Interruption => {
                    self.api_error = None;
                    if self.builder.has_turn() {
                        self.builder.add_defect(DefectKind::MissingAnswer, "the user interrupted the request");
                    }
                }
                UserLine::Added => {}
            }
        }
        if !request.is_empty() {
            self.begin_request(&request, at, sink);
        }
    }

    /// Begins a turn with a request of the user.
    pub(crate) fn begin_request(&mut self, request: &str, at: Option<&str>, sink: &mut dyn ImportSink) {
        self.command = None;
        self.end_turn(sink);
        let is_warmup = !self.builder.has_turn() && request.trim() == WARMUP_REQUEST;
        let is_suggestion = request.trim_start().starts_with(SUGGESTION_REQUEST_PREFIX);
        self.is_unrequested = self.is_subagent && (is_warmup || is_suggestion);
        self.builder.begin_turn(request, at, sink);
    }

    /// Records that a request to the API failed. A turn that has its answer does not end with it.
    pub(crate) fn set_api_error(&mut self, reason: String) {
        if self.builder.has_turn() && !self.builder.has_answer() {
            self.api_error = Some(reason);
        }
    }

    /// Forgets the failed request, because the agent continued.
    pub(crate) fn clear_api_error(&mut self) {
        self.api_error = None;
    }

    /// Makes a slash command a request, because the model replies to it.
    pub(crate) fn begin_command_request(&mut self, sink: &mut dyn ImportSink) {
        if let Some((command, at)) = self.command.take() {
            self.end_turn(sink);
            self.builder.begin_turn(&command, at.as_deref(), sink);
        }
    }

    /// Adds a reply or a part of one.
    pub(crate) fn add_reply(&mut self, message: &AnthropicMessage<'_>, at: Option<&str>, cost_usd: Option<f64>) {
        self.clear_api_error();
        let id = message.id.get();
        let is_repeated = id.is_some_and(|id| self.ended_replies.contains(id));
        if !is_repeated && (id.is_none() || self.reply_id.as_deref() != id) {
            self.end_reply();
            self.reply_id = id.map(str::to_owned);
            self.builder.begin_reply(at);
        }
        for block in &message.content.blocks {
            match block {
                AnthropicBlock::Text(text) if !is_repeated => self.builder.add_text(text),
                AnthropicBlock::Thinking(text) if !is_repeated => self.builder.add_reasoning(text),
                AnthropicBlock::ToolUse { id, name, input } => {
                    if id.get().is_some_and(|id| !self.seen_calls.insert(id)) {
                        continue;
                    }
                    if name.get().is_none() {
                        self.builder.add_defect(DefectKind::MissingToolName, "a tool call without the name of a tool");
                    }
                    let call = ImportedCall {
                        id: id.get(),
                        name: name.get().unwrap_or_default(),
                        arguments: input.map(|input| ArgumentsText::Json(input.get().into())),
                    };
                    self.builder.add_call(&call, at);
                    if let Some(id) = id.get() {
                        self.match_early_result(id);
                    }
                }
                // Results of tools that ran at the provider.
                AnthropicBlock::ToolResult { id, content, is_error } => {
                    let status = if *is_error { ResultStatus::Error } else { ResultStatus::Success };
                    let content = result_content_text(*content);
                    if id.get().is_some_and(|id| self.builder.has_call(id)) {
                        self.builder.add_result(&ImportedResult { id: id.get(), content: &content, status, at });
                    }
                }
                AnthropicBlock::Text(_) | AnthropicBlock::Thinking(_) => {}
            }
        }
        if let Some(usage) = message.usage
            && !is_repeated
            && message.model.get() != Some(SYNTHETIC_MODEL)
        {
            self.builder.set_usage(usage.token_usage(), message.model.get(), cost_usd);
        }
    }

    /// Adds the result of a call. One without its call is reported: compaction and copying can separate them.
    pub(crate) fn add_result(
        &mut self,
        id: &TextField<'_>,
        content: &str,
        status: ResultStatus,
        at: Option<&str>,
        sink: &mut dyn ImportSink,
    ) {
        let is_new = id.get().is_none_or(|id| self.seen_results.insert(id));
        if !is_new {
            return;
        }
        self.clear_api_error();
        let result = ImportedResult { id: id.get(), content, status, at };
        let is_answer = self.builder.has_turn() && id.get().is_none_or(|id| self.builder.has_call(id));
        if is_answer && self.builder.add_result(&result) || self.builder.add_late_result(&result) {
            return;
        }
        // Lines are written by several tasks: a result can come before its call.
        if let Some(id) = id.get()
            && self.builder.has_turn()
            && self.early_results.len() < MAX_EARLY_RESULTS
        {
            let early = EarlyResult { content: content.to_owned(), status, at: at.map(str::to_owned) };
            self.early_results.push((id.to_owned(), early));
            return;
        }
        let id = shorten_for_message(id.get().unwrap_or("without an id"));
        self.report_lost_result(id, sink);
    }

    fn report_lost_result(&mut self, id: &str, sink: &mut dyn ImportSink) {
        let detail = format!("the result {id} has no call in its turn");
        if self.builder.has_turn() {
            self.builder.add_defect(DefectKind::ToolRunOutsideSteps, &detail);
        } else {
            sink.report_bad_record(&detail);
        }
    }

    /// Gives a call the result that was recorded before it.
    fn match_early_result(&mut self, id: &str) {
        let Some(position) = self.early_results.iter().position(|(other, _)| other == id) else { return };
        let (id, early) = self.early_results.remove(position);
        let EarlyResult { content, status, at } = &early;
        let result = ImportedResult { id: Some(&id), content, status: *status, at: at.as_deref() };
        self.builder.add_result(&result);
    }

    /// Reports the results whose calls did not follow.
    fn report_unmatched_results(&mut self, sink: &mut dyn ImportSink) {
        for (id, _) in std::mem::take(&mut self.early_results) {
            self.report_lost_result(shorten_for_message(&id), sink);
        }
    }

    /// Ends the conversation.
    pub(crate) fn finish(mut self, sink: &mut dyn ImportSink) {
        self.end_turn(sink);
        self.builder.finish(sink);
    }

    /// Ends the current turn.
    fn end_turn(&mut self, sink: &mut dyn ImportSink) {
        self.report_unmatched_results(sink);
        self.end_reply();
        if let Some(reason) = self.api_error.take() {
            self.builder.begin_reply(None);
            self.builder.fail_turn(&reason);
        }
        if std::mem::take(&mut self.is_unrequested) {
            self.builder.roll_back_turns(1);
            sink.count_unrequested_run();
        }
    }

    fn end_reply(&mut self) {
        if let Some(id) = self.reply_id.take() {
            self.ended_replies.insert(&id);
        }
    }
}
