//! The outline beside the steps of a trajectory: a line for each step of the page, and a link to each other page.

use std::collections::BTreeSet;

use gradus_core::trajectory::Trajectory;
use gradus_report::html::{number, text};

use super::address::PageUrl;
use super::loaded_trace::STEPS_PER_PAGE;
use super::step::StepView;
use crate::page::address::format_step_anchor;
use crate::recorded_verdict::RecordedVerdict;

/// Lines of the outline in order.
pub(super) enum OutlineEntry {
    Step(OutlineStep),
    Page(OutlinePage),
}

/// A step of this page.
pub(super) struct OutlineStep {
    pub(super) number: u32,
    pub(super) title: String,
    /// `fail`, `error`, `named` or `none`: the CSS class.
    pub(super) class: &'static str,
    /// The state in words, for readers who do not see the colour. Empty for an ordinary step.
    pub(super) state: &'static str,
    pub(super) is_parallel: bool,
    /// Called in the same model reply as the step before.
    pub(super) continues_group: bool,
    pub(super) took: Option<String>,
}

/// The steps of another page.
pub(super) struct OutlinePage {
    pub(super) href: String,
    /// `Steps 201 to 400`
    pub(super) title: String,
    /// How many of them are flagged.
    pub(super) flagged: Option<String>,
}

/// Builds the outline. `first` is the position of the first step of this page. `at` gives the URL of the page that
/// contains a step.
pub(super) fn build_outline(
    trajectory: &Trajectory,
    outcomes: &[RecordedVerdict],
    shown: &[StepView],
    first: usize,
    at: impl Fn(Option<u32>) -> PageUrl,
) -> Vec<OutlineEntry> {
    let wrong = outcomes.iter().filter(|given| given.is_wrong).filter_map(|given| given.line.step_index);
    let wrong: BTreeSet<u32> = wrong.collect();
    let mut entries = Vec::new();
    for (page, steps) in trajectory.steps.chunks(STEPS_PER_PAGE).enumerate() {
        if page * STEPS_PER_PAGE == first {
            entries.extend(shown.iter().map(|step| OutlineEntry::Step(OutlineStep::from_view(step))));
            continue;
        }
        let (Some(begin), Some(end)) = (steps.first(), steps.last()) else { continue };
        let flagged = wrong.range(begin.index..=end.index.max(begin.index)).count() as u64;
        let number = |index: u32| number::format_count(u64::from(index));
        entries.push(OutlineEntry::Page(OutlinePage {
            href: at(Some(begin.index)).with_fragment(format_step_anchor(Some(begin.index))).to_string(),
            title: format!("Steps {} to {}", number(begin.index), number(end.index)),
            flagged: (flagged > 0).then(|| number::format_count(flagged)),
        }));
    }
    entries
}

impl OutlineStep {
    fn from_view(step: &StepView) -> OutlineStep {
        let (class, state) = match step.state.class {
            "none" if !step.named_by.is_empty() => ("named", "mentioned by a flagged verdict"),
            "none" => ("none", ""),
            class => (class, step.state.text),
        };
        OutlineStep {
            number: step.number,
            title: if step.is_final_thought { "Thought".to_owned() } else { text::format_display_line(&step.tool) },
            class,
            state,
            is_parallel: step.is_parallel,
            continues_group: step.continues_group,
            took: step.facts.first().filter(|_| step.bar.is_some()).cloned(),
        }
    }
}
