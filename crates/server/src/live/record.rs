//! Converts trajectories and outcomes into the records of the store.

use std::collections::HashMap;
use std::sync::Arc;

use gradus_core::span::TraceId;
use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::report::{VerdictGroup, known_agent_cost};
use gradus_eval::scale::ScoreScale;
use gradus_llm::price::PriceTable;
use gradus_store::{FailureGroupKey, OutcomeRecord, RecordedKind, TrajectoryRecord};

use crate::record_keys::{parse_timestamp_ns, sanitize_name};

/// Maximum size of the query in lists. The whole text is in the stored JSON.
const MAX_LISTED_QUERY_BYTES: usize = 300;
/// Maximum number of distinct tools that a trajectory is indexed by.
const MAX_TOOLS: usize = 500;

/// Builds the record of a trajectory. The tools on offer are left out of the JSON: they repeat in every trajectory
/// and are read from the spans again when a model judges.
pub(super) fn build_trajectory_record(trajectory: &mut Trajectory, prices: &PriceTable) -> TrajectoryRecord {
    let offered = std::mem::replace(&mut trajectory.tools, Arc::from([]));
    let json = serde_json::to_vec(trajectory).unwrap_or_default();
    trajectory.tools = offered;
    let mut tools: Vec<String> = trajectory.steps.iter().map(|step| sanitize_name(&step.tool)).collect();
    tools.sort_unstable();
    tools.dedup();
    tools.truncate(MAX_TOOLS);
    let trace_id = trajectory.trace_ids.first().map(|id| TraceId::parse(id)).unwrap_or_default();
    let text = |value: &Option<String>| value.as_deref().map(sanitize_name).unwrap_or_default();
    let query = trajectory.query.as_deref().unwrap_or_default();
    TrajectoryRecord {
        trajectory_id: trajectory.trajectory_id.clone(),
        trace_id,
        start_ns: parse_timestamp_ns(trajectory.start.as_deref()),
        end_ns: parse_timestamp_ns(trajectory.end.as_deref()),
        agent: text(&trajectory.agent),
        version: text(&trajectory.agent_version),
        model: text(&trajectory.model),
        session: text(&trajectory.session_id),
        query: query[..query.floor_char_boundary(MAX_LISTED_QUERY_BYTES)].to_owned(),
        steps: trajectory.steps.len() as u32,
        is_error: trajectory.is_error,
        tokens: trajectory.tokens.total(),
        cost_usd: known_agent_cost(trajectory, prices),
        tools,
        json,
        words: build_search_text(trajectory),
        outcomes: Vec::new(),
        ungraded_by: None,
    }
}

/// Builds the text of a trajectory for full-text search: query, answer, thoughts, calls, and the beginning of each
/// result. It is bounded, because the index would otherwise outgrow the spans.
fn build_search_text(trajectory: &Trajectory) -> String {
    const MAX_BYTES: usize = 8_000;
    const MAX_RESULT_SEARCH_BYTES: usize = 300;
    let mut words = String::new();
    let mut add = |text: &str, most: usize| {
        let room = MAX_BYTES.saturating_sub(words.len()).min(most);
        words.push_str(&text[..text.floor_char_boundary(room)]);
        words.push('\n');
    };
    let parts = [&trajectory.query, &trajectory.final_answer, &trajectory.agent, &trajectory.session_id];
    parts.into_iter().flatten().for_each(|text| add(text, 2_000));
    for step in &trajectory.steps {
        add(&step.tool, 200);
        step.thought.iter().for_each(|text| add(text, 1_000));
        step.arguments_text().iter().for_each(|text| add(text, 500));
        step.observation.iter().for_each(|text| add(text, MAX_RESULT_SEARCH_BYTES));
    }
    words
}

/// Returns the search text of a stored trajectory, to rebuild the index. Empty if the JSON cannot be read.
pub fn rebuild_search_text(json: &[u8]) -> String {
    serde_json::from_slice::<Trajectory>(json).map(|trajectory| build_search_text(&trajectory)).unwrap_or_default()
}

/// The scale of each evaluator of a rule, to decide which verdicts count as wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct EvaluatorScales(HashMap<Arc<str>, ScoreScale>);

impl EvaluatorScales {
    pub(super) fn from_evaluators(evaluators: &[Evaluator]) -> EvaluatorScales {
        EvaluatorScales(evaluators.iter().map(|one| (Arc::clone(&one.name), one.labels.scale())).collect())
    }

    /// Whether the score is below the best. An evaluator without a scale is assumed to score from 0 to 1.
    fn is_wrong(&self, line: &OutcomeLine) -> bool {
        let scale = self.0.get(&*line.evaluator).copied().unwrap_or(ScoreScale::SHARE);
        line.outcome == OutcomeKind::Scored && line.score.is_some_and(|score| scale.is_wrong(score))
    }
}

/// Builds the record of one outcome, with the tool of its step for rollups by tool. The complete line is kept as
/// JSON.
pub(super) fn build_outcome_record(
    line: &OutcomeLine,
    tools: &HashMap<u32, String>,
    scales: &EvaluatorScales,
) -> OutcomeRecord {
    let tool = line.step_index.and_then(|index| tools.get(&index));
    let is_wrong = scales.is_wrong(line);
    OutcomeRecord {
        evaluator: line.evaluator.to_string(),
        step: line.step_index,
        kind: match line.outcome {
            OutcomeKind::Scored => RecordedKind::Scored,
            OutcomeKind::NotApplicable => RecordedKind::NotApplicable,
            OutcomeKind::Abstained => RecordedKind::Abstained,
            OutcomeKind::Failed => RecordedKind::Failed,
        },
        label: line.label.clone(),
        score: line.score,
        is_wrong,
        tool: tool.map(|tool| sanitize_name(tool)).unwrap_or_default(),
        run: line.run_id.to_string(),
        line: serde_json::to_string(line).unwrap_or_default(),
        failure_group: is_wrong.then(|| build_failure_group(tool.map(String::as_str), line)),
    }
}

/// Builds the key of a wrong outcome's failure group.
pub(super) fn build_failure_group(tool: Option<&str>, line: &OutcomeLine) -> FailureGroupKey {
    let group = VerdictGroup::with_tool(tool, line);
    FailureGroupKey {
        signature: group.signature(),
        key: group.key,
        evaluator: group.evaluator,
        tool: group.tool.unwrap_or_default(),
        rule: group.rule.unwrap_or_default(),
        label: group.label,
        reason: group.reason,
    }
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::TokenUsage;
    use gradus_eval::rubric::{Rubric, RubricOrigin};
    use gradus_llm::price::{ModelPrices, TokenPrice};

    use super::*;

    #[test]
    fn a_cost_that_the_trace_lacks_is_estimated() {
        let price = TokenPrice { input: 2.0, output: 10.0, cached_input: None };
        let mut prices = PriceTable::default();
        prices.add_prices(&ModelPrices::from([("mine".to_owned(), price)]));
        let tokens = TokenUsage { prompt: 1_000_000, completion: 100_000, cached_prompt: 0 };
        let trajectory = |model: &str| Trajectory { model: Some(model.to_owned()), tokens, ..Trajectory::default() };
        assert_eq!(build_trajectory_record(&mut trajectory("mine"), &prices).cost_usd, Some(3.0));
        assert_eq!(build_trajectory_record(&mut trajectory("model x"), &prices).cost_usd, None);
        let mut stated = Trajectory { cost_usd: Some(0.5), ..trajectory("mine") };
        assert_eq!(build_trajectory_record(&mut stated, &prices).cost_usd, Some(0.5));
    }

    #[test]
    fn what_is_below_the_best_is_wrong_on_any_scale() {
        let text = "+++\nname = \"depth\"\ntitle = \"Depth\"\nabout = \"How deep?\"\napplies_to = \"step\"\n\
                    [labels]\ndeep = 5\nfair = 3\nflat = 1\n+++\nSay deep, fair or flat.\n{thought}\n";
        let rubric = Rubric::parse(text, RubricOrigin::BuiltIn).unwrap();
        let scales = EvaluatorScales::from_evaluators(&[
            Evaluator::with_model_judge(&rubric, "m", true),
            Evaluator::call_validity(),
        ]);
        let line = |evaluator: &str, score: Option<f64>| -> OutcomeLine {
            let outcome = if score.is_some() { "scored" } else { "failed" };
            serde_json::from_value(serde_json::json!({"run_id": "r", "trajectory_id": "t", "step_index": 1,
                "evaluator": evaluator, "outcome": outcome, "label": null, "score": score, "explanation": null,
                "evidence": [], "reason": null, "judge": "m", "rubric_hash": "h", "tokens": null, "cost_usd": null,
                "cached": false, "calls": 0}))
            .unwrap()
        };
        let wrong = |evaluator: &str, score| scales.is_wrong(&line(evaluator, score));
        assert_eq!([5.0, 3.0, 1.0].map(|score| wrong("depth", Some(score))), [false, true, true]);
        assert_eq!([1.0, 0.0].map(|score| wrong("call_validity", Some(score))), [false, true]);
        assert!(!wrong("depth", None) && !wrong("unknown", Some(1.0)));
    }
}
