//! The steps of an agent on the terminal, and the confirmation of destructive calls. Texts of models and tools are
//! untrusted: none reaches the terminal with control characters, and none can pass for one of our labels.

use std::io::{IsTerminal as _, Write as _};

use gradus_github_agent::agent::AgentRunEnd;
use gradus_github_agent::agent::{AgentObserver, AgentToolCall, CallApproval, CallConfirmer, ObserverEvent};
use gradus_github_agent::tools::BoxFuture;

use super::super::print_diagnostic;
use gradus_core::visible::{make_printable, printable_line};
use gradus_report::{BOLD, DIM, RED, YELLOW};

/// Maximum number of characters of a text that are shown; the trace and the session file have all of it.
const MAX_SHOWN_CHARS: usize = 600;

/// Prints steps on standard error as they happen.
#[derive(Debug, Default)]
pub(super) struct StepDisplay {
    /// Number of the current step, from 1 for each request.
    step: usize,
    thought: Option<String>,
    /// Id of the call whose heading is printed already, because the user was asked about it.
    begun: Option<String>,
    /// The first line of the last reply, shown if the reply cannot be parsed.
    said: String,
}

impl AgentObserver for StepDisplay {
    fn on_event(&mut self, event: &ObserverEvent<'_>) {
        match event {
            ObserverEvent::Begun { request, model, goes_on, .. } => {
                (self.step, self.thought, self.begun) = (0, None, None);
                let how = if *goes_on { "goes on with" } else { "works on" };
                let request = shorten_text(&printable_line(request));
                anstream::eprintln!("{DIM}{} {how}:{DIM:#} {request}", printable_line(model));
            }
            // The thought comes before the question, so that the user knows what the call is for.
            ObserverEvent::Confirms { call } => self.begin_step(call),
            ObserverEvent::Called { call, .. } => self.print_call(call),
            ObserverEvent::Returned { observation, .. } => {
                let text = indent_later_lines(&shorten_text(&make_printable(&observation.text)));
                if observation.is_error {
                    anstream::eprintln!("  {RED}Observation (error):{RED:#} {text}");
                } else {
                    anstream::eprintln!("  {DIM}Observation:{DIM:#} {text}");
                }
            }
            ObserverEvent::Waits { time, .. } => {
                anstream::eprintln!("  {YELLOW}rate limited:{YELLOW:#} waiting {} s", time.as_secs());
            }
            // A thought is shown once per reply, even if several replies have the same one.
            ObserverEvent::Replied { reply: Ok(reply) } => {
                self.thought = None;
                let line = reply.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
                self.said = shorten_text(&printable_line(line.trim()));
            }
            ObserverEvent::Corrected { problem } => {
                anstream::eprintln!("\n{YELLOW}The reply could not be used:{YELLOW:#} {}", printable_line(problem));
                if !self.said.is_empty() {
                    anstream::eprintln!("  {DIM}It begins:{DIM:#} {}", self.said);
                }
            }
            ObserverEvent::Replied { reply: Err(failure) } => {
                anstream::eprintln!("\n{YELLOW}The model:{YELLOW:#} {}", printable_line(&failure.to_string()));
            }
            ObserverEvent::Finished { end, .. } => match end {
                AgentRunEnd::Answered => anstream::eprintln!(),
                AgentRunEnd::StepLimit => {
                    anstream::eprintln!("\n{RED}Stopped:{RED:#} the limit of steps is reached")
                }
                AgentRunEnd::CallLimit => {
                    anstream::eprintln!("\n{RED}Stopped:{RED:#} the limit of calls is reached")
                }
                AgentRunEnd::Failed(reason) => {
                    anstream::eprintln!("\n{RED}Stopped:{RED:#} {}", printable_line(reason));
                }
            },
            ObserverEvent::Asked { .. } | ObserverEvent::Confirmed { .. } => {}
        }
    }
}

impl StepDisplay {
    /// Prints the heading and the thought of a step, once per call.
    fn begin_step(&mut self, call: &AgentToolCall) {
        if self.begun.as_ref() == Some(&call.id) {
            return;
        }
        self.begun = Some(call.id.clone());
        self.step += 1;
        anstream::eprintln!("\n{BOLD}Step {}{BOLD:#}", self.step);
        // Calls of one reply share their thought, which is shown once.
        if let Some(thought) = &call.thought
            && self.thought.as_ref() != Some(thought)
        {
            anstream::eprintln!("  Thought: {}", indent_later_lines(&shorten_text(&make_printable(thought))));
        }
        self.thought.clone_from(&call.thought);
    }

    fn print_call(&mut self, call: &AgentToolCall) {
        self.begin_step(call);
        anstream::eprintln!("  Action: {BOLD}{}{BOLD:#}", printable_line(&call.name));
        anstream::eprintln!("  Action Input: {}", indent_later_lines(&shorten_text(&printable_call_input(call))));
    }
}

fn printable_call_input(call: &AgentToolCall) -> String {
    let text = call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned);
    make_printable(&text).into_owned()
}

/// Asks on the terminal before a destructive call; anything but `y` or `yes` refuses it. The call is shown in full: a
/// cut text could hide what is confirmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct DestructiveCallPrompt;

impl DestructiveCallPrompt {
    /// Whether a person can see the question and answer it: both standard input and standard error are terminals.
    pub(super) fn is_possible() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }
}

impl CallConfirmer for DestructiveCallPrompt {
    fn confirm<'c>(&'c self, call: &'c AgentToolCall) -> BoxFuture<'c, CallApproval> {
        Box::pin(async move {
            anstream::eprintln!(
                "\n{YELLOW}This may take something away, or be hard to take back:{YELLOW:#} {BOLD}{}{BOLD:#} {}",
                printable_line(&call.name),
                printable_call_input(call)
            );
            anstream::eprint!("Allow it? [y/N] ");
            let _ = std::io::stderr().flush();
            // Reading blocks, so it has a thread of its own and Ctrl-C still works.
            let answer = tokio::task::spawn_blocking(read_stdin_line).await.ok().flatten().unwrap_or_default();
            if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
                CallApproval::Approved
            } else {
                CallApproval::Refused("the user did not allow it".to_owned())
            }
        })
    }
}

/// Refuses every destructive call, for runs without a terminal. The model gets the reason as the result of its call.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnattendedConfirmer;

impl CallConfirmer for UnattendedConfirmer {
    fn confirm<'c>(&'c self, _call: &'c AgentToolCall) -> BoxFuture<'c, CallApproval> {
        let reason = "this may take something away or be hard to take back, as far as its tool says, and there is nobody here who could allow it (the user can, with --allow-destructive)";
        Box::pin(std::future::ready(CallApproval::Refused(reason.to_owned())))
    }
}

/// Reads a line of standard input, with its line end; `None` at the end of input or after an error, which is printed.
pub(super) fn read_stdin_line() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) => None,
        Ok(_) => Some(line),
        Err(error) => {
            print_diagnostic(&format!("standard input cannot be read: {error}"));
            None
        }
    }
}

/// Indents all lines but the first, so that no line of a text can look like one of our labels.
fn indent_later_lines(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

/// Cuts a text after `MAX_SHOWN_CHARS` characters and states how many are missing.
fn shorten_text(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{} … ({} more characters)", &text[..end], text[end..].chars().count()),
        None => text.to_owned(),
    }
}
