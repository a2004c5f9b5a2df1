//! `gradus agent`: runs the GitHub agent on the terminal. Steps go to standard error as they happen, the answer goes to
//! standard output.

mod arguments;
mod settings;
mod terminal;
mod tracing;

pub(super) use arguments::AgentArguments;

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use gradus_github_agent::agent::{
    AgentDriver, AgentObserver, AgentRunRecorder, AgentSessionStore, AgentStateMachine, CallConfirmer, RealClock,
    SessionError, SessionFile,
};
use gradus_github_agent::agent::{AgentRunEnd, RunStep};
use gradus_github_agent::mcp::{MCP_TIMEOUT, McpTools};
use gradus_github_agent::tools::{CombinedToolSet, GitHubTools, ToolRestrictions, ToolSet};
use gradus_llm::ModelClient;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use self::settings::{AgentCommandError, AgentCommandSettings, InitialAction};
use self::terminal::{DestructiveCallPrompt, StepDisplay, UnattendedConfirmer};
use self::tracing::TraceExportTask;
use super::{CommandExit, print_diagnostic};
use gradus_core::visible::{make_printable, printable_line};
use gradus_report::{BOLD, DIM, format_counted_noun};

/// Delay before a notice says which MCP server is being waited for: the first start can include a download.
const MCP_NOTICE_DELAY: Duration = Duration::from_secs(3);

/// Entry point of the command. Settings are read inside the runtime and errors are printed before anything is sent.
pub(super) fn run_agent_command(arguments: &AgentArguments) -> anyhow::Result<CommandExit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let read = {
        // The client of the GitHub tools must be made inside the runtime that it is used in.
        let _entered = runtime.enter();
        AgentCommandSettings::read(arguments)
    };
    let settings = match read {
        Ok(settings) => settings,
        Err(error) => {
            print_diagnostic(&printable_line(&error.to_string()));
            return Ok(CommandExit::BadInput);
        }
    };
    if settings.first == InitialAction::Nothing {
        print_diagnostic("nothing to do: the session's last request is answered; give another one");
        return Ok(CommandExit::NothingFound);
    }
    // Only a notice: repeating a request can be intended.
    if settings.is_repeated_request() {
        print_diagnostic("this request was answered in the session before; it is done once more");
    }
    let done = runtime.block_on(run_agent_session(arguments, settings));
    // A thread may still block on a read from the terminal; waiting for it would need another key press.
    runtime.shutdown_background();
    done
}

/// Checks GitHub's address, connects the MCP servers, runs the conversation, and exports the trace.
async fn run_agent_session(arguments: &AgentArguments, settings: AgentCommandSettings) -> anyhow::Result<CommandExit> {
    // Not an error: public repositories can be read without a token.
    if !settings.has_token {
        print_diagnostic(&format!(
            "{} is not set: without a token only public things can be read; --token-env names another variable",
            arguments.token_env
        ));
    }
    if let Err(error) = settings.tools.check_connection().await {
        print_diagnostic(&printable_line(&error.to_string()));
        return Ok(CommandExit::BadInput);
    }
    let traced = TraceExportTask::begin(&arguments.project, settings.otlp.as_deref(), arguments.trace_file.as_deref());
    let traced = match traced {
        Ok(traced) => traced,
        Err(error) => {
            print_diagnostic(&printable_line(&error.to_string()));
            return Ok(CommandExit::BadInput);
        }
    };
    let tools = match build_tool_set(arguments, settings.tools).await {
        Ok(tools) => tools,
        Err(error) => {
            print_diagnostic(&printable_line(&error.to_string()));
            return Ok(CommandExit::BadInput);
        }
    };
    let machine = AgentStateMachine::new(settings.agent, &*tools, settings.state);
    let with = ConversationResources { tools: &*tools, model: &settings.client, session: settings.session };
    let exit = run_conversation(arguments, machine, with, settings.first, traced.as_ref()).await?;
    if let Some(traced) = traced
        && let Err(error) = traced.end(exit == CommandExit::Interrupted).await
    {
        print_diagnostic(&printable_line(&error.to_string()));
        return Ok(if exit == CommandExit::Pass { CommandExit::NotWritten } else { exit });
    }
    Ok(exit)
}

/// Builds the tool set of GitHub and the MCP servers. `--tools` selects GitHub's tools only; `--read-only` applies to
/// all.
async fn build_tool_set(
    arguments: &AgentArguments,
    github: GitHubTools,
) -> Result<Arc<dyn ToolSet>, AgentCommandError> {
    if arguments.mcp.is_empty() {
        return Ok(Arc::new(github));
    }
    let limits =
        ToolRestrictions { read_only: arguments.read_only, allow_destructive: true, ..ToolRestrictions::default() };
    let mut boxes: Vec<(String, Arc<dyn ToolSet>)> = vec![("github".to_owned(), Arc::new(github))];
    for server in arguments.mcp_servers()? {
        let mut connecting = std::pin::pin!(McpTools::connect(&server, limits.clone(), MCP_TIMEOUT));
        let tools = match tokio::time::timeout(MCP_NOTICE_DELAY, &mut connecting).await {
            Ok(tools) => tools,
            Err(_) => {
                if !arguments.quiet {
                    print_diagnostic(&format!("waiting for the MCP server {}", printable_line(&server.to_string())));
                }
                connecting.await
            }
        };
        let tools = tools.map_err(AgentCommandError::McpServer)?;
        boxes.push((tools.name().to_owned(), Arc::new(tools)));
    }
    Ok(Arc::new(CombinedToolSet::new(boxes)))
}

/// What all requests of a conversation share.
struct ConversationResources<'w> {
    tools: &'w dyn ToolSet,
    model: &'w ModelClient,
    session: Option<SessionFile>,
}

/// Works on the first request and, with `--chat`, on those that the user types. Returns the exit code of the last
/// request. An interrupt drops the step in flight: the session file has the state before it.
async fn run_conversation(
    arguments: &AgentArguments,
    mut machine: AgentStateMachine<'_>,
    mut with: ConversationResources<'_>,
    first: InitialAction,
    traced: Option<&TraceExportTask>,
) -> anyhow::Result<CommandExit> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut spans = traced.map(TraceExportTask::observer);
    let mut display = (!arguments.quiet).then(StepDisplay::default);
    let confirm: &dyn CallConfirmer =
        if DestructiveCallPrompt::is_possible() { &DestructiveCallPrompt } else { &UnattendedConfirmer };
    let mut exit = CommandExit::Pass;
    let mut next = first;
    loop {
        let request = match next {
            InitialAction::Request(request) => Some(request),
            InitialAction::GoOn => None,
            InitialAction::Listen | InitialAction::Nothing => {
                let line = tokio::select! {
                    line = read_next_request() => line,
                    _ = interrupt.recv() => return Ok(CommandExit::Interrupted),
                    _ = terminate.recv() => return Ok(CommandExit::Interrupted),
                };
                match line {
                    Some(line) => Some(line),
                    None => return Ok(exit),
                }
            }
        };
        // The steps for `--json`. Only a simulator counts exchanges, so they are always 0 here.
        let mut recorder = AgentRunRecorder::new(|| 0);
        let mut observers: Vec<&mut dyn AgentObserver> = vec![&mut recorder];
        observers.extend(display.as_mut().map(|display| display as &mut dyn AgentObserver));
        observers.extend(spans.as_mut().map(|spans| spans as &mut dyn AgentObserver));
        let mut driver = AgentDriver {
            model: with.model,
            tools: with.tools,
            clock: &RealClock,
            confirm,
            observers,
            session_store: with.session.as_mut().map(|file| file as &mut dyn AgentSessionStore),
        };
        let ended = tokio::select! {
            ended = start_or_continue_request(&mut driver, &mut machine, request.as_deref()) => Some(ended),
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
        };
        // Interrupted: observers get the event, so that open spans are closed with a status, and the user learns how to
        // continue.
        let Some(ended) = ended else {
            driver.notify_interrupted();
            drop(driver);
            print_diagnostic(&match &arguments.session {
                Some(path) => {
                    format!(
                        "interrupted; `gradus agent --session {}` goes on",
                        printable_line(&path.display().to_string())
                    )
                }
                None => "interrupted; with --session FILE it could be taken up again".to_owned(),
            });
            return Ok(CommandExit::Interrupted);
        };
        drop(driver);
        if let Some(traced) = traced {
            // The trace of a finished request is on disk before the next one begins.
            traced.flush_file().await;
        }
        let (end, answer) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                print_diagnostic(&printable_line(&error.to_string()));
                return Ok(CommandExit::Unexpected);
            }
        };
        exit = if end == AgentRunEnd::Answered { CommandExit::Pass } else { CommandExit::Unexpected };
        print_request_report(arguments, &machine, recorder.steps(), &end, answer.as_deref())?;
        if !arguments.chat {
            return Ok(exit);
        }
        next = InitialAction::Listen;
    }
}

/// Starts a request, or continues the one in the session.
async fn start_or_continue_request(
    driver: &mut AgentDriver<'_>,
    machine: &mut AgentStateMachine<'_>,
    request: Option<&str>,
) -> Result<(AgentRunEnd, Option<String>), SessionError> {
    match request {
        Some(request) => driver.run_request(machine, request).await,
        None => driver.continue_request(machine).await,
    }
}

/// Reads the next request of the user; `None` at the end of standard input, or after `quit` or `exit`. Empty lines
/// are skipped. Reading blocks, so it has a thread of its own and signals are still handled.
async fn read_next_request() -> Option<String> {
    loop {
        if std::io::stdin().is_terminal() {
            anstream::eprint!("\n{DIM}(quit ends){DIM:#} {BOLD}>{BOLD:#} ");
            let _ = std::io::stderr().flush();
        }
        let line = tokio::task::spawn_blocking(terminal::read_stdin_line).await.ok()??;
        match line.trim() {
            "" => {}
            "exit" | "quit" | "/exit" | "/quit" => return None,
            line => return Some(line.to_owned()),
        }
    }
}

/// The JSON object of `--json`. Tokens are those of the whole session, the other fields are about this request.
#[derive(Serialize)]
struct AgentRequestReport<'r> {
    session: &'r str,
    request: Option<&'r str>,
    end: &'r AgentRunEnd,
    answer: Option<&'r str>,
    steps: &'r [RunStep],
    replies: u32,
    prompt_tokens: u64,
    completion_tokens: u64,
}

/// Prints the answer of one request, or why there is none.
fn print_request_report(
    arguments: &AgentArguments,
    machine: &AgentStateMachine<'_>,
    steps: &[RunStep],
    end: &AgentRunEnd,
    answer: Option<&str>,
) -> anyhow::Result<()> {
    let state = machine.state();
    let usage = state.usage;
    if arguments.json {
        let report = AgentRequestReport {
            session: &state.session,
            request: state.request.as_deref(),
            end,
            answer,
            steps,
            replies: state.reply_count(),
            prompt_tokens: usage.prompt,
            completion_tokens: usage.completion,
        };
        let text = serde_json::to_string_pretty(&report)?;
        writeln!(std::io::stdout(), "{text}")?;
        return Ok(());
    }
    if !arguments.quiet {
        let tokens = usage.prompt + usage.completion;
        let spent = if tokens > 0 { format!("; {tokens} tokens in the whole session") } else { String::new() };
        let calls = format_counted_noun(state.tool_call_count().into(), "call", "calls");
        let replies = format_counted_noun(state.reply_count().into(), "reply", "replies");
        anstream::eprintln!("{DIM}{calls} and {replies} for this request{spent}{DIM:#}");
    }
    if let Some(answer) = answer {
        // A pipe gets the text of the model unchanged. On a terminal, control sequences in it must not be executed.
        if std::io::stdout().is_terminal() {
            writeln!(anstream::stdout(), "{}", make_printable(answer))?;
        } else {
            writeln!(std::io::stdout(), "{answer}")?;
        }
    } else if arguments.quiet {
        let reason = match end {
            AgentRunEnd::Failed(reason) => reason.clone(),
            AgentRunEnd::CallLimit => "the limit of calls is reached".to_owned(),
            AgentRunEnd::StepLimit | AgentRunEnd::Answered => "the limit of steps is reached".to_owned(),
        };
        print_diagnostic(&format!("no answer: {}", printable_line(&reason)));
    }
    Ok(())
}
