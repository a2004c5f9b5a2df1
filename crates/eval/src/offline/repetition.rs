//! Detects repeated calls: they need not be identical, but must ask the tool for the same thing.

use std::hash::{DefaultHasher, Hash, Hasher};

use gradus_core::trajectory::TrajectoryStep;
use serde_json::Value as Json;

/// Maximum nesting that is compared; deeper values count as equal.
const MAX_DEPTH: usize = 16;
/// Minimum share of equal lines for which long arguments (a patch, a document) count as equal.
const MIN_SAME_SHARE: f32 = 0.97;
/// Minimum length in bytes for that comparison.
const MIN_LONG_BYTES: usize = 400;
/// Parameters of tools that change a text inside of a file.
const EDIT_PARAMETERS: [&str; 12] = [
    "old_string",
    "oldString",
    "old_str",
    "oldText",
    "old_text",
    "old_content",
    "new_string",
    "newString",
    "new_str",
    "newText",
    "patch",
    "patchText",
];
/// The first line of a patch for `apply_patch`.
const PATCH_START: &str = "*** Begin Patch";

/// The parts of a call that matter for repetition.
#[derive(Clone, Copy, Debug)]
pub struct ComparedCall<'a> {
    pub tool: &'a str,
    pub arguments: Option<&'a Json>,
    /// The arguments as written, if they are not JSON.
    pub raw: Option<&'a str>,
}

impl<'a> From<&'a TrajectoryStep> for ComparedCall<'a> {
    fn from(step: &'a TrajectoryStep) -> Self {
        ComparedCall { tool: &step.tool, arguments: step.arguments.as_ref(), raw: step.arguments_raw.as_deref() }
    }
}

/// Whether `next` asks the same tool for the same thing as `previous`. Differences in the order of arguments, white
/// space (but in edits), the spelling of numbers, the names of parameters and a few lines of a long text do not matter.
pub fn is_repetition(previous: ComparedCall<'_>, next: ComparedCall<'_>) -> bool {
    if previous.tool != next.tool {
        return false;
    }
    match (previous.fingerprint(), next.fingerprint()) {
        (Some(before), Some(after)) if before == after => true,
        (Some(_), Some(_)) => previous.has_same_values_renamed(next) || previous.shares_most_lines(next),
        _ => false,
    }
}

impl ComparedCall<'_> {
    /// Returns a hash that is equal for calls that ask for the same; `None` if the arguments are unknown.
    pub(super) fn fingerprint(self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        self.tool.hash(&mut hasher);
        match (self.arguments, self.raw) {
            (Some(arguments), _) => hash_json(arguments, true, self.is_edit(), &mut hasher, 0),
            (None, Some(raw)) if self.is_edit() => raw.hash(&mut hasher),
            (None, Some(raw)) => split_inside_quotes(raw).for_each(|word| word.hash(&mut hasher)),
            (None, None) => return None,
        }
        Some(hasher.finish())
    }

    /// Whether the call names text of a file that it changes. Then white space matters: an indentation decides whether
    /// the text is found.
    fn is_edit(self) -> bool {
        let is_patch = |text: &str| text.contains(PATCH_START);
        match (self.arguments, self.raw) {
            (Some(Json::Object(fields)), _) => {
                let is_edit_field = |(name, value): (&String, &Json)| {
                    EDIT_PARAMETERS.contains(&name.as_str()) || value.as_str().is_some_and(is_patch)
                };
                fields.iter().any(is_edit_field)
            }
            (Some(arguments), _) => arguments.as_str().is_some_and(is_patch),
            (None, raw) => raw.is_some_and(is_patch),
        }
    }

    /// Whether the calls have the same values under other parameter names.
    fn has_same_values_renamed(self, other: Self) -> bool {
        let (Some(Json::Object(mine)), Some(Json::Object(theirs))) = (self.arguments, other.arguments) else {
            return false;
        };
        if mine.is_empty() || mine.len() != theirs.len() || mine.len() > 50 {
            return false;
        }
        let is_edit = self.is_edit() || other.is_edit();
        let hashes = |fields: &serde_json::Map<String, Json>| {
            let mut hashes: Vec<u64> = fields.values().map(|value| hash_alone(value, is_edit)).collect();
            hashes.sort_unstable();
            hashes
        };
        // Two parameters with exchanged values ask for something else.
        let swapped = mine.keys().all(|name| theirs.contains_key(name));
        !swapped && hashes(mine) == hashes(theirs)
    }

    /// Whether the Dice coefficient of the two sets of lines is high enough.
    fn shares_most_lines(self, other: Self) -> bool {
        let (Some(mine), Some(theirs)) = (self.arguments, other.arguments) else { return false };
        let is_edit = self.is_edit() || other.is_edit();
        let lines = |json: &Json| {
            let mut lines = std::collections::HashSet::new();
            let mut size = 0;
            collect_line_hashes(json, is_edit, &mut lines, &mut size, 0);
            (lines, size)
        };
        let ((mine, size), (theirs, other_size)) = (lines(mine), lines(theirs));
        if size.min(other_size) < MIN_LONG_BYTES || mine.len().min(theirs.len()) < 8 {
            return false;
        }
        let shared = mine.intersection(&theirs).count() as f32;
        shared / (mine.len() + theirs.len()) as f32 * 2.0 >= MIN_SAME_SHARE
    }
}

fn collect_line_hashes(
    json: &Json,
    is_edit: bool,
    lines: &mut std::collections::HashSet<u64>,
    size: &mut usize,
    depth: usize,
) {
    if depth > MAX_DEPTH || lines.len() > 20_000 {
        return;
    }
    match json {
        Json::Object(fields) => {
            fields.values().for_each(|value| collect_line_hashes(value, is_edit, lines, size, depth + 1));
        }
        Json::Array(items) => {
            items.iter().for_each(|value| collect_line_hashes(value, is_edit, lines, size, depth + 1));
        }
        Json::String(text) => {
            *size += text.len();
            let trimmed = text.lines().map(|line| if is_edit { line } else { line.trim() });
            lines.extend(trimmed.filter(|line| !line.is_empty()).map(|line| {
                let mut hasher = DefaultHasher::new();
                line.hash(&mut hasher);
                hasher.finish()
            }));
        }
        other => {
            lines.insert(hash_alone(other, is_edit));
        }
    }
}

fn split_inside_quotes(text: &str) -> impl Iterator<Item = &str> {
    text.trim_matches(['"', '\'', '`', ' ', '\n']).split_whitespace()
}

fn hash_alone(json: &Json, is_edit: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_json(json, false, is_edit, &mut hasher, 1);
    hasher.finish()
}

/// Hashes a value independent of key order and, unless it belongs to an edit, of white space. `top` is the object of
/// arguments itself.
fn hash_json(json: &Json, top: bool, is_edit: bool, hasher: &mut DefaultHasher, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match json {
        Json::Null => 0u8.hash(hasher),
        Json::Bool(value) => (1u8, value).hash(hasher),
        Json::Number(number) => (2u8, number.as_f64().unwrap_or_default().to_bits()).hash(hasher),
        Json::String(text) if is_edit => (3u8, text).hash(hasher),
        Json::String(text) => match text.trim().parse::<f64>() {
            Ok(number) if text.len() < 16 => (2u8, number.to_bits()).hash(hasher),
            _ => split_inside_quotes(text).for_each(|word| word.hash(hasher)),
        },
        Json::Array(items) => {
            (4u8, items.len()).hash(hasher);
            items.iter().for_each(|item| hash_json(item, false, is_edit, hasher, depth + 1));
        }
        Json::Object(fields) => {
            5u8.hash(hasher);
            // A parameter left out and one that is null ask the same; nested objects are data and stay as they are.
            let mut fields: Vec<_> = fields.iter().filter(|(_, value)| !(top && value.is_null())).collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in fields {
                name.hash(hasher);
                hash_json(value, false, is_edit, hasher, depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn repeated(before: &Json, after: &Json) -> bool {
        let call = |arguments| ComparedCall { tool: "book_table", arguments: Some(arguments), raw: None };
        is_repetition(call(before), call(after))
    }

    #[test]
    fn spelling_does_not_matter() {
        assert!(repeated(
            &json!({"name": "Ann  Lee", "seats": 2}),
            &json!({"seats": 2.0, "name": " Ann Lee", "note": null})
        ));
        assert!(repeated(&json!({"seats": "2"}), &json!({"seats": 2})));
        assert!(repeated(&json!({"guest": "Ann", "n": 2}), &json!({"guest_name": "Ann", "seats": 2})));
    }

    #[test]
    fn other_requests_are_no_repetition() {
        assert!(!repeated(&json!({"seats": 2}), &json!({"seats": 3})));
        assert!(!repeated(&json!({"from": "Oslo", "to": "Rome"}), &json!({"from": "Rome", "to": "Oslo"})));
        assert!(!repeated(&json!({"seats": 2}), &json!({"seats": 2, "name": "Ann"})));
        let (one, two) = (json!({}), json!({}));
        let call = |tool, arguments| ComparedCall { tool, arguments: Some(arguments), raw: None };
        assert!(!is_repetition(call("a", &one), call("b", &two)));
    }

    #[test]
    fn long_texts_that_differ_in_a_line_are_the_same_attempt() {
        let text = |last: &str| (0..40).map(|line| format!("line {line} of the menu\n")).collect::<String>() + last;
        assert!(repeated(&json!({"text": text("a")}), &json!({"text": text("b")})));
        let other = text("a").replace("menu", "bill");
        assert!(!repeated(&json!({"text": text("a")}), &json!({"text": other})));
    }

    #[test]
    fn white_space_matters_in_edits() {
        let edit = |text: &str| json!({"file_path": "/p/a.py", "old_string": text, "new_string": "y"});
        assert!(!repeated(&edit("\tx = 1"), &edit("\t\tx = 1")));
        assert!(repeated(&edit("\tx = 1"), &edit("\tx = 1")));
        let patch = |indentation: &str| json!({"input": format!("*** Begin Patch\n@@\n-{indentation}x\n+y")});
        assert!(!repeated(&patch("  "), &patch("    ")));
        assert!(repeated(&patch("  "), &patch("  ")));
    }

    #[test]
    fn unknown_arguments_are_no_repetition() {
        let call = ComparedCall { tool: "a", arguments: None, raw: None };
        assert!(!is_repetition(call, call));
        let raw = |raw| ComparedCall { tool: "a", arguments: None, raw: Some(raw) };
        assert!(is_repetition(raw("{x: 1,\n y"), raw("{x: 1, y")));
    }
}
