//! Folds labelled lines into steps.

use crate::react_text::text_step::{CopyBudget, ReactTranscript, TextStep};
use std::borrow::Cow;

use serde_json::json;

use super::TextDefect;
use crate::result_text::result_text;

use super::action::{
    ActionForm, ActionInput, InputBudget, is_no_tool_name, is_tool_name, parse_ending_call, read_action, read_input,
};
use super::code::{find_code_block, find_code_calls};
use super::labels::{LabelledLine, SectionLabel, find_labelled_lines};
use super::{markup, non_empty, split_think};

/// Reads a ReAct text. Total: any text gives a transcript.
pub fn read_react_transcript(text: &str) -> ReactTranscript<'_> {
    fold_transcript(text).0
}

/// Parts that a text begins and does not complete. A transcript cannot hold them; the author of the text can be
/// notified.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextGaps {
    /// Whether an `Action:` has nothing after it.
    pub has_nameless_action: bool,
    /// Whether there is an `Action Input:` without an `Action:` before it.
    pub has_stray_input: bool,
    /// Whether there is a finishing action without an answer.
    pub has_empty_answer: bool,
}

/// The transcript of a text and what is missing in it.
pub(super) fn fold_transcript(text: &str) -> (ReactTranscript<'_>, TextGaps) {
    let (think, body) = split_think(text);
    let sections = find_labeled_sections(body);
    if !is_react(&sections, body) {
        // Words like "User:" and "Answer:" can occur in any text.
        return (read_unlabeled_call(text).unwrap_or_default(), TextGaps::default());
    }
    let offset = text.len() - body.len();
    let mut folder = TranscriptBuilder { think, ..TranscriptBuilder::default() };
    folder.transcript.is_react = true;
    if let Some(first) = sections.first()
        && let Some(preamble) = non_empty(&body[..first.line.start])
    {
        // Models often think before they remember the label.
        folder.preamble = Some(preamble);
    }
    for (index, section) in sections.iter().enumerate() {
        let content = &body[section.line.content..section.end];
        let next = sections.get(index + 1).map(|next| next.line.label);
        if matches!(section.line.label, SectionLabel::Action | SectionLabel::ActionInput | SectionLabel::Code) {
            folder.action_end = offset + section.end;
        }
        folder.add_section(section.line.label, content, next);
    }
    folder.flush_pending_action();
    let gaps = folder.gaps;
    let labelled = folder.finish();
    if labelled.steps.is_empty() && labelled.answer.is_none() {
        // A thought with its label, and the call in a form of its own.
        return (read_unlabeled_call(text).unwrap_or(labelled), gaps);
    }
    (labelled, gaps)
}

/// A call without labels: in markup, or as the object that the text ends with.
fn read_unlabeled_call(text: &str) -> Option<ReactTranscript<'_>> {
    markup::read_markup_transcript(text).or_else(|| {
        let (think, body) = split_think(text);
        let (before, tool, input) = parse_ending_call(body)?;
        let thought = before.trim();
        let thought = non_empty(thought.strip_prefix("Thought:").unwrap_or(thought));
        let mut folder = TranscriptBuilder { think, thought, action_end: text.len(), ..TranscriptBuilder::default() };
        folder.transcript.is_react = true;
        folder.push(tool, input, false);
        Some(folder.finish())
    })
}

/// Whether the labels are those of an agent: it thinks, acts or finishes, or its text is an answer from the start.
fn is_react(sections: &[LabelledSection], text: &str) -> bool {
    let acts = |label| {
        matches!(
            label,
            SectionLabel::Thought | SectionLabel::Action | SectionLabel::ActionInput | SectionLabel::FinalAnswer
        )
    };
    sections.iter().any(|section| acts(section.line.label))
        || sections
            .first()
            .is_some_and(|first| first.line.label == SectionLabel::Answer && text[..first.line.start].trim().is_empty())
}

/// Splits a text that holds several runs, each with a question of its own in front.
pub fn split_runs(text: &str) -> Vec<&str> {
    // Most texts have at most one question, which is cheaper to detect than to locate.
    let mut questions = text.match_indices("uestion").chain(text.match_indices("laim"));
    if questions.nth(1).is_none() {
        return vec![text];
    }
    let sections = find_labeled_sections(text);
    let mut starts: Vec<usize> = Vec::new();
    for section in
        sections.iter().filter(|section| matches!(section.line.label, SectionLabel::Question | SectionLabel::Request))
    {
        starts.push(if starts.is_empty() { 0 } else { section.line.start });
    }
    if starts.is_empty() {
        return vec![text];
    }
    let ends = starts[1..].iter().copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(start, end)| &text[*start..end]).collect()
}

/// Whether a message with the role of the user is in fact a tool result.
pub fn starts_like_observation(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("Observation:") || text.starts_with("Observation\n") || {
        let lines = find_labelled_lines(text.lines().next().unwrap_or_default());
        matches!(lines.first(), Some(line) if line.label == SectionLabel::Observation)
    }
}

struct LabelledSection {
    line: LabelledLine,
    end: usize,
}

/// Decides which labelled lines begin a section and which are only text: labels inside arguments, inside a thought or
/// out of turn.
fn find_labeled_sections(text: &str) -> Vec<LabelledSection> {
    let lines = find_labelled_lines(text);
    let belongs_to_thought = mark_answers_in_thoughts(&lines);
    let restarts = mark_restart_lines(&lines);
    let mut turn = SectionTracker {
        numbered: lines.iter().filter(|line| line.number.is_some()).count() * 2 > lines.len(),
        ..SectionTracker::default()
    };
    let mut scanner = ArgumentScanner { text, budget: 4 * text.len() };
    let mut sections: Vec<LabelledSection> = Vec::new();
    // Labels before this position are inside an argument.
    let mut blocked_until = 0;
    for ((line, in_thought), restarts) in lines.iter().zip(belongs_to_thought).zip(restarts) {
        if line.start < blocked_until || in_thought || !(turn.may_open(line) || restarts && turn.asked) {
            continue;
        }
        if line.label == SectionLabel::Code {
            blocked_until = scanner.find_code_end(line.content);
        }
        if matches!(line.label, SectionLabel::ActionInput | SectionLabel::Action) {
            blocked_until = scanner.find_argument_end(line.content);
        }
        if let Some(open) = sections.last_mut() {
            open.end = line.start;
        }
        turn.open_section(line);
        sections.push(LabelledSection { line: *line, end: text.len() });
    }
    sections
}

/// For each line, whether it is the question of a new numbered run: the next label begins to count from one.
fn mark_restart_lines(lines: &[LabelledLine]) -> Vec<bool> {
    let next = lines.iter().skip(1).map(|line| line.number == Some(1)).chain([false]);
    lines.iter().zip(next).map(|(line, next)| line.label == SectionLabel::Question && next).collect()
}

/// Returns for each line whether it is an answer's label that an action with its input still follows in the same
/// turn: then the line is part of the thought.
fn mark_answers_in_thoughts(lines: &[LabelledLine]) -> Vec<bool> {
    let mut inside = vec![false; lines.len()];
    let (mut action_ahead, mut input_ahead) = (false, false);
    for (line, inside) in lines.iter().zip(&mut inside).rev() {
        match line.label {
            SectionLabel::Question | SectionLabel::Request | SectionLabel::Observation => {
                (action_ahead, input_ahead) = (false, false)
            }
            SectionLabel::ActionInput => (action_ahead, input_ahead) = (false, true),
            SectionLabel::Action => action_ahead |= input_ahead,
            SectionLabel::FinalAnswer | SectionLabel::Answer => *inside = action_ahead,
            SectionLabel::Thought | SectionLabel::Code | SectionLabel::End => {}
        }
    }
    inside
}

/// Decides by the sections so far which section may begin next.
#[derive(Default)]
struct SectionTracker {
    numbered: bool,
    asked: bool,
    current: Option<LabelledLine>,
}

impl SectionTracker {
    fn open_section(&mut self, line: &LabelledLine) {
        self.asked |= matches!(line.label, SectionLabel::Question | SectionLabel::Request);
        self.current = Some(*line);
    }

    fn may_open(&self, line: &LabelledLine) -> bool {
        let Some(current) = self.current else { return true };
        if self.numbered && line.number.is_none() && line.label != SectionLabel::FinalAnswer {
            return false;
        }
        match (current.label, line.label) {
            (_, SectionLabel::End) => true,
            (_, SectionLabel::Request) => false,
            // Code answers a thought.
            (SectionLabel::Thought | SectionLabel::Question | SectionLabel::Request, SectionLabel::Code) => true,
            (_, SectionLabel::Code) => false,
            // An observation answers an action; in a thought the word is only a word.
            (SectionLabel::Thought | SectionLabel::Question | SectionLabel::Request, SectionLabel::Observation) => {
                false
            }
            (SectionLabel::Observation, SectionLabel::Observation | SectionLabel::ActionInput) => false,
            // LlamaIndex may answer without a thought; but a tool's result has answers in it, too.
            (SectionLabel::Observation, SectionLabel::Answer) => line.is_last,
            // In a numbered run an observation ends where the next step begins.
            (SectionLabel::Observation, _) if self.numbered => {
                line.number > current.number || line.label == SectionLabel::FinalAnswer
            }
            (SectionLabel::FinalAnswer | SectionLabel::Answer, SectionLabel::Question | SectionLabel::Thought) => true,
            (SectionLabel::FinalAnswer | SectionLabel::Answer, _) => false,
            (SectionLabel::Question | SectionLabel::Request, SectionLabel::Answer) => true,
            (SectionLabel::Action | SectionLabel::ActionInput, SectionLabel::Answer) => false,
            // Only a text that began with a question can have a second one.
            (_, SectionLabel::Question) => {
                self.asked && !self.numbered && !matches!(current.label, SectionLabel::Thought | SectionLabel::Question)
            }
            _ => true,
        }
    }
}

/// Finds the end of arguments that begin with a bracket, so that labels inside their texts do not count.
struct ArgumentScanner<'t> {
    text: &'t str,
    /// Maximum bytes that are still examined: keeps the whole search linear on texts full of open brackets.
    budget: usize,
}

impl ArgumentScanner<'_> {
    /// The end of the code behind `Code:` or `<code>`; `start` itself if it never ends.
    fn find_code_end(&mut self, start: usize) -> usize {
        let rest = &self.text[start..];
        let trimmed = rest.trim_start();
        let at = start + rest.len() - trimmed.len();
        let (open, close) = if trimmed.starts_with("<code>") { ("<code>", "</code>") } else { ("```", "```") };
        let Some(body) = trimmed.strip_prefix(open).filter(|body| body.len() <= self.budget) else {
            return start;
        };
        let end = body.find(close);
        self.budget -= end.unwrap_or(body.len());
        end.map_or(start, |end| at + open.len() + end + close.len())
    }

    /// The end of the bracketed argument at `start`; `start` itself if there is none or it never closes.
    fn find_argument_end(&mut self, start: usize) -> usize {
        let rest = &self.text[start..];
        let trimmed = rest.trim_start();
        let mut at = start + (rest.len() - trimmed.len());
        if trimmed.starts_with("```") {
            let Some(line_end) = trimmed.find('\n') else { return start };
            let body = trimmed[line_end..].trim_start();
            at += trimmed.len() - body.len();
        }
        let bytes = &self.text.as_bytes()[at..];
        if !matches!(bytes.first(), Some(b'{' | b'[')) {
            return start;
        }
        let (mut depth, mut quote, mut escaped) = (0usize, None, false);
        for (index, &byte) in bytes.iter().enumerate() {
            if self.budget == 0 {
                return start;
            }
            self.budget -= 1;
            match (quote, byte) {
                (Some(_), _) if escaped => escaped = false,
                (Some(_), b'\\') => escaped = true,
                (Some(open), _) if byte == open => quote = None,
                (Some(_), _) => {}
                (None, b'"') => quote = Some(byte),
                // An apostrophe opens a text only where a value or key can begin.
                (None, b'\'') if can_open_text(&bytes[..index]) => quote = Some(byte),
                (None, b'{' | b'[') => depth += 1,
                (None, b'}' | b']') => {
                    depth -= 1;
                    if depth == 0 {
                        return at + index + 1;
                    }
                }
                _ => {}
            }
        }
        start
    }
}

fn can_open_text(before: &[u8]) -> bool {
    let last = before.iter().rev().take(64).find(|byte| !byte.is_ascii_whitespace());
    matches!(last, Some(b'{' | b'[' | b',' | b':' | b'('))
}

/// Builds the transcript from sections in order.
#[derive(Default)]
struct TranscriptBuilder<'t> {
    transcript: ReactTranscript<'t>,
    think: Option<&'t str>,
    preamble: Option<Cow<'t, str>>,
    thought: Option<Cow<'t, str>>,
    /// `Action: name` waiting for its input.
    pending: Option<&'t str>,
    /// Index of the first step that the next observation belongs to.
    unanswered: Option<usize>,
    /// Where the last action or its input ends in the text.
    action_end: usize,
    gaps: TextGaps,
    inputs: InputBudget,
    copies: CopyBudget,
}

impl<'t> TranscriptBuilder<'t> {
    fn add_section(&mut self, label: SectionLabel, content: &'t str, next: Option<SectionLabel>) {
        match label {
            SectionLabel::Question | SectionLabel::Request => {
                self.flush_pending_action();
                self.transcript.question = non_empty(content).or(self.transcript.question.take());
            }
            SectionLabel::Thought => {
                self.flush_pending_action();
                self.unanswered = None;
                self.add_thought(content);
            }
            SectionLabel::Action => self.add_action(content, next),
            SectionLabel::ActionInput => match self.pending.take() {
                Some(name) => self.push(Cow::Borrowed(name), read_input(content), false),
                None => {
                    self.gaps.has_stray_input = true;
                    self.add_defect(TextDefect::MissingToolName, content);
                }
            },
            SectionLabel::Observation => {
                self.flush_pending_action();
                self.add_observation(content);
            }
            SectionLabel::End => self.flush_pending_action(),
            SectionLabel::Code => self.add_code(content),
            SectionLabel::FinalAnswer | SectionLabel::Answer => {
                self.flush_pending_action();
                self.transcript.answer = Some(Cow::Borrowed(content.trim()));
                self.transcript.last_thought = self.take_thought();
            }
        }
    }

    fn add_action(&mut self, content: &'t str, next: Option<SectionLabel>) {
        if let Some(name) = self.pending.take() {
            // Two actions before one input: the earlier line was part of the thought.
            self.add_thought_line("Action: ", name);
        }
        self.unanswered = None;
        match read_action(content, next == Some(SectionLabel::ActionInput)) {
            ActionForm::Name(name) if is_no_tool_name(name) => {}
            ActionForm::Name(name) => self.pending = Some(name),
            ActionForm::Complete(calls) => {
                for (index, (name, input)) in calls.into_iter().enumerate() {
                    self.push(name, input, index > 0);
                }
            }
            // A line of the thought that happens to begin with the word.
            ActionForm::Unreadable if next == Some(SectionLabel::Action) => {
                self.add_thought_line("Action: ", content.trim())
            }
            ActionForm::Unreadable => {
                self.gaps.has_nameless_action |= content.trim().is_empty();
                self.add_defect(TextDefect::MissingToolName, content);
            }
        }
    }

    /// Code calls tools like functions; code that calls none is a step of its interpreter.
    fn add_code(&mut self, content: &'t str) {
        let code = find_code_block(content).map_or(content.trim(), |(_, code)| code);
        let calls = find_code_calls(code);
        let answers = calls.iter().any(|call| call.name == "final_answer");
        let mut parallel = false;
        for call in calls {
            let defect = call.arguments.is_none().then_some(TextDefect::MalformedArguments);
            let input = ActionInput { raw: Cow::Borrowed(call.raw), json: call.arguments, defect };
            if call.name == "final_answer" {
                let answer =
                    input.json.as_ref().and_then(|json| json.pointer("/args/0").or_else(|| json.get("answer")));
                self.transcript.last_thought = self.take_thought();
                self.transcript.answer =
                    answer.map_or(Some(input.raw), |answer| Some(Cow::Owned(result_text(answer.clone()))));
                continue;
            }
            self.push(Cow::Borrowed(call.name), input, parallel);
            parallel = true;
        }
        if !parallel && !answers {
            let input = ActionInput { raw: Cow::Borrowed(code), json: Some(json!({"code": code})), defect: None };
            self.push(Cow::Borrowed("python_interpreter"), input, false);
        }
    }

    /// Adds the pending action as one without input.
    fn flush_pending_action(&mut self) {
        if let Some(name) = self.pending.take() {
            self.push(Cow::Borrowed(name), ActionInput::default(), false);
        }
    }

    fn push(&mut self, tool: Cow<'t, str>, input: ActionInput<'t>, parallel: bool) {
        let input = self.inputs.drop_excess_json(input);
        if ["finish", "final_answer", "final answer", "finalanswer"].iter().any(|word| tool.eq_ignore_ascii_case(word))
        {
            self.transcript.last_thought = self.take_thought();
            self.transcript.answer =
                Some(take_answer_text(input)).filter(|answer| !answer.is_empty() && answer != "{}");
            self.gaps.has_empty_answer |= self.transcript.answer.is_none();
            return;
        }
        if tool.eq_ignore_ascii_case("think") {
            // Some agents think by calling a tool that does nothing: the call is its own thought.
            self.thought = Some(input.raw.clone()).filter(|thought| !thought.is_empty());
        }
        if !is_tool_name(&tool) {
            self.transcript.defects.push((TextDefect::UnusualToolName, tool.clone()));
        }
        if let Some(kind) = input.defect {
            self.transcript.defects.push((kind, input.raw.clone()));
        }
        let thought = if parallel {
            let copies = &mut self.copies;
            self.transcript.steps.last().and_then(|step| step.shared_thought(copies))
        } else {
            self.take_thought()
        };
        self.unanswered.get_or_insert(self.transcript.steps.len());
        self.transcript.steps.push(TextStep {
            thought,
            tool,
            input,
            observation: None,
            parallel,
            end: self.action_end,
        });
    }

    fn add_observation(&mut self, content: &'t str) {
        let Some(first) = self.unanswered.take() else { return };
        for step in &mut self.transcript.steps[first..] {
            step.observation = Some(Cow::Borrowed(content.trim()));
        }
    }

    fn add_thought(&mut self, content: &'t str) {
        let content = content.trim();
        match &mut self.thought {
            None => self.thought = non_empty(content),
            Some(thought) if !content.is_empty() => {
                let thought = thought.to_mut();
                thought.push('\n');
                thought.push_str(content);
            }
            Some(_) => {}
        }
    }

    fn add_thought_line(&mut self, label: &str, line: &str) {
        let thought = self.thought.get_or_insert_default().to_mut();
        if !thought.is_empty() {
            thought.push('\n');
        }
        thought.push_str(label);
        thought.push_str(line);
    }

    /// Takes the thought so far: the labelled one, else hidden reasoning, else the text before the labels.
    fn take_thought(&mut self) -> Option<Cow<'t, str>> {
        let think = self.think.take().map(Cow::Borrowed);
        let preamble = self.preamble.take();
        self.thought.take().or(think).or(preamble)
    }

    fn add_defect(&mut self, kind: TextDefect, text: &'t str) {
        self.transcript.defects.push((kind, Cow::Borrowed(text.trim())));
    }

    fn finish(mut self) -> ReactTranscript<'t> {
        self.flush_pending_action();
        if self.transcript.answer.is_none() {
            let thought = self.take_thought();
            if thought.is_some() && self.transcript.is_react {
                self.transcript.last_thought = thought;
            }
        }
        self.transcript
    }
}

/// The answer in a finishing action: the text itself, or the only argument.
fn take_answer_text(input: ActionInput<'_>) -> Cow<'_, str> {
    use serde_json::Value as Json;
    match input.json {
        Some(Json::String(text)) => Cow::Owned(text),
        Some(Json::Object(object)) if object.len() == 1 => {
            let only = object.into_iter().next();
            Cow::Owned(only.map(|(name, value)| only_argument(&name, value)).unwrap_or_default())
        }
        _ => input.raw,
    }
}

/// `finish("text")` has an argument without a name.
fn only_argument(name: &str, value: serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(mut items) if name == "args" && items.len() == 1 => result_text(items.remove(0)),
        value => result_text(value),
    }
}
