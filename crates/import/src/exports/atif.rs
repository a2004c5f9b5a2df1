//! ATIF, the Agent Trajectory Interchange Format of Harbor, versions 1.0 to 1.8. The writers of other tools are not as
//! strict as its schema, so missing and unknown fields are accepted.

use std::collections::{BTreeMap, HashSet};

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::{DefectKind, RUN_FAILED, RecordedAnnotation, TokenUsage};
use serde_json::{Map, Value as Json};

use super::atif_text_replies::{read_text_reply, strip_example};
use super::harness_chat::{
    add_result_or_report, content_id, has_list, join_content_texts, object_to_value, outcome_annotation,
    read_tool_definitions, result_content,
};
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::{count_field, is_true_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

/// Keys of `extra` that state an outcome.
const OUTCOME_KEYS: [&str; 5] = ["reward", "success", "score", "resolved", "passed"];

pub(crate) fn is_atif(object: &Map<String, Json>) -> bool {
    let version = object.get("schema_version").and_then(Json::as_str).unwrap_or_default();
    version.starts_with("ATIF-v") && has_list(object, "steps")
}

pub(crate) fn read_atif(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let own_id = text_field(&document, "session_id").or_else(|| text_field(&document, "trajectory_id"));
    let id = own_id.map_or_else(|| content_id("atif", &document), str::to_owned);
    let parent = ["agent", "extra"].iter().find_map(|key| {
        let holder = document.get(*key)?;
        text_field(holder, "parent_session_id").or_else(|| text_field(holder.get("extra")?, "parent_session_id"))
    });
    // A subagent in a file of its own is named by its own session in the file of its parent.
    let started_as = parent.map(|_| reference_key(&id));
    read_trajectory(&mut document, &id, started_as, sink)
}

/// Returns the key that ties a step to the session that it started.
fn reference_key(id: &str) -> String {
    format!("atif:{id}")
}

fn read_trajectory(
    document: &mut Json,
    id: &str,
    started_as: Option<String>,
    sink: &mut dyn ImportSink,
) -> Result<(), ImportError> {
    let Some(Json::Array(steps)) = document.get_mut("steps").map(Json::take) else {
        return Err(ImportError::new("ATIF trajectory: `steps` is not a list"));
    };
    let embedded = document.get_mut("subagent_trajectories").map(Json::take).unwrap_or_default();
    let mut reader = TrajectoryReader::new(document, id, started_as);
    reader.has_tool_calls = steps.iter().any(has_calls);
    for mut step in steps {
        reader.read_step(&mut step, sink);
    }
    if !reader.has_conversation() {
        return Err(ImportError::new("ATIF trajectory without a conversation in it"));
    }
    reader.finish(document, sink);
    let Json::Array(embedded) = embedded else { return Ok(()) };
    for (number, mut subagent) in embedded.into_iter().enumerate() {
        let sub_id = match text_field(&subagent, "trajectory_id") {
            Some(trajectory_id) => format!("{id}/{trajectory_id}"),
            None => format!("{id}/{}", number + 1),
        };
        let key = reference_key(&sub_id);
        if let Err(error) = read_trajectory(&mut subagent, &sub_id, Some(key), sink) {
            sink.report_bad_record(&error.reason);
        }
    }
    Ok(())
}

struct TrajectoryReader<'a> {
    document_id: &'a str,
    session: SessionBuilder,
    /// Claude Code's converter writes the steps of subagents among those of the main agent.
    sidechains: BTreeMap<String, SessionBuilder>,
    agent: Option<(String, Option<String>)>,
    /// The first request of an earlier trajectory, copied before this one.
    copied_query: Option<String>,
    /// Whether any step has tool calls. Then a text that looks like a call is one only if something was run.
    has_tool_calls: bool,
    has_metrics: bool,
    has_cost: bool,
}

impl<'a> TrajectoryReader<'a> {
    fn new(document: &Json, id: &'a str, started_as: Option<String>) -> Self {
        let mut session = SessionBuilder::new(id);
        if let Some(key) = started_as {
            session.set_started_as(key);
        }
        let mut agent = None;
        if let Some(recorded) = document.get("agent") {
            if let Some(name) = text_field(recorded, "name") {
                let version = text_field(recorded, "version");
                session.set_agent(name, version);
                agent = Some((name.to_owned(), version.map(str::to_owned)));
            }
            if let Some(model) = text_field(recorded, "model_name") {
                session.set_model(model);
            }
            if let Some(tools) = recorded.get("tool_definitions") {
                session.set_tools(read_tool_definitions(tools));
            }
        }
        TrajectoryReader {
            document_id: id,
            session,
            sidechains: BTreeMap::new(),
            agent,
            copied_query: None,
            has_tool_calls: false,
            has_metrics: false,
            has_cost: false,
        }
    }

    /// Reads the fields that `gradus export` adds to a turn.
    fn read_gradus_extra(&mut self, step: &Json) {
        let Some(own) = step.get("extra").and_then(|extra| extra.get("gradus")) else { return };
        let annotations = own.get("annotations").cloned().unwrap_or_default();
        let annotations: Vec<RecordedAnnotation> = serde_json::from_value(annotations).unwrap_or_default();
        annotations.into_iter().for_each(|annotation| self.session.add_annotation(annotation));
        if is_true_field(own, "is_error") {
            self.session.fail_turn(RUN_FAILED);
        }
    }

    fn read_step(&mut self, step: &mut Json, sink: &mut dyn ImportSink) {
        let source = text_field(step, "source").unwrap_or_default().to_owned();
        let at = step.get("timestamp").and_then(normalize_timestamp);
        let message = step.get("message").map(join_content_texts).unwrap_or_default();
        if is_true_field(step, "is_copied_context") {
            if source == "user" && self.copied_query.is_none() && !message.trim().is_empty() {
                self.copied_query = Some(message);
            }
            return;
        }
        if source != "system"
            && let Some(query) = self.copied_query.take()
        {
            self.session.begin_turn(&query, at.as_deref(), sink);
        }
        if step.get("extra").is_some_and(|extra| is_true_field(extra, "is_sidechain")) {
            return self.read_sidechain_step(step, &source, &message, at.as_deref(), sink);
        }
        match source.as_str() {
            "user" => {
                self.session.begin_turn(strip_example(&message), at.as_deref(), sink);
                self.read_gradus_extra(step);
            }
            "agent" => self.read_agent_step(step, &message, at.as_deref(), sink),
            "system" if !self.session.has_turn() => self.session.set_system_prompt(&message),
            // Later system steps say what the harness did, such as a compaction.
            "system" => {}
            _ => sink.report_bad_record("ATIF step has an unknown `source`"),
        }
    }

    fn read_sidechain_step(
        &mut self,
        step: &mut Json,
        source: &str,
        message: &str,
        at: Option<&str>,
        sink: &mut dyn ImportSink,
    ) {
        let agent_id = step.get("extra").and_then(|extra| text_field(extra, "agent_id")).unwrap_or("sidechain");
        let id = format!("{}/{agent_id}", self.document_id);
        let agent = &self.agent;
        let mut session = self.sidechains.remove(&id).unwrap_or_else(|| {
            let mut session = SessionBuilder::new(id.clone());
            session.set_started_as(reference_key(&id));
            if let Some((name, version)) = agent {
                session.set_agent(name, version.as_deref());
            }
            session
        });
        std::mem::swap(&mut self.session, &mut session);
        match source {
            "user" => self.session.begin_turn(message, at, sink),
            "agent" => self.read_agent_step(step, message, at, sink),
            _ => {}
        }
        std::mem::swap(&mut self.session, &mut session);
        self.sidechains.insert(id, session);
    }

    fn read_agent_step(&mut self, step: &mut Json, message: &str, at: Option<&str>, sink: &mut dyn ImportSink) {
        let reasoning = text_field(step, "reasoning_content").unwrap_or_default();
        if has_calls(step) && message.is_empty() && reasoning.is_empty() {
            // Some converters write the text of a reply and its calls as steps of their own.
            self.session.begin_reply(at);
        } else {
            self.session.begin_separate_reply(at);
        }
        self.session.add_reasoning(reasoning);
        let model = text_field(step, "model_name").map(str::to_owned);
        let calls = step.get_mut("tool_calls").map(Json::take).unwrap_or_default();
        let mut call_ids = Vec::new();
        match calls {
            Json::Array(calls) if !calls.is_empty() => {
                self.session.add_text(message);
                for call in calls {
                    call_ids.extend(self.add_call(call, at, sink));
                }
            }
            _ => match read_text_reply(message).filter(|_| !self.has_tool_calls || has_results(step)) {
                Some(reply) => {
                    self.session.add_text(&reply.thought);
                    for (name, arguments) in reply.calls {
                        let arguments = Some(ArgumentsText::from(arguments));
                        let call = ImportedCall { id: None, name: &name, arguments };
                        call_ids.push((None, self.session.add_call(&call, at)));
                    }
                }
                None => self.session.add_text(message),
            },
        }
        if let Some(metrics) = step.get("metrics").filter(|metrics| metrics.is_object()) {
            self.add_metrics(metrics, model.as_deref());
        } else if let Some(model) = &model {
            self.session.set_usage(TokenUsage::default(), Some(model), None);
        }
        let first_step = call_ids.first().map(|(_, index)| *index);
        self.add_observation(step, &call_ids, at, sink);
        if let Some(extra) = step.get("extra") {
            add_outcomes(&mut self.session, extra, first_step);
        }
    }

    /// Adds a call. Returns its id and the number of its step.
    fn add_call(
        &mut self,
        mut call: Json,
        at: Option<&str>,
        sink: &mut dyn ImportSink,
    ) -> Option<(Option<String>, u32)> {
        let id = text_field(&call, "tool_call_id").map(str::to_owned);
        let Some(name) = text_field(&call, "function_name").map(str::to_owned) else {
            sink.report_bad_record("ATIF tool call without `function_name`");
            return None;
        };
        let arguments = match call.get_mut("arguments").map(Json::take) {
            None | Some(Json::Null) => None,
            Some(Json::String(text)) => Some(ArgumentsText::Text(text.into())),
            Some(json) => Some(ArgumentsText::from(json)),
        };
        let index = self.session.add_call(&ImportedCall { id: id.as_deref(), name: &name, arguments }, at);
        Some((id, index))
    }

    fn add_metrics(&mut self, metrics: &Json, model: Option<&str>) {
        let tokens = TokenUsage {
            prompt: count_field(metrics, "prompt_tokens"),
            completion: count_field(metrics, "completion_tokens"),
            cached_prompt: count_field(metrics, "cached_tokens"),
        };
        let cost = metrics.get("cost_usd").and_then(Json::as_f64).filter(|cost| cost.is_finite());
        self.has_metrics |= tokens != TokenUsage::default();
        self.has_cost |= cost.is_some();
        self.session.set_usage(tokens, model, cost);
    }

    fn add_observation(
        &mut self,
        step: &mut Json,
        calls: &[(Option<String>, u32)],
        at: Option<&str>,
        sink: &mut dyn ImportSink,
    ) {
        let results = step.get_mut("observation").and_then(|observation| observation.get_mut("results"));
        let Some(Json::Array(mut results)) = results.map(Json::take) else { return };
        // With one call, its result may be marked as an error on the step.
        let step_metadata = step.get("extra").and_then(|extra| extra.get("metadata"));
        let is_step_error =
            calls.len() == 1 && step_metadata.is_some_and(|metadata| is_true_field(metadata, "is_error"));
        let mut answered = HashSet::new();
        let mut unnamed = Vec::new();
        for result in &mut results {
            let Some(id) = text_field(result, "source_call_id").map(str::to_owned) else {
                unnamed.push(result);
                continue;
            };
            let status = if is_step_error { ResultStatus::Error } else { read_status(result) };
            self.link_subagents(result, &id);
            let content = result.get_mut("content").map(Json::take).map(result_content).unwrap_or_default();
            let result = ImportedResult { id: Some(&id), content: &content, status, at };
            add_result_or_report(&mut self.session, &result, sink);
            answered.insert(id);
        }
        let is_open = |id: &Option<String>| id.as_ref().is_none_or(|id| !answered.contains(id));
        let open: Vec<u32> = calls.iter().filter(|(id, _)| is_open(id)).map(|(_, step)| *step).collect();
        self.add_unnamed_results(unnamed, &open, is_step_error, at);
    }

    /// Adds results that name no call. As many as there are calls without a result belong to these in their order.
    /// One result for several calls is what the agent saw of all of them, such as the screen after a list of
    /// commands.
    fn add_unnamed_results(&mut self, results: Vec<&mut Json>, open: &[u32], is_step_error: bool, at: Option<&str>) {
        let results: Vec<(String, ResultStatus)> = results
            .into_iter()
            .filter(|result| result.get("content").is_some_and(|content| !content.is_null()))
            .map(|result| {
                let status = if is_step_error { ResultStatus::Error } else { read_status(result) };
                (result.get_mut("content").map(Json::take).map(result_content).unwrap_or_default(), status)
            })
            .collect();
        if results.is_empty() {
            return;
        }
        if open.is_empty() {
            let detail = "an observation without a tool call before it";
            self.session.add_defect(DefectKind::ToolRunOutsideSteps, detail);
            return;
        }
        if results.len() == open.len() {
            for (step, (content, status)) in open.iter().zip(&results) {
                self.session.add_step_result(*step, &ImportedResult { id: None, content, status: *status, at });
            }
            return;
        }
        let texts: Vec<&str> = results.iter().map(|(content, _)| content.as_str()).collect();
        let has_error = results.iter().any(|(_, status)| *status == ResultStatus::Error);
        let status = if has_error { ResultStatus::Error } else { ResultStatus::Success };
        let content = texts.join("\n");
        for step in open {
            self.session.add_step_result(*step, &ImportedResult { id: None, content: &content, status, at });
        }
    }

    fn link_subagents(&mut self, result: &Json, call_id: &str) {
        for reference in result.get("subagent_trajectory_ref").and_then(Json::as_array).into_iter().flatten() {
            if let Some(id) = text_field(reference, "trajectory_id") {
                self.session.add_subagent(call_id, reference_key(&format!("{}/{id}", self.document_id)));
            } else if let Some(id) = text_field(reference, "session_id") {
                self.session.add_subagent(call_id, reference_key(id));
            }
        }
    }

    fn has_conversation(&self) -> bool {
        self.session.has_turn() || !self.sidechains.is_empty()
    }

    fn finish(mut self, document: &Json, sink: &mut dyn ImportSink) {
        if let Some(metrics) = document.get("final_metrics").filter(|_| self.session.has_turn()) {
            if !self.has_metrics {
                let tokens = TokenUsage {
                    prompt: count_field(metrics, "total_prompt_tokens"),
                    completion: count_field(metrics, "total_completion_tokens"),
                    cached_prompt: count_field(metrics, "total_cached_tokens"),
                };
                self.session.set_usage(tokens, None, None);
            }
            let cost = metrics.get("total_cost_usd").and_then(Json::as_f64).filter(|cost| cost.is_finite());
            if let Some(cost) = cost.filter(|_| !self.has_cost) {
                self.session.add_cost(cost);
            }
        }
        for holder in [document.get("extra"), document.get("final_metrics").and_then(|metrics| metrics.get("extra"))] {
            if let Some(extra) = holder.filter(|_| self.session.has_turn()) {
                add_outcomes(&mut self.session, extra, None);
            }
        }
        self.session.finish(sink);
        for (_, sidechain) in self.sidechains {
            sidechain.finish(sink);
        }
    }
}

fn has_calls(step: &Json) -> bool {
    step.get("tool_calls").and_then(Json::as_array).is_some_and(|calls| !calls.is_empty())
}

fn has_results(step: &Json) -> bool {
    let results = step.get("observation").and_then(|observation| observation.get("results"));
    results.and_then(Json::as_array).is_some_and(|results| !results.is_empty())
}

/// Returns whether the converters of Harbor and other writers mark a result as an error.
fn read_status(result: &Json) -> ResultStatus {
    let extra = result.get("extra");
    let metadata = extra.and_then(|extra| extra.get("tool_result_metadata"));
    // What `gradus export` writes.
    let own = extra.and_then(|extra| extra.get("gradus"));
    if own.is_some_and(|own| is_true_field(own, "is_denied")) {
        return ResultStatus::Denied;
    }
    let holders = [Some(result), extra, metadata, own];
    let has_failed = |holder: &Json| {
        is_true_field(holder, "is_error")
            || text_field(holder, "status").is_some_and(|status| matches!(status, "error" | "failed"))
            || holder.get("exit_code").and_then(Json::as_i64).is_some_and(|code| code != 0)
    };
    if holders.into_iter().flatten().any(has_failed) { ResultStatus::Error } else { ResultStatus::Success }
}

/// Adds rewards and other outcomes in an `extra` object, of the run or of one step.
fn add_outcomes(session: &mut SessionBuilder, extra: &Json, step_index: Option<u32>) {
    let named = OUTCOME_KEYS.iter().filter_map(|key| Some((*key, extra.get(*key)?)));
    let rewards = extra.get("rewards").and_then(Json::as_object);
    let rewards = rewards.into_iter().flatten().map(|(name, value)| (name.as_str(), value));
    for (name, value) in named.chain(rewards) {
        if let Some(mut annotation) = outcome_annotation(name, value) {
            annotation.step_index = step_index;
            session.add_annotation(annotation);
        }
    }
}
