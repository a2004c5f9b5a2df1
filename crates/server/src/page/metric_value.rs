//! Converts rollups into the metrics of reports.

use std::collections::BTreeMap;

use gradus_eval::report::MetricResult;
use gradus_eval::rubric::RubricSubject;
use gradus_eval::scale::ScoreScale;
use gradus_stats::interval::{ConfidenceInterval, hit_share_interval};
use gradus_store::ScoreMoments;

use crate::evaluators::compute_mean_interval;
use crate::evaluators::{find_evaluator_scale, find_evaluator_title, find_rules_evaluator};
use crate::settings::ReloadableSettings;

/// Builds a metric from the sums of a rollup. The interval is the cluster-robust one, computed from the stored
/// moments, so single scores are not needed. Rollups contain neither judge nor labels: `labels` is empty, and `judge`
/// is set only if all grading rules answer the evaluator by rules.
pub(super) fn build_metric_result(
    settings: &ReloadableSettings,
    evaluator: &str,
    moments: &ScoreMoments,
) -> MetricResult {
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let value = (moments.scored > 0).then(|| moments.sum / moments.scored as f64);
    // An unknown scale is not assumed to be a share: the same mean may be good on one scale and bad on another.
    let is_share = find_evaluator_scale(settings, evaluator).is_some_and(ScoreScale::is_share);
    let by_rules = find_rules_evaluator(settings, evaluator);
    MetricResult {
        name: evaluator.to_owned(),
        title: find_evaluator_title(settings, evaluator),
        judge: by_rules.map(|known| known.judge.to_string()).unwrap_or_default(),
        of_steps: by_rules.is_some_and(|known| known.subject == RubricSubject::Step),
        value,
        interval: compute_mean_interval(settings, evaluator, moments),
        is_share,
        numerator: moments.sum,
        denominator: positive(moments.scored),
        failed: positive(moments.failed),
        abstained: positive(moments.abstained),
        not_applicable: positive(moments.not_applicable),
        labels: BTreeMap::new(),
        calibration: None,
    }
}

/// The share of flags of rules that only notice mistakes. A mean of their scores would only describe the few cases
/// that they decided.
pub(super) struct FlagShare {
    pub(super) flagged: u64,
    /// Of all questions that were asked, the share without a flag.
    pub(super) unflagged: f64,
    pub(super) interval: Option<ConfidenceInterval>,
}

impl FlagShare {
    /// Computes the share; None if nothing was asked.
    pub(super) fn from_moments(moments: &ScoreMoments) -> Option<FlagShare> {
        let asked = u64::try_from(moments.scored + moments.abstained).ok().filter(|asked| *asked > 0)?;
        let flagged = (moments.scored as f64 - moments.sum).round().max(0.0) as u64;
        let unflagged = asked.saturating_sub(flagged) as f64 / asked as f64;
        // Steps of one run are not independent. As if each run were one observation, the interval is rather too wide.
        let runs = u64::try_from(moments.trajectories).unwrap_or(0);
        let interval = hit_share_interval((unflagged * runs as f64).round() as u64, runs);
        Some(FlagShare { flagged, unflagged, interval })
    }
}
