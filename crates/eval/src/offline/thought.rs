//! Judges whether the called tool is the one that the thought speaks of, and whether it is used on the things that the
//! thought names.

use super::call::{self, ToolExistence};
use super::excerpt::quote_excerpt;
use super::identifiers::IdentifierShape;
use super::tools::IndexedTool;
use super::words::AnalyzedText;
use super::{OfflineJudge, OfflineVerdict, intention, values};

/// The verdict of `thought_to_tool`. Checks run from certain to uncertain: existence, contradicting values, tool names,
/// topic, and intention.
pub(super) fn judge_tool_choice(offline: &OfflineJudge<'_>, at: usize) -> OfflineVerdict {
    let Some(step) = offline.step(at) else {
        return OfflineVerdict::not_applicable("There is no such step.");
    };
    let Some(thought) = offline.thought(at) else {
        return OfflineVerdict::not_applicable("The step has no thought.");
    };
    let mut notes =
        vec![format!("thought: {}", quote_excerpt(&thought.source)), format!("call: {}", quote_excerpt(&step.tool))];
    match call::check_tool_existence(offline, at) {
        ToolExistence::Missing(why) => return OfflineVerdict::bad(why, notes),
        ToolExistence::Unsure
            if step.observation.is_none() && at + 1 == offline.trajectory.steps.len() && no_answer(offline) =>
        {
            return OfflineVerdict::cannot_judge(
                "The run broke off at this call, and the trace does not tell whether the tool exists.",
            );
        }
        _ => {}
    }
    let Some((index, tool)) = offline.find_tool(step) else {
        return OfflineVerdict::cannot_judge("The step names no tool that can be looked at.");
    };
    // The tool may be right although its arguments are not. That is noted here and judged by `call_validity`.
    notes.extend(offline.schema_violations(at).iter().map(call::describe_violation));
    if let Some(found) = find_thought_contradiction(offline, at, thought, tool) {
        let who = if thought.source.contains(&found.said) {
            "The thought speaks of"
        } else {
            "The thought names no other than the request's"
        };
        let explanation = format!(
            "{who} {}, but {} is called with {} = {}.",
            quote_excerpt(&found.said),
            quote_excerpt(&step.tool),
            quote_excerpt(&found.parameter),
            quote_excerpt(&found.value)
        );
        return OfflineVerdict::bad(explanation, notes);
    }
    match find_planned_tool(offline, at, thought) {
        NamedTool::Called => {
            return OfflineVerdict::good(
                format!("The thought names {} and the step calls it.", quote_excerpt(&step.tool)),
                notes,
            );
        }
        NamedTool::Other(other) => {
            let explanation = format!(
                "The thought says it uses {}, but {} is called.",
                quote_excerpt(&other),
                quote_excerpt(&step.tool)
            );
            return OfflineVerdict::bad(explanation, notes);
        }
        NamedTool::None => {}
    }
    if let Some(OfflineVerdict::Bad { .. }) = offline.topic_verdict(at)
        && is_strange(offline, at, thought, tool)
    {
        let explanation = format!("Nothing in the thought leads to {}.", quote_excerpt(&step.tool));
        return OfflineVerdict::bad(explanation, notes);
    }
    intention::judge_intention(offline, at, index, tool, thought, notes)
}

/// The thought is off topic, and neither the tool nor its arguments are what it is about.
fn is_strange(offline: &OfflineJudge<'_>, at: usize, thought: &AnalyzedText<'_>, tool: &IndexedTool) -> bool {
    !tool.serves_any() && tool.named_nouns(thought) == 0.0 && !intention::shares_values(offline, at, thought)
}

/// An argument that contradicts the thought or, if the thought names nothing of the kind, the request.
fn find_thought_contradiction(
    offline: &OfflineJudge<'_>,
    at: usize,
    thought: &AnalyzedText<'_>,
    tool: &IndexedTool,
) -> Option<values::ValueContradiction> {
    let query = offline.query();
    let found = values::find_value_contradiction(thought, offline.scalar_arguments(at), &tool.nouns);
    // A thought that names nothing of this kind means what the request names, unless it is off topic.
    let silent = |shape: IdentifierShape| !thought.identifiers.iter().any(|said| said.shape == shape);
    let found = found.or_else(|| {
        let found = values::find_value_contradiction(query?, offline.scalar_arguments(at), &[])?;
        let kind = found.shape.filter(|shape| {
            matches!(
                shape,
                IdentifierShape::Pair | IdentifierShape::Email | IdentifierShape::Code | IdentifierShape::Number
            )
        })?;
        let follows = || matches!(offline.topic_verdict(at), Some(OfflineVerdict::Good { .. }));
        let is_held = silent(kind)
            && !found.is_name
            && (kind != IdentifierShape::Number || found.is_doubtful)
            && !offline.seen_before(at, &found.value);
        (is_held && follows()).then_some(found)
    })?;
    // Places and people have several names, so only a name that the request itself uses is held against the call.
    let asked = query.is_some_and(|query| query.source.contains(&found.said) && !query.source.contains(&found.value));
    if found.is_name && (!asked || offline.seen_before(at, &found.value)) {
        return None;
    }
    let is_asked = || query.is_some_and(|query| query.lower.contains(&found.value.to_lowercase()));
    if found.is_doubtful && (is_asked() || offline.seen_before(at, &found.value)) {
        return None;
    }
    // Another call of the same reply may be the one that the thought means.
    let elsewhere = |other| offline.scalar_arguments(other).iter().any(|scalar| scalar.value.contains(&found.said));
    let shared = offline.same_reply(at).any(|(other, _)| other != at && elsewhere(other));
    (!shared).then_some(found)
}

/// Whether the run ended without an answer.
fn no_answer(offline: &OfflineJudge<'_>) -> bool {
    offline.trajectory.final_answer.as_deref().is_none_or(|answer| answer.trim().is_empty())
}

/// The tool that a thought says it will use.
enum NamedTool {
    Called,
    Other(String),
    None,
}

/// The tool name that the thought plans to use. If it plans several, the last one counts.
fn find_planned_tool(offline: &OfflineJudge<'_>, at: usize, thought: &AnalyzedText<'_>) -> NamedTool {
    let Some(step) = offline.step(at) else { return NamedTool::None };
    if find_tool_mentions(thought, &step.tool).any(|mention| mention.planned) {
        return NamedTool::Called;
    }
    let in_reply = |name: &str| offline.same_reply(at).any(|(_, step)| step.tool == name);
    let mut last: Option<(usize, &str)> = None;
    for tool in &offline.index.tools {
        let planned =
            find_tool_mentions(thought, &tool.name).filter(|mention| mention.planned && mention.ordered).last();
        if let Some(mention) = planned
            && last.is_none_or(|(at, _)| mention.at > at)
        {
            last = Some((mention.at, &tool.name));
        }
    }
    match last {
        Some((_, name)) if in_reply(name) || step.tool.contains(name) => NamedTool::None,
        Some((_, name)) => NamedTool::Other(name.to_owned()),
        None => NamedTool::None,
    }
}

/// A tool name in a thought. `at` is its byte offset.
struct ToolMention {
    at: usize,
    /// Not in a report ("X returned nothing") and not ruled out ("instead of X").
    planned: bool,
    /// Said to be used: "use X", "with X", "the tool is X".
    ordered: bool,
}

/// At most 20 mentions of a name, with the words around them evaluated.
fn find_tool_mentions<'s>(thought: &'s AnalyzedText<'_>, name: &'s str) -> impl Iterator<Item = ToolMention> + 's {
    let source: &str = &thought.source;
    // A single plain word ("search") is a tool name only in quotation marks.
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
        Some(ToolMention { at, planned: !ruled_out && !reported, ordered })
    })
}
