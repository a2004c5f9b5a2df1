//! Parses a rubric file: TOML front matter between `+++` lines, then the prompt.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::labels::{RubricLabelError, RubricLabels, find_asked_labels};
use super::template::{RubricTemplate, RubricTemplateError, RubricVariable};
use super::{Rubric, RubricOrigin, RubricSubject};

/// Why a rubric is refused. Each message is one line: what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RubricError {
    #[error(
        "it has no front matter: begin the file with a `+++` line, `name = \"...\"`, `applies_to = \"step\"` (or \"trajectory\"), a [labels] table with scores and another `+++` line; the prompt follows unchanged"
    )]
    NoFrontMatter,
    #[error("front matter, line {line}: {reason}")]
    FrontMatter { line: usize, reason: String },
    #[error("name {0:?}: use lower-case letters, digits and underscores")]
    Name(String),
    #[error("name {0:?} is taken: gates and outputs have another metric of this name\nhint: choose another name")]
    Reserved(String),
    #[error(transparent)]
    Labels(#[from] RubricLabelError),
    #[error(
        "the prompt asks for the label {asked:?}, which is not declared under [labels] ({declared}); every such answer would be lost"
    )]
    UndeclaredLabel { asked: String, declared: String },
    #[error("the prompt never mentions the label {0:?}, so no judge can give it")]
    UnmentionedLabel(String),
    #[error("{0}")]
    Template(#[from] RubricTemplateError),
    #[error("requires or unless names {0:?}, which is no variable; there are {known}", known = RubricVariable::all_names())]
    UnknownRequirement(String),
    #[error(
        "`{{{variable}}}` is one step's, and the rubric applies to a trajectory: use {{thought_sequence}} and {{tool_sequence}}"
    )]
    StepVariable { variable: &'static str },
    #[error("final_thought = true: the rubric applies to a trajectory, which is asked about once")]
    FinalThoughtOfTrajectory,
    #[error("the prompt is empty")]
    Empty,
}

/// Names that gates and tables already use: a gate on such a name would be ambiguous.
const RESERVED_RUBRIC_NAMES: [&str; 31] = [
    "steps",
    "tokens",
    "latency",
    "agent_cost",
    "combined",
    "trajectories_right",
    "failed",
    "cost",
    "baseline",
    // Results of benchmarks and experiments. A test of the command line compares them.
    "success",
    "safe",
    "clean",
    "joint",
    "calls_ratio",
    "cost_per_solved",
    "pass",
    "answered",
    "expected_tools",
    "must_not_call",
    "answer_contains",
    "answer_matches",
    "experiment",
    // Sets of evaluators, and evaluators that are rules only. A test of the selection compares them.
    "core",
    "all",
    "outcome",
    "call_validity",
    "argument_provenance",
    "error_recovery",
    "coding",
    "coding_conduct",
    "test_claims",
];

/// Whether rubrics may not have this name.
pub fn is_reserved_name(name: &str) -> bool {
    RESERVED_RUBRIC_NAMES.contains(&name)
}

/// The front matter. Unknown keys are errors, because a misspelled `requires` would silently change what is judged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrontMatter {
    name: String,
    title: Option<String>,
    #[serde(default)]
    about: String,
    applies_to: RubricSubject,
    requires: Option<Vec<String>>,
    /// The opposite of `requires`: the question does not apply if one of these was recorded.
    #[serde(default)]
    unless: Vec<String>,
    /// Also asks about the thought before the final answer.
    #[serde(default)]
    final_thought: bool,
    phoenix_name: Option<String>,
    labels: BTreeMap<String, f64>,
}

/// Parses and checks a rubric. All checks are done here, so that a mistake is found before any question is paid for.
pub(super) fn parse_rubric(text: &str, origin: RubricOrigin) -> Result<Rubric, RubricError> {
    let hash = hash_rubric(text);
    let (front, prompt) = split_front_matter(text).ok_or(RubricError::NoFrontMatter)?;
    let front: FrontMatter = toml::from_str(front).map_err(|error| RubricError::FrontMatter {
        // The front matter begins on the second line of the file.
        line: error.span().map_or(1, |span| front[..span.start].matches('\n').count() + 2),
        reason: error.message().to_owned(),
    })?;
    let name_fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if front.name.is_empty() || !front.name.chars().all(name_fits) {
        return Err(RubricError::Name(front.name));
    }
    if is_reserved_name(&front.name) {
        return Err(RubricError::Reserved(front.name));
    }
    let labels = RubricLabels::new(front.labels)?;
    if prompt.trim().is_empty() {
        return Err(RubricError::Empty);
    }
    check_labels(prompt, &labels)?;
    let template = RubricTemplate::parse(prompt.trim_end())?;
    if front.applies_to == RubricSubject::Trajectory
        && let Some(variable) = template.variables().find(|variable| variable.is_step_variable())
    {
        return Err(RubricError::StepVariable { variable: variable.name() });
    }
    if front.applies_to == RubricSubject::Trajectory && front.final_thought {
        return Err(RubricError::FinalThoughtOfTrajectory);
    }
    let variables = |names: Vec<String>| {
        let find = |name: String| RubricVariable::from_name(&name).ok_or(RubricError::UnknownRequirement(name));
        names.into_iter().map(find).collect::<Result<Vec<_>, _>>()
    };
    let unless = variables(front.unless)?;
    let requires = match front.requires {
        Some(names) => variables(names)?,
        // By default, a question needs the thought and the request if its prompt uses them. Everything else may be
        // missing.
        None => template
            .variables()
            .filter(|variable| matches!(variable, RubricVariable::Thought | RubricVariable::OriginalQuestion))
            .collect(),
    };
    let title = front.title.unwrap_or_else(|| front.name.replace('_', " "));
    Ok(Rubric {
        phoenix_name: front.phoenix_name.unwrap_or_else(|| title.clone()),
        title,
        about: front.about,
        subject: front.applies_to,
        labels,
        requires,
        unless,
        judges_final_thought: front.final_thought,
        template,
        hash,
        source: text.into(),
        origin,
        name: front.name,
    })
}

/// Front matter and prompt; `None` without a closing `+++` line. A byte order mark and CRLF are accepted.
fn split_front_matter(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches('\u{feff}');
    let rest = text.strip_prefix("+++")?;
    let rest = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'))?;
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "+++" {
            return Some((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

/// Compares the labels that the prompt asks for with the declared ones. If they differ, every answer would be
/// unreadable or, worse, taken for a wrong one.
fn check_labels(prompt: &str, labels: &RubricLabels) -> Result<(), RubricError> {
    for asked in find_asked_labels(prompt) {
        if labels.find(&asked).is_none() {
            let declared = labels.names().collect::<Vec<_>>().join(", ");
            return Err(RubricError::UndeclaredLabel { asked, declared });
        }
    }
    let lower = prompt.to_lowercase();
    match labels.names().find(|label| !contains_word(&lower, &label.to_lowercase())) {
        Some(missing) => Err(RubricError::UnmentionedLabel(missing.to_owned())),
        None => Ok(()),
    }
}

/// Whole words only: "incorrect" does not mention "correct".
fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// 64 bits of BLAKE3 over the file and the version of the fixed prompt texts, as hexadecimal.
fn hash_rubric(text: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(text.as_bytes()).update(&crate::prompt_version::PROMPT_VERSION.to_le_bytes());
    hasher.finalize().to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rubric(labels: &str, prompt: &str) -> Result<Rubric, RubricError> {
        let text = format!("+++\nname = \"r\"\napplies_to = \"step\"\n[labels]\n{labels}\n+++\n{prompt}");
        parse_rubric(&text, RubricOrigin::BuiltIn)
    }

    const YES_NO: &str = "correct = 1\nincorrect = 0";

    #[test]
    fn reads_a_prompt_written_for_phoenix_unchanged() {
        let prompt = "You compare.\n    [BEGIN DATA]\n    [Thought]: {thought}\n    [Tool]: {tool_call} {\"like\": \"this\"}\n    [END DATA]\nYour response must be a single word, either \"correct\" or \"incorrect\".\nEXPLANATION: ...\nLABEL: correct";
        let rubric = rubric(YES_NO, prompt).expect("a rubric");
        assert_eq!(
            rubric.template.variables().collect::<Vec<_>>(),
            [RubricVariable::Thought, RubricVariable::ToolCall]
        );
        assert_eq!(rubric.requires, [RubricVariable::Thought]);
    }

    /// Every answer to such a prompt would be unreadable, or taken for a wrong one.
    #[test]
    fn refuses_a_prompt_that_asks_for_other_labels() {
        for prompt in [
            "{thought} correct incorrect Your response must be EXACTLY one of these two words: \"optimal\" or \"suboptimal\".",
            "correct or incorrect? {thought}\nLABEL: [MUST BE EXACTLY \"optimal\" OR \"suboptimal\"]",
            "correct or incorrect? {thought}\nLABEL: optimal|suboptimal",
            "correct or incorrect? {thought}\nAnswer with a single word, 'yes' or 'no'.",
            "correct or incorrect? {thought}\n**LABEL:** good",
        ] {
            let error = rubric(YES_NO, prompt).expect_err(prompt);
            assert!(matches!(error, RubricError::UndeclaredLabel { .. }), "{prompt}: {error}");
        }
        let error = rubric(YES_NO, "Is it incorrect? {thought}").expect_err("no label correct");
        assert!(matches!(error, RubricError::UnmentionedLabel(label) if label == "correct"));
    }

    #[test]
    fn quoted_words_that_are_no_labels_are_no_matter() {
        let prompt = "The \"Action\" must fit the \"Thought\". {thought}\nAnswer \"correct\" or \"incorrect\".\nLABEL: [correct or incorrect]";
        rubric(YES_NO, prompt).expect("a rubric");
    }

    #[test]
    fn refuses_with_a_place_and_a_reason() {
        let error = |text: &str| parse_rubric(text, RubricOrigin::BuiltIn).expect_err(text).to_string();
        assert!(error("Just a prompt {thought}").contains("no front matter"));
        assert!(
            error("+++\nname = \"r\"\napplies_to = \"stage\"\n[labels]\na=1\n+++\na")
                .starts_with("front matter, line 3")
        );
        assert!(
            error("+++\nname = \"r\"\napplies_to = \"step\"\ntitel = \"x\"\n[labels]\na=1\nb=0\n+++\na b")
                .contains("titel")
        );
        let unknown = rubric(YES_NO, "{thoughts} correct incorrect").expect_err("no such variable").to_string();
        assert!(unknown.contains("thoughts") && unknown.contains("original_question"), "{unknown}");
        let taken = "+++\nname = \"combined\"\napplies_to = \"step\"\n[labels]\na=1\nb=0\n+++\na b";
        assert!(error(taken).contains("is taken"));
        for name in ["core", "all", "call_validity", "tokens", "latency", "agent_cost", "pass", "success"] {
            assert!(error(&taken.replace("combined", name)).contains("is taken"), "{name}");
        }
        assert!(rubric("correct = 1", "correct").is_err(), "one label decides nothing");
        assert!(rubric("correct = nan\nincorrect = 0", "correct incorrect").is_err());
    }
}
