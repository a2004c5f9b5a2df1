//! Agent frameworks and model clients by the packages that bring them, and how each is traced.

/// One framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgentFramework {
    pub(super) title: &'static str,
    pub(super) language: PackageLanguage,
    /// Names of packages, normalised.
    pub(super) packages: &'static [&'static str],
    /// Whether it is a client for models, which is reported only if there is no framework.
    pub(super) is_client: bool,
    /// What makes it emit spans that Gradus reads.
    pub(super) tracing: &'static str,
}

/// Where a package comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackageLanguage {
    Python,
    Node,
}

const fn python(title: &'static str, packages: &'static [&'static str], tracing: &'static str) -> AgentFramework {
    AgentFramework { title, language: PackageLanguage::Python, packages, is_client: false, tracing }
}

const fn node(title: &'static str, packages: &'static [&'static str], tracing: &'static str) -> AgentFramework {
    AgentFramework { title, language: PackageLanguage::Node, packages, is_client: false, tracing }
}

const fn client(framework: AgentFramework) -> AgentFramework {
    AgentFramework { is_client: true, ..framework }
}

/// Frameworks in the order in which they are reported. Captures of most are in `fixtures/captures`.
pub(super) const AGENT_FRAMEWORKS: &[AgentFramework] = &[
    python(
        "LlamaIndex",
        &["llama-index", "llama-index-core", "llama-index-workflows"],
        "pip install openinference-instrumentation-llama-index",
    ),
    python("LangGraph", &["langgraph"], "pip install openinference-instrumentation-langchain"),
    python("LangChain", &["langchain"], "pip install openinference-instrumentation-langchain"),
    python("OpenAI Agents SDK", &["openai-agents"], "pip install openinference-instrumentation-openai-agents"),
    python("pydantic-ai", &["pydantic-ai", "pydantic-ai-slim"], "call Agent.instrument_all()"),
    python("CrewAI", &["crewai"], "pip install openinference-instrumentation-crewai"),
    python("Google ADK", &["google-adk"], "it emits spans itself; set up an OTLP exporter"),
    python("smolagents", &["smolagents"], "pip install openinference-instrumentation-smolagents"),
    python("AutoGen", &["autogen-agentchat"], "it emits spans itself; set up an OTLP exporter"),
    python("AG2", &["ag2", "pyautogen"], "it emits spans itself; set up an OTLP exporter"),
    python("Microsoft Agent Framework", &["agent-framework"], "it emits spans itself; set up an OTLP exporter"),
    python("Strands Agents", &["strands-agents"], "it emits spans itself; set up an OTLP exporter"),
    python("DSPy", &["dspy", "dspy-ai"], "pip install openinference-instrumentation-dspy"),
    node("Vercel AI SDK", &["ai"], "set experimental_telemetry: { isEnabled: true }"),
    node("Mastra", &["@mastra/core"], "it emits spans itself; set up an OTLP exporter"),
    node(
        "LangChain.js",
        &["@langchain/langgraph", "langchain", "@langchain/core"],
        "npm install @arizeai/openinference-instrumentation-langchain",
    ),
    node(
        "OpenAI Agents SDK",
        &["@openai/agents", "@openai/agents-core"],
        "npm install @arizeai/openinference-instrumentation-openai-agents",
    ),
    node("LlamaIndex.TS", &["llamaindex"], "npm install @traceloop/instrumentation-llamaindex"),
    node("Google ADK", &["@google/adk"], "it emits spans itself; set up an OTLP exporter"),
    client(python("LiteLLM", &["litellm"], "pip install openinference-instrumentation-litellm")),
    client(python("OpenAI's client", &["openai"], "pip install openinference-instrumentation-openai")),
    client(python("Anthropic's client", &["anthropic"], "pip install openinference-instrumentation-anthropic")),
    client(node("OpenAI's client", &["openai"], "npm install @arizeai/openinference-instrumentation-openai")),
    client(node(
        "Anthropic's client",
        &["@anthropic-ai/sdk"],
        "npm install @arizeai/openinference-instrumentation-anthropic",
    )),
];
