//! OpenHands: the event stream of a conversation as a list or as lines, and the `output.jsonl` of its benchmarks, whose
//! lines hold such a list. The first generation has `action` and `observation` events that are tied by `cause`; the SDK
//! of the second has a `kind` in each event.

use serde_json::{Map, Value as Json};
use xxhash_rust::xxh3::Xxh3;

use super::harness_chat::{content_id, finish_run, first_elements, has_list, object_to_value, outcome_annotation};
use super::openhands_events::EventReader;
use crate::format_kinds::SessionReader;
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::text_field;

/// Kinds of the SDK's events that prove the format.
const SDK_KINDS: [&str; 5] =
    ["SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "ConversationStateUpdateEvent"];
/// Maximum number of benchmark results that become annotations.
const MAX_TEST_RESULTS: usize = 16;

/// Whether the first records of a file are events.
pub(crate) fn is_event_list(records: &[Json]) -> bool {
    let events = records.iter().flat_map(flatten_pair);
    let mut proven = 0;
    for event in events {
        if !is_event(event) {
            return false;
        }
        proven += usize::from(text_field(event, "kind").is_none_or(|kind| SDK_KINDS.contains(&kind)));
    }
    proven >= 2
}

fn is_event(event: &Json) -> bool {
    let has_source = matches!(text_field(event, "source"), Some("agent" | "user" | "environment" | "hook"));
    if text_field(event, "kind").is_some() {
        return has_source && event.get("id").is_some() && event.get("timestamp").is_some();
    }
    let is_action = event.get("action").is_some_and(Json::is_string) && event.get("args").is_some_and(Json::is_object);
    let is_observation = event.get("observation").is_some_and(Json::is_string) && event.get("content").is_some();
    (is_action || is_observation) && (has_source || event.get("id").is_some())
}

/// Returns the events of a record: the first benchmarks wrote an action and its observation as a pair.
fn flatten_pair(record: &Json) -> &[Json] {
    match record {
        Json::Array(pair) => pair,
        record => std::slice::from_ref(record),
    }
}

/// Whether an object is one event in a file of its own, as the server stores them.
pub(crate) fn is_single_event(object: &Map<String, Json>) -> bool {
    let event = Json::Object(object.iter().filter(|(_, value)| !value.is_array()).map(clone_shallow).collect());
    let is_known = text_field(&event, "kind").is_none_or(|kind| SDK_KINDS.contains(&kind));
    object.contains_key("timestamp") && is_known && is_event(&event)
}

/// Returns a field without nested content, because only its type matters.
fn clone_shallow((key, value): (&String, &Json)) -> (String, Json) {
    let value = if value.is_object() { Json::Object(Map::new()) } else { value.clone() };
    (key.clone(), value)
}

/// Reads a stream of events.
#[derive(Default)]
pub(crate) struct EventListReader {
    events: EventReader,
    hasher: Xxh3,
    has_id: bool,
}

impl EventListReader {
    pub(crate) fn open() -> Box<dyn SessionReader> {
        Box::new(EventListReader::default())
    }
}

impl SessionReader for EventListReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let event: Json = match serde_json::from_slice(record) {
            Ok(event) => event,
            Err(error) => return sink.report_bad_record(&format!("OpenHands event is not JSON: {error}")),
        };
        // The id must be known before the first turn is handed over; the first events have times and ids of their own.
        if !self.has_id && self.events.event_count() < 8 {
            self.hasher.update(record);
            self.events.session.set_session_id(&format!("openhands-{:016x}", self.hasher.digest()));
        } else {
            self.has_id = true;
        }
        self.events.read_record(event, sink);
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.events.finish(sink);
    }
}

pub(crate) fn is_benchmark_line(object: &Map<String, Json>) -> bool {
    has_list(object, "history")
        && object.contains_key("instance_id")
        && ["test_result", "metadata", "metrics"].iter().filter(|key| object.contains_key(**key)).count() >= 2
        && is_event_list(first_elements(object, "history", 20))
}

pub(crate) fn read_benchmark_line(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let hashed = content_id("openhands", &document);
    let mut events = EventReader::default();
    let instance = text_field(&document, "instance_id").unwrap_or_default();
    events.session.set_session_id(&format!("{instance}-{hashed}"));
    let metadata = document.get("metadata").unwrap_or(&Json::Null);
    events.session.set_agent(text_field(metadata, "agent_class").unwrap_or("OpenHands"), None);
    let config = ["llm_config", "llm"].iter().find_map(|key| metadata.get(*key));
    if let Some(model) = config.and_then(|config| text_field(config, "model")) {
        events.session.set_model(model);
        events.has_model = true;
    }
    let Some(Json::Array(history)) = document.get_mut("history").map(Json::take) else {
        return Err(ImportError::new("OpenHands output: `history` is not a list"));
    };
    events.fallback_query = text_field(&document, "instruction").map(str::to_owned);
    for event in history {
        events.read_record(event, sink);
    }
    if !events.session.has_turn() {
        return Err(ImportError::new("OpenHands output without a conversation in it"));
    }
    let cost = document.get("metrics").and_then(|metrics| metrics.get("accumulated_cost")).and_then(Json::as_f64);
    events.set_final_cost(cost);
    add_test_results(&mut events, document.get("test_result"));
    if let Some(error) = text_field(&document, "error") {
        events.session.fail_turn(error);
    }
    events.finish(sink);
    Ok(())
}

/// Whether an object holds the events of one conversation, as the server returns them.
pub(crate) fn is_trajectory_document(object: &Map<String, Json>) -> bool {
    events_key(object).is_some()
}

/// Returns the key whose list holds events. A list of two or more must be recognised as such.
fn events_key(object: &Map<String, Json>) -> Option<&'static str> {
    let keys = ["trajectory", "history", "events"];
    keys.into_iter().find(|key| is_event_list(first_elements(object, key, 20)))
}

pub(crate) fn read_trajectory_document(
    mut object: Map<String, Json>,
    sink: &mut dyn ImportSink,
) -> Result<(), ImportError> {
    let events = events_key(&object).and_then(|key| object.remove(key)).unwrap_or_default();
    let mut reader = EventReader::default();
    reader.session.set_session_id(&content_id("openhands", &events));
    let Json::Array(events) = events else {
        return Err(ImportError::new("OpenHands trajectory: no list of events"));
    };
    for event in events {
        reader.read_record(event, sink);
    }
    finish_run(reader.into_session(), "OpenHands trajectory", sink)
}

/// Adds the results of the benchmark: flags and numbers, at the top or in its report.
fn add_test_results(events: &mut EventReader, result: Option<&Json>) {
    let holders = [result, result.and_then(|result| result.get("report"))];
    let outcomes = holders.into_iter().flatten().filter_map(Json::as_object).flatten();
    let outcomes = outcomes.filter(|(_, value)| value.is_boolean() || value.is_number());
    for (name, value) in outcomes.take(MAX_TEST_RESULTS) {
        outcome_annotation(name, value).into_iter().for_each(|outcome| events.session.add_annotation(outcome));
    }
}
