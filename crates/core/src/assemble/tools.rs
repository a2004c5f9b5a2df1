//! The tools that an agent was offered, and which names are names of tools.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use xxhash_rust::xxh3::Xxh3;

use crate::bounded_json;
use crate::dialect::{OfferedTools, RecordedToolRun};
use crate::message::{ArgumentsText, ChatMessage, MessageRole, result_text};
use crate::raw_json::RawJson;
use crate::trajectory::ToolDefinition;

use super::tree::SpanTree;
use crate::assemble::agent_run::RequestSpans;
use crate::assemble::requested_call::read_arguments;

/// Whether this is a finishing tool, by which frameworks let the model give its answer.
pub(super) fn is_final_answer(name: &str) -> bool {
    matches!(name, "final_answer" | "FinalAnswer" | "finish" | "Finish" | "final_result")
}

/// Whether a model can call a tool by this name. Frameworks record their own bookkeeping under names like `_Exception`.
pub(super) fn can_be_called(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('_')
        && !name.starts_with('(')
        && !name.contains(char::is_whitespace)
        && name != "invalid_tool"
}

/// The answer that the finishing tool of a run got.
pub(super) fn final_answer(tree: &SpanTree<'_>, run: &RequestSpans) -> Option<String> {
    let finishing = |at: &&usize| tree.nodes[**at].facts.tool.name.as_deref().is_some_and(is_final_answer);
    let tool = &tree.nodes[*run.tools.iter().rev().find(finishing)?].facts.tool;
    parse_answer_argument(tool.arguments.as_ref())
}

/// The answer among the arguments of a finishing call.
pub(super) fn parse_answer_argument(arguments: Option<&ArgumentsText<'_>>) -> Option<String> {
    let answer = match read_arguments(arguments).0? {
        Json::Object(mut object) => {
            let named = ["answer", "response", "result", "final_answer"].iter().find_map(|key| object.remove(*key));
            named.or_else(|| object.remove("args").and_then(|args| args.get(0).cloned()))?
        }
        other => other,
    };
    Some(result_text(answer)).filter(|answer| !answer.is_empty())
}

/// Spans of the finishing tool, which count as spans of the answer.
pub(super) fn final_answer_spans(tree: &SpanTree<'_>, run: &RequestSpans) -> Vec<String> {
    let finishing =
        run.tools.iter().filter(|at| tree.nodes[**at].facts.tool.name.as_deref().is_some_and(is_final_answer));
    finishing.flat_map(|at| tree.nodes[*at].span_ids()).map(|id| id.to_string()).collect()
}

/// A cache of parsed tool lists. An agent offers the same tools in every run, so most runs share a list.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolCache {
    lists: HashMap<u64, Arc<[ToolDefinition]>>,
    bytes: usize,
}

/// Maximum number of lists in the cache. It is emptied when it is full: the lists of the next traces are added again
/// at once.
const MAX_LISTS: usize = 1_000;
/// Maximum bytes of all lists in the cache, which outlive the trace that they came from.
const MAX_CACHED_BYTES: usize = 16 << 20;
/// Maximum number of tools in one list. No agent is offered more, and a definition takes many times its text.
const MAX_TOOLS: usize = 10_000;

impl ToolCache {
    /// Every tool that the agent could use in a run, in the order in which they are first mentioned.
    pub(super) fn tools_for_run(&mut self, tree: &SpanTree<'_>, run: &RequestSpans) -> Arc<[ToolDefinition]> {
        let list = self.get_or_read(&ToolDefinitionSources::for_request(tree, run));
        // Tools may be known from their spans only. Where there is a list, a name that is not in it, has no description
        // and gave an error was invented by the model.
        let made_up = |tool: &RecordedToolRun<'_>| {
            !list.is_empty() && tool.is_error && tool.description.is_none() && tool.schema.is_none()
        };
        let ran = run.tools.iter().map(|at| &tree.nodes[*at].facts.tool);
        let ran = ran.filter(|tool| tool.name.as_deref().is_some_and(can_be_called) && !made_up(tool));
        let places: HashMap<&str, &ToolDefinition> = list.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let adds = |tool: &&RecordedToolRun<'_>| {
            let known = tool.name.as_deref().and_then(|name| places.get(name));
            known.is_none_or(|known| {
                known.schema.is_none() && tool.schema.is_some()
                    || known.description.is_none() && tool.description.is_some()
            })
        };
        // Usually nothing is added, and the shared list is returned without a copy.
        let new: Vec<&RecordedToolRun<'_>> = ran.filter(adds).collect();
        if new.is_empty() {
            return list;
        }
        let mut all = ToolList::default();
        list.iter().for_each(|tool| all.add(tool.clone()));
        for tool in new {
            let schema = tool.schema.as_deref().and_then(RawJson::parse_object);
            let description = tool.description.as_deref().map(str::to_owned);
            all.add(ToolDefinition { name: tool.name.as_deref().unwrap_or_default().to_owned(), description, schema });
        }
        all.tools.into()
    }

    /// Looks a list up by the digest of its sources, which is far cheaper than parsing it.
    fn get_or_read(&mut self, sources: &ToolDefinitionSources<'_>) -> Arc<[ToolDefinition]> {
        let key = sources.digest();
        if let Some(list) = self.lists.get(&key) {
            return Arc::clone(list);
        }
        let list: Arc<[ToolDefinition]> = sources.read().into();
        let bytes: usize = list.iter().map(definition_bytes).sum();
        // Emptied as a whole: lists of the traces at hand come back with the next run, and no order of use has to be
        // kept.
        if self.lists.len() >= MAX_LISTS || self.bytes + bytes > MAX_CACHED_BYTES {
            self.lists.clear();
            self.bytes = 0;
        }
        if bytes <= MAX_CACHED_BYTES {
            self.bytes += bytes;
            self.lists.insert(key, Arc::clone(&list));
        }
        list
    }
}

/// Approximate memory of a definition, for the limit of the cache.
fn definition_bytes(tool: &ToolDefinition) -> usize {
    let description = tool.description.as_deref().map_or(0, str::len);
    let schema = tool.schema.as_ref().map_or(0, |schema| schema.as_str().len());
    size_of_val(tool) + tool.name.len() + description + schema
}

/// Where the requests of a run list their tools: in attributes, otherwise in the prompt.
struct ToolDefinitionSources<'t> {
    offered: Vec<&'t OfferedTools<'t>>,
    prompt: Option<Cow<'t, str>>,
}

impl<'t> ToolDefinitionSources<'t> {
    /// Collects the sources of a run. The prompt is searched only if no call lists tools in its attributes.
    fn for_request(tree: &'t SpanTree<'_>, run: &'t RequestSpans) -> ToolDefinitionSources<'t> {
        let nodes = |list: &'t [usize]| list.iter().map(|at| &tree.nodes[*at].facts);
        let mut offered = Vec::new();
        // Calls repeat the list. One that differs is read, too.
        let mut last = 0;
        for facts in nodes(&run.calls).chain(nodes(&run.frames)) {
            if facts.offered_tools.is_empty() {
                continue;
            }
            let digest = digest_tool_lists(&facts.offered_tools);
            if digest != last {
                offered.extend(&facts.offered_tools);
                last = digest;
            }
        }
        let prompt = nodes(&run.calls).next().filter(|_| offered.is_empty()).and_then(|facts| {
            facts
                .input
                .iter()
                .find(|message| matches!(message.role, MessageRole::System | MessageRole::User))
                .map(ChatMessage::joined_text)
        });
        ToolDefinitionSources { offered, prompt }
    }

    /// Identifies the sources in the cache. Equal texts give equal lists.
    fn digest(&self) -> u64 {
        let mut hasher = Xxh3::new();
        for source in &self.offered {
            source.hash_into(&mut hasher);
        }
        hasher.update(self.prompt.as_deref().unwrap_or_default().as_bytes());
        hasher.digest()
    }

    fn read(&self) -> Vec<ToolDefinition> {
        let mut list = ToolList::default();
        for source in &self.offered {
            list.read(source);
        }
        for tool in self.prompt.as_deref().map(parse_tools_in_prompt).unwrap_or_default() {
            list.add(tool);
        }
        list.tools
    }
}

/// Compares the lists of two calls without parsing them.
fn digest_tool_lists(sources: &[OfferedTools<'_>]) -> u64 {
    let mut hasher = Xxh3::new();
    sources.iter().for_each(|source| source.hash_into(&mut hasher));
    hasher.digest()
}

impl OfferedTools<'_> {
    /// The separators keep neighbouring texts apart.
    fn hash_into(&self, hasher: &mut Xxh3) {
        match self {
            OfferedTools::Json(text) => hasher.update(text.as_bytes()),
            OfferedTools::Value(value) => hasher.update(value.to_json().to_string().as_bytes()),
            OfferedTools::Function { name, description, parameters } => {
                for text in [Some(*name), *description, *parameters] {
                    hasher.update(text.unwrap_or_default().as_bytes());
                    hasher.update(&[0]);
                }
            }
        }
        hasher.update(&[0]);
    }
}

/// Parses tool definitions in any of the shapes that requests use. Text that contains none gives an empty list.
pub fn parse_tool_definitions(json: &str) -> Vec<ToolDefinition> {
    let mut list = ToolList::default();
    list.read_text(json, 0);
    list.tools
}

/// A definition in any shape: OpenAI (flat or below `function`), Anthropic (`input_schema`), MCP (`inputSchema`),
/// Gemini (`function_declarations`). The schema stays text.
#[derive(Deserialize)]
struct ToolDefinitionJson<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    description: Option<Cow<'a, str>>,
    #[serde(
        borrow,
        default,
        alias = "input_schema",
        alias = "inputSchema",
        alias = "parameters_json_schema",
        alias = "args_schema",
        alias = "schema"
    )]
    parameters: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "function_declarations", alias = "functionDeclarations")]
    tools: Option<&'a RawValue>,
}

/// Definitions without duplicates. A later definition of the same name only adds what the first one lacks.
#[derive(Default)]
struct ToolList {
    tools: Vec<ToolDefinition>,
    places: HashMap<String, usize>,
}

impl ToolList {
    fn read(&mut self, source: &OfferedTools<'_>) {
        match source {
            OfferedTools::Json(text) => self.read_text(text, 0),
            OfferedTools::Value(value) => self.read_text(&value.to_json().to_string(), 0),
            OfferedTools::Function { name, description, parameters } => self.add(ToolDefinition {
                name: (*name).to_owned(),
                description: description.map(str::to_owned),
                schema: parameters.and_then(RawJson::parse_object),
            }),
        }
    }

    /// Reads one definition or a list of them, perhaps encoded as JSON text. Bounded in depth, because each level is
    /// parsed again.
    fn read_text(&mut self, text: &str, depth: usize) {
        const MAX_DEPTH: usize = 6;
        if depth > MAX_DEPTH {
            return;
        }
        if let Some(list) = bounded_json::raw_items(text) {
            list.iter().for_each(|item| self.read_text(item.get(), depth + 1));
        } else if let Ok(definition) = serde_json::from_str::<ToolDefinitionJson<'_>>(text) {
            self.read_definition(definition, depth);
        } else if let Ok(encoded) = serde_json::from_str::<String>(text)
            && encoded.trim_start().starts_with(['{', '['])
        {
            self.read_text(&encoded, depth + 1);
        }
    }

    /// Reads a definition, or what it wraps: a list of functions (Gemini) or a function (OpenAI).
    fn read_definition(&mut self, definition: ToolDefinitionJson<'_>, depth: usize) {
        if let Some(list) = definition.tools {
            return self.read_text(list.get(), depth + 1);
        }
        if let Some(function) = definition.function {
            return self.read_text(function.get(), depth + 1);
        }
        let Some(name) = definition.name else { return };
        let schema = definition.parameters.filter(|schema| schema.get().starts_with('{')).map(RawJson::from_raw);
        let description = definition.description.map(std::borrow::Cow::into_owned);
        self.add(ToolDefinition { name: name.into_owned(), description, schema });
    }

    /// Adds a tool, or completes the one with the same name.
    fn add(&mut self, tool: ToolDefinition) {
        match self.places.get(&tool.name) {
            Some(&place) => {
                let known = &mut self.tools[place];
                known.description = known.description.take().or(tool.description);
                known.schema = known.schema.take().or(tool.schema);
            }
            None if self.tools.len() >= MAX_TOOLS => {}
            None => {
                self.places.insert(tool.name.clone(), self.tools.len());
                self.tools.push(tool);
            }
        }
    }
}

/// Tools that a prompt lists as text, in the formats of LlamaIndex, CrewAI, LangChain and smolagents.
fn parse_tools_in_prompt(prompt: &str) -> Vec<ToolDefinition> {
    let mut tools: Vec<ToolDefinition> = Vec::new();
    // A description may continue on further lines.
    let mut describing = false;
    for line in prompt.lines() {
        if tools.len() > MAX_TOOLS {
            break;
        }
        let line = line.trim();
        let bare = line.trim_start_matches(['>', ' ', '-']);
        if let Some(name) = bare.strip_prefix("Tool Name:") {
            tools.push(ToolDefinition { name: name.trim().to_owned(), ..ToolDefinition::default() });
            describing = false;
        } else if let Some(description) = bare.strip_prefix("Tool Description:") {
            describing = tools.last_mut().map(|tool| tool.description = Some(description.trim().to_owned())).is_some();
        } else if let Some(arguments) = bare.strip_prefix("Tool Args:").or_else(|| bare.strip_prefix("Tool Arguments:"))
        {
            if let Some(tool) = tools.last_mut() {
                tool.schema = parse_printed_schema(arguments);
            }
            describing = false;
        } else if describing {
            if let Some(description) =
                tools.last_mut().and_then(|tool| tool.description.as_mut()).filter(|_| !line.is_empty())
            {
                description.push('\n');
                description.push_str(line);
            }
        } else {
            tools.extend(parse_tool_line(line));
        }
    }
    tools.retain(|tool| !is_final_answer(&tool.name));
    tools
}

/// CrewAI prints the schema as a Python dictionary.
fn parse_printed_schema(text: &str) -> Option<RawJson> {
    let text = text.trim();
    let strict = RawJson::parse_object(text);
    strict.or_else(|| {
        crate::literal::parse_lenient_json(text).filter(Json::is_object).map(|json| RawJson::from_value(&json))
    })
}

/// A tool that is described on one line of a prompt.
fn parse_tool_line(line: &str) -> Option<ToolDefinition> {
    // smolagents: def list_issues(repo: string) -> string:
    if let Some((name, _)) = line.strip_prefix("def ").and_then(|rest| rest.split_once('(')) {
        return is_identifier(name).then(|| ToolDefinition { name: name.to_owned(), ..ToolDefinition::default() });
    }
    // LangChain: list_issues(repo: str) - List the issues.
    if let Some((signature, description)) = line.split_once(") - ")
        && let Some((name, _)) = signature.split_once('(')
        && is_identifier(name)
    {
        return Some(ToolDefinition {
            name: name.to_owned(),
            description: Some(description.trim().to_owned()),
            schema: None,
        });
    }
    // LangChain's structured chat: list_issues: List the issues., args: {...}
    let (name, rest) = line.split_once(": ")?;
    let (description, arguments) = rest.rsplit_once(", args: ")?;
    if !is_identifier(name) {
        return None;
    }
    let properties = crate::literal::parse_lenient_json(arguments).filter(Json::is_object);
    let schema = properties
        .map(|properties| RawJson::from_value(&serde_json::json!({"type": "object", "properties": properties})));
    Some(ToolDefinition { name: name.to_owned(), description: Some(description.trim().to_owned()), schema })
}

/// A name as functions have it, so that ordinary prose is not taken for a tool.
fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_limit_of_tools() {
        let json: Vec<String> = (0..MAX_TOOLS + 9).map(|n| format!(r#"{{"name":"t{n}"}}"#)).collect();
        assert_eq!(parse_tool_definitions(&format!("[{}]", json.join(","))).len(), MAX_TOOLS);
        let prompt: Vec<String> = (0..3 * MAX_TOOLS).map(|n| format!("def t{n}(x)")).collect();
        assert!(parse_tools_in_prompt(&prompt.join("\n")).len() <= MAX_TOOLS + 1);
    }

    #[test]
    fn lists_are_cached_up_to_a_size() {
        let mut cache = ToolCache::default();
        let description = "d".repeat(1 << 20);
        for number in 0..40 {
            let json = format!(r#"{{"name":"t{number}","description":"{description}"}}"#);
            let offered = OfferedTools::Json(&json);
            let sources = ToolDefinitionSources { offered: vec![&offered], prompt: None };
            assert_eq!(cache.get_or_read(&sources).len(), 1);
            let held: usize = cache.lists.values().flat_map(|list| list.iter()).map(definition_bytes).sum();
            assert!(held <= MAX_CACHED_BYTES && held == cache.bytes && held > 0, "{held}");
        }
    }
}
