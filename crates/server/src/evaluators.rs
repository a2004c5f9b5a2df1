//! Looks up an evaluator by its name: title, labels, scale of its scores, and confidence intervals on that scale.
//! Stored verdicts may name evaluators whose rubric was removed since, so every lookup has a fallback.

use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_eval::interval::{ClusterSums, ConfidenceInterval, of_sums};
use gradus_eval::scale::ScoreScale;
use gradus_store::ScoreMoments;

use crate::settings::ReloadableSettings;
use gradus_report::html::text;

/// The title of an evaluator for people; its name if it is unknown.
pub(crate) fn find_evaluator_title(settings: &ReloadableSettings, evaluator: &str) -> String {
    let rubric = settings.library.find(evaluator).map(|rubric| rubric.title.clone());
    let live = || {
        let mut all = settings.rules.iter().flat_map(|rule| &rule.evaluators);
        all.find(|known| &*known.name == evaluator).map(|known| known.title.clone())
    };
    let own = || (evaluator == CALL_VALIDITY).then(|| "Call Validity".to_owned());
    let title = rubric.or_else(live).or_else(own).filter(|title| !title.is_empty());
    text::format_display_line(title.as_deref().unwrap_or(evaluator))
}

/// The subject of a verdict for people: the evaluator, and the step if it is about one.
pub(crate) fn about_step(settings: &ReloadableSettings, evaluator: &str, step: Option<u32>) -> String {
    let title = find_evaluator_title(settings, evaluator);
    step.map_or(title.clone(), |step| format!("{title}, step {step}"))
}

/// The labels of an evaluator with their scores, best first. Empty if the evaluator is unknown.
pub(crate) fn find_evaluator_labels(settings: &ReloadableSettings, evaluator: &str) -> Vec<(String, f64)> {
    let rubric = settings.library.find(evaluator).map(|rubric| &rubric.labels);
    let live = || {
        let mut all = settings.rules.iter().flat_map(|rule| &rule.evaluators);
        all.find(|known| &*known.name == evaluator).map(|known| &known.labels)
    };
    match rubric.or_else(live) {
        Some(labels) => labels.iter().map(|(label, score)| (label.to_owned(), score)).collect(),
        None if evaluator == CALL_VALIDITY => {
            vec![("correct".to_owned(), 1.0), ("incorrect".to_owned(), 0.0)]
        }
        None => Vec::new(),
    }
}

/// `None` if the evaluator is in no rubric and no rule any more.
pub(crate) fn find_evaluator_scale(settings: &ReloadableSettings, evaluator: &str) -> Option<ScoreScale> {
    ScoreScale::from_scores(find_evaluator_labels(settings, evaluator).into_iter().map(|(_, score)| score))
}

/// Whether a score is below the best of its evaluator. An unknown evaluator is taken to score from 0 to 1.
pub(crate) fn is_wrong(settings: &ReloadableSettings, evaluator: &str, score: f64) -> bool {
    find_evaluator_scale(settings, evaluator).unwrap_or(ScoreScale::SHARE).is_wrong(score)
}

/// The cluster-robust confidence interval of a mean score, with trajectories as clusters, by the same method as a run's
/// report. `None` if the scale is unknown or the mean lies outside of it.
pub(crate) fn compute_mean_interval(
    settings: &ReloadableSettings,
    evaluator: &str,
    moments: &ScoreMoments,
) -> Option<ConfidenceInterval> {
    let ScoreScale { worst, best } = find_evaluator_scale(settings, evaluator)?;
    let sums = ClusterSums {
        count: moments.scored as f64,
        sum: moments.sum,
        sum_sum: moments.sum_sum,
        sum_count: moments.sum_n,
        count_count: moments.n_n,
    };
    // The rubric may have had another scale when the verdicts were given; the interval would be wrong then.
    let mean = sums.sum / sums.count;
    let is_within = (worst - 1e-9..=best + 1e-9).contains(&mean);
    of_sums(&sums, worst, best).filter(|_| is_within)
}
