//! Parses a judge's answer. A label is accepted only if it is unambiguous by the rules below; otherwise there is no
//! verdict, and the judge is asked again.
//!
//! 1. If the answer is a JSON object with a `label`, bare or in a code block, that field counts and nothing else does.
//!    The same holds if the answer begins with such an object and the text after it gives no label.
//! 2. Reasoning before the answer is not part of it. It ends with an end tag (`</think>`) that is followed by such an
//!    object and nothing else, or with the last end tag outside of such an object. A tag that the judge only quotes,
//!    inside its JSON or after `EXPLANATION:` or `LABEL:`, ends nothing.
//! 3. Otherwise the last line that begins with `LABEL:` counts, and everything before it is explanation, quotations
//!    included. If text follows it, an earlier line with another label makes the answer doubtful. So does a JSON object
//!    at the end, which counts if there is no such line.
//! 4. Otherwise the answer, or its last line, must be a label and nothing else.
//!
//! Within the part that counts, labels are matched as whole words, so that "incorrect" does not contain "correct". A
//! label after a negation does not count, and two different labels are no verdict.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::rubric::RubricLabels;

/// A label of the rubric, in its spelling there, with the judge's explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedVerdict {
    pub label: String,
    pub explanation: String,
}

/// Why an answer contains no verdict. The messages are shown to the judge when it is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerdictParseError {
    #[error("the judge gave an empty answer")]
    Empty,
    #[error("the judge gave no label")]
    NoLabel,
    #[error("the judge gave a label that the rubric does not have")]
    UnknownLabel,
    #[error("the judge gave more than one label")]
    SeveralLabels,
}

/// Begin and end tags of reasoning in the answers of open models. Chat templates often put the begin tag into the
/// prompt, so an answer may contain only the end tag.
const REASONING_TAGS: [(&str, &str); 6] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("\u{25c1}think\u{25b7}", "\u{25c1}/think\u{25b7}"),
];

/// Parses an answer by the rules above. Answers are untrusted: a recording may have made the judge quote a label.
pub fn parse_verdict(answer: &str, labels: &RubricLabels) -> Result<ParsedVerdict, VerdictParseError> {
    let answer = answer.trim().trim_start_matches('\u{feff}').trim_start();
    if let Some(object) = parse_whole_object(answer) {
        return object.to_verdict(labels);
    }
    // Small models put raw line breaks into JSON strings, which is not valid JSON.
    let on_one_line = answer.replace(['\n', '\r', '\t'], " ");
    if let Some(object) = parse_whole_object(&on_one_line) {
        return object.to_verdict(labels);
    }
    // Everything before an end tag is reasoning, even if it begins with an object.
    let at_the_start = parse_object_at_start(answer).filter(|(_, rest)| reasoning_ends(rest).is_empty());
    let Some((object, rest)) = at_the_start else { return read_prose(answer, labels) };
    if gives_no_label(rest, labels) {
        return object.to_verdict(labels);
    }
    let reading = read_prose(answer, labels)?;
    match object.to_verdict(labels) {
        Ok(first) if first.label != reading.label => Err(VerdictParseError::SeveralLabels),
        _ => Ok(reading),
    }
}

/// Parses an answer that is not just a JSON object.
fn read_prose(answer: &str, labels: &RubricLabels) -> Result<ParsedVerdict, VerdictParseError> {
    let ends = reasoning_ends(answer);
    // The first end tag that fits: a later one is inside the object.
    if let Some(object) = ends.iter().find_map(|end| parse_whole_object(answer[*end..].trim())) {
        return object.to_verdict(labels);
    }
    let begins_with_reasoning = REASONING_TAGS.iter().any(|(begin, _)| answer.starts_with(begin));
    let (text, object) = match parse_object_at_end(answer) {
        // Reasoning that was cut off contains no answer.
        Some((at, _)) if begins_with_reasoning && ends.first().is_none_or(|end| *end > at) => (answer, None),
        Some((at, object)) => (answer[..at].trim_end(), Some(object.to_verdict(labels)?)),
        None => (answer, None),
    };
    match ends.into_iter().rfind(|end| *end <= text.len()) {
        None if begins_with_reasoning => Err(VerdictParseError::Empty),
        None => read_text(text, object, labels),
        Some(end) if begins_with_reasoning || !begins_with_marker(text) => {
            read_text(text[end..].trim_start(), object, labels)
        }
        // Either the tag is quoted, or something that looks like an answer was reasoning. It is accepted only if both
        // give the same label.
        Some(end) => {
            let whole = read_text(text, object.clone(), labels)?;
            match read_text(text[end..].trim_start(), object, labels) {
                Ok(behind) if behind.label != whole.label => Err(VerdictParseError::SeveralLabels),
                Err(error @ (VerdictParseError::Empty | VerdictParseError::SeveralLabels)) => Err(error),
                _ => Ok(whole),
            }
        }
    }
}

/// Parses an answer without its reasoning; `object` is the JSON that followed it.
fn read_text(
    answer: &str,
    object: Option<ParsedVerdict>,
    labels: &RubricLabels,
) -> Result<ParsedVerdict, VerdictParseError> {
    if answer.is_empty() {
        return object.ok_or(VerdictParseError::Empty);
    }
    match (last_label_line(answer), object) {
        (Some(line), object) => {
            let label = find_only_label(line.label, labels)?;
            let disagrees = object.is_some_and(|object| object.label != label);
            if disagrees || (!line.is_last && is_doubtful(line.before, &label, labels)) {
                return Err(VerdictParseError::SeveralLabels);
            }
            return Ok(ParsedVerdict { label, explanation: clean_explanation(line.before) });
        }
        (None, Some(object)) => return Ok(object),
        (None, None) => {}
    }
    let (before, last) = match answer.rfind('\n') {
        Some(at) => (&answer[..at], &answer[at + 1..]),
        None => ("", answer),
    };
    match labels.find(last) {
        Some(label) => Ok(ParsedVerdict { label: label.to_owned(), explanation: clean_explanation(before) }),
        None => Err(VerdictParseError::NoLabel),
    }
}

/// Offsets after each end tag, ascending.
fn reasoning_ends(answer: &str) -> Vec<usize> {
    let mut ends: Vec<usize> =
        REASONING_TAGS.iter().flat_map(|(_, tag)| answer.match_indices(tag).map(|(at, _)| at + tag.len())).collect();
    ends.sort_unstable();
    ends
}

/// Whether an answer begins in the requested form: with its explanation or its label.
fn begins_with_marker(answer: &str) -> bool {
    let start = answer.trim_start_matches(|c: char| !c.is_alphanumeric());
    text_after_label(answer).is_some() || strip_word(start, "explanation").is_some()
}

/// Parses an answer that is a single JSON object, bare or in a code block.
fn parse_whole_object(answer: &str) -> Option<VerdictJson<'_>> {
    let whole = answer.strip_prefix("```json").or_else(|| answer.strip_prefix("```")).unwrap_or(answer);
    let whole = whole.trim_end_matches('`').trim();
    // Fast path: the first character excludes most text.
    if whole.starts_with('{') { serde_json::from_str(whole).ok() } else { None }
}

/// The requested JSON. Additional fields are ignored.
#[derive(Deserialize)]
struct VerdictJson<'a> {
    /// Raw, so that an explanation of another type does not invalidate the label.
    #[serde(borrow, default)]
    explanation: Option<&'a RawValue>,
    label: String,
}

impl VerdictJson<'_> {
    fn to_verdict(&self, labels: &RubricLabels) -> Result<ParsedVerdict, VerdictParseError> {
        let label = find_only_label(&self.label, labels)?;
        let raw = self.explanation.map_or("\"\"", RawValue::get);
        let explanation = serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned());
        Ok(ParsedVerdict { label, explanation: explanation.trim().to_owned() })
    }
}

/// Parses a JSON object at the beginning, and returns the text after it.
fn parse_object_at_start(answer: &str) -> Option<(VerdictJson<'_>, &str)> {
    let body = answer.strip_prefix("```json").or_else(|| answer.strip_prefix("```")).unwrap_or(answer);
    let body = body.trim_start();
    if !body.starts_with('{') {
        return None;
    }
    let mut objects = serde_json::Deserializer::from_str(body).into_iter::<VerdictJson<'_>>();
    let object = objects.next()?.ok()?;
    Some((object, &body[objects.byte_offset()..]))
}

/// Whether the text after an answer does not give another label.
fn gives_no_label(rest: &str, labels: &RubricLabels) -> bool {
    last_label_line(rest).is_none()
        && !rest.contains("\"label\"")
        && rest.lines().all(|line| labels.find(line).is_none())
}

/// Parses a JSON object at the end of the text, and returns its offset.
fn parse_object_at_end(answer: &str) -> Option<(usize, VerdictJson<'_>)> {
    // Only at the end: an object that is quoted in the middle of an explanation is not an answer.
    let end = answer.trim_end_matches(|c: char| c == '`' || c.is_whitespace());
    if !end.ends_with('}') {
        return None;
    }
    let mut starts = end.match_indices('{').filter(|(at, _)| {
        let before = end[..*at].trim_end_matches([' ', '\t']);
        before.is_empty() || before.ends_with('\n') || before.ends_with("json")
    });
    starts.find_map(|(at, _)| serde_json::from_str(&end[at..]).ok().map(|object| (at, object)))
}

/// The last `LABEL:` line of an answer.
struct LabelLine<'a> {
    /// The text before the line.
    before: &'a str,
    /// The text after `LABEL:`, or the next line if it is empty.
    label: &'a str,
    /// Whether no other text follows.
    is_last: bool,
}

/// Whether an earlier `LABEL:` line gives another label.
fn is_doubtful(before: &str, label: &str, labels: &RubricLabels) -> bool {
    let earlier = before.lines().filter_map(text_after_label).filter_map(|text| find_only_label(text, labels).ok());
    earlier.into_iter().any(|other| other != label)
}

fn last_label_line(answer: &str) -> Option<LabelLine<'_>> {
    let mut found = None;
    let mut at = 0;
    for line in answer.split_inclusive('\n') {
        if let Some(rest) = text_after_label(line) {
            let rest_at = at + (line.len() - rest.len());
            found = Some((at, rest_at, rest));
        }
        at += line.len();
    }
    let (at, rest_at, rest) = found?;
    let has_words = |text: &str| text.chars().any(char::is_alphanumeric);
    let before = &answer[..at];
    if has_words(rest) {
        let is_last = !has_words(&answer[rest_at + rest.len()..]);
        return Some(LabelLine { before, label: rest, is_last });
    }
    // The label is on the next line.
    let mut following = answer[rest_at..].lines().filter(|line| has_words(line));
    let label = following.next().unwrap_or_default();
    Some(LabelLine { before, label, is_last: following.next().is_none() })
}

/// `LABEL: x`, `**Label:** x`, `## Final label - x`, `"label": "x"`.
fn text_after_label(line: &str) -> Option<&str> {
    let start = line.trim_start_matches(|c: char| !c.is_alphanumeric());
    let start = strip_word(start, "final").unwrap_or(start);
    let rest = strip_word(start, "label")?;
    let rest = rest.trim_start_matches(['*', '_', '`', '"', '\'', ' ', '\t']);
    rest.strip_prefix([':', '=', '-', '\u{2013}', '\u{2014}', '\u{ff1a}'])
}

fn strip_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let start = text.get(..word.len())?;
    let rest = &text[word.len()..];
    let fits = start.eq_ignore_ascii_case(word) && !rest.starts_with(char::is_alphanumeric);
    fits.then(|| rest.trim_start_matches([' ', '\t']))
}

/// Finds the only label in a short text. It is an error if there are none or several.
fn find_only_label(text: &str, labels: &RubricLabels) -> Result<String, VerdictParseError> {
    if let Some(label) = labels.find(text) {
        return Ok(label.to_owned());
    }
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '\u{2019}')
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        return Err(VerdictParseError::NoLabel);
    }
    // Longest first, so that "partly correct" is not matched as "correct".
    let mut by_length: Vec<(&str, Vec<String>)> =
        labels.names().map(|label| (label, split_label_words(label))).collect();
    by_length.sort_by_key(|(_, words)| std::cmp::Reverse(words.len()));
    let mut given: Option<&str> = None;
    let mut at = 0;
    let mut negated = false;
    while at < words.len() {
        let hit = by_length.iter().find(|(_, label)| {
            words[at..].len() >= label.len() && words[at..].iter().zip(label).all(|(word, part)| word == part)
        });
        let Some((label, parts)) = hit else {
            negated = is_negation(words[at]) || (negated && is_filler(words[at]));
            at += 1;
            continue;
        };
        if !negated {
            match given {
                Some(other) if other != *label => return Err(VerdictParseError::SeveralLabels),
                _ => given = Some(label),
            }
        }
        negated = false;
        at += parts.len();
    }
    given.map(str::to_owned).ok_or(VerdictParseError::UnknownLabel)
}

fn split_label_words(label: &str) -> Vec<String> {
    let lower = label.to_lowercase();
    lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Whether a word is a negation, including prefixes before a hyphen: "in-correct", "non-optimal".
fn is_negation(word: &str) -> bool {
    matches!(word, "not" | "never" | "no" | "neither" | "nor" | "cannot" | "hardly" | "un" | "in" | "non")
        || word.ends_with("n't")
        || word.ends_with("n\u{2019}t")
}

/// Whether a word may occur between a negation and the negated label.
fn is_filler(word: &str) -> bool {
    matches!(
        word,
        "a" | "an"
            | "the"
            | "be"
            | "is"
            | "entirely"
            | "fully"
            | "quite"
            | "really"
            | "completely"
            | "at"
            | "all"
            | "very"
    )
}

/// Removes heading and markup from an explanation.
fn clean_explanation(text: &str) -> String {
    let text = text.trim().trim_end_matches('*').trim_end();
    let start = text.trim_start_matches(['*', '#', ' ', '_']);
    let rest = strip_word(start, "explanation").map(|rest| rest.trim_start_matches(['*', '_', ' ']));
    match rest.and_then(|rest| rest.strip_prefix([':', '-'])) {
        Some(rest) => rest.trim_start_matches(['*', ' ', '\n']).to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rubric::RubricLibrary;

    fn labels(rubric: &str) -> RubricLabels {
        RubricLibrary::built_in().find(rubric).expect("built in").labels.clone()
    }

    fn label(answer: &str) -> Result<String, VerdictParseError> {
        parse_verdict(answer, &labels("thought_to_tool")).map(|reading| reading.label)
    }

    #[test]
    fn takes_a_label_where_there_is_no_doubt() {
        for (answer, expected) in [
            ("EXPLANATION: it fits.\nLABEL: correct", "correct"),
            ("EXPLANATION: it does not.\nLABEL: incorrect", "incorrect"),
            ("EXPLANATION: a correct tool would be x.\nLABEL: incorrect", "incorrect"),
            ("**EXPLANATION:** fine\n\n**LABEL:** correct", "correct"),
            ("**LABEL: correct**", "correct"),
            ("### Label\n: correct", "correct"),
            ("LABEL:\n\n  \"incorrect\"", "incorrect"),
            ("label = 'Correct'.", "correct"),
            ("LABEL: `INCORRECT`", "incorrect"),
            ("LABEL: [correct]", "correct"),
            ("LABEL: \u{201c}correct\u{201d}", "correct"),
            ("LABEL - correct", "correct"),
            ("Final label: correct", "correct"),
            ("LABEL: correct. The tool fits.", "correct"),
            ("LABEL: correct, not incorrect", "correct"),
            ("LABEL: The step is incorrect", "incorrect"),
            ("LABEL: in-correct", "incorrect"),
            ("LABEL: incorrect because it is not correct", "incorrect"),
            ("correct", "correct"),
            ("<think>LABEL: correct?</think>LABEL: incorrect", "incorrect"),
            ("It fits. LABEL: correct? No.</think>\n\nLABEL: incorrect", "incorrect"),
            ("[THINK]LABEL: correct[/THINK]EXPLANATION: no.\nLABEL: incorrect", "incorrect"),
            ("<think>hm</think>{\"explanation\": \"it says </think>\", \"label\": \"incorrect\"}", "incorrect"),
            ("{\"explanation\": \"it says </think> LABEL: correct\", \"label\": \"incorrect\"}", "incorrect"),
            ("{\"explanation\": [\"not\", \"text\"], \"label\": \"incorrect\"}", "incorrect"),
            ("{\"explanation\": \"half an emoji \\ud83d\", \"label\": \"incorrect\"}", "incorrect"),
            ("Here:\n{\"explanation\": \"</think>\", \"label\": \"incorrect\"}", "incorrect"),
            ("<think>a</think>Here:\n{\"explanation\": \"</think>\", \"label\": \"incorrect\"}", "incorrect"),
            ("LABEL: incorrect\nEXPLANATION: the thought quotes </think> to end mine.", "incorrect"),
            ("EXPLANATION: </think> is quoted.\nLABEL: incorrect", "incorrect"),
            ("\"Incorrect\".", "incorrect"),
            ("The tool fits.\ncorrect", "correct"),
            ("LABEL: correct\nEXPLANATION: comes second here", "correct"),
            ("{\"explanation\": \"the label 'correct' would be wrong\", \"label\": \"incorrect\"}", "incorrect"),
            ("```json\n{\"explanation\": \"x\", \"label\": \"Correct\"}\n```", "correct"),
            ("Here is my answer:\n{\"label\": \"correct\", \"explanation\": \"{}\"}", "correct"),
            ("{\"explanation\": \"x\", \"label\": \"correct\"} I hope this helps.", "correct"),
            ("```json\n{\"explanation\": \"x\", \"label\": \"incorrect\"}\n```\nDone.", "incorrect"),
            ("\u{feff}{\"explanation\": \"x\", \"label\": \"correct\"}", "correct"),
            ("{\"explanation\": \"two\nlines\", \"label\": \"correct\"}", "correct"),
            ("EXPLANATION: the data says LABEL: correct, a trick.\nLABEL: incorrect", "incorrect"),
            ("EXPLANATION: the data says\nLABEL: correct\nwhich is a trick.\nLABEL: incorrect", "incorrect"),
            ("EXPLANATION: the label 'correct' would be wrong\nLABEL: incorrect", "incorrect"),
            ("EXPLANATION: it quotes {\"label\": \"correct\"}\nLABEL: incorrect", "incorrect"),
        ] {
            assert_eq!(label(answer).as_deref(), Ok(expected), "{answer:?}");
        }
    }

    #[test]
    fn takes_none_where_there_is_doubt() {
        for (answer, expected) in [
            ("", VerdictParseError::Empty),
            ("  \n ", VerdictParseError::Empty),
            ("The tool fits the thought.", VerdictParseError::NoLabel),
            ("I would call this correct I think", VerdictParseError::NoLabel),
            ("EXPLANATION: x\nLABEL:", VerdictParseError::NoLabel),
            ("<think>LABEL: correct</think>", VerdictParseError::Empty),
            ("<think>It fits.\nLABEL: correct", VerdictParseError::Empty),
            ("<think>I could say\n{\"explanation\": \"x\", \"label\": \"correct\"}", VerdictParseError::Empty),
            ("EXPLANATION: fits\nLABEL: correct\nOr not?</think>", VerdictParseError::Empty),
            ("EXPLANATION: fits\nLABEL: correct\nNo.</think>LABEL: incorrect", VerdictParseError::SeveralLabels),
            ("LABEL: correct or incorrect", VerdictParseError::SeveralLabels),
            (
                "LABEL: incorrect\n\nThe recording ended with:\n{\"label\":\"correct\"}",
                VerdictParseError::SeveralLabels,
            ),
            ("LABEL: incorrect\nIt said:\nLABEL: correct\nwhich is a trick.", VerdictParseError::SeveralLabels),
            ("LABEL: incorrect\nIt said:\n{\n \"label\": \"correct\"\n}", VerdictParseError::SeveralLabels),
            ("LABEL: correct/incorrect", VerdictParseError::SeveralLabels),
            ("LABEL: not correct", VerdictParseError::UnknownLabel),
            ("LABEL: isn't really correct", VerdictParseError::UnknownLabel),
            ("LABEL: partially", VerdictParseError::UnknownLabel),
            ("LABEL: optimal", VerdictParseError::UnknownLabel),
            ("LABEL: correctly", VerdictParseError::UnknownLabel),
            ("{\"explanation\": \"x\", \"label\": \"maybe\"}", VerdictParseError::UnknownLabel),
            ("{\"explanation\": \"x\", \"label\": \"correct", VerdictParseError::NoLabel),
            ("{\"label\": \"correct\", \"label\": \"incorrect\"}", VerdictParseError::SeveralLabels),
            ("{\"explanation\": \"LABEL: correct\"}", VerdictParseError::NoLabel),
            ("{\"label\": \"correct\"}\nLABEL: incorrect", VerdictParseError::SeveralLabels),
        ] {
            assert_eq!(label(answer), Err(expected), "{answer:?}");
        }
    }

    #[test]
    fn longer_labels_are_not_taken_for_shorter_ones() {
        let labels = labels("sequence_optimality");
        let label = |answer| parse_verdict(answer, &labels).map(|reading| reading.label);
        assert_eq!(label("LABEL: suboptimal").as_deref(), Ok("suboptimal"));
        assert_eq!(label("LABEL: sub-optimal").as_deref(), Ok("suboptimal"));
        assert_eq!(label("LABEL: sub optimal").as_deref(), Ok("suboptimal"));
        assert_eq!(label("LABEL: optimal.").as_deref(), Ok("optimal"));
        assert_eq!(label("LABEL: non-optimal"), Err(VerdictParseError::UnknownLabel));
    }

    #[test]
    fn keeps_the_explanation_and_nothing_around_it() {
        let explanation = |answer| parse_verdict(answer, &labels("thought_to_tool")).map(|reading| reading.explanation);
        assert_eq!(explanation("EXPLANATION: a\nb\n\nLABEL: correct").as_deref(), Ok("a\nb"));
        assert_eq!(explanation("**EXPLANATION:** a\n**LABEL:** correct").as_deref(), Ok("a"));
        assert_eq!(explanation("correct").as_deref(), Ok(""));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever a judge writes into its explanation, and whatever it thought aloud before, its label is read.
        #[test]
        fn an_explanation_never_changes_the_label(
            parts in prop::collection::vec(
                "(</think>|<think>|LABEL: correct|\\{\"label\": ?\"correct\"\\}|EXPLANATION:|```(json)?|\n|\\\\|\"|\\{|\\}|\u{202e}|\\PC{0,3})",
                0..12,
            ),
            thought in prop::collection::vec("(</think>|LABEL: correct|\\{\"label\": ?\"correct\"\\}|\n|\"|\\{|\\}|[a-z ]{1,4})", 0..8),
            is_pretty in any::<bool>(),
        ) {
            let value = serde_json::json!({"explanation": parts.concat(), "label": "incorrect"});
            let json = if is_pretty { serde_json::to_string_pretty(&value).expect("JSON") } else { value.to_string() };
            for answer in [
                json.clone(),
                format!("```json\n{json}\n```"),
                format!("<think>{}</think>{json}", thought.concat()),
                format!("{}</think>\n\n```json\n{json}\n```", thought.concat()),
                format!("My answer:\n{json}"),
            ] {
                let label = parse_verdict(&answer, &labels("thought_to_tool")).map(|reading| reading.label);
                prop_assert_eq!(label.as_deref(), Ok("incorrect"), "{}", answer);
            }
        }
    }
}
