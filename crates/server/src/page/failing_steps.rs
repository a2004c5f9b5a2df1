//! Links to failing steps, and the pages of a long trajectory.

use std::collections::HashMap;

use gradus_core::trajectory::Trajectory;
use gradus_report::html::{number, text};

use super::address::PageUrl;
use super::loaded_trace::STEPS_OF_A_PAGE;
use super::pagination::PaginationLinks;
use super::step_mentions::StepMentions;
use crate::evaluators;
use crate::page::address::format_step_anchor;
use crate::page::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;

/// A link to a step or to the verdicts on the whole trajectory.
pub(super) struct FailingStepLink {
    pub(super) href: String,
    pub(super) text: String,
}

/// Index of the first step on the page that contains `step`; 0 if there is no such step. The thought before the answer is
/// on the last page.
pub(super) fn first_shown(trajectory: &Trajectory, step: Option<u32>) -> usize {
    let is_final = step.is_some() && step == trajectory.final_thought_index();
    let last = || trajectory.steps.len().checked_sub(1).filter(|_| is_final);
    let at = step.and_then(|step| trajectory.steps.iter().position(|known| known.index == step)).or_else(last);
    at.unwrap_or(0) / STEPS_OF_A_PAGE * STEPS_OF_A_PAGE
}

/// Whether the page that begins with this step ends with the answer.
pub(super) fn is_last_page(trajectory: &Trajectory, first: usize) -> bool {
    first + STEPS_OF_A_PAGE >= trajectory.steps.len()
}

/// None if all steps fit on one page. `at` gives the URL of the page that contains a step.
pub(super) fn build_step_pagination(
    trajectory: &Trajectory,
    first: usize,
    at: impl Fn(Option<u32>) -> PageUrl,
) -> Option<PaginationLinks> {
    let all = &trajectory.steps;
    if all.len() <= STEPS_OF_A_PAGE {
        return None;
    }
    let end = (first + STEPS_OF_A_PAGE).min(all.len());
    let link = |place: usize| {
        let step = all.get(place)?.index;
        Some(at(Some(step)).with_fragment(format!("step-{step}")).to_string())
    };
    let number = |place: usize| number::format_count(place as u64);
    Some(PaginationLinks {
        text: format!("Steps {} to {} of {}", number(first + 1), number(end), number(all.len())),
        earlier: first.checked_sub(STEPS_OF_A_PAGE).and_then(link),
        later: link(end),
    })
}

/// Links to wrong verdicts on any page of the trajectory, and the number of those that are left out.
pub(super) fn build_failing_links(
    settings: &ReloadableSettings,
    outcomes: &[RecordedVerdict],
    mentions: &StepMentions,
    at: impl Fn(Option<u32>) -> PageUrl,
) -> (Vec<FailingStepLink>, Option<String>) {
    let mut titles: HashMap<&str, String> = HashMap::new();
    let (mut failing, mut more) = (Vec::new(), 0_u64);
    for RecordedVerdict { line, .. } in outcomes.iter().filter(|given| given.is_wrong) {
        let title = titles
            .entry(&line.evaluator)
            .or_insert_with(|| evaluators::find_evaluator_title(settings, &line.evaluator));
        if failing.len() == MAX_CHIPS {
            more += 1;
            continue;
        }
        let step = line.step_index;
        let what = step.map_or_else(|| "Whole".to_owned(), |step| format!("Step {step}"));
        let label = line.label.as_deref().map(text::format_display_line).unwrap_or_default();
        failing.push(FailingStepLink {
            href: at(step).with_fragment(format_step_anchor(step)).to_string(),
            text: format!("{what} · {title}: {label}"),
        });
        // A verdict on the whole trajectory usually blames steps in its explanation, so those are linked as well.
        for named in mentions.only_by(title).filter(|_| step.is_none()) {
            failing.push(FailingStepLink {
                href: at(Some(named)).with_fragment(format_step_anchor(Some(named))).to_string(),
                text: format!("Step {named} · named by {title}"),
            });
        }
    }
    (failing, (more > 0).then(|| number::format_count(more)))
}

/// Links to wrong verdicts before the rest is only counted. A failing trajectory can have thousands.
pub(super) const MAX_CHIPS: usize = 50;
