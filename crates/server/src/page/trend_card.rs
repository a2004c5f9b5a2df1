//! A card of the overview: the score of one evaluator, and how it changed.

use gradus_eval::report::{MetricCalibration, MetricResult};
use gradus_report::html::number;
use gradus_report::html::view::metrics::MetricCard;
use gradus_stats::interval::ConfidenceInterval;
use gradus_store::ScoreMoments;

use super::address::PageUrl;
use super::metric_value::{FlagShare, build_metric_result};
use crate::evaluators::{gives_only_flags, is_wrong};
use crate::settings::ReloadableSettings;

/// The score of one evaluator.
pub(super) struct DimensionTrendCard {
    pub(super) card: MetricCard,
    /// Change against the preceding range; none if that has no scores.
    pub(super) trend: Option<ScoreTrend>,
    /// URL of the traces with wrong verdicts of this evaluator, if there are any.
    pub(super) wrong: Option<String>,
}

/// The class is `up` or `down` only for a statistically significant change.
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
        let result = MetricResult { calibration, ..build_metric_result(settings, evaluator, now) };
        let trend = before.and_then(|before| match gives_only_flags(settings, evaluator) {
            true => ScoreTrend::from_flags(&FlagShare::from_moments(now)?, &FlagShare::from_moments(before)?),
            false => ScoreTrend::from_metrics(&result, &build_metric_result(settings, evaluator, before)),
        });
        DimensionTrendCard {
            trend,
            wrong: (result.value.is_some_and(|mean| is_wrong(settings, evaluator, mean)))
                .then(|| traces.clone().with("wrong", Some(evaluator)).to_string()),
            card: MetricCard::from_metric(&result, false, &result.judge),
        }
    }
}

impl ScoreTrend {
    /// None if either range has no score.
    fn from_metrics(now: &MetricResult, before: &MetricResult) -> Option<ScoreTrend> {
        let (value, earlier) = (now.value?, before.value?);
        // Shares differ by percentage points, other scores by units of their scale.
        let by = |change: f64| {
            if now.is_share { format_points(change) } else { number::format_score(change) }
        };
        let than = number::format_mean(earlier, now.is_share);
        let words = match value - earlier {
            // Changes that the displayed digits cannot show count as no change.
            change if change.abs() < if now.is_share { MIN_CHANGE } else { 0.005 } => None,
            change if change > 0.0 => Some(("up", format!("▲ {} above the {than} of the previous period", by(change)))),
            change => Some(("down", format!("▼ {} below the {than} of the previous period", by(-change)))),
        };
        let is_sure = are_disjoint(now.interval, before.interval);
        Some(ScoreTrend::new(words, "same as in the previous period", is_sure))
    }

    /// The change in how often rules that only notice mistakes flag something; more often is worse.
    fn from_flags(now: &FlagShare, before: &FlagShare) -> Option<ScoreTrend> {
        let than = number::format_percent(1.0 - before.unflagged);
        let words = match before.unflagged - now.unflagged {
            change if change.abs() < MIN_CHANGE => None,
            change if change > 0.0 => Some((
                "down",
                format!("▲ flagged {} more often than in the previous period ({than})", format_points(change)),
            )),
            change => Some((
                "up",
                format!("▼ flagged {} less often than in the previous period ({than})", format_points(-change)),
            )),
        };
        let is_sure = are_disjoint(now.interval, before.interval);
        Some(ScoreTrend::new(words, "flagged as often as in the previous period", is_sure))
    }

    /// `words` are class and text of a change.
    fn new(words: Option<(&'static str, String)>, same: &str, is_sure: bool) -> ScoreTrend {
        match words {
            None => ScoreTrend { class: "same", text: same.to_owned() },
            Some((class, text)) if is_sure => ScoreTrend { class, text },
            Some((_, text)) => ScoreTrend { class: "same", text: format!("{text} (may be chance)") },
        }
    }
}

/// Minimum change of a share. Smaller differences are shown as equal.
const MIN_CHANGE: f64 = 0.0005;

fn format_points(change: f64) -> String {
    format!("{:.1} percentage points", 100.0 * change)
}

/// Whether two intervals do not overlap, which is a conservative test of the difference.
fn are_disjoint(one: Option<ConfidenceInterval>, other: Option<ConfidenceInterval>) -> bool {
    one.zip(other).is_some_and(|(a, b)| a.low > b.high || b.low > a.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_says_what_differs() {
        let share = |flagged: i64| {
            let asked = ScoreMoments {
                trajectories: 100,
                scored: flagged,
                abstained: 100 - flagged,
                ..ScoreMoments::default()
            };
            FlagShare::from_moments(&asked).unwrap()
        };
        let trend =
            |now, before| ScoreTrend::from_flags(&share(now), &share(before)).map(|one| (one.class, one.text)).unwrap();
        let more = "▲ flagged 50.0 percentage points more often than in the previous period (3.0\u{a0}%)";
        assert_eq!(trend(53, 3), ("down", more.to_owned()));
        assert_eq!(trend(3, 3), ("same", "flagged as often as in the previous period".to_owned()));
        let of = |value| MetricResult { value: Some(value), is_share: true, ..MetricResult::default() };
        let below = "▼ 43.1 percentage points below the 90.0\u{a0}% of the previous period (may be chance)";
        assert_eq!(ScoreTrend::from_metrics(&of(0.469), &of(0.9)).map(|one| one.text), Some(below.to_owned()));
    }
}
