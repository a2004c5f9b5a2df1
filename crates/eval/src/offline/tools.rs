//! An index of the tools of a trajectory: the action and the object of each.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use gradus_core::raw_json::RawJson;
use gradus_core::trajectory::ToolDefinition;
use serde_json::Value as Json;

use super::excerpt::take_prefix;
use super::vocabulary::{self, ActionFlags};
use super::words::{AnalyzedText, split_words, stem_word};

/// Maximum number of indexed tools of one trajectory.
const MAX_TOOLS: usize = 400;

/// Built once per set of tools; trajectories with the same tools share it.
#[derive(Debug)]
pub struct ToolIndex {
    pub(super) tools: Vec<IndexedTool>,
    by_name: HashMap<String, usize, RandomState>,
}

/// The properties of one tool that the rules need.
#[derive(Debug)]
pub(super) struct IndexedTool {
    pub name: String,
    /// Stems of the name without its verb: what the tool is about.
    pub nouns: Vec<Box<str>>,
    /// The stem of its verb, if its name has one.
    pub verb: Option<Box<str>>,
    /// Whether its name contains a verb that only reads: `post_search` searches.
    names_reading: bool,
    /// What it does, by its name and description.
    pub action_flags: ActionFlags,
    pub schema: Option<Json>,
    /// Whether it executes arbitrary input (code, shell, SQL), so that it fits any intention.
    pub runs_anything: bool,
    /// Passes the conversation to another agent.
    pub hands_over: bool,
    /// Submits the final answer.
    pub ends_run: bool,
}

impl ToolIndex {
    /// The index of the tools on offer.
    pub fn new(tools: &[ToolDefinition]) -> Arc<ToolIndex> {
        Arc::new(ToolIndex::with_called(tools, std::iter::empty()))
    }

    /// Also indexes tools that were called but are not listed: traces often contain only a part of the list.
    pub(super) fn with_called<'n>(tools: &[ToolDefinition], called: impl Iterator<Item = &'n str>) -> ToolIndex {
        let mut index = ToolIndex { tools: Vec::new(), by_name: HashMap::default() };
        for tool in tools.iter().take(MAX_TOOLS) {
            index.add(
                &tool.name,
                tool.description.as_deref().unwrap_or_default(),
                tool.schema.as_ref().map(RawJson::to_value),
            );
        }
        for name in called {
            if index.tools.len() >= 2 * MAX_TOOLS {
                break;
            }
            index.add(name, "", None);
        }
        index
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    fn add(&mut self, name: &str, description: &str, schema: Option<Json>) {
        if name.is_empty() || name.len() > 200 || self.by_name.contains_key(name) {
            return;
        }
        self.by_name.insert(name.to_owned(), self.tools.len());
        let schema =
            schema.map(wrap_parameters).filter(|schema| schema.as_object().is_some_and(|schema| !schema.is_empty()));
        self.tools.push(IndexedTool { schema, ..IndexedTool::new(name, description) });
    }
}

/// Wraps a bare map of parameters into a schema, since some frameworks record only the map: `{"city": {"type":
/// "string"}}`.
fn wrap_parameters(schema: Json) -> Json {
    let Some(fields) = schema.as_object() else { return schema };
    let keywords =
        ["properties", "required", "$ref", "anyOf", "oneOf", "allOf", "additionalProperties", "$schema", "$defs"];
    let is_schema = fields.get("type").is_some_and(|kind| !kind.is_object())
        || keywords.iter().any(|key| fields.contains_key(*key));
    let parameters = fields.values().all(|value| value.is_object() || value.is_string());
    if is_schema || fields.is_empty() || !parameters {
        return schema;
    }
    let mut object = serde_json::Map::new();
    object.insert("type".to_owned(), Json::from("object"));
    object.insert("properties".to_owned(), schema);
    Json::Object(object)
}

impl IndexedTool {
    fn new(name: &str, description: &str) -> IndexedTool {
        let mut stems: Vec<Box<str>> = Vec::new();
        let mut plain: Vec<String> = Vec::new();
        split_words(strip_tool_namespace(name), |word| {
            let word = word.to_lowercase();
            stems.push(stem_word(&word).into());
            plain.push(word);
        });
        let verb = stems.iter().position(|stem| vocabulary::lookup_actions(stem) != 0);
        let mut action_flags = verb.map_or(0, |verb| vocabulary::lookup_actions(&stems[verb]));
        let about = AnalyzedText::new(take_prefix(description, 200));
        let told = about
            .words
            .iter()
            .filter(|word| word.sentence == 0)
            .take(6)
            .map(|word| if &*word.plain == "new" { vocabulary::CREATE } else { word.action_flags })
            .filter(|action_flags| *action_flags != 0);
        let told: Vec<ActionFlags> = told.collect();
        if action_flags == 0 {
            action_flags = told.first().copied().unwrap_or(0);
        } else if told.contains(&vocabulary::CREATE) && action_flags & vocabulary::CREATE != 0 {
            // "Open a new ticket": the description decides which meaning of "open" is used.
            action_flags = vocabulary::CREATE;
        }
        let says = |words: &[&str]| plain.iter().any(|word| words.contains(&word.as_str()));
        let code = [
            "python",
            "code",
            "bash",
            "shell",
            "terminal",
            "command",
            "cmd",
            "script",
            "sql",
            "repl",
            "notebook",
            "javascript",
            "powershell",
            "cypher",
        ];
        let runner = [
            "interpreter",
            "execute",
            "exec",
            "run",
            "execution",
            "executor",
            "runner",
            "bash",
            "shell",
            "terminal",
            "repl",
            "notebook",
            "sql",
            "python",
            "powershell",
        ];
        let hands_over = says(&["handoff", "handover", "transfer", "delegate", "escalate"])
            && (says(&["agent", "handoff", "handover", "to"]) || plain.len() == 1)
            || name.contains("hand_off")
            || name.contains("hand_over");
        let ends_run = says(&["final", "finish", "done", "terminate", "submit", "complete"])
            && (says(&["answer", "task", "result", "response", "output"]) || plain.len() == 1);
        let nouns: Vec<Box<str>> = stems
            .iter()
            .enumerate()
            .filter(|(at, stem)| Some(*at) != verb && !vocabulary::is_stop_word(&plain[*at]) && stem.len() > 1)
            .map(|(_, stem)| stem.clone())
            .collect();
        IndexedTool {
            name: name.to_owned(),
            names_reading: stems.iter().any(|stem| {
                let action_flags = vocabulary::lookup_actions(stem);
                action_flags != 0 && action_flags & !vocabulary::RETRIEVE == 0
            }),
            verb: verb.map(|verb| stems[verb].clone()),
            nouns,
            action_flags,
            schema: None,
            runs_anything: says(&code) && says(&runner),
            hands_over,
            ends_run,
        }
    }

    /// Whether the tool fits any intention and any request.
    pub(super) fn serves_any(&self) -> bool {
        self.runs_anything || self.hands_over || self.ends_run
    }

    /// Whether a call may change something. A tool with an unknown action may.
    pub(super) fn may_change(&self) -> bool {
        self.runs_anything
            || self.action_flags == 0
            || self.action_flags & vocabulary::CHANGES != 0 && self.action_flags & vocabulary::RETRIEVE == 0
            || self.action_flags & vocabulary::CREATE != 0
    }

    /// Whether its name can mean a change: `return_order` is one, `return_value` may not be.
    pub(super) fn names_change(&self) -> bool {
        !self.serves_any() && !self.names_reading && self.action_flags & vocabulary::CHANGES & !vocabulary::RUN != 0
    }

    /// Whether its name clearly means a change. A tool with an unknown action does not.
    pub(super) fn surely_changes(&self) -> bool {
        !self.serves_any()
            && self.action_flags & vocabulary::CHANGES != 0
            && self.action_flags & vocabulary::RETRIEVE == 0
    }
}

/// Returns the name without its namespace: `email.search_mails` searches, it does not send.
fn strip_tool_namespace(name: &str) -> &str {
    let name = name.rsplit(['.', '/', ':']).next().unwrap_or(name);
    name.rsplit("__").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> ToolDefinition {
        ToolDefinition { name: name.into(), description: Some(description.into()), schema: None }
    }

    #[test]
    fn names_tell_deed_and_subject() {
        let index = ToolIndex::new(&[
            tool("open_ticket", "Open a new ticket for a customer."),
            tool("getWeatherForecast", "Forecast for a city."),
            tool("python_interpreter", "Runs code."),
            tool("transfer_to_billing_agent", ""),
            tool("final_answer", ""),
        ]);
        assert_eq!(index.tools[0].action_flags, vocabulary::CREATE);
        assert_eq!(index.tools[0].nouns, ["ticket".into()]);
        assert!(index.tools[0].may_change() && !index.tools[1].may_change());
        assert_eq!(index.tools[1].nouns, ["weath".into(), "forecast".into()]);
        assert!(index.tools[2].runs_anything && index.tools[3].hands_over && index.tools[4].ends_run);
        assert!(!index.tools[1].runs_anything && !index.tools[0].hands_over);
    }
}
