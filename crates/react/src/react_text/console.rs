//! What LangChain prints while it runs: ReAct text with colours in it, between the marks of its chains.

use std::borrow::Cow;

const CHAIN_START: &str = "> Entering new ";
const CHAIN_END: &str = "> Finished chain";

/// Splits a recorded console into runs: one for each outermost chain, without colours and without the chains that
/// tools started inside. A text without chains is one run.
pub fn split_console_runs(text: &str) -> Vec<Cow<'_, str>> {
    let text = strip_colour_codes(text);
    if !text.contains(CHAIN_START) {
        return vec![text];
    }
    let mut runs = vec![String::new()];
    let mut depth = 0usize;
    for line in text.split_inclusive('\n') {
        let mark = line.trim_start();
        if mark.starts_with(CHAIN_START) {
            depth += 1;
            if depth == 1 && runs.last().is_some_and(|run| !run.trim().is_empty()) {
                runs.push(String::new());
            }
        } else if mark.starts_with(CHAIN_END) {
            depth = depth.saturating_sub(1);
        } else if depth <= 1
            && let Some(run) = runs.last_mut()
        {
            run.push_str(line);
        }
    }
    runs.retain(|run| !run.trim().is_empty());
    runs.into_iter().map(Cow::Owned).collect()
}

/// Removes the escape sequences that colour a terminal's text.
fn strip_colour_codes(text: &str) -> Cow<'_, str> {
    if !text.contains("\u{1b}[") {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut pieces = text.split("\u{1b}[");
    plain.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let end = piece.find(|c: char| c.is_ascii_alphabetic()).map_or(piece.len(), |end| end + 1);
        plain.push_str(&piece[end..]);
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::super::read_react_transcript;
    use super::*;

    #[test]
    fn a_recorded_chain_is_read() {
        let text = "\n\n\u{1b}[1m> Entering new AgentExecutor chain...\u{1b}[0m\n\u{1b}[32;1m\u{1b}[1;3m I need to find her age.\nAction: Calculator\nAction Input: 29^0.23\u{1b}[0m\n\n\u{1b}[1m> Entering new LLMMathChain chain...\u{1b}[0m\n29^0.23\nAnswer: 2.16\n\u{1b}[1m> Finished chain.\u{1b}[0m\n\nObservation: \u{1b}[33;1mAnswer: 2.16\u{1b}[0m\nThought:\u{1b}[32;1m I now know.\nFinal Answer: 2.16\u{1b}[0m\n\n\u{1b}[1m> Finished chain.\u{1b}[0m\n";
        let runs = split_console_runs(text);
        assert_eq!(runs.len(), 1);
        let transcript = read_react_transcript(&runs[0]);
        let [step] = transcript.steps.as_slice() else { panic!("{transcript:?}") };
        assert_eq!(step.thought.as_deref(), Some("I need to find her age."));
        assert_eq!((step.tool.as_ref(), step.input.raw.as_ref()), ("Calculator", "29^0.23"));
        assert_eq!(step.observation.as_deref(), Some("Answer: 2.16"));
        assert_eq!(transcript.answer.as_deref(), Some("2.16"));
    }

    #[test]
    fn chains_one_after_the_other_are_runs_of_their_own() {
        let text = "> Entering new AgentExecutor chain...\nFinal Answer: a\n\n> Finished chain.\n> Entering new AgentExecutor chain...\nFinal Answer: b\n> Finished chain.\n";
        let answers: Vec<_> =
            split_console_runs(text).iter().map(|run| read_react_transcript(run).answer.map(Cow::into_owned)).collect();
        assert_eq!(answers, [Some("a".to_owned()), Some("b".to_owned())]);
    }
}
