//! Aligns the steps of two runs of one task for a side-by-side view: equal calls are in the same row.

use gradus_core::trajectory::TrajectoryStep;
use schemars::JsonSchema;
use serde::Serialize;

/// Maximum number of steps of each run that are aligned. Time and memory are proportional to the product of both
/// numbers.
const MAX_ALIGNED_STEPS: usize = 400;

/// Scores of a pair. Two steps without a counterpart cost more than one pair of different tools, so that a replaced
/// tool is paired with its replacement.
const SAME_CALL: i32 = 8;
const SAME_TOOL: i32 = 6;
const OTHER_TOOL: i32 = 0;
const NO_COUNTERPART: i32 = -1;

/// One row: positions in the lists of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AlignedStep {
    pub first: Option<usize>,
    pub second: Option<usize>,
    pub relation: StepRelation,
}

/// How the two steps of a row differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepRelation {
    /// The same tool with the same arguments.
    SameCall,
    OtherArguments,
    OtherTool,
    OnlyFirst,
    OnlySecond,
}

impl StepRelation {
    /// Returns the relation in words; `None` for the same call.
    pub fn describe(self) -> Option<&'static str> {
        match self {
            StepRelation::SameCall => None,
            StepRelation::OtherArguments => Some("other arguments"),
            StepRelation::OtherTool => Some("other tool"),
            StepRelation::OnlyFirst => Some("only in A"),
            StepRelation::OnlySecond => Some("only in B"),
        }
    }
}

/// Returns the alignment with the highest score (Needleman and Wunsch). Steps beyond `MAX_ALIGNED_STEPS` are paired
/// by position.
pub fn align_steps(first: &[TrajectoryStep], second: &[TrajectoryStep]) -> Vec<AlignedStep> {
    let (head, tail) = (first.len().min(MAX_ALIGNED_STEPS), second.len().min(MAX_ALIGNED_STEPS));
    let mut rows = align_bounded(&first[..head], &second[..tail]);
    for at in 0..(first.len() - head).max(second.len() - tail) {
        let (one, other) = (Some(head + at), Some(tail + at));
        rows.push(pair_steps(first, second, one.filter(|at| *at < first.len()), other.filter(|at| *at < second.len())));
    }
    rows
}

fn align_bounded(first: &[TrajectoryStep], second: &[TrajectoryStep]) -> Vec<AlignedStep> {
    let width = second.len() + 1;
    // Score of the best alignment of all steps from these positions on.
    let mut points = vec![0_i32; (first.len() + 1) * width];
    for one in (0..=first.len()).rev() {
        for other in (0..=second.len()).rev() {
            let at = one * width + other;
            points[at] = match (one < first.len(), other < second.len()) {
                (false, false) => 0,
                (true, false) => points[at + width] + NO_COUNTERPART,
                (false, true) => points[at + 1] + NO_COUNTERPART,
                (true, true) => {
                    let pair = points[at + width + 1] + score_pair(&first[one], &second[other]);
                    pair.max(points[at + width] + NO_COUNTERPART).max(points[at + 1] + NO_COUNTERPART)
                }
            };
        }
    }
    let mut rows = Vec::with_capacity(first.len().max(second.len()));
    let (mut one, mut other) = (0, 0);
    while one < first.len() || other < second.len() {
        let at = one * width + other;
        let is_pair = one < first.len()
            && other < second.len()
            && points[at] == points[at + width + 1] + score_pair(&first[one], &second[other]);
        let is_first = one < first.len() && points[at] == points[at + width] + NO_COUNTERPART;
        if is_pair {
            rows.push(pair_steps(first, second, Some(one), Some(other)));
            (one, other) = (one + 1, other + 1);
        } else if is_first {
            rows.push(pair_steps(first, second, Some(one), None));
            one += 1;
        } else {
            rows.push(pair_steps(first, second, None, Some(other)));
            other += 1;
        }
    }
    rows
}

fn score_pair(first: &TrajectoryStep, second: &TrajectoryStep) -> i32 {
    match relate_steps(first, second) {
        StepRelation::SameCall => SAME_CALL,
        StepRelation::OtherArguments => SAME_TOOL,
        _ => OTHER_TOOL,
    }
}

fn relate_steps(first: &TrajectoryStep, second: &TrajectoryStep) -> StepRelation {
    if first.tool != second.tool {
        return StepRelation::OtherTool;
    }
    // Spaces and the order of keys are no difference, if both are JSON.
    let is_same = match (&first.arguments, &second.arguments) {
        (Some(one), Some(other)) => one == other,
        _ => first.arguments_text() == second.arguments_text(),
    };
    if is_same { StepRelation::SameCall } else { StepRelation::OtherArguments }
}

fn pair_steps(
    first: &[TrajectoryStep],
    second: &[TrajectoryStep],
    one: Option<usize>,
    other: Option<usize>,
) -> AlignedStep {
    let relation = match (one, other) {
        (Some(one), Some(other)) => relate_steps(&first[one], &second[other]),
        (Some(_), None) => StepRelation::OnlyFirst,
        (None, _) => StepRelation::OnlySecond,
    };
    AlignedStep { first: one, second: other, relation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(calls: &[(&str, &str)]) -> Vec<TrajectoryStep> {
        let step = |(tool, arguments): &(&str, &str)| TrajectoryStep {
            tool: (*tool).to_owned(),
            arguments: serde_json::from_str(arguments).ok(),
            arguments_raw: Some((*arguments).to_owned()),
            ..TrajectoryStep::default()
        };
        calls.iter().map(step).collect()
    }

    fn words(rows: &[AlignedStep]) -> Vec<(Option<usize>, Option<usize>, &'static str)> {
        rows.iter().map(|row| (row.first, row.second, row.relation.describe().unwrap_or("same"))).collect()
    }

    #[test]
    fn the_same_calls_stand_in_one_row() {
        let first = steps(&[("search", r#"{"q": 1, "n": 2}"#), ("read", "{}"), ("cancel", "{}")]);
        let second = steps(&[("search", r#"{"n":2,"q":1}"#), ("ask", "{}"), ("read", r#"{"id":7}"#), ("cancel", "{}")]);
        let rows = align_steps(&first, &second);
        assert_eq!(
            words(&rows),
            [
                (Some(0), Some(0), "same"),
                (None, Some(1), "only in B"),
                (Some(1), Some(2), "other arguments"),
                (Some(2), Some(3), "same"),
            ]
        );
    }

    #[test]
    fn a_replaced_tool_stands_beside_the_one_that_it_replaced() {
        let rows = align_steps(&steps(&[("a", "{}"), ("b", "{}"), ("c", "{}")]), &steps(&[("a", "{}"), ("x", "{}")]));
        assert_eq!(
            words(&rows),
            [(Some(0), Some(0), "same"), (Some(1), Some(1), "other tool"), (Some(2), None, "only in A")]
        );
        assert_eq!(align_steps(&[], &[]), []);
        assert_eq!(words(&align_steps(&[], &steps(&[("a", "")]))), [(None, Some(0), "only in B")]);
    }

    #[test]
    fn every_step_of_long_runs_is_in_exactly_one_row() {
        let long = steps(&vec![("look", "{}"); MAX_ALIGNED_STEPS + 30]);
        let other = steps(&vec![("look", "{}"); MAX_ALIGNED_STEPS + 5]);
        let rows = align_steps(&long, &other);
        assert_eq!(rows.iter().filter_map(|row| row.first).collect::<Vec<_>>(), (0..long.len()).collect::<Vec<_>>());
        assert_eq!(rows.iter().filter_map(|row| row.second).collect::<Vec<_>>(), (0..other.len()).collect::<Vec<_>>());
    }
}
