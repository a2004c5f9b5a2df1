//! The pages of a long trajectory.

use gradus_core::trajectory::Trajectory;
use gradus_report::html::number;

use super::address::PageUrl;
use super::loaded_trace::STEPS_PER_PAGE;
use super::pagination::PaginationLinks;

/// Returns the index of the first step on the page that contains `step`; 0 for an unknown step. The thought before
/// the answer is on the last page.
pub(super) fn find_page_start(trajectory: &Trajectory, step: Option<u32>) -> usize {
    let is_final = step.is_some() && step == trajectory.final_thought_index();
    let last = || trajectory.steps.len().checked_sub(1).filter(|_| is_final);
    let at = step.and_then(|step| trajectory.steps.iter().position(|known| known.index == step)).or_else(last);
    at.unwrap_or(0) / STEPS_PER_PAGE * STEPS_PER_PAGE
}

/// Whether the page that begins with this step ends with the answer.
pub(super) fn is_last_page(trajectory: &Trajectory, first: usize) -> bool {
    first + STEPS_PER_PAGE >= trajectory.steps.len()
}

/// Builds the page links; None if all steps fit on one page. `at` gives the URL of the page that contains a step.
pub(super) fn build_step_pagination(
    trajectory: &Trajectory,
    first: usize,
    at: impl Fn(Option<u32>) -> PageUrl,
) -> Option<PaginationLinks> {
    let all = &trajectory.steps;
    if all.len() <= STEPS_PER_PAGE {
        return None;
    }
    let end = (first + STEPS_PER_PAGE).min(all.len());
    let link = |place: usize| {
        let step = all.get(place)?.index;
        Some(at(Some(step)).with_fragment(format!("step-{step}")).to_string())
    };
    let number = |place: usize| number::format_count(place as u64);
    Some(PaginationLinks {
        text: format!("Steps {} to {} of {}", number(first + 1), number(end), number(all.len())),
        earlier: first.checked_sub(STEPS_PER_PAGE).and_then(link),
        later: link(end),
    })
}
