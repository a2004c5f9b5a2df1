//! From arguments and environment to what an agent needs. What can be wrong is found here, before anything is asked.

use std::io::{IsTerminal as _, Read as _};

use gradus_github_agent::agent::AgentRunEnd;
use gradus_github_agent::agent::{
    AgentRunSettings as AgentSettings, AgentSessionStore as _, AgentState, SessionFile, ToolCallMode,
};
use gradus_github_agent::tools::{GITHUB_COM, GitHubTools, ToolFamily, ToolRestrictions, all_tools};
use gradus_llm::ModelClient;

use super::AgentArguments;
use crate::config::EnvironmentVariables;

/// The longest request that is read from standard input.
const MAX_REQUEST: u64 = 1 << 20;

pub(super) struct AgentCommandSettings {
    pub(super) client: ModelClient,
    pub(super) tools: GitHubTools,
    pub(super) has_token: bool,
    pub(super) agent: AgentSettings,
    pub(super) state: AgentState,
    pub(super) session: Option<SessionFile>,
    pub(super) first: InitialAction,
    /// Where the trace is sent.
    pub(super) otlp: Option<String>,
}

/// What is done first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InitialAction {
    Request(String),
    /// With a request that was put down.
    GoOn,
    /// Listen: the user types.
    Listen,
    Nothing,
}

impl AgentCommandSettings {
    pub(super) fn read(arguments: &AgentArguments) -> Result<AgentCommandSettings, String> {
        let environment = EnvironmentVariables::read();
        if arguments.max_steps == 0 || arguments.max_calls == 0 {
            return Err("--max-steps and --max-calls: give at least 1".to_owned());
        }
        let client = arguments.model.client(&environment, 1)?;
        let token = EnvironmentVariables::read_secret(&arguments.token_env);
        let url = arguments.github_url.as_ref().or(environment.github_url.as_ref());
        let tools = GitHubTools::new(
            url.map_or(GITHUB_COM, String::as_str),
            token.as_ref().map(gradus_http::SecretString::expose),
            build_tool_restrictions(arguments)?,
        )
        .map_err(|error| error.to_string())?;
        let mut session = match &arguments.session {
            Some(path) => Some(SessionFile::open(path).map_err(|error| error.to_string())?),
            None => None,
        };
        let kept = match &session {
            Some(file) => file.read().map_err(|error| error.to_string())?,
            None => None,
        };
        let (state, is_new) = match kept {
            Some(state) => (state, false),
            None => (AgentState::new(&format!("{:016x}", fastrand::u64(..)), choose_tool_mode(arguments)), true),
        };
        if !is_new && arguments.react.is_some_and(|react| react.to_tool_call_mode() != state.form) {
            return Err(
                "--react: the session in the file has the other form; leave it out, or name another file".to_owned()
            );
        }
        let first = choose_initial_action(arguments, &state, is_new)?;
        if let Some(file) = &mut session {
            // A file that cannot be written is found out now, not after the first step.
            file.keep(&state).map_err(|error| error.to_string())?;
        }
        let otlp = arguments.otlp.clone().or(environment.otlp_endpoint.filter(|_| arguments.trace_file.is_none()));
        let otlp = otlp
            .map(|url| crate::carrier::base_of(&url))
            .transpose()
            .map_err(|error| error.replace("--log-to-otlp", "--otlp"))?;
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

    /// Whether the session has answered the very same request last.
    pub(super) fn is_repeated(&self) -> bool {
        let answered = self.state.run_outcome().is_some_and(|(end, _)| *end == AgentRunEnd::Answered);
        let InitialAction::Request(request) = &self.first else { return false };
        answered && self.state.request.as_deref() == Some(request)
    }
}

fn choose_tool_mode(arguments: &AgentArguments) -> ToolCallMode {
    arguments.react.map_or_else(ToolCallMode::default, super::arguments::ReactForm::to_tool_call_mode)
}

/// Which tools there are. What is destructive is among them: whether it may be done is asked when it is wanted.
fn build_tool_restrictions(arguments: &AgentArguments) -> Result<ToolRestrictions, String> {
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
            return Err(format!("--tools: there is no tool and no family of tools called {name:?}"));
        }
    }
    Ok(ToolRestrictions { read_only: arguments.read_only, allow_destructive: true, families: Vec::new(), allowed })
}

/// The same command goes on with what it began; another request begins when the last one has an end.
fn choose_initial_action(
    arguments: &AgentArguments,
    state: &AgentState,
    is_new: bool,
) -> Result<InitialAction, String> {
    let has_no_answer = state.is_under_way()
        || state.run_outcome().is_some_and(|(end, _)| {
            matches!(end, AgentRunEnd::StepLimit | AgentRunEnd::CallLimit | AgentRunEnd::Failed(_))
        });
    let request = match &arguments.request {
        Some(request) => Some(request.clone()),
        // A conversation's requests come one by one.
        None if arguments.chat || has_no_answer || std::io::stdin().is_terminal() => None,
        None => Some(read_request()?),
    };
    match request.map(|request| request.trim().to_owned()) {
        Some(request) if has_no_answer && state.request.as_deref() == Some(&request) => Ok(InitialAction::GoOn),
        Some(_) if state.is_under_way() => Err(format!(
            "the session is still at work on {:?}; run it without a request to go on with that",
            state.request.as_deref().unwrap_or_default()
        )),
        Some(request) if request.is_empty() && arguments.request.is_none() && state.run_outcome().is_some() => {
            Ok(InitialAction::Nothing)
        }
        Some(request) if request.is_empty() && arguments.request.is_none() && is_new => {
            Err(missing_request_message(arguments))
        }
        Some(request) if request.is_empty() => Err("the request is empty: say what is to be done".to_owned()),
        Some(request) => Ok(InitialAction::Request(request)),
        None if has_no_answer => Ok(InitialAction::GoOn),
        None if arguments.chat => Ok(InitialAction::Listen),
        None if state.run_outcome().is_some() => Ok(InitialAction::Nothing),
        None => Err(missing_request_message(arguments)),
    }
}

/// There is neither a request nor a session that has one.
fn missing_request_message(arguments: &AgentArguments) -> String {
    match &arguments.session {
        Some(path) => {
            format!("--session: there is no session in {} to go on with; say what is to be done", path.display())
        }
        None if std::io::stdin().is_terminal() => {
            "say what is to be done: gradus agent \"REQUEST\", or --chat".to_owned()
        }
        None => "the request is empty: say what is to be done".to_owned(),
    }
}

fn read_request() -> Result<String, String> {
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_REQUEST + 1).read_to_string(&mut text);
    read.map_err(|error| format!("standard input cannot be read: {error}"))?;
    if text.len() as u64 > MAX_REQUEST {
        return Err("the request on standard input is longer than 1 MB".to_owned());
    }
    Ok(text)
}
