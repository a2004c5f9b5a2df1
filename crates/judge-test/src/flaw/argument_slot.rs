//! Arguments whose value names something: they can be swapped, misspelt or invented. Free text of the agent cannot,
//! since another text would not be wrong.

use gradus_core::trajectory::TrajectoryStep;
use serde_json::{Number, Value};

use super::draft::PlantingSite;
use crate::run_text::{is_grounded, occurs_anywhere};
use crate::seeded_choice::SeededChoice;

/// Names of arguments that do not name an object: free text, and numbers that change how much is read.
const NON_NAMING_ARGUMENTS: &[&str] = &[
    "body",
    "content",
    "message",
    "description",
    "text",
    "title",
    "query",
    "comment",
    "prompt",
    "notes",
    "subject",
    "q",
    "code",
    "page",
    "per_page",
    "limit",
    "size",
    "offset",
    "count",
    "timeout",
    "reason",
    "note",
    "summary",
    "color",
];
/// Maximum bytes of a value that counts as a name.
const MAX_NAME_BYTES: usize = 64;

/// An argument with its value as text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ArgumentSlot {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) is_number: bool,
}

impl ArgumentSlot {
    /// Returns a value as JSON of the same type as the argument.
    pub(super) fn to_json(&self, value: &str) -> Value {
        match value.parse::<u64>() {
            Ok(number) if self.is_number => Value::Number(Number::from(number)),
            _ => Value::String(value.to_owned()),
        }
    }

    /// Whether the value is an identifier that an agent cannot know without a source: a number, a hash, a UUID.
    pub(super) fn is_identifier(&self) -> bool {
        let lower = self.name.to_lowercase();
        let is_named = ["id", "number", "sha", "uuid", "key"].iter().any(|ending| lower.ends_with(ending));
        let digits = self.value.chars().filter(char::is_ascii_hexdigit).count();
        let is_hash = digits >= 7 && self.value.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-');
        (is_named && self.value.chars().any(|letter| letter.is_ascii_digit())) || is_hash
    }
}

/// The arguments of a step that name something.
pub(super) fn list_slots(step: &TrajectoryStep) -> Vec<ArgumentSlot> {
    let arguments = step.arguments.as_ref().and_then(Value::as_object);
    let slots = arguments.into_iter().flatten().filter_map(|(name, value)| {
        let (value, is_number) = match value {
            Value::String(text) => (text.clone(), false),
            Value::Number(number) => (number.as_u64()?.to_string(), true),
            _ => return None,
        };
        let is_name = !value.is_empty() && value.len() <= MAX_NAME_BYTES && !value.contains(char::is_whitespace);
        let is_other = NON_NAMING_ARGUMENTS.contains(&name.to_lowercase().as_str());
        (is_name && !is_other).then(|| ArgumentSlot { name: name.clone(), value, is_number })
    });
    slots.collect()
}

/// Lists the slots of step `at` whose value was known before, so that a judge can notice a change.
pub(super) fn list_grounded_slots(site: &PlantingSite<'_>, at: usize) -> Vec<ArgumentSlot> {
    let slots = list_slots(&site.steps()[at]);
    slots.into_iter().filter(|slot| is_grounded(&site.run.trajectory, at, &slot.value)).collect()
}

/// Maximum attempts to find a value that does not occur in the run.
const MAX_VALUE_TRIES: usize = 12;

/// Returns a misspelt or similar value that does not occur in the run.
pub(super) fn corrupt_value(site: &PlantingSite<'_>, slot: &ArgumentSlot, choice: &mut SeededChoice) -> Option<String> {
    (0..MAX_VALUE_TRIES).find_map(|_| {
        let other = if slot.is_number {
            corrupt_number(slot.value.parse().ok()?, choice)
        } else {
            corrupt_name(&slot.value, choice)
        };
        (other != slot.value && !occurs_anywhere(&site.run.trajectory, &other)).then_some(other)
    })
}

/// Returns another object of the same kind: another number, or a value of the same argument in another run.
pub(super) fn find_other_object(
    site: &PlantingSite<'_>,
    slot: &ArgumentSlot,
    choice: &mut SeededChoice,
) -> Option<String> {
    if slot.is_number {
        return corrupt_value(site, slot, choice);
    }
    let steps = site.donors.iter().flat_map(|donor| &donor.trajectory.steps);
    let mut others: Vec<String> = steps
        .flat_map(list_slots)
        .filter(|other| other.name == slot.name && !occurs_anywhere(&site.run.trajectory, &other.value))
        .map(|other| other.value)
        .collect();
    others.sort();
    others.dedup();
    choice.pick(&others).cloned()
}

fn corrupt_number(number: u64, choice: &mut SeededChoice) -> String {
    let step = choice.below(8) as u64 + 1;
    match choice.below(3) {
        0 => number.saturating_add(step),
        1 => number.saturating_mul(10).saturating_add(step),
        _ => number.saturating_add(10 * step),
    }
    .to_string()
}

fn corrupt_name(name: &str, choice: &mut SeededChoice) -> String {
    let mut letters: Vec<char> = name.chars().collect();
    let inner: Vec<usize> = (1..letters.len().saturating_sub(1)).filter(|at| letters[*at].is_alphanumeric()).collect();
    let at = choice.pick(&inner).copied();
    match (choice.below(4), at) {
        (0, Some(at)) if letters[at] != letters[at - 1] && letters[at - 1].is_alphanumeric() => {
            letters.swap(at, at - 1)
        }
        (1, Some(at)) if letters.len() > 4 => drop(letters.remove(at)),
        (2, _) => return format!("{name}-copy"),
        _ => {
            // Replaces the last letter or digit by another one.
            let last = letters.iter().rposition(char::is_ascii_alphanumeric).unwrap_or(0);
            let other = match letters.get(last) {
                Some(letter) if letter.is_ascii_digit() => char::from(b'0' + (*letter as u8 - b'0' + 3) % 10),
                Some('z') | None => 'q',
                Some(_) => 'z',
            };
            if let Some(place) = letters.get_mut(last) {
                *place = other;
            }
        }
    }
    letters.into_iter().collect()
}

/// Invents an identifier of the same shape that does not occur in the run.
pub(super) fn invent_identifier(
    site: &PlantingSite<'_>,
    slot: &ArgumentSlot,
    choice: &mut SeededChoice,
) -> Option<String> {
    (0..MAX_VALUE_TRIES).find_map(|_| {
        let is_short_number = slot.value.len() < 4 && slot.value.chars().all(|letter| letter.is_ascii_digit());
        let other = if is_short_number {
            // All numbers with as many digits may be taken; one more digit leaves enough to choose from.
            (100 + choice.below(8_900)).to_string()
        } else {
            slot.value.chars().map(|letter| invent_letter(letter, choice)).collect()
        };
        (other != slot.value && !occurs_anywhere(&site.run.trajectory, &other)).then_some(other)
    })
}

fn invent_letter(letter: char, choice: &mut SeededChoice) -> char {
    let from = |all: &[u8], choice: &mut SeededChoice| char::from(all[choice.below(all.len())]);
    match letter {
        '0'..='9' => from(b"123456789", choice),
        'a'..='f' => from(b"abcdef", choice),
        'A'..='F' => from(b"ABCDEF", choice),
        other => other,
    }
}
