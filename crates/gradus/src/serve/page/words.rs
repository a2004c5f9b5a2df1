//! Times, lengths and sizes as pages show them.

use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_eval::interval::{Interval, Sums, of_sums};
use gradus_eval::scale::Scale;
use gradus_store::Moments;

use crate::output::html::number::count;
use crate::output::html::text;
use crate::serve::live::GradingRule;
use crate::serve::settings::Reloadable;

/// Between a number and its unit: no line ends there.
const SPACE: char = '\u{a0}';

/// `2026-11-15 14:02:11`
pub(super) fn second(ns: i64) -> String {
    let Ok(time) = jiff::Timestamp::from_nanosecond(i128::from(ns)) else { return String::new() };
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// How long something took.
pub(super) fn duration(ns: i64) -> String {
    let seconds = ns.max(0) as f64 / 1e9;
    if seconds < 0.001 {
        format!("{:.0}{SPACE}µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.0}{SPACE}ms", seconds * 1e3)
    } else if seconds < 100.0 {
        format!("{seconds:.1}{SPACE}s")
    } else if seconds < 7200.0 {
        format!("{:.0}{SPACE}min", seconds / 60.0)
    } else {
        format!("{:.1}{SPACE}h", seconds / 3600.0)
    }
}

/// `1.2 MB`
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes}{SPACE}bytes"),
        1_000..1_000_000 => format!("{:.1}{SPACE}KB", bytes as f64 / 1e3),
        _ => format!("{:.1}{SPACE}MB", bytes as f64 / 1e6),
    }
}

pub(super) fn whole(number: i64) -> String {
    count(u64::try_from(number).unwrap_or(0))
}

/// An evaluator as people call it.
pub(super) fn title(settings: &Reloadable, evaluator: &str) -> String {
    let rubric = settings.library.find(evaluator).map(|rubric| rubric.title.clone());
    let live = || {
        let mut all = settings.rules.iter().flat_map(|rule| &rule.evaluators);
        all.find(|known| &*known.name == evaluator).map(|known| known.title.clone())
    };
    let own = || (evaluator == CALL_VALIDITY).then(|| "Call Validity".to_owned());
    let title = rubric.or_else(live).or_else(own).filter(|title| !title.is_empty());
    text::line(title.as_deref().unwrap_or(evaluator))
}

/// A rule of live grading, as it is shown.
pub(super) struct LiveRule {
    pub(super) name: String,
    pub(super) project: String,
    pub(super) judge: String,
    pub(super) evaluators: String,
}

impl LiveRule {
    pub(super) fn of(rule: &GradingRule) -> LiveRule {
        LiveRule {
            name: text::line(&rule.name),
            project: text::line(rule.project_pattern()),
            judge: rule.judge.as_ref().map_or_else(|| "rules".to_owned(), |judge| text::line(&judge.name())),
            evaluators: joined(rule.evaluators.iter().map(|one| one.title.as_str())),
        }
    }
}

/// Names on one line.
pub(super) fn joined<'t>(names: impl Iterator<Item = &'t str>) -> String {
    text::line(&names.collect::<Vec<_>>().join(", "))
}

/// What a verdict is about: the evaluator, and the step if it is about one.
pub(super) fn about_step(settings: &Reloadable, evaluator: &str, step: Option<u32>) -> String {
    let title = title(settings, evaluator);
    step.map_or(title.clone(), |step| format!("{title}, step {step}"))
}

/// The labels that an evaluator gives, best first, with what they are worth.
pub(super) fn labels(settings: &Reloadable, evaluator: &str) -> Vec<(String, f64)> {
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
pub(super) fn scale(settings: &Reloadable, evaluator: &str) -> Option<Scale> {
    Scale::of(labels(settings, evaluator).into_iter().map(|(_, score)| score))
}

/// Whether a score is below the best that its evaluator gives.
pub(super) fn is_wrong(settings: &Reloadable, evaluator: &str, score: f64) -> bool {
    scale(settings, evaluator).unwrap_or(Scale::SHARE).is_wrong(score)
}

/// The interval of a mean, by the same method as that of a run's report.
pub(in crate::serve) fn interval(
    settings: &Reloadable,
    evaluator: &str,
    moments: &Moments,
) -> Option<Interval> {
    let Scale { worst, best } = scale(settings, evaluator)?;
    let sums = Sums {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_sizes_read_well() {
        let shown = [0, 850, 12_000_000, 1_500_000_000, 250_000_000_000, 9_000_000_000_000].map(duration);
        let wanted = ["0 µs", "1 µs", "12 ms", "1.5 s", "4 min", "2.5 h"];
        assert_eq!(shown.map(|text| text.replace(SPACE, " ")), wanted);
        assert_eq!(size(999).replace(SPACE, " "), "999 bytes");
        assert_eq!(size(1_234_567).replace(SPACE, " "), "1.2 MB");
        assert_eq!(second(1_794_000_000_000_000_000), "2026-11-06 21:20:00");
    }
}
