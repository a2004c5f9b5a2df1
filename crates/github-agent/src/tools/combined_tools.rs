//! Several tool sets as one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{AgentTool, BoxFuture, CallObservation, ToolEffect, ToolSet};

/// Maximum length of a tool name that model providers accept.
const MAX_COMBINED_NAME_CHARS: usize = 64;

/// The tools of all sets. If two have the same name, the later one gets the name of its set as a prefix.
pub struct CombinedToolSet {
    tool_sets: Vec<Arc<dyn ToolSet>>,
    tools: Vec<AgentTool>,
    /// Index of the set and the name of the tool in it, by the name that the model sees.
    tool_locations: HashMap<Arc<str>, (usize, Arc<str>)>,
}

impl fmt::Debug for CombinedToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CombinedToolSet")
            .field("boxes", &self.tool_sets.len())
            .field("tools", &self.tools.len())
            .finish()
    }
}

impl CombinedToolSet {
    /// Combines sets. Each has a name of letters, digits, `_` and `-`.
    pub fn new(named: Vec<(String, Arc<dyn ToolSet>)>) -> CombinedToolSet {
        let mut joined = CombinedToolSet { tool_sets: Vec::new(), tools: Vec::new(), tool_locations: HashMap::new() };
        for (at, (name, tool_box)) in named.into_iter().enumerate() {
            for tool in tool_box.tools() {
                let own_name = Arc::clone(&tool.definition.name);
                let shown = joined.choose_free_name(&name, &own_name);
                let mut tool = tool.clone();
                tool.definition.name = Arc::clone(&shown);
                joined.tools.push(tool);
                joined.tool_locations.insert(shown, (at, own_name));
            }
            joined.tool_sets.push(tool_box);
        }
        joined
    }

    /// Returns the name itself, or with a prefix, or with a prefix and a number. Long names are cut before the number
    /// is added.
    fn choose_free_name(&self, of_box: &str, name: &Arc<str>) -> Arc<str> {
        if !self.tool_locations.contains_key(name) {
            return Arc::clone(name);
        }
        let named = std::iter::once(format!("{of_box}_{name}"));
        let mut named = named.chain((2..).map(|n| format!("{of_box}_{n}_{name}")));
        // The name is cut, not the number.
        let short = |name: String| Arc::from(name.chars().take(MAX_COMBINED_NAME_CHARS).collect::<String>());
        let mut free = named.by_ref().map(short).filter(|name: &Arc<str>| !self.tool_locations.contains_key(name));
        free.next().unwrap_or_else(|| Arc::clone(name))
    }

    /// Finds the set that has a tool, and its name there.
    fn find_tool(&self, name: &str) -> Option<(&dyn ToolSet, &str)> {
        let (at, own_name) = self.tool_locations.get(name)?;
        Some((&**self.tool_sets.get(*at)?, own_name))
    }
}

impl ToolSet for CombinedToolSet {
    fn tools(&self) -> &[AgentTool] {
        &self.tools
    }

    fn classify_effect(&self, name: &str, arguments: &Value) -> ToolEffect {
        self.find_tool(name).map_or(ToolEffect::Read, |(tools, own_name)| tools.classify_effect(own_name, arguments))
    }

    fn withheld_reason(&self, name: &str) -> Option<String> {
        self.tool_sets.iter().find_map(|one| one.withheld_reason(name))
    }

    fn call<'c>(&'c self, name: &'c str, arguments: &'c Value) -> BoxFuture<'c, CallObservation> {
        if let Some((tools, own_name)) = self.find_tool(name) {
            return tools.call(own_name, arguments);
        }
        Box::pin(async move {
            let message = self.withheld_reason(name).unwrap_or_else(|| format!("there is no tool called {name:?}"));
            let text = json!({"error": message}).to_string();
            CallObservation { text, is_error: true, retry_after: None }
        })
    }
}

#[cfg(test)]
mod tests {
    use gradus_llm::ChatToolDefinition;

    use super::*;

    struct Echo(Vec<AgentTool>);

    fn echo(names: &[&str], effect: ToolEffect) -> Arc<dyn ToolSet> {
        let tool = |name: &&str| AgentTool {
            definition: ChatToolDefinition {
                name: Arc::from(*name),
                description: Arc::from("says what it was called"),
                parameters: Arc::new(json!({"type": "object"})),
            },
            effect,
        };
        Arc::new(Echo(names.iter().map(tool).collect()))
    }

    impl ToolSet for Echo {
        fn tools(&self) -> &[AgentTool] {
            &self.0
        }

        fn withheld_reason(&self, name: &str) -> Option<String> {
            (name == "secret").then(|| "not for you".to_owned())
        }

        fn call<'c>(&'c self, name: &'c str, arguments: &'c Value) -> BoxFuture<'c, CallObservation> {
            let text = format!("{} {name} {arguments}", self.0.len());
            Box::pin(async move { CallObservation { text, is_error: false, retry_after: None } })
        }
    }

    #[tokio::test]
    async fn the_same_name_twice_gets_a_prefix() {
        let long = "x".repeat(64);
        let tool_sets = CombinedToolSet::new(vec![
            ("a".to_owned(), echo(&["read", "write", &long], ToolEffect::Read)),
            ("b".to_owned(), echo(&["read", "b_read"], ToolEffect::Write)),
            ("b".to_owned(), echo(&["read", &long], ToolEffect::Destructive)),
        ]);
        let names: Vec<_> = tool_sets.tools().iter().map(|tool| tool.definition.name.to_string()).collect();
        let cut = format!("b_{}", &long[..62]);
        assert_eq!(names, ["read", "write", &long, "b_read", "b_b_read", "b_2_read", &cut]);
        let call = async |name: &str| tool_sets.call(name, &json!({})).await.text;
        assert_eq!(call("read").await, "3 read {}");
        assert_eq!(call("b_read").await, "2 read {}");
        assert_eq!(call("b_b_read").await, "2 b_read {}");
        assert_eq!(call("b_2_read").await, "2 read {}");
        assert_eq!(tool_sets.classify_effect("b_read", &json!({})), ToolEffect::Write);
        assert_eq!(tool_sets.classify_effect("b_2_read", &json!({})), ToolEffect::Destructive);
        assert_eq!(call("nothing").await, "{\"error\":\"there is no tool called \\\"nothing\\\"\"}");
        assert_eq!(call("secret").await, "{\"error\":\"not for you\"}");
    }
}
