//! Analyses a final answer: a question to the user, an admitted failure, a value without a source. Statements of giving
//! up are in `give_up`.

use gradus_core::trajectory::{DefectKind, Trajectory};

use super::OfflineJudge;
use super::excerpt::{quote_excerpt, take_prefix, take_suffix};
use super::identifiers::{IdentifierShape, classify_identifier};
use super::vocabulary::ADMISSION_PHRASES;

/// Maximum number of values in a remark.
const MAX_VALUES: usize = 5;

/// Whether the answer ends with a question to the user.
pub(super) fn asks_user(answer: &str) -> bool {
    let end = take_suffix(answer, 600).trim_end().trim_end_matches(['*', '_', '`', '"', '\'', ')', '”']);
    if end.ends_with(['?', '？', '؟']) {
        return true;
    }
    // "Which date do you want? Please let me know."
    let lower = end.to_lowercase();
    let tail = take_suffix(&lower, 260);
    [
        "please provide",
        "please confirm",
        "let me know which",
        "could you please",
        "please specify",
        "please let me know the",
        "(yes/no)",
    ]
    .iter()
    .any(|phrase| tail.contains(phrase))
}

/// Returns the last sentence as a quotation.
pub(super) fn quote_last_sentence(answer: &str) -> String {
    let end = take_suffix(answer.trim_end(), 400);
    let body = end.trim_end_matches(['?', '.', '!']);
    let start = body.rfind(['.', '!', '?', '\n']).map_or(0, |at| at + 1);
    quote_excerpt(end[start..].trim())
}

/// Returns the phrase by which the answer admits that something was not done.
pub(super) fn find_failure_admission(answer: &str) -> Option<&'static str> {
    let looked_at = format!("{} {}", take_prefix(answer, 3_000), take_suffix(answer, 1_000)).to_lowercase();
    ADMISSION_PHRASES.split('|').find(|phrase| looked_at.contains(phrase))
}

/// Whether the run ends with text that is not meant for the user: a thought, or a call as text that never ran. An
/// action called "Final Answer" is an answer.
pub(super) fn is_cut_off(trajectory: &Trajectory) -> bool {
    let has = |kind: DefectKind| trajectory.defects.iter().any(|defect| defect.kind == kind);
    let answer = trajectory.final_answer.as_deref().unwrap_or_default();
    let is_action = has(DefectKind::ActionNeverRan) || has(DefectKind::MissingToolName) && answer.contains("Action:");
    (is_action || answer.trim_start().starts_with("Thought:")) && !answer.contains("Final Answer")
}

/// Whether the text is the message of an exception instead of an answer.
pub(super) fn is_exception(answer: &str) -> bool {
    let start = take_prefix(answer, 400);
    start.starts_with("Traceback (most recent call last)")
        || start.len() < 400
            && start.split_once(':').is_some_and(|(name, _)| {
                !name.contains(' ') && name.len() > 5 && (name.ends_with("Error") || name.ends_with("Exception"))
            })
}

/// Returns addresses, identifiers and long numbers of the answer that occur in no earlier text.
pub(super) fn find_unsupported_values(offline: &OfflineJudge<'_>, answer: &str) -> Vec<String> {
    let index = offline.evidence();
    if index.is_cut {
        return Vec::new();
    }
    let mut found: Vec<String> = Vec::new();
    for word in take_prefix(answer, 20_000).split(|letter: char| {
        letter.is_whitespace() || matches!(letter, '(' | ')' | '[' | ']' | '"' | '`' | '*' | '|' | ',')
    }) {
        let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        let is_value = match classify_identifier(word) {
            Some(IdentifierShape::Email | IdentifierShape::Url) => true,
            Some(IdentifierShape::Code) => digits >= 3,
            Some(IdentifierShape::Number) => digits >= 4,
            _ => false,
        };
        if is_value && index.find(word, usize::MAX).is_none() && !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
            if found.len() == MAX_VALUES {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_ends_the_answer() {
        assert!(asks_user("I found two flights. Which one shall I book?"));
        assert!(asks_user("Your seat is free. Please confirm (yes/no)."));
        assert!(!asks_user("Who wrote it? Ann Lee wrote it in 1990."));
    }

    #[test]
    fn exceptions_are_no_answers() {
        assert!(is_exception("ValueError: no seat"));
        assert!(is_exception("Traceback (most recent call last)\n  File"));
        assert!(!is_exception("Answer: 42"));
        assert!(!is_exception("The error is in line 3."));
    }
}
