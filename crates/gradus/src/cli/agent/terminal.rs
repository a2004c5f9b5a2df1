//! An agent at work, as a person at the terminal sees it. Nothing that a model or a tool says reaches the terminal raw.

use std::io::{IsTerminal as _, Write as _};

use gradus_github_agent::agent::AgentRunEnd;
use gradus_github_agent::agent::{AgentObserver, AgentToolCall, CallApproval, CallConfirmer, ObserverEvent};
use gradus_github_agent::tools::BoxFuture;

use super::super::print_diagnostic;
use gradus_core::visible::{make_printable, printable_line};
use gradus_report::{BOLD, DIM, RED, YELLOW};

/// Longer texts are cut: the trace has them whole.
const MAX_CHARS: usize = 600;

/// Shows steps on standard error.
#[derive(Debug, Default)]
pub(super) struct StepDisplay {
    step: usize,
    thought: Option<String>,
    /// The call whose step is begun: somebody was asked about it.
    begun: Option<String>,
    /// How the last reply begins.
    said: String,
}

impl AgentObserver for StepDisplay {
    fn see(&mut self, seen: &ObserverEvent<'_>) {
        match seen {
            ObserverEvent::Begun { request, model, goes_on, .. } => {
                (self.step, self.thought, self.begun) = (0, None, None);
                let how = if *goes_on { "goes on with" } else { "works on" };
                let request = shorten_text(&printable_line(request));
                anstream::eprintln!("{DIM}{} {how}:{DIM:#} {request}", printable_line(model));
            }
            // Whoever is asked about a call should know what it is for.
            ObserverEvent::Confirms { call } => self.begin_step(call),
            ObserverEvent::Called { call, .. } => self.print_call(call),
            ObserverEvent::Returned { observation, .. } => {
                let text = indent_lines(&shorten_text(&make_printable(&observation.text)));
                if observation.is_error {
                    anstream::eprintln!("  {RED}Observation (error):{RED:#} {text}");
                } else {
                    anstream::eprintln!("  {DIM}Observation:{DIM:#} {text}");
                }
            }
            ObserverEvent::Waits { time, .. } => {
                anstream::eprintln!("  {YELLOW}rate limited:{YELLOW:#} waiting {} s", time.as_secs());
            }
            // What one reply says before its calls is shown once; the same in another reply is said again.
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
    /// What stands before an action, once.
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
            anstream::eprintln!("  Thought: {}", indent_lines(&shorten_text(&make_printable(thought))));
        }
        self.thought.clone_from(&call.thought);
    }

    fn print_call(&mut self, call: &AgentToolCall) {
        self.begin_step(call);
        anstream::eprintln!("  Action: {BOLD}{}{BOLD:#}", printable_line(&call.name));
        anstream::eprintln!("  Action Input: {}", indent_lines(&shorten_text(&format_call_input(call))));
    }
}

fn format_call_input(call: &AgentToolCall) -> String {
    let text = call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned);
    make_printable(&text).into_owned()
}

/// Asks on the terminal, if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct TerminalConfirmer;

impl TerminalConfirmer {
    pub(super) fn is_possible() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }
}

impl CallConfirmer for TerminalConfirmer {
    fn confirm<'c>(&'c self, call: &'c AgentToolCall) -> BoxFuture<'c, CallApproval> {
        Box::pin(async move {
            anstream::eprintln!(
                "\n{YELLOW}This may take something away, or be hard to take back:{YELLOW:#} {BOLD}{}{BOLD:#} {}",
                printable_line(&call.name),
                format_call_input(call)
            );
            anstream::eprint!("Allow it? [y/N] ");
            let _ = std::io::stderr().flush();
            // In a thread of its own, so that Ctrl-C is heard meanwhile.
            let answer = tokio::task::spawn_blocking(read_line).await.ok().flatten().unwrap_or_default();
            if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
                CallApproval::Approved
            } else {
                CallApproval::Refused("the user did not allow it".to_owned())
            }
        })
    }
}

/// Nobody is at the terminal, so nothing of the kind is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnattendedConfirmer;

impl CallConfirmer for UnattendedConfirmer {
    fn confirm<'c>(&'c self, _call: &'c AgentToolCall) -> BoxFuture<'c, CallApproval> {
        let reason = "this may take something away or be hard to take back, as far as its tool says, and there is nobody here who could allow it (the user can, with --allow-destructive)";
        Box::pin(std::future::ready(CallApproval::Refused(reason.to_owned())))
    }
}

/// A line of standard input; none at its end.
pub(super) fn read_line() -> Option<String> {
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

/// Further lines stand below the first, moved in: no text can pass for a label of ours.
fn indent_lines(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

fn shorten_text(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{} … ({} more characters)", &text[..end], text[end..].chars().count()),
        None => text.to_owned(),
    }
}
