//! Tools of the agents: number of calls, correctness of the choice, and validity of the arguments.

use std::collections::BTreeMap;

use gradus_eval::evaluator::{CALL_VALIDITY, THOUGHT_TO_TOOL};
use gradus_eval::scale::ScoreScale;
use gradus_store::{MetricFilter, ScoreMoments, Store, StoreError};

use super::address::PageUrl;
use crate::evaluators::{find_evaluator_scale, gives_only_flags, is_wrong};
use crate::page::metric_value::{FlagShare, build_metric_result};
use crate::settings::ReloadableSettings;
use gradus_report::html::charts::{BarAxis, BarChartRow, BarFill, BarSegment, ResponsiveChart, draw_bar_chart};
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;

/// Maximum number of tools in the table and the chart.
const MAX_TOOLS: usize = 12;

/// Table and chart with the same numbers, worst tools first.
pub(super) struct ToolUsageTable {
    pub(super) rows: Vec<ToolUsageRow>,
    pub(super) chart: ResponsiveChart,
    /// Sentence about missing parts: further tools, or calls beyond the limit of the query.
    pub(super) more: Option<String>,
}

/// A tool.
pub(super) struct ToolUsageRow {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) calls: String,
    /// Scores of the evaluators `thought_to_tool` and `call_validity` on calls of this tool. None without scores.
    pub(super) choice: Option<ToolScoreCell>,
    pub(super) valid: Option<ToolScoreCell>,
    /// Calls without a score of `thought_to_tool`.
    pub(super) unjudged: String,
}

/// A mean with its 95 % interval, or a number of flags.
pub(super) struct ToolScoreCell {
    pub(super) value: String,
    pub(super) interval: Option<String>,
    /// URL of the traces with a wrong call of this tool, if there are any.
    pub(super) wrong: Option<String>,
}

/// Sums of both evaluators for one tool.
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

    /// `traces` is the URL of the list of traces with the same filter; rows narrow it to their tool.
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
        // Sorted by the lower bound of the wrong share, then by calls and name. By the mean, a tool with one bad call
        // would come first.
        all.sort_by_cached_key(|known| {
            let wrong = known.min_wrong_share(settings);
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
    /// Returns the lower bound of the share of wrong calls: the larger one of both evaluators, from the upper end of
    /// the interval of the mean, scaled to 0 to 1.
    fn min_wrong_share(&self, settings: &ReloadableSettings) -> f64 {
        let wrong = [(THOUGHT_TO_TOOL, &self.choice), (CALL_VALIDITY, &self.valid)].map(|(name, one)| {
            if gives_only_flags(settings, name) {
                let share = FlagShare::from_moments(one);
                return share
                    .map_or(0.0, |share| 1.0 - share.interval.map_or(share.unflagged, |interval| interval.high));
            }
            let known = build_metric_result(settings, name, one);
            let right = known.interval.map(|interval| interval.high).or(known.value);
            let ScoreScale { worst, best } = find_evaluator_scale(settings, name).unwrap_or(ScoreScale::SHARE);
            right.map_or(0.0, |right| ((best - right) / (best - worst)).clamp(0.0, 1.0))
        });
        wrong[0].max(wrong[1])
    }

    /// Returns the number of calls. The evaluators may have seen different numbers, since a rule need not use both.
    fn call_count(&self) -> i64 {
        [self.choice, self.valid]
            .map(|one| one.scored + one.failed + one.abstained + one.not_applicable)
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    /// Builds the row. Links lead to the traces that call this tool, narrowed to wrong verdicts for the scores.
    fn to_usage_row(&self, settings: &ReloadableSettings, traces: &PageUrl) -> ToolUsageRow {
        let calls = traces.clone().with("tool", Some(&self.name));
        let share = |evaluator: &str, one: &ScoreMoments| {
            if gives_only_flags(settings, evaluator) {
                // A share of the few decided calls would look like a share of all calls.
                let flagged = FlagShare::from_moments(one)?.flagged;
                return Some(ToolScoreCell {
                    value: if flagged == 0 {
                        "none flagged".to_owned()
                    } else {
                        format!("{} flagged", format_count(flagged))
                    },
                    interval: None,
                    wrong: (flagged > 0).then(|| calls.clone().with("wrong", Some(evaluator)).to_string()),
                });
            }
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

/// Formats a name. A name of invisible characters would give a link that cannot be clicked.
fn format_tool_name(name: &str) -> String {
    let shown = text::format_display_line(name);
    if shown.trim().is_empty() { "(blank)".to_owned() } else { shown }
}

/// Draws the chart. Bars are numbers of calls. Partial scores count as parts of a right call.
fn build_tool_chart(settings: &ReloadableSettings, tools: &[ToolScoreMoments]) -> ResponsiveChart {
    // The sum of scores, scaled so that the worst score counts 0 and the best counts 1.
    let right = |name: &str, one: &ScoreMoments| {
        let ScoreScale { worst, best } = find_evaluator_scale(settings, name).unwrap_or(ScoreScale::SHARE);
        (one.sum - worst * one.scored as f64) / (best - worst)
    };
    let rows: Vec<BarChartRow> = tools
        .iter()
        .map(|tool| {
            // The overlap of both evaluators' flags is unknown, so the larger number is used: at least that many are
            // flagged.
            let wrong = |name: &str, one: &ScoreMoments| (one.scored as f64 - right(name, one)).max(0.0);
            let flagged = wrong(THOUGHT_TO_TOOL, &tool.choice).max(wrong(CALL_VALIDITY, &tool.valid));
            let judged = tool.choice.scored.max(tool.valid.scored) as f64;
            let part = |fill, value| BarSegment { fill, value };
            BarChartRow {
                label: format_tool_name(&tool.name),
                segments: vec![
                    part(BarFill::Right, (judged - flagged).max(0.0)),
                    part(BarFill::Wrong, flagged),
                    part(BarFill::Unjudged, (tool.call_count() as f64 - judged).max(0.0)),
                ],
                below: None,
                note: format_count(u64::try_from(tool.call_count()).unwrap_or(0)),
                placeholder: None,
            }
        })
        .collect();
    let axis = BarAxis { title: "calls", whole: true, format: |value| format_count(value as u64) };
    draw_bar_chart(
        &rows,
        axis,
        "Calls of each tool: not flagged, flagged, and not judged. The table has the numbers of both evaluators.",
    )
}
