//! Finds the labelled lines of a ReAct text.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectionLabel {
    Question,
    /// Other words for it, which count only where nothing came before.
    Request,
    Thought,
    Action,
    ActionInput,
    Observation,
    FinalAnswer,
    /// LlamaIndex's `Answer:`; an ordinary word elsewhere, so it counts only where an answer can stand.
    Answer,
    /// smolagents' code.
    Code,
    /// DSPy's mark behind its last field.
    End,
}

/// A line that begins with a label.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelledLine {
    pub label: SectionLabel,
    /// `Thought 3:` has the number 3.
    pub number: Option<u32>,
    /// Where the line begins.
    pub start: usize,
    /// Where the content behind the label begins.
    pub content: usize,
    /// Whether no other label follows.
    pub is_last: bool,
}

/// Maximum number of labelled lines. The rest of the text belongs to the section of the last one.
const MAX_LABELLED_LINES: usize = 200_000;

/// All lines that begin with a label, in order. Lines in a code fence are only text, unless everything is fenced.
pub(super) fn find_labelled_lines(text: &str) -> Vec<LabelledLine> {
    let mut found = Vec::new();
    let mut fenced = Vec::new();
    let mut start = 0;
    let (mut in_fence, mut fences) = (false, 0usize);
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            fences += 1;
            in_fence = !in_fence;
        } else if let Some((label, number, length)) = read_label(line) {
            if found.len() == MAX_LABELLED_LINES {
                break;
            }
            found.push(LabelledLine { label, number, start, content: start + length, is_last: false });
            fenced.push(in_fence);
        }
        start += line.len();
    }
    // If a fence never closes, no fence counts.
    if fences % 2 == 0 && fenced.iter().any(|fenced| !fenced) {
        let mut fenced = fenced.into_iter();
        found.retain(|_| !fenced.next().unwrap_or_default());
    }
    if let Some(last) = found.last_mut() {
        last.is_last = true;
    }
    found
}

/// Longest first: `Action Input` before `Action`.
const LABEL_WORDS: [(&str, SectionLabel); 23] = [
    ("final answer", SectionLabel::FinalAnswer),
    ("final_answer", SectionLabel::FinalAnswer),
    ("finalanswer", SectionLabel::FinalAnswer),
    ("action input", SectionLabel::ActionInput),
    ("action_input", SectionLabel::ActionInput),
    ("actioninput", SectionLabel::ActionInput),
    ("current task", SectionLabel::Request),
    ("observation", SectionLabel::Observation),
    ("question", SectionLabel::Question),
    ("thoughts", SectionLabel::Thought),
    ("thought", SectionLabel::Thought),
    ("finally", SectionLabel::FinalAnswer),
    // LangChain's console for native calls: Invoking: `tool` with `{..}`
    ("invoking", SectionLabel::Action),
    ("action", SectionLabel::Action),
    ("answer", SectionLabel::Answer),
    ("claim", SectionLabel::Question),
    ("query", SectionLabel::Request),
    ("human", SectionLabel::Request),
    ("task", SectionLabel::Request),
    ("user", SectionLabel::Request),
    ("code", SectionLabel::Code),
    // LangChain's conversational agent answers under its own name.
    ("ai", SectionLabel::Answer),
    ("q", SectionLabel::Request),
];

/// DSPy writes each field below a line of its own: `[[ ## next_thought ## ]]`.
fn read_field_label(line: &str) -> Option<(SectionLabel, Option<u32>, usize)> {
    let name = line.trim().strip_prefix("[[ ## ")?.strip_suffix(" ## ]]")?;
    // A trajectory numbers its fields: `thought_0`.
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
    let label = match name {
        "question" => SectionLabel::Question,
        "next_thought" | "thought" | "reasoning" => SectionLabel::Thought,
        "next_tool_name" | "tool_name" => SectionLabel::Action,
        "next_tool_args" | "tool_args" => SectionLabel::ActionInput,
        "observation" => SectionLabel::Observation,
        "answer" => SectionLabel::FinalAnswer,
        "completed" => SectionLabel::End,
        _ => return None,
    };
    Some((label, None, line.len()))
}

/// Whether a line begins with `Observation:` in one of its forms.
pub(super) fn starts_observation(line: &str) -> bool {
    read_label(line).is_some_and(|(label, ..)| label == SectionLabel::Observation)
}

/// The label a line begins with, its number, and the length of it all.
fn read_label(line: &str) -> Option<(SectionLabel, Option<u32>, usize)> {
    if line.starts_with("[[ ## ") {
        return read_field_label(line);
    }
    if let Some(code) = line.trim_start().strip_prefix("<code>") {
        return Some((SectionLabel::Code, None, line.len() - code.len() - "<code>".len()));
    }
    let bare = line.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '*' | '_' | '#' | '>'));
    let (word, label) = LABEL_WORDS.iter().find(|(word, _)| starts_with_ignoring_case(bare, word))?;
    let written = &bare[..word.len()];
    // Common words must look like a label; only ReAct's own words may be in lower case.
    let common =
        matches!(label, SectionLabel::Question | SectionLabel::Request | SectionLabel::Answer | SectionLabel::Code)
            || *word == "finally";
    if common && !written.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let rest = bare[word.len()..].trim_start_matches(['*', '_']);
    let digits_at = rest.trim_start_matches([' ', '#']);
    let digits = digits_at.bytes().take_while(u8::is_ascii_digit).count();
    let number = digits_at[..digits].parse().ok();
    let after = if number.is_some() { &digits_at[digits..] } else { rest };
    let after = after.trim_start_matches([' ', '*', '_']);
    let after = after.strip_prefix(':').or_else(|| after.strip_prefix('：'))?;
    let after = after.strip_prefix("**").unwrap_or(after);
    Some((*label, number, line.len() - after.len()))
}

fn starts_with_ignoring_case(text: &str, word: &str) -> bool {
    text.as_bytes().get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<(SectionLabel, Option<u32>, &str)> {
        let lines = find_labelled_lines(text);
        lines
            .iter()
            .map(|line| (line.label, line.number, text[line.content..].lines().next().unwrap_or("").trim()))
            .collect()
    }

    #[test]
    fn labels_are_found_in_every_dress() {
        use SectionLabel::*;
        for (text, want) in [
            ("Thought: hm", (Thought, None, "hm")),
            ("  Action 12: Search[x]", (Action, Some(12), "Search[x]")),
            ("**Action Input:** {}", (ActionInput, None, "{}")),
            ("**Observation**: ok", (Observation, None, "ok")),
            ("### Thought 2: hm", (Thought, Some(2), "hm")),
            ("FINAL ANSWER: 42", (FinalAnswer, None, "42")),
            ("thought: lower case", (Thought, None, "lower case")),
            ("Action：全角", (Action, None, "全角")),
        ] {
            assert_eq!(labels(text), vec![want], "{text}");
        }
    }

    #[test]
    fn words_that_are_no_labels_are_left_alone() {
        for text in
            ["Thoughtful: no", "Action items", "answer: lower", "Actions: many", "the Action: is inside", "Action 1"]
        {
            assert_eq!(labels(text), vec![], "{text}");
        }
    }
}
