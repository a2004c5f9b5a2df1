//! The options of `gradus agent`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gradus_github_agent::agent::ToolCallMode;
use gradus_github_agent::mcp::McpServerSpec;

use super::super::model::ModelOptions;
use crate::config::EnvironmentVariables;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct AgentArguments {
    /// What is to be done. Without it: read from standard input, unless that is a terminal.
    #[arg(value_name = "REQUEST")]
    pub(super) request: Option<String>,

    #[command(flatten)]
    pub(super) model: ModelOptions,

    /// How the model says what it wants to do: the endpoint's own tool calls, or Thought / Action / Action Input as
    /// text [default: native].
    #[arg(long, value_enum, value_name = "FORM", help_heading = "Agent")]
    pub(super) react: Option<ReactForm>,
    /// Replies of the model for one request at most.
    #[arg(long, value_name = "N", default_value_t = 30, help_heading = "Agent")]
    pub(super) max_steps: u32,
    /// Tool calls for one request at most.
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Agent")]
    pub(super) max_calls: u32,
    /// Keep the session in this file after each step, and go on with what is in it.
    #[arg(long, value_name = "FILE", help_heading = "Agent")]
    pub(super) session: Option<PathBuf>,
    /// Go on talking: each line is another request of the same session.
    #[arg(long, conflicts_with = "json", help_heading = "Agent")]
    pub(super) chat: bool,

    /// The API's address; else GITHUB_API_URL [default: https://api.github.com].
    #[arg(long, value_name = "URL", help_heading = "Tools")]
    pub(super) github_url: Option<String>,
    /// The variable that holds the token.
    #[arg(long, value_name = "VARIABLE", default_value = "GITHUB_TOKEN", help_heading = "Tools")]
    pub(super) token_env: String,
    /// Only tools that change nothing.
    #[arg(long, help_heading = "Tools")]
    pub(super) read_only: bool,
    /// Do not ask before something is deleted, overwritten by force or shown to others.
    #[arg(long, help_heading = "Tools")]
    pub(super) allow_destructive: bool,
    /// Only these tools: families (repos, files, branches, commits, issues, labels, pulls, search, releases) or names.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Tools")]
    pub(super) tools: Vec<String>,

    /// Also the tools of this MCP server: a command to start, or an address; may be given several times.
    #[arg(long, value_name = "COMMAND|URL", help_heading = "Tools")]
    pub(super) mcp: Vec<McpServerSpec>,
    /// The variable that holds the token of an MCP server with an address; of several, in the order of their --mcp.
    #[arg(long, value_name = "VARIABLE", help_heading = "Tools")]
    pub(super) mcp_token_env: Vec<String>,

    /// Send the trace there, OTLP over HTTP; else OTEL_EXPORTER_OTLP_ENDPOINT.
    #[arg(long, value_name = "URL", help_heading = "Trace")]
    pub(super) otlp: Option<String>,
    /// Add the trace to this file, as OTLP.
    #[arg(long, value_name = "FILE", conflicts_with = "otlp", help_heading = "Trace")]
    pub(super) trace_file: Option<PathBuf>,
    /// The project that the trace belongs to.
    #[arg(long, value_name = "NAME", default_value = "gradus-agent", help_heading = "Trace")]
    pub(super) project: String,

    /// Print what was done and the answer as one JSON object.
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Do not show the steps.
    #[arg(long, short, help_heading = "Output")]
    pub(super) quiet: bool,
}

impl AgentArguments {
    /// Returns the MCP servers with their tokens. The N-th `--mcp-token-env` belongs to the N-th `--mcp` with an
    /// address; servers that are started as commands get none. Every token must have its server, so that none goes to
    /// a wrong one.
    pub(super) fn mcp_servers(&self) -> Result<Vec<McpServerSpec>, McpTokenError> {
        let mut variables = self.mcp_token_env.iter();
        let mut servers = self.mcp.clone();
        for server in &mut servers {
            if let McpServerSpec::Http { token, .. } = server
                && let Some(variable) = variables.next()
            {
                let secret = EnvironmentVariables::read_secret(variable);
                let secret = secret.ok_or_else(|| McpTokenError::NotSet { variable: variable.clone() })?;
                *token = Some(secret.expose().to_owned());
            }
        }
        match variables.next() {
            Some(variable) => Err(McpTokenError::NoServer { variable: variable.clone() }),
            None => Ok(servers),
        }
    }
}

/// Why a variable of `--mcp-token-env` cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum McpTokenError {
    #[error("--mcp-token-env: {variable} is not set")]
    NotSet { variable: String },
    #[error("--mcp-token-env: there is no --mcp with an address for {variable}")]
    NoServer { variable: String },
}

// How the model requests tool calls: as ReAct text, or in the tool calls of the endpoint. This type and the options
// above have help texts only, no doc comments, because clap prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReactForm {
    Text,
    Native,
}

impl ReactForm {
    /// Returns the form as the agent knows it; `ReactForm` exists for clap only.
    pub(super) fn to_tool_call_mode(self) -> ToolCallMode {
        match self {
            ReactForm::Text => ToolCallMode::Text,
            ReactForm::Native => ToolCallMode::Native,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  gradus agent \"Which issues of octo/demo are open and labelled bug?\" --read-only
  gradus agent \"Open an issue in octo/demo: the build is broken\" --otlp http://127.0.0.1:4318
  gradus agent --chat --session talk.json              a conversation that can be taken up again
  gradus simulate --seed w2 &                          a GitHub to practise on:
  GITHUB_TOKEN=test_token_user1 gradus agent \"Star octo/demo\" --github-url http://127.0.0.1:4100

Steps are shown on standard error as they happen, the answer on standard output. What is destructive is asked for on the \
terminal; where there is none, it is refused, and the model hears of it.

Exit codes: 0 answered, 1 ended without an answer, 2 bad input or settings, 4 nothing to do, 5 answered but the trace could not \
be sent, 130 interrupted (`--session` goes on from there).";
