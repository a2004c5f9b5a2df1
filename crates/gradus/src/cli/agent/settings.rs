//! From arguments and environment to the settings of an agent. Errors in them are found here, before a model is asked
//! or a request is sent to GitHub.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use gradus_github_agent::agent::AgentRunEnd;
use gradus_github_agent::agent::{
    AgentRunSettings as AgentSettings, AgentSessionStore as _, AgentState, SessionError, SessionFile, ToolCallMode,
};
use gradus_github_agent::mcp::McpError;
use gradus_github_agent::tools::{
    GITHUB_COM_API_URL, GitHubTools, ToolFamily, ToolRestrictions, ToolsError, all_tools,
};
use gradus_llm::ModelClient;

use super::super::model::ModelOptionsError;
use super::AgentArguments;
use super::arguments::McpTokenError;
use crate::config::EnvironmentVariables;
use crate::otlp_exporter::{OtlpAddressError, parse_base_address};

/// Maximum size of a request that is read from standard input, in bytes.
const MAX_REQUEST_TEXT_BYTES: u64 = 1 << 20;

/// Why the agent cannot begin; printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentCommandError {
    #[error("--max-steps and --max-calls: give at least 1")]
    ZeroLimit,
    #[error(transparent)]
    Model(#[from] ModelOptionsError),
    #[error(transparent)]
    Tools(#[from] ToolsError),
    #[error("--tools: there is no tool and no family of tools called {name:?}")]
    UnknownTool { name: String },
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A session continues in the form in which it began: its history has calls of that form.
    #[error("--react: the session in the file has the other form; leave it out, or name another file")]
    OtherForm,
    #[error("--otlp: {0}")]
    OtlpAddress(#[from] OtlpAddressError),
    #[error(transparent)]
    McpToken(#[from] McpTokenError),
    #[error("--mcp: {0}")]
    McpServer(#[source] McpError),
    /// Another request while the last one of the session is not finished.
    #[error("the session is still at work on {request:?}; run it without a request to go on with that")]
    Unfinished { request: String },
    #[error("--session: there is no session in {} to go on with; say what is to be done", path.display())]
    NoSession { path: PathBuf },
    #[error("say what is to be done: gradus agent \"REQUEST\", or --chat")]
    NoRequest,
    #[error("the request is empty: say what is to be done")]
    EmptyRequest,
    #[error("standard input cannot be read: {0}")]
    Input(#[source] std::io::Error),
    #[error("the request on standard input is longer than 1 MB")]
    RequestTooLong,
}

/// All that a session needs, checked. The session file is locked from here on.
pub(super) struct AgentCommandSettings {
    pub(super) client: ModelClient,
    pub(super) tools: GitHubTools,
    pub(super) has_token: bool,
    pub(super) agent: AgentSettings,
    /// The state of the session file, or a new one.
    pub(super) state: AgentState,
    pub(super) session: Option<SessionFile>,
    pub(super) first: InitialAction,
    /// The OTLP address that the trace is sent to, without `/v1/traces`. `--trace-file` takes precedence over the
    /// variable OTEL_EXPORTER_OTLP_ENDPOINT.
    pub(super) otlp: Option<String>,
}

/// What the agent does first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InitialAction {
    /// Work on a new request.
    Request(String),
    /// Continue the unfinished or failed request of the session.
    GoOn,
    /// Wait for the user to type a request (`--chat`).
    Listen,
    /// The last request of the session is answered, and no other is given.
    Nothing,
}

impl AgentCommandSettings {
    /// Reads and checks the settings. Must be called inside a runtime: the HTTP client of the GitHub tools registers
    /// with it.
    pub(super) fn read(arguments: &AgentArguments) -> Result<AgentCommandSettings, AgentCommandError> {
        let environment = EnvironmentVariables::read();
        if arguments.max_steps == 0 || arguments.max_calls == 0 {
            return Err(AgentCommandError::ZeroLimit);
        }
        let client = arguments.model.client(&environment, 1)?;
        let token = EnvironmentVariables::read_secret(&arguments.token_env);
        let url = arguments.github_url.as_ref().or(environment.github_url.as_ref());
        let tools = GitHubTools::new(
            url.map_or(GITHUB_COM_API_URL, String::as_str),
            token.as_ref().map(gradus_http::SecretString::expose),
            build_tool_restrictions(arguments)?,
        )?;
        let mut session = match &arguments.session {
            Some(path) => Some(SessionFile::open(path)?),
            None => None,
        };
        let kept = match &session {
            Some(file) => file.read()?,
            None => None,
        };
        let (state, is_new) = match kept {
            Some(state) => (state, false),
            None => (AgentState::new(&format!("{:016x}", fastrand::u64(..)), choose_tool_mode(arguments)), true),
        };
        if !is_new && arguments.react.is_some_and(|react| react.to_tool_call_mode() != state.form) {
            return Err(AgentCommandError::OtherForm);
        }
        let first = choose_initial_action(arguments, &state, is_new)?;
        if let Some(file) = &mut session {
            // Written now, so that an unwritable file is found before the first step and not after it.
            file.save_agent_state(&state)?;
        }
        let otlp = arguments.otlp.clone().or(environment.otlp_endpoint.filter(|_| arguments.trace_file.is_none()));
        let otlp = otlp.map(|url| parse_base_address(&url)).transpose()?;
        let agent = AgentSettings {
            form: state.form,
            max_steps: arguments.max_steps,
            max_calls: arguments.max_calls,
            max_tokens: arguments.model.max_tokens,
            temperature: arguments.model.temperature(client.endpoint().provider),
            context_tokens: arguments.model.context_tokens,
            read_only: arguments.read_only,
            confirm_destructive: !arguments.allow_destructive,
            ..AgentSettings::default()
        };
        Ok(AgentCommandSettings { client, tools, has_token: token.is_some(), agent, state, session, first, otlp })
    }

    /// Whether the last request of the session was the same and has an answer. It is done again, after a notice: a user
    /// who repeats a command by accident should notice.
    pub(super) fn is_repeated_request(&self) -> bool {
        let answered = self.state.run_outcome().is_some_and(|(end, _)| *end == AgentRunEnd::Answered);
        let InitialAction::Request(request) = &self.first else { return false };
        answered && self.state.request.as_deref() == Some(request)
    }
}

fn choose_tool_mode(arguments: &AgentArguments) -> ToolCallMode {
    arguments.react.map_or_else(ToolCallMode::default, super::arguments::ReactForm::to_tool_call_mode)
}

/// Builds the selection of tools, by family or name. Destructive tools are always included: whether a call is allowed
/// is decided when the model makes it.
fn build_tool_restrictions(arguments: &AgentArguments) -> Result<ToolRestrictions, AgentCommandError> {
    let known: Vec<_> = all_tools().collect();
    let mut allowed: Vec<String> = Vec::new();
    for name in &arguments.tools {
        let family = name.parse::<ToolFamily>().ok();
        let before = allowed.len();
        allowed.extend(
            known
                .iter()
                .filter(|(of, tool)| Some(*of) == family || *tool.definition.name == **name)
                .map(|(_, tool)| tool.definition.name.to_string()),
        );
        if allowed.len() == before {
            return Err(AgentCommandError::UnknownTool { name: name.clone() });
        }
    }
    Ok(ToolRestrictions { read_only: arguments.read_only, allow_destructive: true, families: Vec::new(), allowed })
}

/// Decides between a new request and the one in the session. The same command continues the request that it began. A
/// new request is refused while the last one is unfinished, since the history ends with calls that have no results.
fn choose_initial_action(
    arguments: &AgentArguments,
    state: &AgentState,
    is_new: bool,
) -> Result<InitialAction, AgentCommandError> {
    let has_no_answer = state.is_under_way()
        || state.run_outcome().is_some_and(|(end, _)| {
            matches!(end, AgentRunEnd::StepLimit | AgentRunEnd::CallLimit | AgentRunEnd::Failed(_))
        });
    let request = match &arguments.request {
        Some(request) => Some(request.clone()),
        // In a conversation, standard input is read line by line later.
        None if arguments.chat || has_no_answer || std::io::stdin().is_terminal() => None,
        None => Some(read_request()?),
    };
    match request.map(|request| request.trim().to_owned()) {
        Some(request) if has_no_answer && state.request.as_deref() == Some(&request) => Ok(InitialAction::GoOn),
        Some(_) if state.is_under_way() => {
            Err(AgentCommandError::Unfinished { request: state.request.clone().unwrap_or_default() })
        }
        Some(request) if request.is_empty() && arguments.request.is_none() && state.run_outcome().is_some() => {
            Ok(InitialAction::Nothing)
        }
        Some(request) if request.is_empty() && arguments.request.is_none() && is_new => {
            Err(missing_request_error(arguments))
        }
        Some(request) if request.is_empty() => Err(AgentCommandError::EmptyRequest),
        Some(request) => Ok(InitialAction::Request(request)),
        None if has_no_answer => Ok(InitialAction::GoOn),
        None if arguments.chat => Ok(InitialAction::Listen),
        None if state.run_outcome().is_some() => Ok(InitialAction::Nothing),
        None => Err(missing_request_error(arguments)),
    }
}

/// Returns the error for a call without a request and without a session that has one.
fn missing_request_error(arguments: &AgentArguments) -> AgentCommandError {
    match &arguments.session {
        Some(path) => AgentCommandError::NoSession { path: path.clone() },
        None if std::io::stdin().is_terminal() => AgentCommandError::NoRequest,
        None => AgentCommandError::EmptyRequest,
    }
}

/// Reads a request from standard input, to its end.
fn read_request() -> Result<String, AgentCommandError> {
    let mut text = String::new();
    // One byte more than allowed distinguishes a request of the maximum length from a longer one.
    let read = std::io::stdin().take(MAX_REQUEST_TEXT_BYTES + 1).read_to_string(&mut text);
    read.map_err(AgentCommandError::Input)?;
    if text.len() as u64 > MAX_REQUEST_TEXT_BYTES {
        return Err(AgentCommandError::RequestTooLong);
    }
    Ok(text)
}
