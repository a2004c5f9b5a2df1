//! Claude Code sessions: `projects/<folder>/<session>.jsonl`, with the sessions of subagents inside (`isSidechain`) or
//! in files of their own (`<session>/subagents/agent-<id>.jsonl`). There is no specification; this follows real files
//! of versions 1.0 to 2.1.

use std::collections::HashMap;
use std::sync::Arc;

use gradus_core::trajectory::DefectKind;
use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::anthropic_content::AnthropicMessage;
use super::claude_conversation::{ClaudeConversation, SYNTHETIC_MODEL, is_compaction};
use super::claude_lines::{ClaudeLine, QueuedCommand};
use super::claude_requests::{UserLine, classify_user_text, describe_api_error};
use super::field_types::TextField;
use super::record_text::{normalize_recorded_time, record_text, shorten_for_message};
use super::seen_ids::{SeenIds, hash_id};
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;

/// Maximum number of subagents inside one file that are open at the same time. The oldest is ended if there are more.
const MAX_OPEN_SUBAGENTS: usize = 256;
/// Maximum number of calls of subagents without a result that are remembered.
const MAX_WAITING_CALLS: usize = 1024;

/// Prefixes of the ids of agents whose sessions are copies of a conversation, followed by a summary of it or by a question
/// that the user asked aside.
const COPYING_AGENT_PREFIXES: [&str; 2] = ["acompact-", "aside_question-"];
/// Prefix of the ids of agents that guess what the user may type next. Their sessions can begin with copied replies, and
/// with a summary of the conversation.
const SUGGESTION_AGENT_PREFIX: &str = "aprompt_suggestion-";

/// Why the conversation before the first line of an agent is not known.
const OTHER_FILE: &str = "the record continues a conversation of another file, which the agent knew";

/// Whether the records are those of a Claude Code session.
pub(crate) fn is_claude_code_session(records: &[Json]) -> bool {
    let has = |record: &Json, keys: &[&str]| keys.iter().all(|key| record.get(key).is_some());
    let is_message = |record: &Json| {
        let kind = record["type"].as_str();
        // Qwen Code writes lines with the same keys and Gemini's messages.
        let has_message = has(&record["message"], &["role", "content"]) && has(record, &["timestamp"]);
        let is_chained = record.get("parentUuid").is_some()
            && (record.get("isSidechain").is_some() || record.get("userType").is_some())
            && record["message"].get("parts").is_none();
        // Some tools that copy sessions leave the ids out.
        let is_copied = has_message && has(record, &["cwd", "gitBranch"]) && matches!(kind, Some("user" | "assistant"));
        // An Anthropic message in the envelope, which the stream JSON has with other keys.
        let is_bare = has_message
            && kind == Some("assistant")
            && record["message"]["model"].as_str().is_some_and(|model| model.starts_with("claude"))
            && has(&record["message"]["usage"], &["input_tokens", "output_tokens"])
            && record.get("session_id").is_none();
        // The end of the head cuts a long message, and drops the ids after it.
        let is_cut = has(record, &["parentUuid", "isSidechain"])
            && matches!(kind, Some("user" | "assistant"))
            && record["message"].get("role").is_some()
            && record["message"].get("parts").is_none();
        is_copied
            || is_bare
            || is_cut
            || has(record, &["uuid", "sessionId"])
                && (matches!(kind, Some("user" | "assistant")) && (has_message || is_chained)
                    || matches!(kind, Some("system" | "attachment" | "progress")) && is_chained)
    };
    let is_bookkeeping = |record: &Json| match record["type"].as_str() {
        Some("summary") => has(record, &["summary", "leafUuid"]),
        Some("file-history-snapshot") => has(record, &["messageId", "snapshot"]),
        Some("queue-operation") => has(record, &["operation", "sessionId"]),
        _ => false,
    };
    // Files can begin with any number of lines of bookkeeping.
    records.iter().any(is_message) || (!records.is_empty() && records.iter().all(is_bookkeeping))
}

pub(crate) fn open_claude_code_session() -> Box<dyn SessionReader> {
    Box::new(ClaudeCodeReader::default())
}

/// The arguments of a call that starts a subagent.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TaskArguments<'a> {
    #[serde(borrow)]
    prompt: TextField<'a>,
}

#[derive(Default)]
struct ClaudeCodeReader {
    session_id: Option<String>,
    main: ClaudeConversation,
    subagents: SubagentChains,
    /// Lines are repeated when a session is resumed.
    seen_lines: SeenIds,
    /// Lines of subagents that are not read. The first line that is read can follow one of them.
    passed_lines: SeenIds,
    /// Agents that guess the next request, which are counted and not read.
    suggestion_agents: SeenIds,
}

/// Subagents whose lines are in the same file.
#[derive(Default)]
struct SubagentChains {
    /// In the order of their first line.
    open: Vec<(String, ClaudeConversation)>,
    /// The chain of each line, for versions that do not name the subagent in its lines.
    chain_by_line: HashMap<u128, Arc<str>>,
    /// Calls that started a subagent and have no result yet, by the hash of the prompt.
    waiting_calls: HashMap<u128, Vec<String>>,
    /// The chain that each call started.
    chain_by_call: HashMap<String, String>,
}

impl SessionReader for ClaudeCodeReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let text = record_text(record);
        let line: ClaudeLine<'_> = match serde_json::from_str(&text) {
            Ok(line) => line,
            Err(error) => {
                self.mark_unreadable_line();
                return sink.report_bad_record(&format!("not a line of a Claude Code session: {error}"));
            }
        };
        let kind = line.kind.get().unwrap_or_default();
        if !matches!(kind, "user" | "assistant" | "attachment") {
            self.pass_line(&line);
        }
        if kind == "system" && line.subtype.get() == Some("api_error") {
            return self.read_api_error(&line);
        }
        if kind == "system" && is_compaction(&line.subtype) {
            return self.read_compaction(&line);
        }
        if kind == "progress" {
            return self.read_progress(&line, sink);
        }
        if !matches!(kind, "user" | "assistant" | "attachment") {
            if line.message.is_some() {
                self.mark_unreadable_line();
                sink.report_bad_record(&format!("unknown line type {:?} with a message", shorten_for_message(kind)));
            }
            return;
        }
        if line.uuid.get().is_some_and(|uuid| !self.seen_lines.insert(uuid)) {
            return;
        }
        self.switch_session(&line, sink);
        let is_continued = self.continues_other_file(&line);
        if line.is_sidechain.0 {
            self.read_subagent_line(&line, is_continued, sink);
            return;
        }
        if is_continued && !self.main.builder.has_begun() {
            self.main.builder.mark_missing_context(OTHER_FILE);
        }
        self.main.update_details(&line);
        match kind {
            "assistant" => {
                self.subagents.remember_subagent_calls(&line);
                self.main.read_reply(&line, sink);
            }
            "user" => {
                self.main.read_user_line(&line, self.session_id.as_deref().unwrap_or_default(), sink);
                self.subagents.end_finished_subagents(&line, sink);
            }
            _ => read_attachment(&mut self.main, &line, sink),
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.main.finish(sink);
        for (_, chain) in self.subagents.open {
            chain.finish(sink);
        }
    }
}

impl ClaudeCodeReader {
    /// Begins another session if the id changes: older versions copied the lines of a session into the file of the
    /// one that resumed it.
    fn switch_session(&mut self, line: &ClaudeLine<'_>, sink: &mut dyn ImportSink) {
        let Some(id) = line.session_id.get() else { return };
        if self.session_id.as_deref() == Some(id) {
            return;
        }
        if self.session_id.is_some() {
            if line.is_sidechain.0 {
                return;
            }
            std::mem::take(&mut self.main).finish(sink);
        }
        self.session_id = Some(id.to_owned());
        self.main.builder.set_session_id(id);
    }

    /// Reads a failed request to the API. Its conversation must be known.
    fn read_api_error(&mut self, line: &ClaudeLine<'_>) {
        if !self.accept_new_line(line) {
            return;
        }
        let error = line.error.and_then(|error| serde_json::from_str(error.get()).ok());
        let reason = describe_api_error(&error.unwrap_or_default());
        if let Some(chain) = self.find_open_chain(line) {
            chain.set_api_error(reason);
        }
    }

    /// Reads a compaction of the context of a conversation, which must be known.
    fn read_compaction(&mut self, line: &ClaudeLine<'_>) {
        if self.accept_new_line(line)
            && let Some(chain) = self.find_open_chain(line)
        {
            chain.builder.mark_compaction();
        }
    }

    /// Returns the conversation of a system line.
    fn find_open_chain(&mut self, line: &ClaudeLine<'_>) -> Option<&mut ClaudeConversation> {
        if !line.is_sidechain.0 {
            return Some(&mut self.main);
        }
        let agent_id = line.agent_id.get()?;
        self.subagents.open.iter_mut().find(|(id, _)| id == agent_id).map(|(_, chain)| chain)
    }

    /// Reads a notice about a running call. Notices about subagents repeat their lines, up to the last call: the last
    /// reply is only in the result.
    fn read_progress(&mut self, line: &ClaudeLine<'_>, sink: &mut dyn ImportSink) {
        let repeated = match line.repeated_line() {
            Ok(Some(repeated)) => repeated,
            Ok(None) => return,
            Err(error) => {
                self.mark_unreadable_line();
                return sink.report_bad_record(&format!("not a line of a Claude Code session: {error}"));
            }
        };
        // Notices of one line differ in their own id.
        if !self.accept_new_line(line) || !self.accept_new_line(&repeated) {
            return;
        }
        let agent_id = repeated.agent_id.get().unwrap_or_default();
        if !self.subagents.open.iter().any(|(id, _)| id == agent_id) {
            let session_id = self.session_id.clone().unwrap_or_default();
            self.subagents.begin_copied_chain(agent_id, line, &repeated, &mut self.main, &session_id, sink);
        }
        self.read_subagent_line(&repeated, false, sink);
    }

    /// Remembers a line of a subagent that is not read.
    fn pass_line(&mut self, line: &ClaudeLine<'_>) {
        if let Some(uuid) = line.uuid.get().filter(|_| line.agent_id.get().is_some() || line.is_sidechain.0) {
            self.passed_lines.insert(uuid);
        }
    }

    /// Whether the line of an agent follows one that is not in this file: agents of a team, and forks, continue the
    /// conversation of the session that started them.
    fn continues_other_file(&self, line: &ClaudeLine<'_>) -> bool {
        line.agent_id.get().is_some()
            && line
                .parent_uuid
                .get()
                .is_some_and(|parent| !self.seen_lines.contains(parent) && !self.passed_lines.contains(parent))
    }

    /// Whether a line belongs to the current session and was not read before. Marks it as read.
    fn accept_new_line(&mut self, line: &ClaudeLine<'_>) -> bool {
        let is_other = line.session_id.get().is_some() && line.session_id.get() != self.session_id.as_deref();
        !is_other && line.uuid.get().is_none_or(|uuid| self.seen_lines.insert(uuid))
    }

    /// Marks all open conversations as incomplete: the line may belong to any of them.
    fn mark_unreadable_line(&mut self) {
        self.main.builder.mark_unreadable_record();
        self.subagents.open.iter_mut().for_each(|(_, chain)| chain.builder.mark_unreadable_record());
    }

    /// Reads a line of a subagent. `is_continued` says that the line before it is in another file.
    fn read_subagent_line(&mut self, line: &ClaudeLine<'_>, is_continued: bool, sink: &mut dyn ImportSink) {
        let is_copy = |agent_id: &str| COPYING_AGENT_PREFIXES.iter().any(|prefix| agent_id.starts_with(prefix));
        if line.agent_id.get().is_some_and(is_copy) {
            return;
        }
        if let Some(agent_id) = line.agent_id.get().filter(|agent_id| agent_id.starts_with(SUGGESTION_AGENT_PREFIX)) {
            if self.suggestion_agents.insert(agent_id) {
                sink.count_unrequested_run();
            }
            return;
        }
        let session_id = self.session_id.clone().unwrap_or_default();
        let Some(chain_id) = self.subagents.find_or_begin_chain(line, &mut self.main, &session_id, sink) else {
            return;
        };
        let Some((_, chain)) = self.subagents.open.iter_mut().find(|(id, _)| *id == chain_id) else { return };
        chain.update_details(line);
        if is_continued && !chain.builder.has_begun() {
            chain.builder.mark_missing_context(OTHER_FILE);
        }
        match line.kind.get() {
            Some("assistant") => chain.read_reply(line, sink),
            Some("user") => chain.read_user_line(line, &session_id, sink),
            _ => read_attachment(chain, line, sink),
        }
    }
}

impl SubagentChains {
    /// Returns the chain that a line belongs to. Begins the chain if the line is its first.
    fn find_or_begin_chain(
        &mut self,
        line: &ClaudeLine<'_>,
        main: &mut ClaudeConversation,
        session_id: &str,
        sink: &mut dyn ImportSink,
    ) -> Option<String> {
        let chain_id = match line.agent_id.get() {
            Some(agent_id) => agent_id.to_owned(),
            None => {
                let parent = line.parent_uuid.get().and_then(|parent| self.chain_by_line.get(&hash_id(parent)));
                let uuid = line.uuid.get().unwrap_or("subagent");
                let chain_id = parent.cloned().unwrap_or_else(|| uuid.into());
                self.chain_by_line.insert(hash_id(uuid), Arc::clone(&chain_id));
                let chain_id = chain_id.to_string();
                let is_known = self.open.iter().any(|(id, _)| *id == chain_id);
                if !is_known && continues_ended_chain(&self.chain_by_line, line, &chain_id) {
                    sink.report_bad_record("a line of a subagent after its result");
                    return None;
                }
                chain_id
            }
        };
        if !self.open.iter().any(|(id, _)| *id == chain_id) {
            self.begin_chain(&chain_id, line, main, session_id, sink);
        }
        Some(chain_id)
    }

    fn begin_chain(
        &mut self,
        chain_id: &str,
        line: &ClaudeLine<'_>,
        main: &mut ClaudeConversation,
        session_id: &str,
        sink: &mut dyn ImportSink,
    ) {
        let key = format!("{session_id}/{chain_id}");
        let mut chain = ClaudeConversation::new_subagent();
        chain.builder.set_session_id(&key);
        chain.builder.set_started_as(key.clone());
        if line.agent_id.get().is_none()
            && let Some(call_id) = self.take_waiting_call(line)
        {
            main.builder.add_subagent(&call_id, key);
            self.chain_by_call.insert(call_id, chain_id.to_owned());
        }
        if self.open.len() >= MAX_OPEN_SUBAGENTS {
            self.open.remove(0).1.finish(sink);
        }
        self.open.push((chain_id.to_owned(), chain));
    }

    /// Begins the chain of a subagent with the first notice about it, and ties it to the call that the notice names.
    fn begin_copied_chain(
        &mut self,
        agent_id: &str,
        notice: &ClaudeLine<'_>,
        repeated: &ClaudeLine<'_>,
        main: &mut ClaudeConversation,
        session_id: &str,
        sink: &mut dyn ImportSink,
    ) {
        let parents = std::iter::once(&mut *main).chain(self.open.iter_mut().map(|(_, chain)| chain));
        for parent in parents {
            if let Some(call_id) = notice.running_call_ids().find(|call_id| parent.builder.has_call(call_id)) {
                parent.builder.add_subagent(call_id, format!("{session_id}/{agent_id}"));
                break;
            }
        }
        self.begin_chain(agent_id, repeated, main, session_id, sink);
        if let Some((_, chain)) = self.open.last_mut() {
            chain.builder.mark_copied();
        }
    }

    /// Takes the oldest call whose prompt is the first line of a subagent.
    fn take_waiting_call(&mut self, line: &ClaudeLine<'_>) -> Option<String> {
        let prompt = hash_id(line.first_text()?.trim());
        let calls = self.waiting_calls.get_mut(&prompt)?;
        let call_id = (!calls.is_empty()).then(|| calls.remove(0));
        if calls.is_empty() {
            self.waiting_calls.remove(&prompt);
        }
        call_id
    }

    /// Remembers the calls that start a subagent.
    fn remember_subagent_calls(&mut self, line: &ClaudeLine<'_>) {
        for (id, name, input) in line.tool_uses() {
            if matches!(name, "Task" | "Agent")
                && self.waiting_calls.len() < MAX_WAITING_CALLS
                && let Some(prompt) = hash_task_prompt(input)
            {
                self.waiting_calls.entry(prompt).or_default().push(id.to_owned());
            }
        }
    }

    /// Ends the subagents whose results a line carries.
    fn end_finished_subagents(&mut self, line: &ClaudeLine<'_>, sink: &mut dyn ImportSink) {
        for call_id in line.result_ids() {
            if let Some(chain_id) = self.chain_by_call.remove(call_id)
                && let Some(position) = self.open.iter().position(|(id, _)| *id == chain_id)
            {
                self.open.remove(position).1.finish(sink);
            } else if !self.waiting_calls.is_empty() {
                self.waiting_calls.retain(|_, calls| {
                    calls.retain(|waiting| waiting != call_id);
                    !calls.is_empty()
                });
            }
        }
    }
}

/// Whether the line continues a chain that was ended.
fn continues_ended_chain(chain_by_line: &HashMap<u128, Arc<str>>, line: &ClaudeLine<'_>, chain_id: &str) -> bool {
    line.uuid.get() != Some(chain_id)
        && line.parent_uuid.get().is_some_and(|parent| chain_by_line.contains_key(&hash_id(parent)))
}

fn hash_task_prompt(input: Option<&RawValue>) -> Option<u128> {
    let arguments: TaskArguments<'_> = serde_json::from_str(input?.get()).ok()?;
    arguments.prompt.get().map(|prompt| hash_id(prompt.trim()))
}

/// Reads a request that the user typed while the model worked, which is recorded as an attachment.
fn read_attachment(chain: &mut ClaudeConversation, line: &ClaudeLine<'_>, sink: &mut dyn ImportSink) {
    let Some(attachment) = line.attachment else { return };
    let Ok(command) = serde_json::from_str::<QueuedCommand<'_>>(attachment.get()) else { return };
    if command.kind.get() != Some("queued_command") || command.command_mode.get().is_some_and(|mode| mode != "prompt") {
        return;
    }
    let at = normalize_recorded_time(line.timestamp.get());
    if let Some(UserLine::Request(request)) = command.prompt.get().map(classify_user_text) {
        chain.begin_request(&request, at.as_deref(), sink);
    }
}

impl ClaudeConversation {
    /// Reads a line of the model: a reply or a part of one.
    fn read_reply(&mut self, line: &ClaudeLine<'_>, sink: &mut dyn ImportSink) {
        let Some(message) = &line.message else {
            return sink.report_bad_record("a reply without a message");
        };
        let at = normalize_recorded_time(line.timestamp.get());
        if line.is_api_error_message.0 {
            self.clear_api_error();
            let reason = line.first_text().unwrap_or("the API returned an error").to_owned();
            self.begin_command_request(sink);
            if self.builder.has_turn() {
                self.builder.begin_reply(at.as_deref());
                self.builder.fail_turn(&reason);
            }
            return;
        }
        if is_placeholder_reply(message, line) {
            return;
        }
        self.begin_command_request(sink);
        if message.content.is_cut {
            self.builder.add_defect(DefectKind::TooLarge, "a message with more blocks than are read");
        }
        self.add_reply(message, at.as_deref(), line.cost_usd.0);
    }
}

/// Whether the line is in place of a reply that the model did not write.
fn is_placeholder_reply(message: &AnthropicMessage<'_>, line: &ClaudeLine<'_>) -> bool {
    message.model.get() == Some(SYNTHETIC_MODEL)
        && line.first_text().is_none_or(|text| matches!(text.trim(), "No response requested." | "(no content)"))
}
