//! Code to copy that sends traces here. Each file of `snippets/` is complete: `tests/peers/start.py` runs the Python
//! ones as the page shows them.
//!
//! `__ENDPOINT__` stands for the address of this server. `__KEY_ARGUMENT__`, and lines that begin with `__IF_KEY__`,
//! are about the API key and are left out where none is needed.

/// A tab of the page.
pub(super) struct StartSnippet {
    /// Also part of the element id.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The purpose, if the title does not state it.
    pub(super) about: &'static str,
    /// Where the code belongs.
    pub(super) file: &'static str,
    pub(super) code: String,
    pub(super) is_first: bool,
}

/// Name, title, remark, file name and template, in the order of the tabs.
const SNIPPETS: [(&str, &str, &str, &str, &str); 11] = [
    ("llamaindex", "LlamaIndex", "Traced with OpenInference.", "agent.py", include_str!("snippets/llamaindex.py")),
    (
        "langchain",
        "LangChain, LangGraph",
        "Traced with OpenInference. The instrumentation covers LangGraph as well.",
        "agent.py",
        include_str!("snippets/langchain.py"),
    ),
    ("openai", "OpenAI", "Traced with OpenInference.", "agent.py", include_str!("snippets/openai.py")),
    (
        "openai-agents",
        "OpenAI Agents",
        "Traced with OpenInference.",
        "agent.py",
        include_str!("snippets/openai-agents.py"),
    ),
    ("crewai", "CrewAI", "Traced with OpenInference.", "agent.py", include_str!("snippets/crewai.py")),
    ("smolagents", "smolagents", "Traced with OpenInference.", "agent.py", include_str!("snippets/smolagents.py")),
    (
        "otel-genai",
        "OTel GenAI",
        "Traced with the GenAI conventions of OpenTelemetry.",
        "agent.py",
        include_str!("snippets/otel-genai.py"),
    ),
    (
        "vercel-ai",
        "Vercel AI",
        "Version 7 of the AI SDK, with its own OpenTelemetry integration.",
        "agent.mjs",
        include_str!("snippets/vercel-ai.mjs"),
    ),
    (
        "pydantic-ai",
        "pydantic-ai",
        "pydantic-ai has its own OpenTelemetry tracing.",
        "agent.py",
        include_str!("snippets/pydantic-ai.py"),
    ),
    (
        "collector",
        "OTel collector",
        "For traces that a collector receives already.",
        "collector.yaml",
        include_str!("snippets/collector.yaml"),
    ),
    (
        "send-file",
        "Send a file",
        "For traces that were recorded before.",
        "in a shell",
        include_str!("snippets/send-file.sh"),
    ),
];

/// Lists all tabs, with the address of this server filled in.
pub(super) fn list_snippets(address: &str, needs_key: bool) -> Vec<StartSnippet> {
    let make = |(at, (name, title, about, file, template)): (usize, (_, _, _, &'static str, &str))| StartSnippet {
        name,
        title,
        about,
        file,
        code: fill_snippet(template, file, address, needs_key),
        is_first: at == 0,
    };
    SNIPPETS.into_iter().enumerate().map(make).collect()
}

fn fill_snippet(template: &str, file: &str, address: &str, needs_key: bool) -> String {
    let key_argument = match (needs_key, file.ends_with(".py")) {
        (false, _) => "",
        (true, true) => ", headers={\"authorization\": \"Bearer YOUR_KEY\"}",
        (true, false) => ", headers: { authorization: \"Bearer YOUR_KEY\" }",
    };
    let mut code = String::new();
    for line in template.lines() {
        let line = match line.strip_prefix("__IF_KEY__") {
            Some(_) if !needs_key => continue,
            Some(line) => line,
            None => line,
        };
        code.push_str(&line.replace("__ENDPOINT__", address).replace("__KEY_ARGUMENT__", key_argument));
        code.push('\n');
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_snippet_sends_here_and_has_no_placeholder_left() {
        for needs_key in [false, true] {
            for one in list_snippets("https://gradus.example/obs", needs_key) {
                assert!(one.code.contains("https://gradus.example/obs"), "{}", one.name);
                assert!(!one.code.contains("__"), "{}: {}", one.name, one.code);
                let names_key = one.code.contains("YOUR_KEY") || one.code.contains("GRADUS_KEY");
                assert_eq!(names_key, needs_key, "{}", one.name);
            }
        }
    }
}
