//! What is known of an evaluator by its name: its title, its labels, the scale of its scores, and intervals on it.

use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_eval::interval::{ClusterSums, ConfidenceInterval, of_sums};
use gradus_eval::scale::ScoreScale;
use gradus_store::ScoreMoments;

use crate::settings::ReloadableSettings;
use gradus_report::html::text;

/// An evaluator as people call it.
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

/// What a verdict is about: the evaluator, and the step if it is about one.
pub(crate) fn about_step(settings: &ReloadableSettings, evaluator: &str, step: Option<u32>) -> String {
    let title = find_evaluator_title(settings, evaluator);
    step.map_or(title.clone(), |step| format!("{title}, step {step}"))
}

/// The labels that an evaluator gives, best first, with what they are worth.
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

/// None where an evaluator is in no rubric and no rule any more.
pub(crate) fn find_evaluator_scale(settings: &ReloadableSettings, evaluator: &str) -> Option<ScoreScale> {
    ScoreScale::from_scores(find_evaluator_labels(settings, evaluator).into_iter().map(|(_, score)| score))
}

/// Whether a score is below the best that its evaluator gives.
pub(crate) fn is_wrong(settings: &ReloadableSettings, evaluator: &str, score: f64) -> bool {
    find_evaluator_scale(settings, evaluator).unwrap_or(ScoreScale::SHARE).is_wrong(score)
}

/// The interval of a mean, by the same method as that of a run's report.
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
    // A rubric may have had another scale when its verdicts were given.
    let mean = sums.sum / sums.count;
    let is_within = (worst - 1e-9..=best + 1e-9).contains(&mean);
    of_sums(&sums, worst, best).filter(|_| is_within)
}
