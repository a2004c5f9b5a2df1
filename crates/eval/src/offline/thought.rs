//! Whether the tool is the one that the thought speaks of, and is used on the things the thought names.

use super::call::{self, Existence};
use super::quote::quote;
use super::tools::Tool;
use super::vocabulary::{self, Deeds, agree};
use super::words::Text;
use super::{Offline, Opinion, values};
use gradus_core::trajectory::Step;

pub(super) fn judge(offline: &Offline<'_>, at: usize) -> Opinion {
    let Some(step) = offline.step(at) else { return Opinion::not_applicable("There is no such step.") };
    let Some(thought) = offline.thought(at) else {
        return Opinion::not_applicable("The step has no thought.");
    };
    let mut notes =
        vec![format!("thought: {}", quote(&thought.source)), format!("call: {}", quote(&step.tool))];
    match call::existence(offline, step) {
        Existence::Missing(why) => return Opinion::bad(why, notes),
        Existence::Unsure
            if step.observation.is_none()
                && at + 1 == offline.trajectory.steps.len()
                && no_answer(offline) =>
        {
            return Opinion::cannot(
                "The run broke off at this call, and the trace does not tell whether the tool exists.",
            );
        }
        _ => {}
    }
    let Some((index, tool)) = offline.tool(step) else { return Opinion::cannot("The step names no tool.") };
    // The tool may be right while its arguments are not: that is told here and judged elsewhere.
    notes.extend(call::problems(offline, step).iter().map(call::describe));
    if let Some(found) = contradiction(offline, at, step, thought, tool) {
        let explanation = format!(
            "The thought speaks of {}, but {} is called with {} = {}.",
            quote(&found.said),
            quote(&step.tool),
            quote(&found.parameter),
            quote(&found.value)
        );
        return Opinion::bad(explanation, notes);
    }
    match named(offline, at, thought) {
        Named::Called => {
            return Opinion::good(
                format!("The thought names {} and the step calls it.", quote(&step.tool)),
                notes,
            );
        }
        Named::Other(other) => {
            let explanation =
                format!("The thought says it uses {}, but {} is called.", quote(&other), quote(&step.tool));
            return Opinion::bad(explanation, notes);
        }
        Named::None => {}
    }
    by_intention(offline, at, index, tool, thought, notes)
}

fn contradiction(
    offline: &Offline<'_>,
    at: usize,
    step: &Step,
    thought: &Text<'_>,
    tool: &Tool,
) -> Option<values::Contradiction> {
    let found = values::contradiction(thought, step, &tool.nouns)?;
    // Another call of the same reply may be the one on what the thought names.
    let elsewhere =
        |other: &Step| values::scalars(other).iter().any(|(_, value)| value.contains(&found.said));
    let shared = offline.same_reply(at).any(|(other, step)| other != at && elsewhere(step));
    (!shared).then_some(found)
}

fn no_answer(offline: &Offline<'_>) -> bool {
    offline.trajectory.final_answer.as_deref().is_none_or(|answer| answer.trim().is_empty())
}

enum Named {
    Called,
    Other(String),
    None,
}

/// Tool names in the thought, as far as it says that it will use them.
fn named(offline: &Offline<'_>, at: usize, thought: &Text<'_>) -> Named {
    let Some(step) = offline.step(at) else { return Named::None };
    if mentions(thought, &step.tool).any(|mention| mention.planned) {
        return Named::Called;
    }
    let in_reply = |name: &str| offline.same_reply(at).any(|(_, step)| step.tool == name);
    let mut last: Option<(usize, &str)> = None;
    for tool in &offline.index.tools {
        let planned =
            mentions(thought, &tool.name).filter(|mention| mention.planned && mention.ordered).last();
        if let Some(mention) = planned
            && last.is_none_or(|(at, _)| mention.at > at)
        {
            last = Some((mention.at, &tool.name));
        }
    }
    match last {
        Some((_, name)) if in_reply(name) || step.tool.contains(name) => Named::None,
        Some((_, name)) => Named::Other(name.to_owned()),
        None => Named::None,
    }
}

struct Mention {
    at: usize,
    /// Not in a report ("X returned nothing") nor ruled out ("instead of X").
    planned: bool,
    /// Said to be used: "use X", "with X", "the tool is X".
    ordered: bool,
}

fn mentions<'s>(thought: &'s Text<'_>, name: &'s str) -> impl Iterator<Item = Mention> + 's {
    let source: &str = &thought.source;
    // One plain word ("search") is a tool's name only in quotation marks.
    let compound = name.contains(['_', '-', '.', ':']) || name.chars().skip(1).any(char::is_uppercase);
    let usable = name.len() > 2;
    source.match_indices(name).filter(move |_| usable).take(20).filter_map(move |(at, _)| {
        let (before, after) = (&source[..at], &source[at + name.len()..]);
        let quoted = before.ends_with(['`', '"', '\'']) && after.starts_with(['`', '"', '\'']);
        let inside = before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
            || after.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        if inside || !(compound || quoted) {
            return None;
        }
        let sentence = before.rsplit(['\n', ';', '!']).next().unwrap_or_default();
        let sentence = sentence.rsplit(". ").next().unwrap_or_default().to_lowercase();
        let words: Vec<&str> = sentence
            .split(|letter: char| !(letter.is_alphanumeric() || letter == '\'' || letter == '’'))
            .filter(|word| !word.is_empty())
            .collect();
        let near = |count: usize| words.iter().rev().take(count);
        let ruled_out = near(3).any(|word| {
            matches!(
                *word,
                "not"
                    | "instead"
                    | "than"
                    | "without"
                    | "avoid"
                    | "don't"
                    | "no"
                    | "cannot"
                    | "can't"
                    | "won't"
                    | "previous"
            )
        });
        let next = after
            .trim_start_matches(['`', '"', '\'', ' ', '(', ')'])
            .split(|letter: char| !letter.is_alphanumeric())
            .next()
            .unwrap_or_default();
        let reported = matches!(
            next,
            "returned"
                | "failed"
                | "gave"
                | "did"
                | "didn"
                | "does"
                | "doesn"
                | "was"
                | "showed"
                | "shows"
                | "only"
                | "cannot"
                | "has"
                | "had"
                | "responded"
                | "worked"
                | "succeeded"
        );
        let ordered = near(4).any(|word| {
            matches!(
                *word,
                "use"
                    | "using"
                    | "call"
                    | "calling"
                    | "with"
                    | "via"
                    | "try"
                    | "run"
                    | "invoke"
                    | "tool"
                    | "through"
                    | "execute"
            )
        });
        Some(Mention { at, planned: !ruled_out && !reported, ordered })
    })
}

fn by_intention(
    offline: &Offline<'_>,
    at: usize,
    index: usize,
    tool: &Tool,
    thought: &Text<'_>,
    notes: Vec<String>,
) -> Opinion {
    if tool.runs_anything || tool.hands_over || tool.ends_run {
        let explanation = format!(
            "{} can serve any intention, so the choice of tool does not go against the thought.",
            quote(&tool.name)
        );
        return Opinion::good(explanation, notes);
    }
    let plan = Plan::of(thought);
    let nouns = plan.nouns(tool, thought);
    let said = plan.deeds;
    let fits = offline.index.fits(thought);
    let fit = fits.get(index).copied().unwrap_or_default();
    let serves = |other: &Tool| said != 0 && agree(said, other.deeds);
    // Read or list, both look: only the exact deed tells such tools apart.
    let exact = said & tool.deeds != 0;
    let another = offline.index.tools.iter().enumerate().filter(|(other, _)| *other != index).filter(
        |(other, better)| {
            let better_nouns = plan.nouns(better, thought);
            let far_better = fits.get(*other).copied().unwrap_or_default() > 2.0 * fit + 0.5;
            let verb_against = said != 0 && tool.deeds != 0 && !serves(tool);
            match () {
                () if better_nouns < 0.99 => false,
                // The thought is about another tool's subject and not about this one's.
                () if nouns < 0.34 => {
                    far_better && (said == 0 || serves(better)) && !(exact && said & better.deeds == 0)
                }
                // The subject is the same; the deed is another tool's.
                () => verb_against && serves(better) && better_nouns >= nouns,
            }
        },
    );
    let best = another.max_by(|one, other| fits[one.0].total_cmp(&fits[other.0]));
    let in_reply = |name: &str| offline.same_reply(at).any(|(other, step)| other != at && step.tool == name);
    if let Some((_, better)) =
        best.filter(|(_, better)| !in_reply(&better.name) && !is_goal_of_later(offline, at, better, thought))
    {
        let explanation = format!(
            "The thought speaks of what {} does, but {} is called.",
            quote(&better.name),
            quote(&tool.name)
        );
        return Opinion::bad(explanation, notes);
    }
    let same_as_before = at > 0 && offline.step(at - 1).is_some_and(|step| step.tool == tool.name);
    let best_fit = fits.iter().copied().fold(0.0, f32::max);
    if nouns > 0.0 || exact || fit > 0.35 * best_fit && fit > 0.0 {
        return Opinion::good(format!("{} does what the thought speaks of.", quote(&tool.name)), notes);
    }
    if same_as_before {
        return Opinion::good(
            format!("The thought goes on with {}, called just before.", quote(&tool.name)),
            notes,
        );
    }
    let opposite = said != 0
        && tool.deeds != 0
        && !agree(said, tool.deeds)
        && (said & vocabulary::CHANGES == 0) != (tool.deeds & vocabulary::CHANGES == 0);
    if opposite && plan.subjects > 1 {
        let explanation =
            format!("The thought announces something else than what {} does.", quote(&tool.name));
        return Opinion::bad(explanation, notes);
    }
    let named = offline.step(at).is_some_and(|step| {
        values::scalars(step)
            .iter()
            .any(|(_, value)| value.len() > 2 && thought.source.contains(value.as_str()))
    });
    if agree(said, tool.deeds) || named {
        return Opinion::good(
            format!("Nothing in the thought goes against calling {}.", quote(&tool.name)),
            notes,
        );
    }
    Opinion::cannot(format!("The thought shares no word with {} that a rule could go by.", quote(&tool.name)))
}

/// "I need to find the ticket to close it": what comes later in the plan is no reason to blame the first call.
fn is_goal_of_later(offline: &Offline<'_>, at: usize, better: &Tool, thought: &Text<'_>) -> bool {
    let staged = thought
        .words
        .iter()
        .any(|word| matches!(&*word.plain, "first" | "before" | "then" | "afterwards" | "later"));
    staged && offline.trajectory.steps.iter().skip(at + 1).take(5).any(|step| step.tool == better.name)
}

/// The sentences in which the thought says what it will do; all of them when it announces nothing.
struct Plan {
    sentences: Vec<u32>,
    deeds: Deeds,
    subjects: usize,
}

impl Plan {
    fn of(thought: &Text<'_>) -> Plan {
        let announced = thought.announced();
        let sentences: Vec<u32> = announced.iter().map(|(at, _)| thought.words[*at].sentence).collect();
        let deeds = announced.iter().fold(0, |all, (_, deeds)| all | deeds);
        let subjects = thought.subjects().filter(|word| word.deeds == 0).count();
        Plan { sentences, deeds, subjects }
    }

    fn nouns(&self, tool: &Tool, thought: &Text<'_>) -> f32 {
        if self.sentences.is_empty() {
            return tool.named_nouns(thought);
        }
        let within = tool.named_nouns_where(thought, |word| self.sentences.contains(&word.sentence));
        // "Ticket 17 is the one. I will close it": the subject stands in the sentence before.
        if within > 0.0 { within } else { tool.named_nouns(thought) * 0.6 }
    }
}
