//! Codex rollouts: `sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, in both generations: items in an envelope
//! (`{"timestamp", "type", "payload"}`), and before that items alone.
//!
//! Messages are recorded twice, as items and as events. Items count for what the model wrote, events for what the user
//! asked: items of the user also carry what Codex added.

use std::collections::HashSet;

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::{DefectKind, RUN_FAILED, TokenUsage};
use serde_json::value::RawValue;

use super::codex_lines::{
    CodexItem, CodexLine, CodexMeta, CodexTokenInfo, CodexTokens, CodexTurnItem, decode_json_string,
    is_failed_mcp_result, is_false, part_texts,
};
use super::codex_requests::{is_patch_error, read_output, request_text, started_agent_id};
use super::record_text::{normalize_recorded_time, record_text, shorten_for_message};
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

pub(crate) const AGENT_NAME: &str = "codex";
/// Maximum number of texts that came only as events so far, and whose items may follow.
const MAX_FLUSHED_TEXTS: usize = 64;
/// Maximum number of failures that are remembered until the results come.
const MAX_FAILED_CALLS: usize = 4096;

pub(crate) fn open_codex_rollout() -> Box<dyn SessionReader> {
    Box::new(CodexReader::default())
}

#[derive(Default)]
struct CodexReader {
    builder: SessionBuilder,
    session_id: Option<String>,
    is_subagent: bool,
    /// Lines with a smaller number are context from the parent.
    first_ordinal: Option<f64>,
    /// Texts of the user as items, until an event or a reply shows what they are.
    waiting_requests: Vec<(String, Option<String>)>,
    /// Whether an event contained the request, so that its items repeat it.
    has_request_event: bool,
    /// A text of the model as an event, until its item comes.
    waiting_text: Option<String>,
    last_text: Option<String>,
    /// Texts that were added from their events. Versions 0.2 to 0.65 write their items later: behind the count of
    /// tokens, or behind the reasoning.
    flushed_texts: Vec<String>,
    /// Whether the model wrote something since the last count of tokens.
    has_output: bool,
    /// Whether the current reply ended: its tokens were counted, or a result came.
    is_reply_over: bool,
    failed_calls: HashSet<String>,
    /// The last report of tokens that was counted: the total of the session, and that of its last call.
    counted_tokens: Option<(Option<TokenUsage>, Option<TokenUsage>)>,
    /// Whether tokens of a reply are reported before its items. Known from the first report on.
    counts_come_first: Option<bool>,
    /// Tokens of the reply whose items follow.
    waiting_usage: Option<TokenUsage>,
}

impl SessionReader for CodexReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let text = record_text(record);
        let result = serde_json::from_str(&text).and_then(|line| self.read_line(&line, &text, sink));
        if let Err(error) = result {
            self.builder.mark_unreadable_record();
            sink.report_bad_record(&format!("not a line of a Codex rollout: {error}"));
        }
    }

    fn finish(mut self: Box<Self>, sink: &mut dyn ImportSink) {
        self.flush_text();
        self.begin_waiting_turn(sink);
        self.builder.finish(sink);
    }
}

impl CodexReader {
    fn read_line(
        &mut self,
        line: &CodexLine<'_>,
        text: &str,
        sink: &mut dyn ImportSink,
    ) -> Result<(), serde_json::Error> {
        let at = normalize_recorded_time(line.timestamp.get());
        let at = at.as_deref();
        let Some(payload) = line.payload.map(RawValue::get) else {
            // The first generation.
            return match (line.kind.get(), line.record_type.get()) {
                (Some(_), _) => self.read_item(&serde_json::from_str(text)?, at, sink),
                (None, Some(_)) => Ok(()),
                (None, None) => self.read_meta(&serde_json::from_str(text)?),
            };
        };
        let kind = line.kind.get().unwrap_or_default();
        if kind == "session_meta" {
            return self.read_meta(&serde_json::from_str(payload)?);
        }
        if line.ordinal.0.is_some_and(|ordinal| self.first_ordinal.is_some_and(|first| ordinal < first)) {
            return Ok(());
        }
        match kind {
            "response_item" => self.read_item(&serde_json::from_str(payload)?, at, sink)?,
            "event_msg" => self.read_event(&serde_json::from_str(payload)?, at, sink),
            "turn_context" => {
                let context: CodexItem<'_> = serde_json::from_str(payload)?;
                if let Some(model) = context.model.get() {
                    self.builder.set_model(model);
                }
            }
            "compacted" => self.builder.mark_compaction(),
            "inter_agent_communication" => self.read_agent_message(&serde_json::from_str(payload)?, at),
            _ => {}
        }
        Ok(())
    }

    /// Reads a description of the session. Only the first is its own: a fork copies those of its ancestors.
    fn read_meta(&mut self, meta: &CodexMeta<'_>) -> Result<(), serde_json::Error> {
        if self.session_id.is_some() {
            return Ok(());
        }
        let id = meta.id.get().unwrap_or_default().to_owned();
        self.builder.set_session_id(&id);
        self.builder.set_agent(AGENT_NAME, meta.cli_version.get());
        if let Some(folder) = meta.cwd.get() {
            self.builder.set_project(folder);
        }
        if let Some(prompt) = meta.system_prompt() {
            self.builder.set_system_prompt(&prompt);
        }
        if let Some(parent) = meta.parent_session() {
            self.is_subagent = true;
            self.builder.set_started_as(format!("{parent}/{id}"));
        }
        self.first_ordinal = meta.subagent_history_start_ordinal.0;
        self.session_id = Some(id);
        Ok(())
    }

    fn read_item(
        &mut self,
        item: &CodexItem<'_>,
        at: Option<&str>,
        sink: &mut dyn ImportSink,
    ) -> Result<(), serde_json::Error> {
        // Some writers leave out the type of messages.
        match item.kind.get().unwrap_or(if item.role.get().is_some() { "message" } else { "" }) {
            "message" => match item.role.get() {
                Some("user") => self.hold_user_item(item, at),
                Some("assistant") => {
                    let text = part_texts(item.content).join("");
                    if let Some(position) = self.flushed_texts.iter().position(|flushed| *flushed == text) {
                        self.flushed_texts.remove(position);
                        self.last_text = Some(text);
                        return Ok(());
                    }
                    if self.waiting_text.as_deref() == Some(&text) {
                        self.waiting_text = None;
                    }
                    self.begin_reply_if_new(at, sink);
                    self.builder.add_text(&text);
                    self.last_text = Some(text);
                }
                _ => {}
            },
            "agent_message" => self.read_agent_message(item, at),
            "reasoning" => {
                self.begin_reply_if_new(at, sink);
                for text in part_texts(item.summary).iter().chain(&part_texts(item.content)) {
                    self.builder.add_reasoning(text);
                }
            }
            "function_call" | "tool_search_call" => {
                let name = if item.kind.get() == Some("function_call") { item.name.get() } else { Some("tool_search") };
                let arguments = item.arguments.map(|arguments| match decode_json_string(arguments.get()) {
                    Some(text) => ArgumentsText::Text(text),
                    None => ArgumentsText::Json(arguments.get().into()),
                });
                self.add_call(item, name, arguments, at, sink);
            }
            "custom_tool_call" => {
                // The input is free text: a patch or a program.
                let input =
                    item.input.map(|input| ArgumentsText::Json(format!("{{\"input\":{}}}", input.get()).into()));
                self.add_call(item, item.name.get(), input, at, sink);
            }
            "local_shell_call" | "web_search_call" => {
                let name = if item.kind.get() == Some("local_shell_call") { "local_shell" } else { "web_search" };
                let action = item.action.map(|action| ArgumentsText::Json(action.get().into()));
                self.add_call(item, Some(name), action, at, sink);
                // A search runs within the reply: what follows is written with its results.
                self.is_reply_over = name == "web_search";
            }
            "image_generation_call" => {
                let prompt = serde_json::json!({"prompt": item.revised_prompt.get()});
                self.add_call(item, Some("image_generation"), Some(prompt.into()), at, sink);
                let id = item.call_id.get().or(item.id.get());
                self.builder.add_result(&ImportedResult { id, content: "[image]", at, ..ImportedResult::default() });
            }
            "function_call_output" | "custom_tool_call_output" => self.read_result(item, at, sink),
            "tool_search_output" => {
                let tools = item.tools.map_or("[]", RawValue::get);
                self.add_result(item.call_id.get(), tools, ResultStatus::Success, at, sink);
            }
            // Context that replaces earlier items.
            "compaction" | "context_compaction" | "compaction_summary" => self.builder.mark_compaction(),
            "ghost_snapshot" | "other" => {}
            kind => {
                // It may be a call of a kind that is newer than this reader.
                self.builder.mark_unreadable_record();
                sink.report_bad_record(&format!("unknown item {:?}", shorten_for_message(kind)));
            }
        }
        Ok(())
    }

    fn hold_user_item(&mut self, item: &CodexItem<'_>, at: Option<&str>) {
        if self.has_request_event {
            return;
        }
        let texts = part_texts(item.content);
        let request: Vec<&str> = texts.iter().filter_map(|text| request_text(text)).collect();
        if !request.is_empty() {
            self.waiting_requests.push((request.join("\n"), at.map(str::to_owned)));
        }
    }

    /// Reads a message of another agent: the request of a subagent, and a notice to any other.
    fn read_agent_message(&mut self, item: &CodexItem<'_>, at: Option<&str>) {
        let text = part_texts(item.content).join("\n");
        if self.is_subagent && !text.trim().is_empty() && !self.builder.has_turn() {
            self.waiting_requests.push((text, at.map(str::to_owned)));
        }
    }

    fn read_event(&mut self, event: &CodexItem<'_>, at: Option<&str>, sink: &mut dyn ImportSink) {
        match event.kind.get().unwrap_or_default() {
            "user_message" => self.begin_request(event.message.get().unwrap_or_default(), at, sink),
            "item_completed" => {
                let item = event.item.and_then(|item| serde_json::from_str::<CodexTurnItem<'_>>(item.get()).ok());
                if let Some(item) = item.filter(|item| matches!(item.kind.get(), Some("UserMessage" | "user_message")))
                {
                    self.begin_request(&part_texts(item.content).join("\n"), at, sink);
                }
            }
            "agent_message" => {
                let text = event.message.get().unwrap_or_default();
                if self.last_text.as_deref() != Some(text) && !text.trim().is_empty() {
                    self.flush_text();
                    self.begin_waiting_turn(sink);
                    self.waiting_text = Some(text.to_owned());
                }
            }
            "token_count" => self.count_tokens(event.info),
            "task_complete" | "turn_complete" => {
                self.flush_text();
                if let Some(answer) = event.last_agent_message.get()
                    && self.builder.has_turn()
                {
                    self.builder.set_answer(answer);
                }
            }
            "turn_aborted" => {
                self.flush_text();
                self.begin_waiting_turn(sink);
                if self.builder.has_turn() {
                    self.builder.add_defect(DefectKind::MissingAnswer, "the user interrupted the request");
                }
            }
            "context_compacted" => self.builder.mark_compaction(),
            "thread_rolled_back" => self.roll_back(event.num_turns.0, sink),
            "error" if self.builder.has_turn() => {
                self.builder.fail_turn(event.message.get().unwrap_or(RUN_FAILED));
            }
            "mcp_tool_call_end" => self.remember_failure(event, is_failed_mcp_result(event.result)),
            "patch_apply_end" => self.remember_failure(event, is_false(event.success)),
            "exec_command_end" => {
                self.remember_failure(event, event.exit_code.0.is_some_and(|code| code != 0.0));
            }
            "sub_agent_activity" => {
                if let (Some(call_id), Some(agent_id)) = (event.event_id.get(), event.agent_thread_id.get()) {
                    self.link_subagent(call_id, agent_id);
                }
            }
            _ => {}
        }
    }

    /// Counts the tokens of a model call. Codex reports them after the items of the reply; versions of September and
    /// October 2025 did so before them. It repeats a report whenever limits change.
    fn count_tokens(&mut self, info: Option<CodexTokenInfo>) {
        let Some(info) = info else { return };
        let read = |tokens: Option<CodexTokens>| tokens.map(CodexTokens::token_usage);
        let report = (read(info.total_token_usage), read(info.last_token_usage));
        let counted = self.counted_tokens.unwrap_or_default();
        // The same report again, or one at the start of a session that goes on, before its first call.
        if self.counted_tokens == Some(report) || report.1 == Some(TokenUsage::default()) {
            return;
        }
        let usage = match (report, counted.0) {
            ((Some(total), _), Some(counted))
                if total.prompt > counted.prompt && total.completion >= counted.completion =>
            {
                TokenUsage {
                    prompt: total.prompt - counted.prompt,
                    completion: total.completion - counted.completion,
                    cached_prompt: total.cached_prompt.saturating_sub(counted.cached_prompt),
                }
            }
            // The first report, or one after a reset.
            ((_, Some(last)), _) => last,
            _ => return,
        };
        let is_early = *self.counts_come_first.get_or_insert(!self.has_output);
        if is_early {
            *self.waiting_usage.get_or_insert_default() += usage;
            self.is_reply_over = true;
        } else if self.has_output || self.waiting_text.is_some() {
            self.flush_text();
            self.builder.set_usage(usage, None, None);
            (self.has_output, self.is_reply_over) = (false, true);
        } else {
            return;
        }
        self.counted_tokens = Some(report);
    }

    fn roll_back(&mut self, turn_count: u64, sink: &mut dyn ImportSink) {
        self.flush_text();
        // A request that waits is one of the turns.
        let waiting = u64::from(!self.waiting_requests.is_empty());
        self.waiting_requests.clear();
        let turn_count = usize::try_from(turn_count.saturating_sub(waiting)).unwrap_or(usize::MAX);
        if self.builder.roll_back_turns(turn_count) > 0 {
            sink.report_bad_record("the conversation was rolled back further than turns are held");
        }
        (self.has_output, self.is_reply_over, self.has_request_event) = (false, false, false);
    }

    fn remember_failure(&mut self, event: &CodexItem<'_>, has_failed: bool) {
        if let Some(call_id) = event.call_id.get()
            && has_failed
            && self.failed_calls.len() < MAX_FAILED_CALLS
        {
            self.failed_calls.insert(call_id.to_owned());
        }
    }

    /// Begins a turn with the request in an event.
    fn begin_request(&mut self, text: &str, at: Option<&str>, sink: &mut dyn ImportSink) {
        self.flush_text();
        self.flushed_texts.clear();
        self.waiting_requests.clear();
        if let Some(request) = request_text(text) {
            self.has_request_event = true;
            self.is_reply_over = false;
            self.builder.begin_turn(request, at, sink);
        }
    }

    /// Begins the turn whose request is known only from items.
    fn begin_waiting_turn(&mut self, sink: &mut dyn ImportSink) {
        self.has_request_event = false;
        for (request, at) in std::mem::take(&mut self.waiting_requests) {
            self.flushed_texts.clear();
            self.is_reply_over = false;
            self.builder.begin_turn(&request, at.as_deref(), sink);
        }
    }

    /// Begins a reply if the model has ended the one before, and the turn of a waiting request.
    fn begin_reply_if_new(&mut self, at: Option<&str>, sink: &mut dyn ImportSink) {
        self.flush_text();
        self.begin_waiting_turn(sink);
        if self.is_reply_over || !self.has_output {
            self.builder.begin_reply(at);
        }
        if let Some(usage) = self.waiting_usage.take() {
            self.builder.set_usage(usage, None, None);
        }
        (self.has_output, self.is_reply_over) = (true, false);
    }

    /// Adds a text that came only as an event.
    fn flush_text(&mut self) {
        if let Some(text) = self.waiting_text.take() {
            if self.is_reply_over {
                self.builder.begin_reply(None);
            }
            self.builder.add_text(&text);
            if self.flushed_texts.len() < MAX_FLUSHED_TEXTS {
                self.flushed_texts.push(text.clone());
            }
            self.last_text = Some(text);
            (self.has_output, self.is_reply_over) = (true, false);
        }
    }

    fn add_call(
        &mut self,
        item: &CodexItem<'_>,
        name: Option<&str>,
        arguments: Option<ArgumentsText<'_>>,
        at: Option<&str>,
        sink: &mut dyn ImportSink,
    ) {
        self.begin_reply_if_new(at, sink);
        if name.is_none() {
            self.builder.add_defect(DefectKind::MissingToolName, "a tool call without the name of a tool");
        }
        let id = item.call_id.get().or(item.id.get());
        self.builder.add_call(&ImportedCall { id, name: name.unwrap_or_default(), arguments }, at);
    }

    fn read_result(&mut self, item: &CodexItem<'_>, at: Option<&str>, sink: &mut dyn ImportSink) {
        let (content, mut status) = read_output(item.output.map(RawValue::get));
        let call_id = item.call_id.get();
        let has_failed = call_id.is_some_and(|id| self.failed_calls.remove(id) || self.is_failed_patch(id, &content));
        if has_failed && status == ResultStatus::Success {
            status = ResultStatus::Error;
        }
        if let Some(call_id) = call_id
            && let Some(agent_id) = started_agent_id(&content)
        {
            self.link_subagent(call_id, &agent_id);
        }
        self.add_result(call_id, &content, status, at, sink);
    }

    /// Whether the result of a call says that a patch was not applied.
    fn is_failed_patch(&self, call_id: &str, content: &str) -> bool {
        let step = self.builder.find_step(call_id);
        step.is_some_and(|step| is_patch_error(&step.tool, step.arguments_text().as_deref(), content))
    }

    fn link_subagent(&mut self, call_id: &str, agent_id: &str) {
        if self.builder.has_call(call_id) {
            let session_id = self.session_id.as_deref().unwrap_or_default();
            self.builder.add_subagent(call_id, format!("{session_id}/{agent_id}"));
        }
    }

    fn add_result(
        &mut self,
        id: Option<&str>,
        content: &str,
        status: ResultStatus,
        at: Option<&str>,
        sink: &mut dyn ImportSink,
    ) {
        self.is_reply_over = true;
        // The items of a reply are written before its results.
        self.flushed_texts.clear();
        if id.is_some_and(|id| self.builder.has_call(id)) {
            self.builder.add_result(&ImportedResult { id, content, status, at });
            return;
        }
        let detail =
            format!("the result {} has no call in its turn", shorten_for_message(id.unwrap_or("without an id")));
        if self.builder.has_turn() {
            self.builder.add_defect(DefectKind::ToolRunOutsideSteps, &detail);
        } else {
            sink.report_bad_record(&detail);
        }
    }
}
