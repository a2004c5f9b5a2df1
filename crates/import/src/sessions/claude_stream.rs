//! The output of `claude --print --output-format stream-json`, and the Agent SDK's messages. Lines of subagents are
//! among those of the main conversation and are distinguished by `parent_tool_use_id`. The prompt is not printed
//! unless the messages of the user are replayed.

use gradus_core::trajectory::{RUN_FAILED, TokenUsage, ToolDefinition};
use serde::Deserialize;
use serde_json::Value as Json;

use super::anthropic_content::{AnthropicBlock, AnthropicMessage, AnthropicMessageUsage, result_content_text};
use super::claude_conversation::{AGENT_NAME, ClaudeConversation, is_compaction};
use super::claude_requests::classify_result;
use super::field_types::{FlagField, NumberField, TextField};
use super::record_text::{normalize_recorded_time, record_text};
use super::seen_ids::SeenIds;
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;

/// Maximum number of subagents that are open at the same time. The oldest is ended if there are more.
const MAX_OPEN_SUBAGENTS: usize = 256;

/// Whether the records are Claude Code's stream JSON. Cursor's has the same line types, but other keys.
pub(crate) fn is_claude_stream(records: &[Json]) -> bool {
    records.iter().any(|record| {
        if !record["session_id"].is_string() {
            return false;
        }
        match record["type"].as_str() {
            Some("system") => {
                record["subtype"] == "init" && record["tools"].is_array() && record.get("model").is_some()
            }
            Some("assistant") => {
                record.get("parent_tool_use_id").is_some()
                    && record["message"]["id"].is_string()
                    && record["message"]["content"].is_array()
            }
            _ => false,
        }
    })
}

pub(crate) fn open_claude_stream() -> Box<dyn SessionReader> {
    Box::new(ClaudeStreamReader::default())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamLine<'a> {
    #[serde(rename = "type", borrow)]
    kind: TextField<'a>,
    #[serde(borrow)]
    subtype: TextField<'a>,
    #[serde(borrow)]
    uuid: TextField<'a>,
    #[serde(borrow)]
    session_id: TextField<'a>,
    #[serde(borrow)]
    parent_tool_use_id: TextField<'a>,
    #[serde(borrow)]
    timestamp: TextField<'a>,
    #[serde(borrow)]
    message: Option<AnthropicMessage<'a>>,
    /// Text that Claude Code wrote in the name of the user.
    #[serde(rename = "isSynthetic")]
    is_synthetic: FlagField,
    // Of the first line.
    #[serde(borrow)]
    tools: Option<Vec<TextField<'a>>>,
    #[serde(borrow)]
    model: TextField<'a>,
    #[serde(borrow)]
    cwd: TextField<'a>,
    #[serde(borrow)]
    claude_code_version: TextField<'a>,
    // Of the last line.
    is_error: FlagField,
    #[serde(borrow)]
    result: TextField<'a>,
    total_cost_usd: NumberField,
    duration_api_ms: NumberField,
    usage: Option<AnthropicMessageUsage>,
}

#[derive(Default)]
struct ClaudeStreamReader {
    session_id: String,
    main: ClaudeConversation,
    /// By the call that started them.
    subagents: Vec<(String, ClaudeConversation)>,
    usage: TurnUsage,
    seen_lines: SeenIds,
    is_turn_over: bool,
    /// Cost and time of the API at the last result: both grow over the turns of one process.
    totals: (f64, f64),
}

/// Tokens of the replies of one turn, to be compared with the total at its end: the usage of a reply is printed when
/// it begins, so that its output tokens are too few.
#[derive(Default)]
struct TurnUsage {
    ended: TokenUsage,
    /// Id, tokens and model.
    reply: Option<(String, TokenUsage, Option<String>)>,
}

impl TurnUsage {
    fn add_reply_usage(&mut self, id: &str, usage: TokenUsage, model: Option<&str>) {
        if let Some((last_id, last, _)) = self.reply.take()
            && last_id != id
        {
            self.ended += last;
        }
        self.reply = Some((id.to_owned(), usage, model.map(str::to_owned)));
    }

    /// Returns the usage of the last reply that makes the sum equal to the total. `None` if the total is smaller than
    /// the sum.
    fn last_reply_usage(&self, total: TokenUsage) -> Option<TokenUsage> {
        let rest = |total: u64, ended: u64| total.checked_sub(ended);
        let usage = TokenUsage {
            prompt: rest(total.prompt, self.ended.prompt)?,
            completion: rest(total.completion, self.ended.completion)?,
            cached_prompt: rest(total.cached_prompt, self.ended.cached_prompt)?,
        };
        let (_, last, _) = self.reply.as_ref()?;
        (usage.prompt >= last.prompt && usage.completion >= last.completion).then_some(usage)
    }
}

impl SessionReader for ClaudeStreamReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let text = record_text(record);
        let line: StreamLine<'_> = match serde_json::from_str(&text) {
            Ok(line) => line,
            Err(error) => {
                self.mark_unreadable_line();
                return sink.report_bad_record(&format!("not a line of Claude Code's stream JSON: {error}"));
            }
        };
        if line.uuid.get().is_some_and(|uuid| !self.seen_lines.insert(uuid)) {
            return;
        }
        self.switch_session(&line, sink);
        match line.kind.get() {
            Some("system") if line.subtype.get() == Some("init") => self.read_init(&line),
            Some("system") if is_compaction(&line.subtype) => self.main.builder.mark_compaction(),
            Some("assistant") => self.read_reply(&line, sink),
            Some("user") => self.read_user_line(&line, sink),
            Some("result") => self.read_result(&line),
            _ => {}
        }
    }

    fn finish(mut self: Box<Self>, sink: &mut dyn ImportSink) {
        self.end_session(sink);
    }
}

impl ClaudeStreamReader {
    fn switch_session(&mut self, line: &StreamLine<'_>, sink: &mut dyn ImportSink) {
        let Some(id) = line.session_id.get().filter(|id| *id != self.session_id) else { return };
        if !self.session_id.is_empty() {
            self.end_session(sink);
        }
        self.session_id = id.to_owned();
        self.main.builder.set_session_id(id);
        self.main.builder.set_agent(AGENT_NAME, None);
    }

    /// Marks all open conversations as incomplete: the line may belong to any of them.
    fn mark_unreadable_line(&mut self) {
        self.main.builder.mark_unreadable_record();
        self.subagents.iter_mut().for_each(|(_, chain)| chain.builder.mark_unreadable_record());
    }

    fn end_session(&mut self, sink: &mut dyn ImportSink) {
        std::mem::take(&mut self.main).finish(sink);
        for (_, chain) in std::mem::take(&mut self.subagents) {
            chain.finish(sink);
        }
        (self.usage, self.is_turn_over, self.totals) = (TurnUsage::default(), false, (0.0, 0.0));
    }

    fn read_init(&mut self, line: &StreamLine<'_>) {
        let builder = &mut self.main.builder;
        builder.set_agent(AGENT_NAME, line.claude_code_version.get());
        if let Some(folder) = line.cwd.get() {
            builder.set_project(folder);
        }
        if let Some(model) = line.model.get() {
            builder.set_model(model);
        }
        if let Some(tools) = &line.tools {
            let definition = |name: &str| ToolDefinition { name: name.to_owned(), ..ToolDefinition::default() };
            builder.set_tools(tools.iter().filter_map(TextField::get).map(definition).collect());
        }
    }

    fn read_reply(&mut self, line: &StreamLine<'_>, sink: &mut dyn ImportSink) {
        let Some(message) = &line.message else { return sink.report_bad_record("a reply without a message") };
        let at = normalize_recorded_time(line.timestamp.get());
        if let Some(call_id) = line.parent_tool_use_id.get() {
            let chain = self.find_or_begin_subagent(call_id, sink);
            return chain.add_reply(message, at.as_deref(), None);
        }
        self.begin_next_turn(sink);
        self.main.add_reply(message, at.as_deref(), None);
        if let (Some(id), Some(usage)) = (message.id.get(), message.usage) {
            self.usage.add_reply_usage(id, usage.token_usage(), message.model.get());
        }
    }

    /// Begins a turn without a recorded request, if the one before it is over.
    fn begin_next_turn(&mut self, sink: &mut dyn ImportSink) {
        if std::mem::take(&mut self.is_turn_over) {
            self.main.begin_request("", None, sink);
        }
    }

    fn read_user_line(&mut self, line: &StreamLine<'_>, sink: &mut dyn ImportSink) {
        let Some(message) = &line.message else {
            return sink.report_bad_record("a line of the user without a message");
        };
        let at = normalize_recorded_time(line.timestamp.get());
        let is_subagent = line.parent_tool_use_id.get().is_some();
        let chain = match line.parent_tool_use_id.get() {
            Some(call_id) => self.find_or_begin_subagent(call_id, sink),
            None => &mut self.main,
        };
        let mut texts = Vec::new();
        let mut ended = Vec::new();
        for block in &message.content.blocks {
            match block {
                AnthropicBlock::ToolResult { id, content, is_error } => {
                    let content = result_content_text(*content);
                    let status = classify_result(*is_error, &content, None);
                    chain.add_result(id, &content, status, at.as_deref(), sink);
                    ended.extend(id.get());
                }
                AnthropicBlock::Text(text) => texts.push(text.as_ref()),
                _ => {}
            }
        }
        if !line.is_synthetic.0 {
            chain.apply_user_texts(&texts, at.as_deref(), sink);
            if !is_subagent && !texts.is_empty() && ended.is_empty() {
                self.is_turn_over = false;
            }
        }
        for call_id in ended {
            if let Some(position) = self.subagents.iter().position(|(id, _)| id == call_id) {
                self.subagents.remove(position).1.finish(sink);
            }
        }
    }

    fn find_or_begin_subagent(&mut self, call_id: &str, sink: &mut dyn ImportSink) -> &mut ClaudeConversation {
        let position = match self.subagents.iter().position(|(id, _)| id == call_id) {
            Some(position) => position,
            None => {
                let key = format!("{}/{call_id}", self.session_id);
                let mut chain = ClaudeConversation::default();
                chain.builder.set_session_id(&key);
                chain.builder.set_agent(AGENT_NAME, None);
                chain.builder.set_started_as(key.clone());
                let parents = std::iter::once(&mut self.main).chain(self.subagents.iter_mut().map(|(_, chain)| chain));
                if let Some(parent) = parents.into_iter().find(|parent| parent.builder.has_call(call_id)) {
                    parent.builder.add_subagent(call_id, key);
                }
                if self.subagents.len() >= MAX_OPEN_SUBAGENTS {
                    self.subagents.remove(0).1.finish(sink);
                }
                self.subagents.push((call_id.to_owned(), chain));
                self.subagents.len() - 1
            }
        };
        &mut self.subagents[position].1
    }

    /// Reads the end of a turn: its cost, its tokens, how it ended.
    fn read_result(&mut self, line: &StreamLine<'_>) {
        let usage = std::mem::take(&mut self.usage);
        let builder = &mut self.main.builder;
        self.is_turn_over = true;
        if let Some(total) = line.usage
            && let Some(last) = usage.last_reply_usage(total.token_usage())
        {
            let model = usage.reply.and_then(|(_, _, model)| model);
            builder.set_usage(last, model.as_deref(), None);
        }
        if let Some(cost) = line.total_cost_usd.0 {
            let time = line.duration_api_ms.0.unwrap_or_default();
            let is_running_total = cost >= self.totals.0 && time > self.totals.1;
            builder.add_cost(if is_running_total { cost - self.totals.0 } else { cost });
            self.totals = (cost, time);
        }
        let result = line.result.get();
        if line.is_error.0 || line.subtype.get().is_some_and(|subtype| subtype.starts_with("error")) {
            builder.fail_turn(result.or(line.subtype.get()).unwrap_or(RUN_FAILED));
        } else if let Some(answer) = result {
            builder.set_answer(answer);
        }
    }
}
