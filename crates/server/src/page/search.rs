//! Full-text search in the steps of one trajectory.

use gradus_core::trajectory::Trajectory;

use super::address::PageUrl;
use super::step::make_final_thought_step;
use gradus_report::html::text;

/// Maximum number of listed hits.
const MAX_HITS: usize = 50;

/// A hit: the first one in a thought, a call or an observation.
pub(super) struct StepSearchHit {
    pub(super) href: String,
    /// `Step 3, observation`
    pub(super) place: String,
    /// The text around the hit, split so that the template can mark the hit.
    pub(super) before: String,
    pub(super) found: String,
    pub(super) after: String,
}

/// Searches thoughts, arguments and observations, ignoring case. Returns the hits and whether there are more.
pub(super) fn search_steps(
    trajectory: &Trajectory,
    wanted: &str,
    at: impl Fn(Option<u32>) -> PageUrl,
) -> (Vec<StepSearchHit>, bool) {
    // Lowercased character by character, as the searched text is: `str::to_lowercase` depends on the context (final
    // sigma in Greek), so the two would not match.
    let low: String = wanted.chars().flat_map(char::to_lowercase).collect();
    let mut hits = Vec::new();
    let final_thought = make_final_thought_step(trajectory);
    for step in trajectory.steps.iter().chain(&final_thought) {
        let arguments = step.arguments_text();
        let parts = [
            ("thought", step.thought.as_deref()),
            ("call", arguments.as_deref()),
            ("observation", step.observation.as_deref()),
        ];
        for (part, given) in parts {
            let Some(found) = given.and_then(|given| find_first_hit(given, &low)) else { continue };
            if hits.len() == MAX_HITS {
                return (hits, true);
            }
            let given = given.unwrap_or_default();
            // 60 bytes of context on both sides, at character boundaries.
            let from = given.floor_char_boundary(found.start.saturating_sub(60));
            let to = given.ceil_char_boundary((found.end + 60).min(given.len()));
            hits.push(StepSearchHit {
                // The link keeps the search, so that the script can unfold the text that contains the hit.
                href: at(Some(step.index))
                    .with("q", Some(wanted))
                    .with_fragment(format!("step-{}-{part}", step.index))
                    .to_string(),
                place: format!("Step {}, {part}", step.index),
                before: format_hit_context(&given[from..found.start]),
                found: text::format_display_line(&given[found.clone()]),
                after: format_hit_context(&given[found.end..to]),
            });
        }
    }
    (hits, false)
}

/// Context of a hit on one line. Keeps the space next to the hit, which trimming would remove.
fn format_hit_context(given: &str) -> String {
    let space = |has: bool| if has { " " } else { "" };
    let shown = text::format_display_line(given);
    let (first, last) = (given.starts_with(char::is_whitespace), given.ends_with(char::is_whitespace));
    format!("{}{shown}{}", space(first), space(last && !shown.is_empty()))
}

/// Returns the byte range of the first hit in the original text. Lower case may have another length than the
/// original, as for `İ`, so positions are mapped back.
fn find_first_hit(given: &str, low: &str) -> Option<std::ops::Range<usize>> {
    let mut lower = String::with_capacity(given.len());
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (at, c) in given.char_indices() {
        // An entry is only needed where the lengths differ: between two entries positions advance together.
        let before = lower.len();
        lower.extend(c.to_lowercase());
        if lower.len() - before != c.len_utf8() || places.is_empty() {
            places.push((lower.len(), at + c.len_utf8()));
        }
    }
    let start = lower.find(low)?;
    let own = |place: usize| {
        let known = places.partition_point(|(low, _)| *low <= place);
        let (low_end, end) = known.checked_sub(1).map_or((0, 0), |at| places[at]);
        (end + (place - low_end)).min(given.len())
    };
    let (from, to) = (given.floor_char_boundary(own(start)), given.ceil_char_boundary(own(start + low.len())));
    Some(from..to.max(from))
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::TrajectoryStep;

    use super::super::loaded_trace;
    use super::super::trace::tests::long;
    use super::*;

    fn at(step: Option<u32>) -> PageUrl {
        loaded_trace::build_trace_url("t", None, step)
    }

    #[test]
    fn a_text_is_found_in_every_step_and_marked_where_it_stands() {
        let trajectory = long(300);
        let (hits, _) = search_steps(&trajectory, "lamp 7", at);
        let seen: Vec<_> = hits.iter().map(|hit| (hit.href.as_str(), hit.found.as_str())).collect();
        assert_eq!(seen[0], ("/traces/t?q=lamp%207#step-7-observation", "lamp 7"));
        assert_eq!(seen.len(), 11);
        let (hits, more) = search_steps(&trajectory, "i\u{307}stanbul LAMP 250", at);
        assert_eq!((hits.len(), more), (1, false));
        assert_eq!((hits[0].found.as_str(), hits[0].place.as_str()), ("İSTANBUL lamp 250", "Step 250, observation"));
        assert!(hits[0].href.starts_with("/traces/t?step=250&q="));
        assert!(hits[0].href.ends_with("#step-250-observation"));
        assert_eq!(search_steps(&trajectory, "the", at).0.len(), MAX_HITS);
        assert!(search_steps(&trajectory, "the", at).1 && search_steps(&trajectory, "nowhere", at).0.is_empty());
        for given in ["ẞ", "aİb", "ΑΣ ΟΔΟΣ", "ὈΔΥΣΣΕΎΣ"] {
            let step = TrajectoryStep { index: 1, thought: Some(format!("x {given} y")), ..TrajectoryStep::default() };
            let trajectory = Trajectory { steps: vec![step], ..Trajectory::default() };
            let (hits, _) = search_steps(&trajectory, given, at);
            assert_eq!(hits.iter().map(|hit| hit.found.as_str()).collect::<Vec<_>>(), [given]);
            for wanted in ["", "ß", "a", "b", "i", "\u{307}", "σ", "ς"] {
                let found = find_first_hit(given, wanted).unwrap_or(0..0);
                assert!(given.get(found).is_some(), "{wanted} in {given}");
            }
        }
    }
}
