//! Judges whether the called tool is the one that the thought announces, and whether it is used on the objects that
//! the thought names.

use super::call::{self, ToolExistence};
use super::excerpt::quote_excerpt;
use super::rule_catalog::{THOUGHT_NAMES_TOOL, THOUGHT_OTHER_OBJECT, THOUGHT_OTHER_TOOL, THOUGHT_UNKNOWN_TOOL};
use super::words::AnalyzedText;
use super::{OfflineJudge, OfflineVerdict, coding, named_objects};

/// The verdict of `thought_to_tool`. Only names decide: of the tool, and of the objects it is used on.
pub(super) fn judge_thought_to_tool(offline: &OfflineJudge<'_>, at: usize) -> OfflineVerdict {
    let Some(step) = offline.step(at) else {
        return OfflineVerdict::not_applicable("The step does not exist.");
    };
    let Some(thought) = offline.thought(at) else {
        return OfflineVerdict::not_applicable("The step has no thought.");
    };
    let evidence =
        || vec![format!("thought: {}", quote_excerpt(&thought.source)), format!("call: {}", quote_excerpt(&step.tool))];
    if let ToolExistence::Missing(why) = call::check_tool_existence(offline, at) {
        if call::request_names_tool(offline, &step.tool) {
            return OfflineVerdict::cannot_judge(call::ORDERED_TOOL);
        }
        // A coding agent describes its work, not its tools: a missing tool is a fault of the call.
        let is_named = || find_tool_mentions(thought, &step.tool).next().is_some();
        if coding::is_coding_agent(offline) && !is_named() {
            return OfflineVerdict::cannot_judge("The tool does not exist; the call validity check reports this.");
        }
        return OfflineVerdict::bad(THOUGHT_UNKNOWN_TOOL, why, evidence());
    }
    if let Some(found) = named_objects::find_thought_contradiction(offline, at, thought) {
        let explanation = format!(
            "The thought speaks of {}, but {} is called with {} = {}.",
            quote_excerpt(&found.named_instead),
            quote_excerpt(&step.tool),
            quote_excerpt(&found.parameter),
            quote_excerpt(&found.value)
        );
        return OfflineVerdict::bad(THOUGHT_OTHER_OBJECT, explanation, evidence());
    }
    match find_planned_tool(offline, at, thought) {
        PlannedTool::Called => {
            let explanation = format!("The thought names {} and the step calls it.", quote_excerpt(&step.tool));
            OfflineVerdict::good(THOUGHT_NAMES_TOOL, explanation, evidence())
        }
        // A coding agent thinks further ahead than its next call, and its tools are named like programs: `find`, `read`.
        PlannedTool::Other(other) if !coding::is_coding_agent(offline) => {
            let explanation = format!(
                "The thought says it uses {}, but {} is called.",
                quote_excerpt(&other),
                quote_excerpt(&step.tool)
            );
            OfflineVerdict::bad(THOUGHT_OTHER_TOOL, explanation, evidence())
        }
        PlannedTool::Other(_) | PlannedTool::None => {
            OfflineVerdict::cannot_judge("The thought names neither a tool nor another object.")
        }
    }
}

/// The tool that a thought says it will use.
enum PlannedTool {
    Called,
    Other(String),
    None,
}

/// Finds the tool that the thought plans to use. If it plans several, the last one counts.
fn find_planned_tool(offline: &OfflineJudge<'_>, at: usize, thought: &AnalyzedText<'_>) -> PlannedTool {
    let Some(step) = offline.step(at) else { return PlannedTool::None };
    if find_tool_mentions(thought, &step.tool).any(|mention| mention.planned) {
        return PlannedTool::Called;
    }
    let in_reply = |name: &str| offline.reply_calls(at).any(|(_, step)| step.tool == name);
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
        Some((_, name)) if in_reply(name) || step.tool.contains(name) => PlannedTool::None,
        Some((_, name)) => PlannedTool::Other(name.to_owned()),
        None => PlannedTool::None,
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

/// Finds at most 20 mentions of a name, and classifies them by the words around them.
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
        // "First find the mail, then use X": the later tool is not this call.
        let is_later =
            words.iter().any(|word| matches!(*word, "then" | "after" | "afterwards" | "later" | "once" | "next"));
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
        Some(ToolMention { at, planned: !ruled_out && !reported, ordered: ordered && !is_later })
    })
}
