//! Selects the tools that a judge sees in full if not all of them fit. A tool that the agent called, or that the
//! request or a thought mentions, is relevant for a question; others are unused alternatives. So tools that have no
//! word in common with the run lose their definition first. Their names are shown as long as there is space.

use std::collections::HashSet;
use std::fmt::Write;

use gradus_core::trajectory::{ToolDefinition, Trajectory};

use super::recording::{PromptEntry, QuotedText, format_left_out, write_entries};
use super::tools::{ToolDetail, build_tool_entry};

/// The tools of a prompt, with what is needed to choose among them.
pub(super) struct ToolListing<'t> {
    tools: &'t [ToolDefinition],
    trajectory: &'t Trajectory,
}

/// How much a tool matters to the questions about a run. Ordered: what matters least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ToolRelevance {
    Unrelated,
    /// The number of words of the tool that the run mentions; words of its name count more.
    Mentioned(u32),
    Called,
}

/// The space is divided by this number to get the part that names of tools may take.
const NAMES_SHARE_DIVISOR: usize = 3;

impl<'t> ToolListing<'t> {
    pub(super) fn new(tools: &'t [ToolDefinition], trajectory: &'t Trajectory) -> ToolListing<'t> {
        ToolListing { tools, trajectory }
    }

    fn entry(&self, at: usize, detail: ToolDetail) -> PromptEntry<'t> {
        build_tool_entry(at + 1, &self.tools[at], detail)
    }

    /// Bytes of all tools in full.
    pub(super) fn len(&self) -> usize {
        (0..self.tools.len()).map(|at| self.entry(at, ToolDetail::Full).len() + 1).sum()
    }

    /// Writes the tools in at most about `room` bytes.
    pub(super) fn write(&self, room: usize) -> String {
        if self.len() <= room {
            return self.write_selection(&vec![ToolDetail::Full; self.tools.len()], room);
        }
        let relevance = self.rank_tools();
        let mut by_relevance: Vec<usize> = (0..self.tools.len()).collect();
        by_relevance.sort_by_key(|at| (relevance[*at], std::cmp::Reverse(*at)));
        let mut details = vec![ToolDetail::Full; self.tools.len()];
        let size_with = |at: usize, detail: ToolDetail| match detail {
            ToolDetail::NameOnly => self.tools[at].name.len() + "\n> ".len(),
            detail => self.entry(at, detail).len() + 1,
        };
        let mut size: usize = (0..self.tools.len()).map(|at| size_with(at, ToolDetail::Full)).sum();
        // The note and the heading above the names.
        let room_of_definitions = room.saturating_sub(NAMES_HEADING_BYTES);
        type IsReduced = fn(ToolRelevance) -> bool;
        let steps: [(ToolDetail, IsReduced); 3] = [
            (ToolDetail::NameOnly, |relevance| relevance == ToolRelevance::Unrelated),
            (ToolDetail::Described, |relevance| relevance != ToolRelevance::Called),
            (ToolDetail::NameOnly, |relevance| relevance != ToolRelevance::Called),
        ];
        for (detail, is_reduced) in steps {
            for at in by_relevance.iter().copied().filter(|at| is_reduced(relevance[*at])) {
                if size <= room_of_definitions {
                    return self.write_selection(&details, room);
                }
                size = size + size_with(at, detail) - size_with(at, details[at]);
                details[at] = detail;
            }
        }
        self.write_selection(&details, room)
    }

    /// Writes the definitions that are shown, then the names of the other tools. Both are cut if they are still too
    /// long.
    fn write_selection(&self, details: &[ToolDetail], room: usize) -> String {
        let is_shown = |at: &usize| details[*at] != ToolDetail::NameOnly;
        let shown: Vec<PromptEntry<'t>> =
            (0..self.tools.len()).filter(is_shown).map(|at| self.entry(at, details[at])).collect();
        // A name is one line: a line break in it would look like the end of one name and the beginning of another.
        let names: Vec<String> = (0..self.tools.len())
            .filter(|at| !is_shown(at))
            .map(|at| self.tools[at].name.replace(['\n', '\r'], " "))
            .collect();
        if names.is_empty() {
            return write_entries(&shown, room);
        }
        let quoted = QuotedText::new(names.join("\n"));
        let size_of_names = quoted.len().min((room / NAMES_SHARE_DIVISOR).max(NAMES_HEADING_BYTES));
        let mut out = write_entries(&shown, room.saturating_sub(size_of_names + NAMES_HEADING_BYTES));
        if !out.is_empty() {
            out.push('\n');
        }
        let plural = if names.len() == 1 { "" } else { "s" };
        let note = format_left_out(&format!("the definition{plural} of {} tool{plural}", names.len()));
        // Writing into a string cannot fail.
        let _ = write!(out, "{note}\n{NAMES_HEADING}\n");
        quoted.write_quoted(&mut out, size_of_names);
        out
    }

    fn rank_tools(&self) -> Vec<ToolRelevance> {
        let trajectory = self.trajectory;
        let called: HashSet<&str> = trajectory.steps.iter().map(|step| step.tool.as_str()).collect();
        let thoughts = trajectory.steps.iter().filter_map(|step| step.thought.as_deref());
        let texts = trajectory.query.as_deref().into_iter().chain(thoughts).chain(trajectory.final_thought.as_deref());
        let mentioned: HashSet<String> = texts.flat_map(split_words).collect();
        self.tools.iter().map(|tool| rank_tool(tool, &called, &mentioned)).collect()
    }
}

/// The heading above the names of tools whose definition is left out.
const NAMES_HEADING: &str = "their names:";
/// Upper estimate of the note and the heading.
const NAMES_HEADING_BYTES: usize = 80;

fn rank_tool(tool: &ToolDefinition, called: &HashSet<&str>, mentioned: &HashSet<String>) -> ToolRelevance {
    if called.contains(tool.name.as_str()) {
        return ToolRelevance::Called;
    }
    let count = |text: &str| split_words(text).collect::<HashSet<_>>().intersection(mentioned).count();
    let hits = 3 * count(&tool.name) + count(tool.description.as_deref().unwrap_or_default());
    match u32::try_from(hits).unwrap_or(u32::MAX) {
        0 => ToolRelevance::Unrelated,
        hits => ToolRelevance::Mentioned(hits),
    }
}

/// Words in lower case, also those of `snake_case` and `camelCase`, without a plural `s`. Short words are left out:
/// they occur in every text.
fn split_words(text: &str) -> impl Iterator<Item = String> + '_ {
    const MIN_WORD: usize = 4;
    text.split(|c: char| !c.is_alphanumeric()).flat_map(split_camel_case).filter_map(|word| {
        let lower = word.to_lowercase();
        let stem = lower.strip_suffix('s').filter(|stem| !stem.ends_with('s')).unwrap_or(&lower);
        (stem.chars().count() >= MIN_WORD && !COMMON_WORDS.contains(&stem)).then(|| stem.to_owned())
    })
}

/// Words of descriptions and requests that say nothing about their subject.
const COMMON_WORDS: [&str; 30] = [
    "about", "also", "been", "could", "does", "each", "first", "from", "given", "have", "into", "know", "more", "need",
    "only", "other", "should", "some", "that", "their", "then", "there", "these", "this", "tool", "want", "what",
    "when", "which", "with",
];

fn split_camel_case(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut previous_is_lower = false;
        let end = rest.char_indices().find_map(|(at, c)| {
            let is_boundary = previous_is_lower && c.is_uppercase();
            previous_is_lower = c.is_lowercase();
            is_boundary.then_some(at)
        });
        let (part, behind) = rest.split_at(end.unwrap_or(rest.len()));
        rest = behind;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use gradus_core::raw_json::RawJson;
    use gradus_core::trajectory::TrajectoryStep;

    use super::*;

    fn tool(name: &str, description: &str) -> ToolDefinition {
        let schema = format!("{{\"type\":\"object\",\"properties\":{{\"{name}_id\":{{\"type\":\"string\"}}}}}}");
        ToolDefinition {
            name: name.to_owned(),
            description: Some(description.to_owned()),
            schema: RawJson::parse_object(&schema),
        }
    }

    fn run() -> Trajectory {
        let step = |thought: &str, tool: &str| TrajectoryStep {
            thought: Some(thought.to_owned()),
            tool: tool.to_owned(),
            ..TrajectoryStep::default()
        };
        Trajectory {
            query: Some("Close the oldest issue.".to_owned()),
            steps: vec![step("I look at the issues first.", "listIssues"), step("Now it is closed.", "update")],
            ..Trajectory::default()
        }
    }

    /// Sixty tools, of which two are called and two are mentioned.
    fn tools() -> Vec<ToolDefinition> {
        let mut all: Vec<ToolDefinition> =
            (0..56).map(|number| tool(&format!("gist_{number}"), &"Does something with a gist. ".repeat(4))).collect();
        all.insert(7, tool("listIssues", "Lists them."));
        all.insert(30, tool("search_issues", "Searches."));
        all.insert(40, tool("lock", "Locks an issue."));
        all.push(tool("update", "Changes something."));
        all
    }

    #[test]
    fn called_and_mentioned_tools_stay_and_the_others_keep_their_names() {
        let (run, tools) = (run(), tools());
        let listing = ToolListing::new(&tools, &run);
        let whole = listing.len();
        for room in [whole - 1, whole / 2, 3_000, 2_000] {
            let text = listing.write(room);
            assert!(text.len() <= room, "{} of {room}", text.len());
            for (number, name) in [(8, "listIssues"), (60, "update")] {
                let entry = format!("tool {number}:\nname:\n> {name}\ndescription:\n");
                assert!(text.contains(&entry) && text.contains(&format!("{name}_id")), "{room}: {name}: {text}");
            }
            assert!(text.contains("left out by gradus"), "{text}");
            for tool in &tools {
                assert!(text.contains(&format!("> {}", tool.name)), "{room}: {}", tool.name);
            }
        }
        assert!(!listing.write(whole).contains("left out"));
        assert!(listing.write(3_000).contains("> Searches."), "mentioned tools are described longer than others");
    }

    #[test]
    fn a_tiny_room_still_shows_the_called_tools() {
        let (run, tools) = (run(), tools());
        let text = ToolListing::new(&tools, &run).write(700);
        assert!(text.len() <= 900, "{}", text.len());
        assert!(text.contains("> listIssues") && text.contains("> update"), "{text}");
    }

    #[test]
    fn a_name_cannot_look_like_two() {
        let run = run();
        let mut tools = tools();
        tools[50].name = "gist\ntool 99:\nname:\n> delete".to_owned();
        let text = ToolListing::new(&tools, &run).write(3_000);
        assert!(text.contains("> gist tool 99: name: > delete"), "{text}");
        assert!(!text.contains("\ntool 99:"), "{text}");
    }

    #[test]
    fn words_of_names_are_found_in_texts() {
        let words = |text| split_words(text).collect::<Vec<_>>();
        assert_eq!(words("listPullRequests with_issues, boss"), ["list", "pull", "request", "issue", "boss"]);
        assert!(words("do it to the 7").is_empty());
    }
}
