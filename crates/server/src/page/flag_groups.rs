//! What is flagged in a trajectory: wrong verdicts on steps, one group for each evaluator and label.

use std::collections::BTreeMap;

use gradus_report::html::{number, text};

use super::address::PageUrl;
use super::loaded_trace::STEPS_PER_PAGE;
use crate::evaluators::find_evaluator_title;
use crate::page::address::format_step_anchor;
use crate::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;

/// Maximum number of links in one group; the rest is counted. A failing trajectory can have thousands of flagged
/// steps.
const MAX_GROUP_LINKS: usize = 30;
/// Maximum number of groups. Rubrics have few labels, but stored verdicts can have any.
const MAX_FLAG_GROUPS: usize = 20;

/// Wrong verdicts of one evaluator with one label.
pub(super) struct FlagGroup {
    /// `Thought to tool: incorrect`
    pub(super) title: String,
    /// `4`, or `22–30` for steps that follow each other, with the URL of the first one.
    pub(super) steps: Vec<(String, String)>,
    /// How many steps there are.
    pub(super) count: usize,
    /// How many steps have no link.
    pub(super) more: Option<String>,
}

/// Builds the groups, in the order of their first step. `at` gives the URL of the page that contains a step.
pub(super) fn build_flag_groups(
    settings: &ReloadableSettings,
    outcomes: &[RecordedVerdict],
    at: impl Fn(Option<u32>) -> PageUrl,
) -> Vec<FlagGroup> {
    let mut groups: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
    for RecordedVerdict { line, .. } in outcomes.iter().filter(|given| given.is_wrong) {
        let Some(step) = line.step_index else { continue };
        groups.entry((&line.evaluator, line.label.as_deref().unwrap_or_default())).or_default().push(step);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    for (_, steps) in &mut groups {
        steps.sort_unstable();
        steps.dedup();
    }
    groups.sort_by_key(|(_, steps)| steps.first().copied());
    groups
        .into_iter()
        .take(MAX_FLAG_GROUPS)
        .map(|((evaluator, label), steps)| {
            let ranges = find_step_ranges(&steps);
            let more: u64 = ranges.iter().skip(MAX_GROUP_LINKS).map(|(first, last)| u64::from(last - first) + 1).sum();
            let link = |(first, last): &(u32, u32)| {
                let href = at(Some(*first)).with_fragment(format_step_anchor(Some(*first))).to_string();
                (if first == last { first.to_string() } else { format!("{first}–{last}") }, href)
            };
            FlagGroup {
                title: format!("{}: {}", find_evaluator_title(settings, evaluator), text::format_display_line(label)),
                steps: ranges.iter().take(MAX_GROUP_LINKS).map(link).collect(),
                count: steps.len(),
                more: (more > 0).then(|| number::format_count(more)),
            }
        })
        .collect()
}

/// Finds ranges of consecutive steps: first and last number. A range ends with its page, since a link leads to one
/// page.
fn find_step_ranges(steps: &[u32]) -> Vec<(u32, u32)> {
    let page = |step: u32| step.saturating_sub(1) as usize / STEPS_PER_PAGE;
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for step in steps {
        match ranges.last_mut().filter(|(first, last)| last.saturating_add(1) == *step && page(*first) == page(*step)) {
            Some((_, last)) => *last = *step,
            None => ranges.push((*step, *step)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::loaded_trace::build_trace_url;
    use crate::page::step::tests::verdict;

    #[test]
    fn steps_that_follow_each_other_are_one_link() {
        let on = |step: u32, label: &str| {
            let mut given = verdict("thought_to_tool", label, true);
            given.line.step_index = Some(step);
            given
        };
        let mut outcomes: Vec<RecordedVerdict> = (198..=203).map(|step| on(step, "incorrect")).collect();
        outcomes.extend([on(7, "incorrect"), on(3, "odd"), verdict("call_validity", "correct", false)]);
        let settings = ReloadableSettings::without_rules();
        let groups = build_flag_groups(&settings, &outcomes, |step| build_trace_url("t", None, step));
        let shown: Vec<(&str, Vec<&str>, usize)> = groups
            .iter()
            .map(|group| {
                let steps = group.steps.iter().map(|(steps, _)| steps.as_str()).collect();
                (group.title.as_str(), steps, group.count)
            })
            .collect();
        let wanted = [
            ("Thought to tool: odd", vec!["3"], 1),
            ("Thought to tool: incorrect", vec!["7", "198–200", "201–203"], 7),
        ];
        assert_eq!(shown, wanted);
        assert_eq!(groups[1].steps[2].1, "/traces/t?step=201#step-201");
    }

    #[test]
    fn what_has_no_link_is_counted() {
        assert_eq!(find_step_ranges(&[1, 2, 3, 5, 8, 9]), [(1, 3), (5, 5), (8, 9)]);
        let outcomes: Vec<RecordedVerdict> = (1..=40)
            .map(|step| {
                let mut given = verdict("thought_to_tool", "incorrect", true);
                given.line.step_index = Some(2 * step);
                given
            })
            .collect();
        let settings = ReloadableSettings::without_rules();
        let groups = build_flag_groups(&settings, &outcomes, |step| build_trace_url("t", None, step));
        assert_eq!((groups[0].steps.len(), groups[0].more.as_deref()), (MAX_GROUP_LINKS, Some("10")));
    }
}
