//! A card of the overview: the score of one evaluator, and how it changed.

use gradus_eval::report::{MetricCalibration, MetricResult};
use gradus_report::html::number;
use gradus_report::html::view::metrics::MetricCard;
use gradus_store::ScoreMoments;

use super::address::PageUrl;
use super::metric_value::build_metric_result;
use crate::evaluators::is_wrong;
use crate::settings::ReloadableSettings;

/// The score of one evaluator.
pub(super) struct DimensionTrendCard {
    pub(super) card: MetricCard,
    /// Change against the preceding range; none if that has no scores.
    pub(super) trend: Option<ScoreTrend>,
    /// URL of the traces with wrong verdicts of this evaluator, if there are any.
    pub(super) wrong: Option<String>,
}

/// The class is `up` or `down` only for a change that is surely none by chance.
pub(super) struct ScoreTrend {
    pub(super) class: &'static str,
    pub(super) text: String,
}

impl DimensionTrendCard {
    /// `now` and `before` are the sums of both ranges; `calibration` is of the first.
    pub(super) fn from_moments(
        settings: &ReloadableSettings,
        evaluator: &str,
        now: &ScoreMoments,
        before: Option<&ScoreMoments>,
        calibration: Option<MetricCalibration>,
        traces: &PageUrl,
    ) -> DimensionTrendCard {
        let now = MetricResult { calibration, ..build_metric_result(settings, evaluator, now) };
        let before = before.map(|before| build_metric_result(settings, evaluator, before));
        DimensionTrendCard {
            trend: ScoreTrend::from_metrics(&now, before.as_ref()),
            wrong: (now.value.is_some_and(|mean| is_wrong(settings, evaluator, mean)))
                .then(|| traces.clone().with("wrong", Some(evaluator)).to_string()),
            card: MetricCard::from_metric(&now, false, &now.judge),
        }
    }
}

impl ScoreTrend {
    /// None if either range has no score.
    fn from_metrics(now: &MetricResult, before: Option<&MetricResult>) -> Option<ScoreTrend> {
        let (value, earlier) = (now.value?, before?.value?);
        let change = value - earlier;
        // Shares differ by percentage points, other scores by units of their scale.
        let points = |by: f64| {
            if now.is_share { format!("{:.1} points", 100.0 * by) } else { number::format_score(by) }
        };
        let (class, word) = match change {
            // Changes that the displayed digits cannot show count as none.
            change if change.abs() < if now.is_share { 0.0005 } else { 0.005 } => {
                ("same", "same as in the previous period".to_owned())
            }
            change if change > 0.0 => ("up", format!("▲ {} above the previous period", points(change))),
            change => ("down", format!("▼ {} below the previous period", points(-change))),
        };
        // Intervals that do not overlap are a conservative test of the difference.
        let is_sure = match (now.interval, before.and_then(|before| before.interval)) {
            (Some(a), Some(b)) => a.low > b.high || b.low > a.high,
            _ => false,
        };
        let unsure = if is_sure || class == "same" { "" } else { " (may be chance)" };
        Some(ScoreTrend { class: if is_sure { class } else { "same" }, text: format!("{word}{unsure}") })
    }
}
