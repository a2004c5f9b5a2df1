//! Looks up an evaluator by its name: title, labels, scale of its scores, and confidence intervals on that scale.
//! Stored verdicts may name evaluators whose rubric was removed since, so every lookup has a fallback.

use gradus_eval::evaluator::{Evaluator, GAVE_UP, OFFLINE_JUDGE, OUTCOME, RULES_JUDGE};
use gradus_eval::evaluator_selection::find_rule_evaluator;
use gradus_eval::scale::ScoreScale;
use gradus_stats::interval::{ClusterSums, ConfidenceInterval, clustered_interval_from_sums};
use gradus_store::ScoreMoments;

use crate::grading_rule::is_flagging_evaluator;
use crate::settings::ReloadableSettings;
use gradus_report::html::text;

/// Returns the displayed title of an evaluator; its name if it is unknown.
pub(crate) fn find_evaluator_title(settings: &ReloadableSettings, evaluator: &str) -> String {
    let rubric = settings.library.find(evaluator).map(|rubric| rubric.title.clone());
    let live = || {
        let mut all = settings.rules.iter().flat_map(|rule| &rule.evaluators);
        all.find(|known| &*known.name == evaluator).map(|known| known.title.clone())
    };
    let own = || find_rule_evaluator(evaluator).map(|known| known.title);
    let title = rubric.or_else(live).or_else(own).filter(|title| !title.is_empty());
    text::format_display_line(title.as_deref().unwrap_or(evaluator))
}

/// Formats the subject of a verdict: the evaluator, and the step if it is about one.
pub(crate) fn format_verdict_subject(settings: &ReloadableSettings, evaluator: &str, step: Option<u32>) -> String {
    let title = find_evaluator_title(settings, evaluator);
    step.map_or(title.clone(), |step| format!("{title}, step {step}"))
}

/// Returns the labels of an evaluator with their scores, best first. Empty if the evaluator is unknown.
pub(crate) fn find_evaluator_labels(settings: &ReloadableSettings, evaluator: &str) -> Vec<(String, f64)> {
    let rubric = settings.library.find(evaluator).map(|rubric| &rubric.labels);
    let live = || {
        let mut all = settings.rules.iter().flat_map(|rule| &rule.evaluators);
        all.find(|known| &*known.name == evaluator).map(|known| &known.labels)
    };
    let rules = || find_rule_evaluator(evaluator).map(|known| known.labels);
    let labels = rubric.or_else(live).cloned().or_else(rules);
    let scores = labels.iter().flat_map(gradus_eval::rubric::RubricLabels::iter);
    scores.map(|(label, score)| (label.to_owned(), score)).collect()
}

/// Returns the labels that a person can give to a verdict: those of the evaluator with their scores, best first, and
/// those without a score. Empty if the evaluator is unknown.
pub(crate) fn find_answer_labels(settings: &ReloadableSettings, evaluator: &str) -> Vec<(String, Option<f64>)> {
    let scored = find_evaluator_labels(settings, evaluator).into_iter().map(|(label, score)| (label, Some(score)));
    // A rubric of the same name has its own labels.
    let has_unscored = evaluator == OUTCOME && settings.library.find(OUTCOME).is_none();
    scored.chain(has_unscored.then(|| (GAVE_UP.to_owned(), None))).collect()
}

/// Returns the evaluator, if every grading rule that has it answers it by rules and not by a model. Stored verdicts
/// may be of an earlier configuration.
pub(crate) fn find_rules_evaluator<'s>(settings: &'s ReloadableSettings, evaluator: &str) -> Option<&'s Evaluator> {
    let mut all = settings.rules.iter().flat_map(|rule| &rule.evaluators).filter(|known| &*known.name == evaluator);
    let first = all.next()?;
    let is_by_rules = |known: &Evaluator| matches!(&*known.judge, OFFLINE_JUDGE | RULES_JUDGE);
    (is_by_rules(first) && all.all(is_by_rules)).then_some(first)
}

/// Whether the evaluator is answered by rules that notice mistakes and confirm nothing.
pub(crate) fn gives_only_flags(settings: &ReloadableSettings, evaluator: &str) -> bool {
    find_rules_evaluator(settings, evaluator).is_some_and(is_flagging_evaluator)
}

/// Returns the scale of an evaluator; `None` if no rubric and no rule has it any more.
pub(crate) fn find_evaluator_scale(settings: &ReloadableSettings, evaluator: &str) -> Option<ScoreScale> {
    ScoreScale::from_scores(find_evaluator_labels(settings, evaluator).into_iter().map(|(_, score)| score))
}

/// Whether a score is below the best of its evaluator. An unknown evaluator is taken to score from 0 to 1.
pub(crate) fn is_wrong(settings: &ReloadableSettings, evaluator: &str, score: f64) -> bool {
    find_evaluator_scale(settings, evaluator).unwrap_or(ScoreScale::SHARE).is_wrong(score)
}

/// Computes the cluster-robust confidence interval of a mean score, with trajectories as clusters, by the same method
/// as a run's report. `None` if the scale is unknown or the mean lies outside of it.
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
    clustered_interval_from_sums(&sums, worst, best).filter(|_| is_within)
}
