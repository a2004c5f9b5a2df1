//! Premature answers, and answers with claims that no result supports.

use super::draft::{PlantingSite, RunDraft};
use super::planted_run::FlawedRun;
use crate::run_text::{mentions_value, occurs_anywhere, query_mentions, replace_value};
use crate::seeded_choice::SeededChoice;
use crate::tool_words::{is_writing, tool_phrase};

const UNFINISHED_ANSWERS: [&str; 3] = [
    "I have had a look at it. The rest should be straightforward.",
    "I made a start on this and stopped here.",
    "That is as far as I went; the remaining part can be done later.",
];

const ANNOUNCING_THOUGHTS: [&str; 3] =
    ["Now I {verb} {object}.", "Next I will {verb} {object}.", "What is left is to {verb} {object}, which I do now."];

/// Ends the run before a requested change. The answer still claims the change, or admits that it was not made.
pub(super) fn plant_premature_answer(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let steps = site.steps();
    let is_cut = |at: &usize| steps[*at..].iter().any(|step| is_writing(&step.tool) && !step.is_error);
    let cuts: Vec<usize> = (0..steps.len()).filter(is_cut).collect();
    // A run without any call is the crudest form, so it is chosen only where there is no other.
    let later: Vec<usize> = cuts.iter().copied().filter(|at| *at > 0).collect();
    let at = *choice.pick(if later.is_empty() { &cuts } else { &later })?;
    let original = RunDraft::new(site.run);
    let mut draft = original.clone();
    draft.truncate_steps(at);
    let claims = choice.below(2) == 0;
    if !claims {
        draft.trajectory.final_answer = choice.pick(&UNFINISHED_ANSWERS).map(|text| (*text).to_owned());
    }
    let announced = tool_phrase(&steps[at].tool).filter(|_| site.run.has_thoughts()).and_then(|(verb, object)| {
        choice.pick(&ANNOUNCING_THOUGHTS).map(|text| text.replace("{verb}", &verb).replace("{object}", &object))
    });
    let is_announced = announced.is_some();
    draft.trajectory.final_thought = announced;
    let what = if claims { "the answer claims the rest" } else { "the answer stops there" };
    let note = format!("steps from {} on are missing, and {what}", at + 1);
    // The thought before the answer: it announces a call that is not made.
    let thought = is_announced.then(|| RunDraft::number(at)).flatten();
    let original_thought = site.run.trajectory.final_thought_index().or_else(|| RunDraft::number(steps.len() - 1));
    let run = draft.finish(site, original, thought, original_thought, note);
    Some(
        run.with_trajectory_expectation("task_completion", true).with_step_expectation("thought_to_tool", is_announced),
    )
}

const NUMBER_WORDS: [&str; 11] =
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"];

/// Replaces a value of the answer that comes from a result by one that no result contains.
pub(super) fn plant_unsupported_claim(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let trajectory = &site.run.trajectory;
    let (last, answer) = (trajectory.steps.last()?, trajectory.final_answer.as_deref()?);
    let result = last.observation.as_deref().filter(|_| !last.is_error)?;
    let is_lookup = trajectory.steps.iter().all(|step| !is_writing(&step.tool));
    let mut claims: Vec<(String, String, bool)> = Vec::new();
    for value in list_claimed_values(answer) {
        let is_read = mentions_value(result, &value) && !query_mentions(trajectory, &value);
        if is_read && let Some(other) = find_other_value(site, &value, choice) {
            claims.push((value, other, true));
        }
    }
    // A count of what a single result lists.
    if is_lookup && trajectory.steps.len() == 1 {
        for (at, word) in NUMBER_WORDS.iter().enumerate().skip(1).filter(|(_, word)| mentions_value(answer, word)) {
            let other = NUMBER_WORDS[(at + 2 + choice.below(4)) % NUMBER_WORDS.len()];
            if other != *word && !mentions_value(answer, other) && !query_mentions(trajectory, word) {
                claims.push(((*word).to_owned(), other.to_owned(), true));
            }
        }
    }
    let (value, other, is_of_result) = choice.pick(&claims)?.clone();
    let original = RunDraft::new(site.run);
    let mut draft = original.clone();
    draft.trajectory.final_answer = Some(replace_value(answer, &value, &other));
    let note = format!("the answer says {other}, and the result says {value}");
    let number = RunDraft::number(trajectory.steps.len() - 1);
    let run = draft.finish(site, original, number, number, note);
    Some(
        run.with_step_expectation("misread_observation", is_of_result)
            .with_trajectory_expectation("task_completion", is_lookup),
    )
}

/// Lists the values in an answer: words with a digit, and quoted words.
fn list_claimed_values(answer: &str) -> Vec<String> {
    let is_edge = |letter: char| !letter.is_alphanumeric();
    let words = answer.split_whitespace().filter(|word| !word.contains("://")).map(|word| word.trim_matches(is_edge));
    let with_digits = words.filter(|word| word.chars().any(|letter| letter.is_ascii_digit()));
    let quoted = answer.split(['"', '`']).skip(1).step_by(2).filter(|text| !text.contains(char::is_whitespace));
    let is_fit = |value: &&str| (1..=64).contains(&value.len());
    let mut values: Vec<String> = with_digits.chain(quoted).filter(is_fit).map(str::to_owned).collect();
    values.sort();
    values.dedup();
    values
}

/// Finds another value of the same shape that does not occur in the run.
fn find_other_value(site: &PlantingSite<'_>, value: &str, choice: &mut SeededChoice) -> Option<String> {
    (0..12).find_map(|_| {
        let other: String = value
            .chars()
            .map(|letter| match letter {
                '0'..='9' => char::from(b'1' + u8::try_from(choice.below(9)).unwrap_or(0)),
                'a'..='f' if value.len() >= 7 => char::from(b'a' + u8::try_from(choice.below(6)).unwrap_or(0)),
                other => other,
            })
            .collect();
        let other =
            if other == value && !value.chars().any(|c| c.is_ascii_digit()) { format!("{value}-2") } else { other };
        (other != value && !occurs_anywhere(&site.run.trajectory, &other)).then_some(other)
    })
}
