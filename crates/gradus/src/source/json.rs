//! JSON sources: OTLP documents, Phoenix spans, nested dumps, message lists and our own line format; one document a
//! line, one for the whole file, or any number one behind the other.

use std::fmt;
use std::io::{BufRead, Read};

use gradus_core::message::{Message, messages_from_json};
use gradus_core::span_json::{is_nested_span, is_phoenix_span, nested_spans, phoenix_span};
use gradus_core::trajectory::Trajectory;
use gradus_otlp::{ExportJson, read_export_json, span_from_json};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};

use super::error::ReadError;
use super::intake::Intake;

pub(super) fn read(input: &mut dyn BufRead, intake: &mut Intake<'_>) -> Result<(), ReadError> {
    let mut lines = Lines { input, number: 0, line: Vec::new(), limit: intake.limits().record.record_bytes };
    let mut conversation = Conversation::default();
    let mut first_failure: Option<(bool, String)> = None;
    let before = intake.taken();
    while let Some(complete) = lines.next()? {
        let text = lines.line.trim_ascii();
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        if text.is_empty() {
            continue;
        }
        let failure = if complete {
            document(text, intake, &mut conversation).err()
        } else {
            Some(Failure::Incomplete)
        };
        match failure {
            None => {}
            Some(Failure::Incomplete)
                if intake.taken() == before && first_failure.is_none() && conversation.is_empty() =>
            {
                // The first line is only the beginning of a document: read on without regard to lines.
                let head = std::mem::take(&mut lines.line);
                return whole(head.chain(lines.input), intake);
            }
            Some(failure) => {
                let reason = format!("line {}: {failure}", lines.number);
                let known = !matches!(failure, Failure::Unrecognised);
                first_failure.get_or_insert((known, reason.clone()));
                intake.bad_record(&reason);
            }
        }
    }
    conversation.flush(intake);
    match first_failure {
        Some((true, reason)) if intake.taken() == before => Err(ReadError::new(reason)),
        Some((false, reason)) if intake.taken() == before => Err(ReadError::Unrecognised(reason)),
        _ => Ok(()),
    }
}

/// Documents that are spread over lines.
fn whole(input: impl Read, intake: &mut Intake<'_>) -> Result<(), ReadError> {
    let mut deserializer = serde_json::Deserializer::from_reader(std::io::BufReader::new(input));
    let before = intake.taken();
    let mut conversation = Conversation::default();
    loop {
        if deserializer.end().is_ok() {
            break;
        }
        if let Err(error) =
            (Document { intake, conversation: &mut conversation }).deserialize(&mut deserializer)
        {
            let reason = describe(&error);
            if intake.taken() == before && conversation.is_empty() {
                return Err(ReadError::new(reason));
            }
            intake.bad_record(&reason);
            break;
        }
    }
    conversation.flush(intake);
    if intake.taken() == before {
        return Err(ReadError::Unrecognised(Failure::Unrecognised.to_string()));
    }
    Ok(())
}

/// The file's lines, with a bound on their length.
struct Lines<'r> {
    input: &'r mut dyn BufRead,
    number: u64,
    line: Vec<u8>,
    limit: usize,
}

impl Lines<'_> {
    /// Reads the next line; false when it is longer than the limit, so that only its beginning is there.
    fn next(&mut self) -> Result<Option<bool>, ReadError> {
        self.line.clear();
        self.number += 1;
        let read = (&mut *self.input).take(self.limit as u64 + 1).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        Ok(Some(read <= self.limit))
    }
}

enum Failure {
    /// The document goes on behind the end of the line.
    Incomplete,
    Malformed(String),
    Unrecognised,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Incomplete => f.write_str("the JSON ends too early"),
            Failure::Malformed(reason) => f.write_str(reason),
            Failure::Unrecognised => f.write_str("JSON that is neither spans nor messages"),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        if error.is_eof() { Failure::Incomplete } else { Failure::Malformed(describe(&error)) }
    }
}

/// serde_json's message; its limit on depth is named.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.contains("recursion limit") { format!("{text} (limit 128 levels)") } else { text }
}

/// One complete document.
fn document(text: &[u8], intake: &mut Intake<'_>, conversation: &mut Conversation) -> Result<(), Failure> {
    if is_export(text) {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        read_export_json(&mut deserializer, &mut |record| take_export(record, intake))?;
        return Ok(deserializer.end()?);
    }
    let json: Json = serde_json::from_slice(text)?;
    let fits = value(json, text, intake, conversation);
    if fits { Ok(()) } else { Err(Failure::Unrecognised) }
}

/// Whether a document begins like an OTLP export: those are read without building a tree first.
fn is_export(text: &[u8]) -> bool {
    let inside = text.strip_prefix(b"{").unwrap_or_default().trim_ascii_start();
    inside.starts_with(b"\"resourceSpans\"")
        || inside.starts_with(b"\"resource_spans\"")
        || inside.starts_with(b"\"resourceLogs\"")
}

fn take_export(record: ExportJson, intake: &mut Intake<'_>) {
    match record {
        ExportJson::Span(span) => intake.span(&span),
        ExportJson::Log(log) => intake.log(&log),
    }
}

/// Messages that stand alone, one a line, until something else comes.
#[derive(Default)]
struct Conversation {
    messages: Vec<Message<'static>>,
    digest_of: Vec<u8>,
}

impl Conversation {
    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn flush(&mut self, intake: &mut Intake<'_>) {
        if !self.messages.is_empty() {
            intake.messages(
                &std::mem::take(&mut self.messages),
                None,
                &std::mem::take(&mut self.digest_of),
                &[],
            );
        }
    }
}

/// Takes in a JSON value of any known shape. False when it is none.
fn value(json: Json, source: &[u8], intake: &mut Intake<'_>, conversation: &mut Conversation) -> bool {
    match json {
        Json::Array(items) => list(items, source, intake, conversation),
        Json::Object(object) => self::object(object, source, intake, conversation),
        _ => false,
    }
}

fn list(items: Vec<Json>, source: &[u8], intake: &mut Intake<'_>, conversation: &mut Conversation) -> bool {
    if items.is_empty() {
        return true;
    }
    if items.iter().all(is_message) {
        intake.messages(&messages_from_json(Json::Array(items)), None, source, &[]);
        return true;
    }
    let mut any = false;
    for item in items {
        let bytes = item.to_string();
        any |= value(item, bytes.as_bytes(), intake, conversation);
    }
    any
}

fn is_message(json: &Json) -> bool {
    let Some(object) = json.as_object() else { return false };
    let kind = object.get("type").and_then(Json::as_str).unwrap_or_default();
    (object.contains_key("role") && !object.contains_key("messages"))
        || (matches!(kind, "human" | "ai" | "tool" | "system")
            && (object.contains_key("content") || object.contains_key("data")))
        || matches!(kind, "function_call" | "function_call_output" | "reasoning" | "message")
}

fn object(
    mut object: Map<String, Json>,
    source: &[u8],
    intake: &mut Intake<'_>,
    conversation: &mut Conversation,
) -> bool {
    if ["resourceSpans", "resource_spans", "resourceLogs", "resource_logs"]
        .iter()
        .any(|key| object.contains_key(*key))
    {
        let read = read_export_json(Json::Object(object), &mut |record| take_export(record, intake));
        return read.is_ok();
    }
    if object.contains_key("resourceMetrics") {
        return true;
    }
    if is_phoenix_span(&object) {
        intake.span(&phoenix_span(&object));
        return true;
    }
    if is_nested_span(&object) {
        nested_spans(&object).iter().for_each(|span| intake.span(span));
        return true;
    }
    if object.contains_key("trajectory_id") && object.contains_key("steps") {
        return match serde_json::from_value::<Trajectory>(Json::Object(object)) {
            Ok(trajectory) => {
                intake.trajectory(trajectory);
                true
            }
            Err(_) => false,
        };
    }
    if ["spanId", "span_id"].iter().any(|key| object.contains_key(*key))
        && ["traceId", "trace_id"].iter().any(|key| object.contains_key(*key))
    {
        return match span_from_json(Json::Object(object)) {
            Ok(span) => {
                intake.span(&span);
                true
            }
            Err(_) => false,
        };
    }
    for key in ["data", "spans", "traces"] {
        if let Some(Json::Array(items)) = object.get_mut(key) {
            let items = std::mem::take(items);
            return list(items, source, intake, conversation);
        }
    }
    if is_message(&Json::Object(object.clone())) {
        conversation.digest_of.extend_from_slice(source);
        conversation.messages.extend(messages_from_json(Json::Object(object)));
        return true;
    }
    for key in ["messages", "conversation", "conversations", "traj", "trajectory", "history", "input"] {
        if matches!(object.get(key), Some(Json::Array(items)) if items.iter().any(is_message)) {
            conversation.flush(intake);
            conversation_document(key, object, source, intake);
            return true;
        }
    }
    false
}

/// An object around a message list, with what stands beside it.
fn conversation_document(key: &str, mut object: Map<String, Json>, source: &[u8], intake: &mut Intake<'_>) {
    let id = ["id", "session_id", "conversation_id", "trajectory_id", "task_id"]
        .iter()
        .find_map(|key| object.get(*key)?.as_str().map(str::to_owned));
    let tools =
        object.remove("tools").map(|tools| gradus_core::assemble::tool_definitions(&tools.to_string()));
    let tools = tools.unwrap_or_default();
    let list = object.remove(key).unwrap_or_default();
    let mut wrapped = Map::new();
    wrapped.insert("messages".to_owned(), list);
    if let Some(system) = object.remove("system") {
        wrapped.insert("system".to_owned(), system);
    }
    let mut messages = messages_from_json(Json::Object(wrapped));
    // A recorded exchange: the request's messages and the response beside them.
    for key in ["response", "choices", "output"] {
        if let Some(reply) = object.remove(key).filter(|reply| reply.is_object() || reply.is_array()) {
            messages.extend(messages_from_json(reply));
            break;
        }
    }
    intake.messages(&messages, id.as_deref(), source, &tools);
}

/// A document read while it is parsed: the elements of its lists are handed on one by one.
struct Document<'d, 'k> {
    intake: &'d mut Intake<'k>,
    conversation: &'d mut Conversation,
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("spans or messages as a JSON object or list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut messages = Vec::new();
        while let Some(item) = list.next_element::<Json>()? {
            if is_message(&item) {
                messages.push(item);
            } else {
                element(item, self.intake, self.conversation);
            }
        }
        if !messages.is_empty() {
            let list = Json::Array(messages);
            let source = list.to_string();
            self.intake.messages(&messages_from_json(list), None, source.as_bytes(), &[]);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut rest = Map::new();
        let mut streamed = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "resourceSpans" | "resource_spans" | "resourceLogs" | "resource_logs" => {
                    let list: Json = map.next_value()?;
                    element(
                        Json::Object([(key, list)].into_iter().collect()),
                        self.intake,
                        self.conversation,
                    );
                    streamed = true;
                }
                "data" | "spans" | "traces" => {
                    map.next_value_seed(Elements { intake: self.intake, conversation: self.conversation })?;
                    streamed = true;
                }
                _ => drop(rest.insert(key, map.next_value()?)),
            }
        }
        if !streamed {
            element(Json::Object(rest), self.intake, self.conversation);
        }
        Ok(())
    }
}

struct Elements<'d, 'k> {
    intake: &'d mut Intake<'k>,
    conversation: &'d mut Conversation,
}

impl<'de> DeserializeSeed<'de> for Elements<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of spans")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(item) = list.next_element::<Json>()? {
            element(item, self.intake, self.conversation);
        }
        Ok(())
    }
}

fn element(item: Json, intake: &mut Intake<'_>, conversation: &mut Conversation) {
    let source = item.to_string();
    if !value(item, source.as_bytes(), intake, conversation) {
        intake.bad_record(&Failure::Unrecognised.to_string());
    }
}
