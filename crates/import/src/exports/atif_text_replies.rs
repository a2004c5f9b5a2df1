//! Replies whose calls are text, because the agent does not use the tool calls of its provider: the JSON of Terminus 2
//! and the tags of OpenHands. ATIF stores such replies unchanged.

use serde_json::{Map, Value as Json};

use crate::json_fields::{is_true_field, text_field};

/// Marks of the example in the first request of OpenHands, and of the request itself.
const EXAMPLE_MARK: &str = "--------------------- START OF EXAMPLE ---------------------";
const TASK_MARK: &str = "--------------------- NEW TASK DESCRIPTION ---------------------";
const TASK_END_MARK: &str = "--------------------- END OF NEW TASK DESCRIPTION ---------------------";

/// What the agent wrote before its calls, and the calls by name and arguments.
#[derive(Debug, PartialEq)]
pub(super) struct AtifTextReply {
    pub(super) thought: String,
    pub(super) calls: Vec<(String, Json)>,
}

/// Reads a reply with calls in its text; `None` if it has none in a known form.
pub(super) fn read_text_reply(message: &str) -> Option<AtifTextReply> {
    read_terminus_reply(message).or_else(|| read_tagged_reply(message))
}

/// Reads a JSON object with the commands. The calls have the names that Terminus' own converter gives them.
fn read_terminus_reply(message: &str) -> Option<AtifTextReply> {
    let start = message.find('{')?;
    let object = serde_json::Deserializer::from_str(&message[start..]).into_iter::<Json>().next()?.ok()?;
    let commands = object.get("commands")?.as_array()?;
    if !commands.iter().all(|command| command.get("keystrokes").is_some_and(Json::is_string)) {
        return None;
    }
    let mut calls: Vec<_> = commands.iter().map(|command| ("bash_command".to_owned(), command.clone())).collect();
    if is_true_field(&object, "task_complete") {
        calls.push(("mark_task_complete".to_owned(), Json::Object(Map::new())));
    }
    let thoughts = ["analysis", "plan"].iter().filter_map(|key| text_field(&object, key));
    Some(AtifTextReply { thought: thoughts.collect::<Vec<_>>().join("\n"), calls })
}

/// Reads `<function=name>` with `<parameter=key>value</parameter>` in it. OpenHands runs the first one of a reply.
fn read_tagged_reply(message: &str) -> Option<AtifTextReply> {
    let (thought, rest) = message.split_once("<function=")?;
    let (name, body) = rest.split_once('>')?;
    // A reply is often cut at its end tag, which is the stop word.
    let mut body = body.split("</function>").next()?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return None;
    }
    let mut arguments = Map::new();
    while let Some((key, rest)) = body.split_once("<parameter=").and_then(|(_, rest)| rest.split_once('>')) {
        let (value, behind) = rest.split_once("</parameter>")?;
        arguments.insert(key.to_owned(), Json::String(value.to_owned()));
        body = behind;
    }
    let calls = vec![(name.to_owned(), Json::Object(arguments))];
    Some(AtifTextReply { thought: thought.trim().to_owned(), calls })
}

/// Returns the request without the example that OpenHands adds for models without tool calls.
pub(super) fn strip_example(request: &str) -> &str {
    let task = request.contains(EXAMPLE_MARK).then(|| request.rsplit_once(TASK_MARK)).flatten();
    let Some((_, task)) = task else { return request };
    task.split(TASK_END_MARK).next().unwrap_or(task).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tagged_calls_are_read() {
        let reply = read_text_reply("I look.\n<function=run>\n<parameter=command>ls\n-l</parameter>\n</function>");
        let calls = vec![("run".to_owned(), json!({ "command": "ls\n-l" }))];
        assert_eq!(reply, Some(AtifTextReply { thought: "I look.".to_owned(), calls }));
        assert_eq!(read_text_reply("<function=run>\n<parameter=command>ls"), None, "the parameter is cut");
        assert_eq!(read_text_reply("use <function=a b> here"), None);
        assert_eq!(read_text_reply("{\"commands\": [\"ls\"]}"), None);
    }

    #[test]
    fn the_example_is_not_the_request() {
        let request = format!("{EXAMPLE_MARK}\nUSER: x\n{TASK_MARK}\nDo y.\n\n{TASK_END_MARK}\nPLEASE follow");
        assert_eq!(strip_example(&request), "Do y.");
        assert_eq!(strip_example("Do y."), "Do y.");
    }
}
