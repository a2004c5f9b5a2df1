//! Which tools are called, and how often it is the right one and called as it can be.

use std::collections::BTreeMap;

use gradus_eval::evaluator::{CALL_VALIDITY, THOUGHT_TO_TOOL};
use gradus_eval::scale::ScoreScale;
use gradus_store::{MetricFilter, ScoreMoments, Store, StoreError};

use super::address::PageUrl;
use crate::evaluators::{find_evaluator_scale, is_wrong};
use crate::page::metric_value::build_metric_result;
use crate::settings::ReloadableSettings;
use gradus_report::html::charts::{BarAxis, BarFill, BarSegment, ChartBar, ResponsiveChart, draw_bar_chart};
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;

const MAX_TOOLS: usize = 12;

pub(super) struct ToolUsageTable {
    pub(super) rows: Vec<ToolUsageRow>,
    pub(super) chart: ResponsiveChart,
    /// There are more than are shown, or more than were looked at.
    pub(super) more: Option<String>,
}

pub(super) struct ToolUsageRow {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) calls: String,
    pub(super) choice: Option<ToolScoreCell>,
    pub(super) valid: Option<ToolScoreCell>,
    pub(super) unjudged: String,
}

pub(super) struct ToolScoreCell {
    pub(super) value: String,
    pub(super) interval: Option<String>,
    /// Where the traces are in which one of its calls was found wrong, if there are any.
    pub(super) wrong: Option<String>,
}

/// What is known of a tool.
#[derive(Default)]
struct ToolScoreMoments {
    name: String,
    choice: ScoreMoments,
    valid: ScoreMoments,
}

impl ToolUsageTable {
    #[cfg(test)]
    pub(super) fn empty() -> ToolUsageTable {
        ToolUsageTable {
            rows: Vec::new(),
            chart: build_tool_chart(&ReloadableSettings::without_rules(), &[]),
            more: None,
        }
    }

    /// `traces` is the list of what is looked at.
    pub(super) fn load_from_store(
        store: &Store,
        settings: &ReloadableSettings,
        filter: &MetricFilter,
        traces: &PageUrl,
    ) -> Result<ToolUsageTable, StoreError> {
        let mut by_name: BTreeMap<String, ToolScoreMoments> = BTreeMap::new();
        let mut is_cut = false;
        for evaluator in [THOUGHT_TO_TOOL, CALL_VALIDITY] {
            let filter = MetricFilter { evaluator: Some(evaluator.to_owned()), ..filter.clone() };
            let sums = store.tool_sums(&filter)?;
            is_cut |= sums.is_cut;
            for (name, moments) in sums.tools {
                let known = by_name.entry(name).or_default();
                let sum = if evaluator == CALL_VALIDITY { &mut known.valid } else { &mut known.choice };
                *sum += moments;
            }
        }
        let mut all: Vec<ToolScoreMoments> =
            by_name.into_iter().map(|(name, known)| ToolScoreMoments { name, ..known }).collect();
        // Those of which most is wrong first, as far as that is sure: one bad call says little.
        all.sort_by_cached_key(|known| {
            let wrong = known.surely_wrong(settings);
            (std::cmp::Reverse((wrong * 1e9) as u64), std::cmp::Reverse(known.call_count()), known.name.clone())
        });
        let left = all.len().saturating_sub(MAX_TOOLS) as u64;
        all.truncate(MAX_TOOLS);
        let more = match (left, is_cut) {
            (0, false) => None,
            (_, true) => Some("Incomplete: there are more tools or calls than this page reads.".to_owned()),
            (left, false) => Some(format!("And {}.", number::format_counted_noun(left, "more tool", "more tools"))),
        };
        Ok(ToolUsageTable {
            chart: build_tool_chart(settings, &all),
            rows: all.iter().map(|tool| tool.to_usage_row(settings, traces)).collect(),
            more,
        })
    }
}

impl ToolScoreMoments {
    /// The share of its calls that are the wrong choice or cannot be taken, whichever is more: the lower end of its interval.
    fn surely_wrong(&self, settings: &ReloadableSettings) -> f64 {
        let wrong = [(THOUGHT_TO_TOOL, &self.choice), (CALL_VALIDITY, &self.valid)].map(|(name, one)| {
            let known = build_metric_result(settings, name, one);
            let right = known.interval.map(|interval| interval.high).or(known.value);
            let ScoreScale { worst, best } = find_evaluator_scale(settings, name).unwrap_or(ScoreScale::SHARE);
            right.map_or(0.0, |right| ((best - right) / (best - worst)).clamp(0.0, 1.0))
        });
        wrong[0].max(wrong[1])
    }

    fn call_count(&self) -> i64 {
        [self.choice, self.valid].map(|one| one.scored + one.failed + one.not_applicable).into_iter().max().unwrap_or(0)
    }

    fn to_usage_row(&self, settings: &ReloadableSettings, traces: &PageUrl) -> ToolUsageRow {
        let calls = traces.clone().with("tool", Some(&self.name));
        let share = |evaluator: &str, one: &ScoreMoments| {
            let known = build_metric_result(settings, evaluator, one);
            let value = known.value?;
            Some(ToolScoreCell {
                value: number::format_mean(value, known.is_share),
                interval: known.interval.map(|interval| number::format_mean_interval(interval, known.is_share)),
                wrong: is_wrong(settings, evaluator, value)
                    .then(|| calls.clone().with("wrong", Some(evaluator)).to_string()),
            })
        };
        ToolUsageRow {
            name: format_tool_name(&self.name),
            href: calls.to_string(),
            calls: format_count(u64::try_from(self.call_count()).unwrap_or(0)),
            choice: share(THOUGHT_TO_TOOL, &self.choice),
            valid: share(CALL_VALIDITY, &self.valid),
            unjudged: format_count(u64::try_from(self.call_count() - self.choice.scored).unwrap_or(0)),
        }
    }
}

/// A name that is nothing to the eye cannot be pressed.
fn format_tool_name(name: &str) -> String {
    let shown = text::format_display_line(name);
    if shown.trim().is_empty() { "(blank)".to_owned() } else { shown }
}

fn build_tool_chart(settings: &ReloadableSettings, tools: &[ToolScoreMoments]) -> ResponsiveChart {
    // What a mean counts for, on whatever scale.
    let right = |name: &str, one: &ScoreMoments| {
        let ScoreScale { worst, best } = find_evaluator_scale(settings, name).unwrap_or(ScoreScale::SHARE);
        (one.sum - worst * one.scored as f64) / (best - worst)
    };
    let rows: Vec<ChartBar> = tools
        .iter()
        .map(|tool| {
            let (choice, valid) = (right(THOUGHT_TO_TOOL, &tool.choice), right(CALL_VALIDITY, &tool.valid));
            let part = |fill, value| BarSegment { fill, value };
            ChartBar {
                label: format_tool_name(&tool.name),
                parts: vec![
                    part(BarFill::Right, choice),
                    part(BarFill::Wrong, (tool.choice.scored as f64 - choice).max(0.0)),
                    part(BarFill::Unjudged, (tool.call_count() - tool.choice.scored).max(0) as f64),
                ],
                below: Some(part(BarFill::Error, (tool.valid.scored as f64 - valid).max(0.0))),
                note: format_count(u64::try_from(tool.call_count()).unwrap_or(0)),
                nothing: None,
            }
        })
        .collect();
    let axis = BarAxis { title: "calls", whole: true, format: |value| format_count(value as u64) };
    draw_bar_chart(
        &rows,
        axis,
        "Calls of each tool by tool choice; below, invalid calls. The table has the same numbers.",
    )
}
