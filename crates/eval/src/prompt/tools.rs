//! Tool definitions as a judge reads them, rendered once per distinct set of tools.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use gradus_core::trajectory::ToolDefinition;

use super::recording::{EntryField, PromptEntry};
use crate::offline::ToolIndex;

/// A set of tools as text of a prompt, shared by all trajectories that offer it.
#[derive(Clone, Debug)]
pub struct ToolText {
    tools: Arc<[ToolDefinition]>,
    /// The word index of the offline judge; built on first use, because a model judge never needs it.
    index: OnceLock<Arc<ToolIndex>>,
}

impl ToolText {
    fn new(tools: Arc<[ToolDefinition]>) -> ToolText {
        ToolText { tools, index: OnceLock::new() }
    }

    pub(crate) fn index(&self) -> &Arc<ToolIndex> {
        self.index.get_or_init(|| ToolIndex::new(&self.tools))
    }

    /// The definitions after the user's file and notes were merged in.
    pub fn tools(&self) -> &Arc<[ToolDefinition]> {
        &self.tools
    }
}

/// How much of a tool's definition a judge sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolDetail {
    Full,
    /// Without the schema of its arguments.
    Described,
    NameOnly,
}

/// A tool as a numbered entry of a prompt.
pub(super) fn build_tool_entry(number: usize, tool: &ToolDefinition, detail: ToolDetail) -> PromptEntry<'_> {
    let description = tool.description.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let mut fields = vec![
        EntryField::new("name", Some(Cow::Borrowed(tool.name.as_str())), "(none)"),
        EntryField::new("description", description.map(Cow::Borrowed), "(none)"),
    ];
    match &tool.schema {
        Some(schema) if detail == ToolDetail::Full => {
            fields.push(EntryField::new("arguments", Some(Cow::Borrowed(schema.as_str())), "(none)"));
        }
        Some(_) => fields.push(EntryField::left_out("the arguments")),
        None => {}
    }
    PromptEntry::new("tool", number, fields)
}

/// A cache of tool texts. It merges in the user's definitions and notes.
#[derive(Debug, Default)]
pub struct ToolTexts {
    /// Definitions from the user's file. They take precedence over recorded ones of the same name.
    user_definitions: Vec<ToolDefinition>,
    /// Texts that are appended to descriptions, by tool name.
    notes: BTreeMap<String, String>,
    rendered: Vec<(Arc<[ToolDefinition]>, Arc<ToolText>)>,
}

/// Maximum number of cached texts. An agent has a few sets of tools, but a store with many agents has many; the
/// oldest entry is dropped.
const MAX_CACHED_TOOL_TEXTS: usize = 64;

impl ToolTexts {
    pub fn new(user_definitions: Vec<ToolDefinition>, notes: BTreeMap<String, String>) -> Self {
        ToolTexts { user_definitions, notes, rendered: Vec::new() }
    }

    /// Returns the text of a set of tools. Sets are compared by pointer first, since assembly shares them between
    /// trajectories.
    pub fn get_or_render(&mut self, tools: &Arc<[ToolDefinition]>) -> Arc<ToolText> {
        let known = self.rendered.iter().rposition(|(set, _)| Arc::ptr_eq(set, tools) || set == tools);
        if let Some(at) = known {
            return Arc::clone(&self.rendered[at].1);
        }
        let text = Arc::new(ToolText::new(self.complete_definitions(tools)));
        if self.rendered.len() >= MAX_CACHED_TOOL_TEXTS {
            self.rendered.remove(0);
        }
        self.rendered.push((Arc::clone(tools), Arc::clone(&text)));
        text
    }

    /// Merges recorded definitions with the user's: fields that the user's file leaves out keep their recorded value.
    fn complete_definitions(&self, tools: &Arc<[ToolDefinition]>) -> Arc<[ToolDefinition]> {
        if self.user_definitions.is_empty() && self.notes.is_empty() {
            return Arc::clone(tools);
        }
        let mut all: Vec<ToolDefinition> = tools.to_vec();
        for tool in &self.user_definitions {
            match all.iter_mut().find(|known| known.name == tool.name) {
                Some(known) => {
                    known.description = tool.description.clone().or_else(|| known.description.take());
                    known.schema = tool.schema.clone().or_else(|| known.schema.take());
                }
                None => all.push(tool.clone()),
            }
        }
        for tool in &mut all {
            if let Some(note) = self.notes.get(&tool.name) {
                let description = tool.description.take().unwrap_or_default();
                tool.description = Some(format!("{} {note}", description.trim_end()).trim_start().to_owned());
            }
        }
        all.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> ToolDefinition {
        ToolDefinition { name: name.to_owned(), description: Some(description.to_owned()), schema: None }
    }

    #[test]
    fn a_file_and_notes_complete_what_was_recorded() {
        let given = vec![tool("read", "Reads a file."), tool("extra", "More.")];
        let notes = BTreeMap::from([("read".to_owned(), "Also for READMEs.".to_owned())]);
        let mut texts = ToolTexts::new(given, notes);
        let recorded: Arc<[ToolDefinition]> = vec![tool("read", "?"), tool("list", "Lists.")].into();
        let text = texts.get_or_render(&recorded);
        let shown: Vec<(&str, Option<&str>)> =
            text.tools().iter().map(|tool| (tool.name.as_str(), tool.description.as_deref())).collect();
        let expected = [("read", "Reads a file. Also for READMEs."), ("list", "Lists."), ("extra", "More.")];
        assert_eq!(shown, expected.map(|(name, description)| (name, Some(description))));
        assert!(Arc::ptr_eq(&text, &texts.get_or_render(&recorded)), "made once");
    }
}
