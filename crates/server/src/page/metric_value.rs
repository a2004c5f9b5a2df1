//! A metric out of sums.

use std::collections::BTreeMap;

use gradus_eval::report::MetricResult;
use gradus_eval::scale::ScoreScale;
use gradus_store::ScoreMoments;

use crate::evaluators::compute_mean_interval;
use crate::evaluators::{find_evaluator_scale, find_evaluator_title};
use crate::settings::ReloadableSettings;

/// A metric as reports have it.
pub(super) fn build_metric_result(
    settings: &ReloadableSettings,
    evaluator: &str,
    moments: &ScoreMoments,
) -> MetricResult {
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let value = (moments.scored > 0).then(|| moments.sum / moments.scored as f64);
    // Of a scale that is not known nothing is assumed: the same mean may be good on one and bad on another.
    let is_share = find_evaluator_scale(settings, evaluator).is_some_and(ScoreScale::is_share);
    MetricResult {
        name: evaluator.to_owned(),
        title: find_evaluator_title(settings, evaluator),
        judge: String::new(),
        value,
        interval: compute_mean_interval(settings, evaluator, moments),
        is_share,
        numerator: moments.sum,
        denominator: positive(moments.scored),
        failed: positive(moments.failed),
        not_applicable: positive(moments.not_applicable),
        labels: BTreeMap::new(),
    }
}
