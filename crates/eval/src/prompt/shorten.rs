//! Makes long values fit, and says what was left out: in the text itself, and in the outcome.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rubric::Variable;

/// A value of which the judge saw only a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shortened {
    /// The rubric's variable.
    pub variable: String,
    pub shown_bytes: usize,
    pub total_bytes: usize,
}

/// Keeps the beginning and the end of a text that is too long: what is done stands first, what came of it last.
pub(super) fn shorten<'t>(
    variable: Variable,
    text: &'t str,
    room: usize,
    shortened: &mut Vec<Shortened>,
) -> Cow<'t, str> {
    if text.len() <= room {
        return Cow::Borrowed(text);
    }
    let cut = cut(text, room);
    shortened.push(Shortened {
        variable: variable.name().to_owned(),
        shown_bytes: cut.len(),
        total_bytes: text.len(),
    });
    Cow::Owned(cut)
}

/// The text's two ends with a note between them.
pub(super) fn cut(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(NOTE_ROOM);
    let head = text.floor_char_boundary(kept * 2 / 3);
    let tail = text.ceil_char_boundary(text.len() - kept / 3);
    let left_out = text[head..tail].chars().count();
    format!("{}[... {left_out} characters left out by gradus ...]{}", &text[..head], &text[tail..])
}

/// About what a note takes.
const NOTE_ROOM: usize = 60;

/// The size that each of several texts may have so that all fit: short ones stay whole, long ones share what is left.
pub(super) fn share(sizes: &[usize], room: usize) -> usize {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let mut left = room;
    for (at, size) in sorted.iter().enumerate() {
        let each = left / (sorted.len() - at);
        if *size > each {
            return each;
        }
        left -= size;
    }
    usize::MAX
}

/// One text out of numbered lines, each a step. When they do not fit, long steps are cut; when there are too many for
/// that, those in the middle are left out.
pub(super) fn steps(lines: &[String], room: usize) -> String {
    const SHORTEST: usize = 160;
    let sizes: Vec<usize> = lines.iter().map(|line| line.len() + 1).collect();
    let each = share(&sizes, room);
    if each == usize::MAX {
        return lines.join("\n");
    }
    if each >= SHORTEST {
        return lines.iter().map(|line| cut(line, each - 1)).collect::<Vec<_>>().join("\n");
    }
    let kept = (room.saturating_sub(NOTE_ROOM) / SHORTEST).max(2).min(lines.len());
    if kept == lines.len() {
        return lines.iter().map(|line| cut(line, SHORTEST - 1)).collect::<Vec<_>>().join("\n");
    }
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let mut parts: Vec<String> = lines[..head].iter().map(|line| cut(line, SHORTEST - 1)).collect();
    parts.push(format!("[... steps {} to {} left out by gradus ...]", head + 1, lines.len() - tail));
    parts.extend(lines[lines.len() - tail..].iter().map(|line| cut(line, SHORTEST - 1)));
    parts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_both_ends_and_says_what_is_missing() {
        let text = format!("begin{}end", "\u{e9}".repeat(5_000));
        let mut shortened = Vec::new();
        let short = shorten(Variable::Observation, &text, 500, &mut shortened);
        assert!(short.len() <= 500 && short.starts_with("begin") && short.ends_with("end"));
        assert!(short.contains("characters left out by gradus"));
        assert_eq!(shortened[0].total_bytes, text.len());
        assert_eq!(shorten(Variable::Observation, "short", 500, &mut shortened), "short");
        assert_eq!(shortened.len(), 1);
    }

    #[test]
    fn short_values_stay_whole() {
        assert_eq!(share(&[10, 1_000, 2_000], 1_010), 500);
        assert_eq!(share(&[10, 20], 30), usize::MAX);
        assert_eq!(share(&[], 0), usize::MAX);
    }

    #[test]
    fn long_sequences_lose_their_middle_not_their_ends() {
        let lines: Vec<String> =
            (1..=1_000).map(|step| format!("Step {step}: {}", "x".repeat(400))).collect();
        let text = steps(&lines, 5_000);
        assert!(text.len() <= 5_100, "{}", text.len());
        assert!(text.starts_with("Step 1: ") && text.contains("\nStep 1000: "));
        assert!(text.contains("left out by gradus ...]"));
        for count in 0..6 {
            let tight = steps(&lines[..count], 10);
            assert!(count < 3 || tight.contains("left out by gradus"), "{tight}");
        }
        let few = steps(&lines[..4], 1_000);
        assert!(few.len() <= 1_000 && few.matches("Step ").count() == 4);
    }
}
