//! An index of the tools that a trajectory could choose from: what each one does, to what, and how much a word tells
//! about which of them is meant.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use gradus_core::raw_json::RawJson;
use gradus_core::trajectory::ToolDefinition;
use serde_json::Value as Json;

use super::excerpt::take_prefix;
use super::vocabulary::{self, ActionFlags};
use super::words::{AnalyzedText, AnalyzedWord, is_abbreviation_pair, split_words, stem_word};

/// Indexed tools of one trajectory.
const MAX_TOOLS: usize = 400;
/// Indexed bytes of a description.
const DESCRIPTION: usize = 1_500;

/// Built once per set of tools; trajectories with the same tools share it.
#[derive(Debug)]
pub struct ToolIndex {
    pub(super) tools: Vec<IndexedTool>,
    by_name: HashMap<String, usize, RandomState>,
    /// For each stem, the tools that mention it and with which weight.
    mentions: HashMap<Box<str>, Vec<(u32, f32)>, RandomState>,
}

/// One tool, as far as the rules need it.
#[derive(Debug)]
pub(super) struct IndexedTool {
    pub name: String,
    /// Stems of the name without its verb: what the tool is about.
    pub nouns: Vec<Box<str>>,
    /// Initials of the nouns: "PR" for a pull request.
    initials: String,
    /// What it does, by its name and description.
    pub deeds: ActionFlags,
    pub schema: Option<Json>,
    /// Executes whatever it is given (code, shell, SQL), so it fits any intention.
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
        let mut index = ToolIndex { tools: Vec::new(), by_name: HashMap::default(), mentions: HashMap::default() };
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

    /// Weights of words: names count most, then the first sentence of the description, then parameters.
    fn add(&mut self, name: &str, description: &str, schema: Option<Json>) {
        if name.is_empty() || name.len() > 200 || self.by_name.contains_key(name) {
            return;
        }
        let at = self.tools.len();
        self.by_name.insert(name.to_owned(), at);
        let description = take_prefix(description, DESCRIPTION);
        let schema =
            schema.map(wrap_parameters).filter(|schema| schema.as_object().is_some_and(|schema| !schema.is_empty()));
        let parameters = schema.as_ref().and_then(|schema| schema.get("properties")).and_then(Json::as_object);
        let tool = IndexedTool::new(name, description);
        let mut weights: HashMap<Box<str>, f32, RandomState> = HashMap::default();
        let mut mention = |stem: &str, weight: f32| {
            let known = weights.entry(stem.into()).or_insert(0.0);
            *known = known.max(weight);
        };
        for noun in &tool.nouns {
            mention(noun, 3.0);
        }
        // The first sentence says what the tool does; what follows is mostly about parameters.
        for word in AnalyzedText::new(description).subject_words() {
            mention(word.stem(), if word.sentence == 0 { 1.5 } else { 0.6 });
        }
        for (name, parameter) in parameters.into_iter().flatten().take(40) {
            split_words(name, |word| mention(&stem_word(&word.to_lowercase()), 0.8));
            let about = parameter.get("description").and_then(Json::as_str).unwrap_or_default();
            for word in AnalyzedText::new(take_prefix(about, 300)).subject_words() {
                mention(word.stem(), 0.4);
            }
            for choice in parameter.get("enum").and_then(Json::as_array).into_iter().flatten().take(20) {
                split_words(take_prefix(choice.as_str().unwrap_or_default(), 60), |word| {
                    mention(&stem_word(&word.to_lowercase()), 0.4)
                });
            }
        }
        for (stem, weight) in weights {
            self.mentions.entry(stem).or_default().push((at as u32, weight));
        }
        self.tools.push(IndexedTool { schema, ..tool });
    }

    /// How well each tool fits the text. Words that few tools mention count most, as in inverse document frequency.
    pub(super) fn score_tools(&self, text: &AnalyzedText<'_>) -> Vec<f32> {
        let mut fits = vec![0.0; self.tools.len()];
        let mut seen = std::collections::HashSet::with_hasher(RandomState::default());
        let count = self.tools.len() as f32;
        for word in text.subject_words().take(600) {
            if !seen.insert(word.stem()) {
                continue;
            }
            let Some(mentions) = self.mentions.get(word.stem()).or_else(|| self.long_form(word)) else {
                continue;
            };
            let tells = ((count + 1.0) / (mentions.len() as f32 + 0.5)).ln().max(0.02);
            for (tool, weight) in mentions {
                if let Some(fit) = fits.get_mut(*tool as usize) {
                    *fit += weight * tells;
                }
            }
        }
        fits
    }

    /// Adds a bonus for tools that do what the text announces.
    pub(super) fn with_deeds(&self, text: &AnalyzedText<'_>, fits: &[f32]) -> Vec<f32> {
        let mut fits = fits.to_vec();
        let verbs: ActionFlags = text.announced.iter().fold(0, |all, (_, deeds)| all | deeds);
        for (tool, fit) in self.tools.iter().zip(&mut fits) {
            *fit += match () {
                () if verbs & tool.deeds != 0 => 1.0,
                () if vocabulary::are_actions_compatible(verbs, tool.deeds) => 0.4,
                () => 0.0,
            };
        }
        fits
    }

    /// Whether any tool mentions the word in its name, description or parameters.
    pub(super) fn has_stem(&self, stem: &str) -> bool {
        self.mentions.contains_key(stem)
    }

    /// The mentions of the noun that the word abbreviates.
    fn long_form(&self, word: &AnalyzedWord<'_>) -> Option<&Vec<(u32, f32)>> {
        let noun = self
            .tools
            .iter()
            .take(60)
            .flat_map(|tool| &tool.nouns)
            .find(|noun| is_abbreviation_pair(noun, word.stem()))?;
        self.mentions.get(noun)
    }
}

/// Some frameworks record only the map of parameters: `{"city": {"type": "string"}}`.
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
        split_words(name, |word| {
            let word = word.to_lowercase();
            stems.push(stem_word(&word).into());
            plain.push(word);
        });
        let verb = stems.iter().position(|stem| vocabulary::lookup_actions(stem) != 0);
        let mut deeds = verb.map_or(0, |verb| vocabulary::lookup_actions(&stems[verb]));
        let about = AnalyzedText::new(take_prefix(description, 200));
        let told = about
            .words
            .iter()
            .filter(|word| word.sentence == 0)
            .take(6)
            .map(|word| if &*word.plain == "new" { vocabulary::CREATE } else { word.deeds })
            .filter(|deeds| *deeds != 0);
        let told: Vec<ActionFlags> = told.collect();
        if deeds == 0 {
            deeds = told.first().copied().unwrap_or(0);
        } else if told.contains(&vocabulary::CREATE) && deeds & vocabulary::CREATE != 0 {
            // "Open a new ticket": of the two things that "open" may mean, the description picks one.
            deeds = vocabulary::CREATE;
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
            .filter(|(at, stem)| Some(*at) != verb && !vocabulary::is_stop(&plain[*at]) && stem.len() > 1)
            .map(|(_, stem)| stem.clone())
            .collect();
        IndexedTool {
            name: name.to_owned(),
            initials: nouns.iter().filter_map(|noun| noun.chars().next()).collect(),
            nouns,
            deeds,
            schema: None,
            runs_anything: says(&code) && says(&runner),
            hands_over,
            ends_run,
        }
    }

    /// The share of the tool's nouns that the text contains, from 0 to 1.
    pub(super) fn named_nouns(&self, text: &AnalyzedText<'_>) -> f32 {
        self.named_nouns_where(text, |_| true)
    }

    pub(super) fn named_nouns_where(&self, text: &AnalyzedText<'_>, counts: impl Fn(&AnalyzedWord<'_>) -> bool) -> f32 {
        if self.nouns.is_empty() {
            return 0.0;
        }
        // One bit per noun.
        let mut found = 0u128;
        for word in text.words.iter().take(1_200).filter(|word| counts(word)) {
            let stem = word.stem();
            if self.nouns.len() > 1 && word.capital && stem == self.initials {
                return 1.0;
            }
            for (at, noun) in self.nouns.iter().enumerate().take(128) {
                if found & (1 << at) == 0 && (stem == &**noun || is_abbreviation_pair(stem, noun)) {
                    found |= 1 << at;
                }
            }
        }
        found.count_ones() as f32 / self.nouns.len() as f32
    }

    /// Whether the words contain all nouns of the tool, or their initials ("PR").
    pub(super) fn is_named_by(&self, words: &[&AnalyzedWord<'_>]) -> bool {
        let holds =
            |noun: &str| words.iter().any(|word| word.stem() == noun || is_abbreviation_pair(word.stem(), noun));
        let short = || self.nouns.len() > 1 && words.iter().any(|word| word.capital && word.stem() == self.initials);
        !self.nouns.is_empty() && (self.nouns.iter().all(|noun| holds(noun)) || short())
    }

    /// Fits any intention and any request.
    pub(super) fn serves_any(&self) -> bool {
        self.runs_anything || self.hands_over || self.ends_run
    }

    /// Whether a call may change the world. A tool with unknown action may.
    pub(super) fn may_change(&self) -> bool {
        self.runs_anything
            || self.deeds == 0
            || self.deeds & vocabulary::CHANGES != 0 && self.deeds & vocabulary::RETRIEVE == 0
            || self.deeds & vocabulary::CREATE != 0
    }
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
        assert_eq!(index.tools[0].deeds, vocabulary::CREATE);
        assert_eq!(index.tools[0].nouns, ["ticket".into()]);
        assert!(index.tools[0].may_change() && !index.tools[1].may_change());
        assert_eq!(index.tools[1].nouns, ["weath".into(), "forecast".into()]);
        assert!(index.tools[2].runs_anything && index.tools[3].hands_over && index.tools[4].ends_run);
        assert!(!index.tools[1].runs_anything && !index.tools[0].hands_over);
    }

    #[test]
    fn rare_words_decide() {
        let index = ToolIndex::new(&[
            tool("read_document", "Read a document of the archive."),
            tool("list_invoices", "List the invoices of the archive."),
            tool("search_archive", "Search the archive."),
        ]);
        let fits = index.score_tools(&AnalyzedText::new("I will look at the invoices in the archive"));
        assert!(fits[1] > fits[0] && fits[1] > fits[2], "{fits:?}");
    }

    #[test]
    fn short_forms_and_initials_name_a_tool() {
        let index = ToolIndex::new(&[tool("list_repos", ""), tool("merge_pull_request", "")]);
        assert_eq!(index.tools[0].named_nouns(&AnalyzedText::new("their repositories")), 1.0);
        assert_eq!(index.tools[1].named_nouns(&AnalyzedText::new("merge the PR")), 1.0);
        assert_eq!(index.tools[1].named_nouns(&AnalyzedText::new("pull it")), 0.5);
    }
}
