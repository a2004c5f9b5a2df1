//! `gradus dataset create --phoenix-dataset`: items from the examples of a Phoenix dataset.
//!
//! Inputs and outputs of examples are objects of any form. The request is a value with a usual name (`question`,
//! `input`, …), else the only text, else the whole input as JSON; `--request-key` and `--reference-key` name it.

use gradus_dataset::{DatasetItem, DatasetMessage};
use gradus_phoenix::client::{PhoenixAddress, PhoenixClient, PhoenixClientSettings, PhoenixDataset, PhoenixExample};
use serde_json::{Map, Value as Json};

/// Names that people give to a request, most specific first.
const REQUEST_KEYS: [&str; 9] =
    ["request", "question", "query", "prompt", "input", "user_input", "instruction", "task", "text"];
/// The same for an expected answer.
const REFERENCE_KEYS: [&str; 9] = [
    "reference",
    "answer",
    "expected",
    "expected_output",
    "expected_answer",
    "ground_truth",
    "output",
    "response",
    "text",
];

/// Where request and reference are in an example.
#[derive(Clone, Debug, Default)]
pub(super) struct ExampleKeys {
    pub(super) request: Option<String>,
    pub(super) reference: Option<String>,
}

/// Reads the dataset from the Phoenix.
pub(super) fn fetch_dataset(
    address: &PhoenixAddress,
    settings: &PhoenixClientSettings,
    wanted: &str,
) -> anyhow::Result<PhoenixDataset> {
    let client = PhoenixClient::new(address, settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(client.read_dataset(wanted))?)
}

/// Makes an item of an example; `None` if the example has no request.
pub(super) fn item_from_example(example: &PhoenixExample, dataset: &str, keys: &ExampleKeys) -> Option<DatasetItem> {
    let mut item = DatasetItem { id: example.id.clone(), ..DatasetItem::default() };
    match (&keys.request, read_messages(&example.input)) {
        (Some(key), _) => item.request = find_text(&example.input, key),
        (None, Some(messages)) => item.messages = Some(messages),
        (None, None) => item.request = pick_text(&example.input, &REQUEST_KEYS),
    }
    if item.request.is_none() && item.messages.is_none() {
        return None;
    }
    item.reference = match &keys.reference {
        Some(key) => find_text(&example.output, key),
        None => last_answer(&example.output).or_else(|| pick_text(&example.output, &REFERENCE_KEYS)),
    };
    let mut metadata = example.metadata.clone();
    if let Some(Json::Array(tags)) = metadata.get("tags") {
        item.tags =
            tags.iter().filter_map(Json::as_str).filter(|tag| !tag.trim().is_empty()).map(str::to_owned).collect();
        metadata.remove("tags");
    }
    metadata.insert("phoenix_dataset".to_owned(), Json::from(dataset));
    item.metadata = metadata;
    Some(item)
}

/// Returns a value by its name, as text.
fn find_text(object: &Map<String, Json>, key: &str) -> Option<String> {
    let text = match object.get(key)? {
        Json::String(text) => text.clone(),
        Json::Null => return None,
        other => other.to_string(),
    };
    Some(text.replace('\0', "")).filter(|text| !text.trim().is_empty())
}

/// Returns a value with a usual name, else the only value, else everything as JSON.
fn pick_text(object: &Map<String, Json>, usual: &[&str]) -> Option<String> {
    if let Some(text) = usual.iter().find_map(|key| find_text(object, key)) {
        return Some(text);
    }
    match object.keys().collect::<Vec<_>>().as_slice() {
        [] => None,
        [only] => find_text(object, only),
        _ => Some(Json::Object(object.clone()).to_string().replace('\0', "")),
    }
}

/// Reads a conversation in the format of chat models.
fn read_messages(object: &Map<String, Json>) -> Option<Vec<DatasetMessage>> {
    let list = object.get("messages")?.as_array()?;
    let messages: Option<Vec<DatasetMessage>> =
        list.iter().map(|message| serde_json::from_value(message.clone()).ok()).collect();
    messages.filter(|messages| !messages.is_empty())
}

/// Returns the last message of an expected conversation.
fn last_answer(object: &Map<String, Json>) -> Option<String> {
    read_messages(object)?.pop().map(|message| message.content).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(input: &Json, output: &Json, keys: &ExampleKeys) -> Option<DatasetItem> {
        let example = json!({"id": "e1", "input": input, "output": output, "metadata": {"tags": ["a", 1], "k": 2}});
        item_from_example(&serde_json::from_value(example).expect("an example"), "shop", keys)
    }

    #[test]
    fn requests_are_found_by_their_usual_names() {
        let plain = ExampleKeys::default();
        let request = |input: Json| item(&input, &json!({}), &plain).and_then(|item| item.request);
        assert_eq!(request(json!({"question": "Q?", "id": 3})).as_deref(), Some("Q?"));
        assert_eq!(request(json!({"anything": "Q?"})).as_deref(), Some("Q?"));
        assert_eq!(request(json!({"a": 1, "b": "x"})).as_deref(), Some(r#"{"a":1,"b":"x"}"#));
        assert_eq!(request(json!({})), None);
        assert_eq!(request(json!({"question": " "})), None);
        let found = item(&json!({"question": "Q?"}), &json!({"answer": "A."}), &plain).expect("an item");
        assert_eq!((found.reference.as_deref(), found.tags.as_slice()), (Some("A."), &["a".to_owned()][..]));
        assert_eq!(Json::Object(found.metadata), json!({"k": 2, "phoenix_dataset": "shop"}));
        let keys = ExampleKeys { request: Some("b".to_owned()), reference: Some("c".to_owned()) };
        let found =
            item(&json!({"question": "Q?", "b": "B?"}), &json!({"answer": "A.", "c": 5}), &keys).expect("an item");
        assert_eq!((found.request.as_deref(), found.reference.as_deref()), (Some("B?"), Some("5")));
    }

    #[test]
    fn conversations_stay_conversations() {
        let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Where?"}]);
        let output = json!({"messages": [{"role": "assistant", "content": "There."}]});
        let found = item(&json!({ "messages": messages }), &output, &ExampleKeys::default()).expect("an item");
        assert_eq!((found.request_text(), found.reference.as_deref()), ("Where?", Some("There.")));
        assert_eq!(found.request_messages().len(), 3);
    }
}
