//! The events of OpenHands, of both generations.

use std::collections::HashMap;

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::TokenUsage;
use serde_json::Value as Json;

use super::harness_chat::{
    add_result_or_report, finish_session_or_report, join_content_texts, read_tool_definitions, read_usage,
    result_content,
};
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, is_true_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

/// What the first generation adds to the arguments of a call. It matters only where the model's own arguments are not
/// recorded.
const INTERNAL_ARGUMENTS: [&str; 8] =
    ["thought", "blocking", "is_static", "hidden", "confirmation_state", "security_risk", "keep_prompt", "is_hidden"];
/// Actions of the first generation that are not tool calls.
const NON_TOOL_ACTIONS: [&str; 8] =
    ["recall", "change_agent_state", "null", "condensation", "condensation_request", "start", "pause", "loop_recovery"];
/// How the benchmarks answer a question of the agent. It is not a request of a user.
const SIMULATED_ANSWER: &str = "Please continue working on the task";

/// Converts events to turns.
#[derive(Default)]
pub(super) struct EventReader {
    pub(super) session: SessionBuilder,
    /// The request, where no event has it.
    pub(super) fallback_query: Option<String>,
    /// The model is known from the configuration of the run, which names it as the user does.
    pub(super) has_model: bool,
    events: usize,
    reply_id: Option<String>,
    /// Steps of the current turn by the id of their action event.
    steps_by_event: HashMap<String, u32>,
    last_step: Option<u32>,
    /// Tokens and cost that the SDK reports, counted from the start of the conversation.
    total: TokenUsage,
    total_cost: f64,
    counted: TokenUsage,
    counted_cost: f64,
}

impl EventReader {
    pub(super) fn event_count(&self) -> usize {
        self.events
    }

    /// Reads an event, or a pair of an action and its observation.
    pub(super) fn read_record(&mut self, record: Json, sink: &mut dyn ImportSink) {
        let events = match record {
            Json::Array(pair) => pair,
            event => vec![event],
        };
        for event in events {
            self.events += 1;
            let at = event.get("timestamp").and_then(normalize_timestamp);
            match text_field(&event, "kind").map(str::to_owned) {
                Some(kind) => self.read_sdk_event(&kind, event, at.as_deref(), sink),
                None if event.get("action").is_some_and(Json::is_string) => {
                    self.read_action(event, at.as_deref(), sink)
                }
                None if event.get("observation").is_some() => self.read_observation(event, at.as_deref(), sink),
                None => sink.report_bad_record("OpenHands event is neither an action nor an observation"),
            }
        }
    }

    pub(super) fn finish(self, sink: &mut dyn ImportSink) {
        finish_session_or_report(self.into_session(), sink);
    }

    /// Returns the conversation, with all tokens counted.
    pub(super) fn into_session(mut self) -> SessionBuilder {
        self.assign_new_usage();
        self.session
    }

    /// Sets the cost of the whole run, if the benchmark states it.
    pub(super) fn set_final_cost(&mut self, cost_usd: Option<f64>) {
        if let Some(cost) = cost_usd.filter(|cost| cost.is_finite() && self.total_cost == 0.0) {
            self.session.add_cost(cost);
        }
    }

    fn begin_turn(&mut self, query: &str, at: Option<&str>, sink: &mut dyn ImportSink) {
        if query.starts_with(SIMULATED_ANSWER) && self.session.has_turn() {
            return;
        }
        self.assign_new_usage();
        self.session.begin_turn(query, at, sink);
        self.steps_by_event.clear();
        (self.last_step, self.reply_id) = (None, None);
    }

    /// Begins a new reply, unless the event belongs to the same response of the model as the one before.
    fn begin_reply(&mut self, reply_id: Option<&str>, at: Option<&str>, sink: &mut dyn ImportSink) -> bool {
        if !self.session.has_turn()
            && let Some(query) = self.fallback_query.take()
        {
            self.session.begin_turn(&query, at, sink);
        }
        if reply_id.is_some() && self.reply_id.as_deref() == reply_id {
            return false;
        }
        self.reply_id = reply_id.map(str::to_owned);
        self.session.begin_separate_reply(at);
        true
    }

    /// Assigns the tokens since the last turn to the current one.
    fn assign_new_usage(&mut self) {
        if !self.session.has_turn() || (self.total == self.counted && self.total_cost <= self.counted_cost) {
            return;
        }
        let tokens = TokenUsage {
            prompt: self.total.prompt.saturating_sub(self.counted.prompt),
            completion: self.total.completion.saturating_sub(self.counted.completion),
            cached_prompt: self.total.cached_prompt.saturating_sub(self.counted.cached_prompt),
        };
        let cost = self.total_cost - self.counted_cost;
        self.session.set_usage(tokens, None, (cost > 0.0).then_some(cost));
        (self.counted, self.counted_cost) = (self.total, self.total_cost);
    }

    fn read_action(&mut self, mut event: Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let action = text_field(&event, "action").unwrap_or_default().to_owned();
        let is_user = text_field(&event, "source") == Some("user");
        let mut args = event.get_mut("args").map(Json::take).unwrap_or_default();
        match action.as_str() {
            "system" => {
                self.session.set_system_prompt(text_field(&args, "content").unwrap_or_default());
                if let Some(tools) = args.get("tools") {
                    self.session.set_tools(read_tool_definitions(tools));
                }
                let agent = text_field(&args, "agent_class").unwrap_or("OpenHands");
                return self.session.set_agent(agent, text_field(&args, "openhands_version"));
            }
            "message" if is_user => return self.begin_turn(text_field(&args, "content").unwrap_or_default(), at, sink),
            "message" => {
                self.begin_reply(None, at, sink);
                return self.session.add_text(text_field(&args, "content").unwrap_or_default());
            }
            action if NON_TOOL_ACTIONS.contains(&action) => return,
            // Commands of a person in the workspace are not steps of the agent.
            _ if is_user => return,
            _ => {}
        }
        let metadata = event.get("tool_call_metadata").filter(|metadata| metadata.is_object());
        let response = metadata.and_then(|metadata| metadata.get("model_response")).unwrap_or(&Json::Null);
        let reply = response.get("choices").and_then(|choices| choices.get(0)).and_then(|choice| choice.get("message"));
        if self.begin_reply(text_field(response, "id"), at, sink) {
            let reasoning = reply.and_then(|reply| text_field(reply, "reasoning_content"));
            self.session.add_reasoning(reasoning.unwrap_or_default());
            let spoken =
                reply.and_then(|reply| reply.get("content")).map(join_content_texts).filter(|text| !text.is_empty());
            let thought = text_field(&args, "thought").map(str::to_owned).or(spoken);
            self.session.add_text(thought.as_deref().unwrap_or_default());
            if let Some(usage) = response.get("usage").and_then(read_usage) {
                let model = text_field(response, "model").filter(|_| !self.has_model);
                self.session.set_usage(usage, model, None);
            }
        }
        let answer = finish_answer(&action, &args);
        let id = metadata.and_then(|metadata| text_field(metadata, "tool_call_id"));
        let name = metadata.and_then(|metadata| text_field(metadata, "function_name")).unwrap_or(&action);
        let recorded = reply.and_then(|reply| find_call_arguments(reply, id));
        let arguments = match recorded {
            Some(text) => Some(ArgumentsText::Text(text.into())),
            None => {
                if let Json::Object(args) = &mut args {
                    args.retain(|key, value| !INTERNAL_ARGUMENTS.contains(&key.as_str()) && !value.is_null());
                }
                args.is_object().then(|| ArgumentsText::from(args))
            }
        };
        let step = self.session.add_call(&ImportedCall { id, name, arguments }, at);
        self.remember_step(&event, step);
        if let Some(answer) = answer {
            self.session.set_answer(&answer);
        }
    }

    fn remember_step(&mut self, event: &Json, step: u32) {
        if let Some(id) = event_key(event.get("id")) {
            self.steps_by_event.insert(id, step);
        }
        self.last_step = Some(step);
    }

    fn read_observation(&mut self, mut event: Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let kind = text_field(&event, "observation").unwrap_or_default().to_owned();
        let cause = event_key(event.get("cause"));
        let step = match &cause {
            Some(cause) => self.steps_by_event.get(cause).copied(),
            // The first pairs have no cause. The observation follows its action.
            None => self.last_step.filter(|_| event.get("tool_call_metadata").is_some() || kind == "run"),
        };
        let Some(step) = step else { return };
        let extras = event.get("extras").unwrap_or(&Json::Null);
        let exit_code = extras.get("exit_code").or_else(|| extras.get("metadata")?.get("exit_code"));
        let has_failed = kind == "error"
            || event.get("success").is_some_and(|success| success == false)
            || exit_code.and_then(Json::as_i64).is_some_and(|code| code > 0)
            || is_true_field(extras, "error");
        let status = match kind.as_str() {
            "user_rejected" => ResultStatus::Denied,
            _ if has_failed => ResultStatus::Error,
            _ => ResultStatus::Success,
        };
        let content = event.get_mut("content").map(Json::take).map(result_content).unwrap_or_default();
        let result = ImportedResult { id: None, content: &content, status, at };
        if !self.session.add_step_result(step, &result) {
            sink.report_bad_record("OpenHands observation answers no action of its turn");
        }
    }

    fn read_sdk_event(&mut self, kind: &str, mut event: Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        match kind {
            "SystemPromptEvent" => {
                let prompt = event.get("system_prompt").map(|prompt| match prompt {
                    Json::Object(part) => part.get("text").map(join_content_texts).unwrap_or_default(),
                    prompt => join_content_texts(prompt),
                });
                self.session.set_system_prompt(&prompt.unwrap_or_default());
                self.session.set_agent("OpenHands", None);
            }
            "MessageEvent" => {
                let message = event.get("llm_message").unwrap_or(&Json::Null);
                let text = message.get("content").map(join_content_texts).unwrap_or_default();
                if text_field(&event, "source") == Some("user") {
                    self.begin_turn(&text, at, sink);
                } else {
                    self.begin_reply(text_field(&event, "llm_response_id"), at, sink);
                    self.session.add_reasoning(text_field(message, "reasoning_content").unwrap_or_default());
                    self.session.add_text(&text);
                }
            }
            "ActionEvent" => self.read_sdk_action(&event, at, sink),
            "ObservationEvent" | "AgentErrorEvent" | "UserRejectObservation" => {
                self.read_sdk_result(kind, &mut event, at, sink);
            }
            "ConversationStateUpdateEvent" => self.read_sdk_stats(&event),
            "ConversationErrorEvent" if self.session.has_turn() => {
                self.session.fail_turn(text_field(&event, "detail").unwrap_or("the conversation ended in an error"));
            }
            // Condensations, pauses, hooks and token streams do not belong to the conversation.
            _ => {}
        }
    }

    fn read_sdk_action(&mut self, event: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        if self.begin_reply(text_field(event, "llm_response_id"), at, sink) {
            self.session.add_reasoning(text_field(event, "reasoning_content").unwrap_or_default());
            let blocks = event.get("thinking_blocks").and_then(Json::as_array).into_iter().flatten();
            if text_field(event, "reasoning_content").is_none() {
                blocks.for_each(|block| self.session.add_reasoning(text_field(block, "thinking").unwrap_or_default()));
            }
            self.session.add_text(&event.get("thought").map(join_content_texts).unwrap_or_default());
        }
        let call = event.get("tool_call").unwrap_or(&Json::Null);
        let function = call.get("function").unwrap_or(call);
        let name = text_field(event, "tool_name").or_else(|| text_field(function, "name")).unwrap_or_default();
        let action = event.get("action").filter(|action| action.is_object());
        let arguments = match (function.get("arguments"), action) {
            (Some(Json::String(text)), _) => Some(ArgumentsText::Text(text.as_str().into())),
            (Some(json @ Json::Object(_)), _) => Some(ArgumentsText::from(json.clone())),
            (_, Some(Json::Object(action))) => {
                let own = action.iter().filter(|(key, value)| *key != "kind" && !value.is_null());
                let own = own.map(|(key, value)| (key.clone(), value.clone())).collect();
                Some(ArgumentsText::from(Json::Object(own)))
            }
            _ => None,
        };
        let id = text_field(event, "tool_call_id");
        let step = self.session.add_call(&ImportedCall { id, name, arguments }, at);
        self.remember_step(event, step);
        if name == "finish"
            && let Some(answer) = action.and_then(|action| text_field(action, "message"))
        {
            self.session.set_answer(answer);
        }
    }

    fn read_sdk_result(&mut self, kind: &str, event: &mut Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let observation = event.get_mut("observation").map(Json::take).unwrap_or_default();
        let exit_code = observation.get("exit_code").and_then(Json::as_i64);
        let (content, status) = match kind {
            "AgentErrorEvent" => (text_field(event, "error").unwrap_or_default().to_owned(), ResultStatus::Error),
            "UserRejectObservation" => {
                (text_field(event, "rejection_reason").unwrap_or_default().to_owned(), ResultStatus::Denied)
            }
            _ if is_true_field(&observation, "is_error") || exit_code.is_some_and(|code| code > 0) => {
                (observation_text(observation), ResultStatus::Error)
            }
            _ => (observation_text(observation), ResultStatus::Success),
        };
        let by_action = event_key(event.get("action_id")).and_then(|id| self.steps_by_event.get(&id).copied());
        let result = ImportedResult { id: text_field(event, "tool_call_id"), content: &content, status, at };
        match by_action {
            Some(step) => {
                self.session.add_step_result(step, &result);
            }
            None => add_result_or_report(&mut self.session, &result, sink),
        }
    }

    /// Reads the totals of all models of the conversation.
    fn read_sdk_stats(&mut self, event: &Json) {
        let stats = event.get("value").and_then(|value| value.get("usage_to_metrics")).and_then(Json::as_object);
        let Some(stats) = stats.filter(|_| text_field(event, "key") == Some("stats")) else { return };
        (self.total, self.total_cost) = (TokenUsage::default(), 0.0);
        for metrics in stats.values() {
            if let Some(model) = text_field(metrics, "model_name").filter(|_| !self.has_model) {
                self.session.set_model(model);
                self.has_model = true;
            }
            if let Some(usage) = metrics.get("accumulated_token_usage") {
                self.total += TokenUsage {
                    prompt: count_field(usage, "prompt_tokens"),
                    completion: count_field(usage, "completion_tokens"),
                    cached_prompt: count_field(usage, "cache_read_tokens"),
                };
            }
            let cost = metrics.get("accumulated_cost").and_then(Json::as_f64).filter(|cost| cost.is_finite());
            self.total_cost += cost.unwrap_or_default();
        }
    }
}

/// Returns an event id as a key. Ids are numbers in the first generation and texts in the second.
fn event_key(id: Option<&Json>) -> Option<String> {
    match id? {
        Json::String(id) => Some(id.clone()),
        Json::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

/// Returns the arguments as the model wrote them.
fn find_call_arguments(reply: &Json, id: Option<&str>) -> Option<String> {
    let calls = reply.get("tool_calls")?.as_array()?;
    let call = calls.iter().find(|call| text_field(call, "id") == id)?;
    text_field(call.get("function")?, "arguments").map(str::to_owned)
}

/// Returns the answer in the arguments of `finish`.
fn finish_answer(action: &str, args: &Json) -> Option<String> {
    let keys = ["final_thought", "message", "thought"];
    let text = keys.iter().find_map(|key| text_field(args, key)).filter(|_| action == "finish");
    text.map(str::to_owned)
}

/// Returns the text of an observation of the SDK, whose fields differ by tool.
fn observation_text(mut observation: Json) -> String {
    for key in ["content", "output", "message", "text"] {
        match observation.get_mut(key).map(Json::take) {
            Some(Json::String(text)) => return text,
            Some(list @ Json::Array(_)) => return join_content_texts(&list),
            _ => {}
        }
    }
    content_text(observation)
}
