//! Logs of Inspect as JSON. Each sample is a conversation. The archives (`.eval`) hold the same samples, see
//! [`super::inspect_archive`].

use std::collections::HashMap;

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::{RecordedAnnotation, TokenUsage};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::harness_chat::{add_result_or_report, content_id, object_to_value, outcome_annotation};
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::{count_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp_text;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

/// Prefixes of references to texts that are stored separately, in present and in older logs.
const ATTACHMENT_SCHEMES: [&str; 2] = ["attachment://", "tc://"];
/// The tool with which agents hand in their answer.
const SUBMIT_TOOL: &str = "submit";

pub(crate) fn is_inspect_log(object: &Map<String, Json>) -> bool {
    let eval = object.get("eval").unwrap_or(&Json::Null);
    object.get("version").is_some_and(Json::is_number)
        && object.get("status").is_some_and(Json::is_string)
        && eval.get("task").is_some_and(Json::is_string)
        && eval.get("model").is_some()
        && ["plan", "results", "stats", "samples"].iter().any(|key| object.contains_key(*key))
}

pub(crate) fn read_inspect_log(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let Some(Json::Array(samples)) = document.get_mut("samples").map(Json::take) else {
        return Err(ImportError::new("Inspect log without samples: only its header was written"));
    };
    let header = EvalHeader::from_log(&document);
    for sample in samples {
        match InspectSample::deserialize(sample) {
            Ok(sample) => header.read_sample(sample, sink),
            Err(error) => sink.report_bad_record(&format!("Inspect sample: {error}")),
        }
    }
    Ok(())
}

/// Whether an object is a sample in a file of its own, as it is extracted from an archive.
pub(crate) fn is_inspect_sample(object: &Map<String, Json>) -> bool {
    let keys = ["id", "epoch", "input", "target", "output", "scores"];
    let known = keys.iter().filter(|key| object.contains_key(**key)).count();
    known >= 5 && object.contains_key("epoch") && object.get("messages").is_some_and(Json::is_array)
}

pub(crate) fn read_inspect_sample(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let document = object_to_value(object);
    let header = EvalHeader { run_id: content_id("inspect", &document), ..EvalHeader::default() };
    let sample = InspectSample::deserialize(document);
    let sample = sample.map_err(|error| ImportError::new(format!("Inspect sample: {error}")))?;
    header.read_sample(sample, sink);
    Ok(())
}

/// What all samples of a log share.
#[derive(Default)]
pub(super) struct EvalHeader {
    run_id: String,
    task: String,
    model: Option<String>,
    version: Option<String>,
}

impl EvalHeader {
    /// Reads the header from the object that has `eval` in it: a whole log, `header.json` or `_journal/start.json` of
    /// an archive.
    pub(super) fn from_log(log: &Json) -> EvalHeader {
        let eval = log.get("eval").unwrap_or(&Json::Null);
        let run_id = ["eval_id", "task_id", "run_id"].iter().find_map(|key| text_field(eval, key)).map(str::to_owned);
        let packages = eval.get("packages").unwrap_or(&Json::Null);
        EvalHeader {
            run_id: run_id.unwrap_or_else(|| content_id("inspect", eval)),
            task: text_field(eval, "task").unwrap_or_default().to_owned(),
            model: text_field(eval, "model").filter(|model| *model != "none/none").map(str::to_owned),
            version: text_field(packages, "inspect_ai").map(str::to_owned),
        }
    }

    pub(super) fn read_sample(&self, sample: InspectSample, sink: &mut dyn ImportSink) {
        let sample_id = match &sample.id {
            Json::String(id) => id.clone(),
            id => id.to_string(),
        };
        let mut session = SessionBuilder::new(format!("{}/{sample_id}/{}", self.run_id, sample.epoch));
        session.set_agent("Inspect", self.version.as_deref());
        if !self.task.is_empty() {
            session.set_project(&self.task);
        }
        if let Some(model) = &self.model {
            session.set_model(model);
        }
        let has_sources = sample.messages.iter().any(|message| {
            text_field(message, "role") == Some("user") && text_field(message, "source") == Some("input")
        });
        let at = sample.started_at.as_deref().and_then(normalize_timestamp_text);
        let mut reader = SampleReader {
            session,
            attachments: sample.attachments,
            has_sources,
            at,
            last_call: String::new(),
            last_result: String::new(),
        };
        for message in sample.messages {
            reader.read_message(message, sink);
        }
        let mut session = reader.session;
        if !session.has_turn() {
            sink.report_bad_record("Inspect sample without messages");
            return;
        }
        add_usage(&mut session, &sample.model_usage, self.model.as_deref());
        if let Some(answer) = submitted_answer(&sample.output, &reader.last_call, &reader.last_result) {
            session.set_answer(answer);
        }
        add_scores(&mut session, &sample.scores);
        if let Some(error) = text_field(&sample.error, "message") {
            session.fail_turn(error);
        }
        if let Some(limit) = text_field(&sample.limit, "type") {
            session.fail_turn(&format!("the run ended at its limit: {limit}"));
        }
        session.finish(sink);
    }
}

/// One sample. Its events, which repeat the conversation many times, are not read.
#[derive(Deserialize)]
pub(super) struct InspectSample {
    id: Json,
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    messages: Vec<Json>,
    #[serde(default)]
    output: Json,
    #[serde(default)]
    scores: Json,
    #[serde(default)]
    model_usage: Json,
    #[serde(default)]
    error: Json,
    #[serde(default)]
    limit: Json,
    #[serde(default)]
    attachments: HashMap<String, String>,
    #[serde(default)]
    started_at: Option<String>,
}

struct SampleReader {
    session: SessionBuilder,
    attachments: HashMap<String, String>,
    /// The log marks the user messages that are the input. Others are prompts of the agent's own loop.
    has_sources: bool,
    at: Option<String>,
    last_call: String,
    last_result: String,
}

impl SampleReader {
    fn read_message(&mut self, mut message: Json, sink: &mut dyn ImportSink) {
        let source = text_field(&message, "source").unwrap_or_default();
        let is_request = !self.has_sources || matches!(source, "input" | "operator");
        match text_field(&message, "role").unwrap_or_default() {
            "system" => {
                if !self.session.has_turn() {
                    self.session.set_system_prompt(&self.message_text(&message));
                }
            }
            "user" if is_request => {
                let query = self.message_text(&message);
                self.session.begin_turn(&query, self.at.as_deref(), sink);
            }
            "user" => {}
            "assistant" => self.read_reply(&mut message, sink),
            "tool" => self.read_result(&message, sink),
            _ => sink.report_bad_record("Inspect message has an unknown role"),
        }
    }

    fn read_reply(&mut self, message: &mut Json, sink: &mut dyn ImportSink) {
        self.session.begin_separate_reply(None);
        self.last_call.clear();
        match message.get_mut("content").map(Json::take) {
            Some(Json::Array(parts)) => parts.into_iter().for_each(|part| self.read_part(part, sink)),
            Some(Json::String(text)) => self.session.add_text(resolve_text(&self.attachments, &text)),
            _ => {}
        }
        if let Some(reasoning) = text_field(message, "reasoning") {
            self.session.add_reasoning(resolve_text(&self.attachments, reasoning));
        }
        let Some(Json::Array(calls)) = message.get_mut("tool_calls").map(Json::take) else { return };
        for mut call in calls {
            let mut arguments = call.get_mut("arguments").map(Json::take).unwrap_or_default();
            resolve_values(&self.attachments, &mut arguments);
            let arguments = (!arguments.is_null()).then(|| match arguments {
                Json::String(text) => ArgumentsText::Text(text.into()),
                json => ArgumentsText::from(json),
            });
            let name = text_field(&call, "function").unwrap_or_default();
            self.session.add_call(&ImportedCall { id: text_field(&call, "id"), name, arguments }, None);
            name.clone_into(&mut self.last_call);
        }
    }

    /// Reads a part of a reply. A `tool_use` is a call that the provider ran itself, with its result.
    fn read_part(&mut self, mut part: Json, sink: &mut dyn ImportSink) {
        match text_field(&part, "type") {
            Some("text") => {
                let text = resolve_text(&self.attachments, text_field(&part, "text").unwrap_or_default());
                self.session.add_text(text);
            }
            Some("reasoning") => {
                let is_redacted = part.get("redacted").is_some_and(|flag| flag == true);
                let key = if is_redacted { "summary" } else { "reasoning" };
                let text = text_field(&part, key).or_else(|| text_field(&part, "summary")).unwrap_or_default();
                self.session.add_reasoning(resolve_text(&self.attachments, text));
            }
            Some("tool_use") => {
                let arguments = part.get_mut("arguments").map(Json::take).unwrap_or_default();
                let arguments = match arguments {
                    Json::Null => None,
                    Json::String(text) => Some(ArgumentsText::Text(text.into())),
                    json => Some(ArgumentsText::from(json)),
                };
                let name = text_field(&part, "name").unwrap_or_default();
                let id = text_field(&part, "id");
                self.session.add_call(&ImportedCall { id, name, arguments }, None);
                let error = text_field(&part, "error");
                let status = if error.is_some() { ResultStatus::Error } else { ResultStatus::Success };
                let content = error.or_else(|| text_field(&part, "result")).unwrap_or_default();
                let content = resolve_text(&self.attachments, content);
                add_result_or_report(&mut self.session, &ImportedResult { id, content, status, at: None }, sink);
            }
            _ => {}
        }
    }

    fn read_result(&mut self, message: &Json, sink: &mut dyn ImportSink) {
        let error = message.get("error").filter(|error| !error.is_null());
        let status = match error.map(|error| text_field(error, "type")) {
            None => ResultStatus::Success,
            // A person or a policy decided against the call.
            Some(Some("approval")) => ResultStatus::Denied,
            Some(_) => ResultStatus::Error,
        };
        // The model is shown the message of the error instead of the content.
        let content = match error.and_then(|error| text_field(error, "message")) {
            Some(text) => resolve_text(&self.attachments, text).to_owned(),
            None => self.message_text(message),
        };
        let id = text_field(message, "tool_call_id");
        add_result_or_report(&mut self.session, &ImportedResult { id, content: &content, status, at: None }, sink);
        self.last_result = content;
    }

    fn message_text(&self, message: &Json) -> String {
        match message.get("content") {
            Some(Json::String(text)) => resolve_text(&self.attachments, text).to_owned(),
            Some(Json::Array(parts)) => {
                let texts = parts.iter().filter_map(|part| text_field(part, "text"));
                texts.map(|text| resolve_text(&self.attachments, text)).collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        }
    }
}

/// Returns the answer that the agent submitted with its last call, if it did.
fn submitted_answer<'a>(output: &'a Json, last_call: &str, last_result: &'a str) -> Option<&'a str> {
    let completion = output.get("completion").and_then(Json::as_str).unwrap_or_default();
    let is_submitted = last_call == SUBMIT_TOOL || (!last_call.is_empty() && last_result.trim() == completion.trim());
    let answer = if completion.trim().is_empty() { last_result } else { completion };
    Some(answer).filter(|answer| is_submitted && !answer.trim().is_empty())
}

/// Returns the text that a reference names; other texts unchanged.
fn resolve_text<'a>(attachments: &'a HashMap<String, String>, text: &'a str) -> &'a str {
    let hash = ATTACHMENT_SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
    hash.and_then(|hash| attachments.get(hash)).map_or(text, String::as_str)
}

/// Resolves all texts of a value. Recursion is bounded by the depth of the JSON.
fn resolve_values(attachments: &HashMap<String, String>, value: &mut Json) {
    if attachments.is_empty() {
        return;
    }
    match value {
        Json::String(text) => {
            let resolved = resolve_text(attachments, text);
            if resolved != text.as_str() {
                *text = resolved.to_owned();
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| resolve_values(attachments, item)),
        Json::Object(object) => object.values_mut().for_each(|item| resolve_values(attachments, item)),
        _ => {}
    }
}

/// Adds the tokens of the model under test. Those of others, such as a grader, are not the agent's.
fn add_usage(session: &mut SessionBuilder, usage: &Json, model: Option<&str>) {
    let Some(models) = usage.as_object() else { return };
    let own = model.and_then(|model| models.get_key_value(model)).or_else(|| models.iter().next());
    let Some((model, usage)) = own else { return };
    let completion = count_field(usage, "output_tokens");
    let cached_prompt = count_field(usage, "input_tokens_cache_read");
    let input = count_field(usage, "input_tokens");
    // Providers differ in whether the input includes what was cached. The total always does.
    let prompt = count_field(usage, "total_tokens").saturating_sub(completion).max(input);
    let tokens = TokenUsage { prompt, completion, cached_prompt };
    let cost = usage.get("total_cost").and_then(Json::as_f64).filter(|cost| cost.is_finite());
    session.set_usage(tokens, Some(model), cost);
}

/// Adds scores by the names of their scorers. A scorer with several values has one annotation for each.
fn add_scores(session: &mut SessionBuilder, scores: &Json) {
    for (name, score) in scores.as_object().into_iter().flatten() {
        let value = score.get("value").unwrap_or(score);
        let explanation = text_field(score, "explanation").map(str::to_owned);
        let mut add = |name: &str, value: &Json| {
            if let Some(mut annotation) = score_annotation(name, value) {
                annotation.explanation.clone_from(&explanation);
                session.add_annotation(annotation);
            }
        };
        match value {
            Json::Object(values) => values.iter().for_each(|(key, value)| add(&format!("{name}.{key}"), value)),
            value => add(name, value),
        }
    }
}

/// Returns a score as an annotation. Inspect's letters for correct, partial, incorrect and no answer count as in
/// Inspect.
fn score_annotation(name: &str, value: &Json) -> Option<RecordedAnnotation> {
    let mut annotation = outcome_annotation(name, value)?;
    annotation.score = annotation.score.or(match annotation.label.as_deref() {
        Some("C") => Some(1.0),
        Some("P") => Some(0.5),
        Some("I" | "N") => Some(0.0),
        _ => None,
    });
    Some(annotation)
}
