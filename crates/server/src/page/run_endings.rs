//! How runs ended, by the labels of the evaluator `outcome`: the first section of the overview.

use gradus_eval::evaluator::OUTCOME;
use gradus_report::html::number::{self, format_count};
use gradus_store::{LatestOverview, RunEndingRow};

use super::address::PageUrl;
use super::run_outcome::format_outcome_label;

/// Units of the width of the bar.
const BAR_WIDTH: f64 = 1_000.0;

/// The endings of the latest runs, as a bar and as links.
pub(super) struct RunEndings {
    pub(super) all: Vec<RunEndingView>,
    /// The base of the shares, and what the score of the evaluator leaves out.
    pub(super) about: String,
}

/// Runs that ended in the same way.
pub(super) struct RunEndingView {
    pub(super) label: String,
    pub(super) count: String,
    pub(super) share: String,
    /// `right`, `wrong` or `plain`: a label without a score is neither good nor bad.
    pub(super) class: &'static str,
    /// Position and width in the bar.
    pub(super) x: String,
    pub(super) width: String,
    /// URL of the traces that ended so.
    pub(super) href: String,
}

impl RunEndings {
    /// Builds the endings; `None` if the evaluator judged no run. `traces` is the URL of the list with the filter of
    /// the page.
    pub(super) fn new(latest: &LatestOverview, traces: &PageUrl) -> Option<RunEndings> {
        let judged: u64 = latest.endings.iter().map(|one| one.trajectories).sum();
        if judged == 0 {
            return None;
        }
        let mut x = 0.0;
        let view = |row: &RunEndingRow| {
            let width = BAR_WIDTH * row.trajectories as f64 / judged as f64;
            let begins = x;
            x += width;
            RunEndingView {
                label: format_outcome_label(&row.label),
                count: format_count(row.trajectories),
                share: number::format_percent(row.trajectories as f64 / judged as f64),
                class: match (row.is_wrong, row.is_scored) {
                    (true, _) => "wrong",
                    (false, true) => "right",
                    (false, false) => "plain",
                },
                x: format!("{begins:.1}"),
                width: format!("{width:.1}"),
                href: traces.clone().with("label", Some(&format!("{OUTCOME}={}", row.label))).to_string(),
            }
        };
        // Wrong endings are grouped at the end.
        let mut rows: Vec<&RunEndingRow> = latest.endings.iter().collect();
        rows.sort_by_key(|row| row.is_wrong);
        let runs = format_count(judged);
        let scored: u64 = latest.endings.iter().filter(|one| one.is_scored).map(|one| one.trajectories).sum();
        let of = if latest.is_cut { format!("the latest {runs}") } else { runs };
        let unscored: Vec<String> = (latest.endings.iter().filter(|one| !one.is_scored))
            .map(|one| format!("{} {}", format_count(one.trajectories), format_outcome_label(&one.label)))
            .collect();
        let without = match unscored.is_empty() {
            true => String::new(),
            false => {
                format!(
                    " The score of the evaluator is of the other {}: {} have no score.",
                    format_count(scored),
                    unscored.join(", ")
                )
            }
        };
        Some(RunEndings {
            all: rows.into_iter().map(view).collect(),
            about: format!("Of {of} runs that were judged for it, by the labels of the evaluator {OUTCOME}.{without}"),
        })
    }
}

impl RunEndings {
    /// Builds the endings from recorded errors, where no rule asks the evaluator. `None` without an error, since
    /// other endings are unknown.
    pub(super) fn from_recorded_errors(errors: u64, runs: u64, traces: &PageUrl) -> Option<RunEndings> {
        let rest = runs.checked_sub(errors).filter(|_| errors > 0)?;
        let share = |count: u64| count as f64 / runs.max(1) as f64;
        let view = |(label, count, class, from, error): (&str, u64, &'static str, u64, &str)| RunEndingView {
            label: label.to_owned(),
            count: format_count(count),
            share: number::format_percent(share(count)),
            class,
            x: format!("{:.1}", BAR_WIDTH * share(from)),
            width: format!("{:.1}", BAR_WIDTH * share(count)),
            href: traces.clone().with("error", Some(error)).to_string(),
        };
        let all =
            [("without an error", rest, "plain", 0, "false"), ("ended in an error", errors, "wrong", rest, "true")];
        Some(RunEndings {
            all: all.into_iter().filter(|one| one.1 > 0).map(view).collect(),
            about: format!(
                "Of {} runs, by what they recorded: no rule of this server asks the evaluator {OUTCOME}, which says more.",
                format_count(runs)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_stands_at_the_end_and_links_to_its_runs() {
        let row = |label: &str, trajectories, is_wrong, is_scored| RunEndingRow {
            label: label.to_owned(),
            trajectories,
            is_wrong,
            is_scored,
        };
        let endings = vec![
            row("answered", 6, false, true),
            row("limit_reached", 3, true, true),
            row("asked_user", 1, false, false),
        ];
        let latest = LatestOverview { endings, ..LatestOverview::default() };
        let found = RunEndings::new(&latest, &PageUrl::from_path("/traces")).unwrap();
        let shown: Vec<_> =
            found.all.iter().map(|one| (one.label.as_str(), one.class, one.x.as_str(), one.width.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("answered", "right", "0.0", "600.0"),
                ("asked user", "plain", "600.0", "100.0"),
                ("limit reached", "wrong", "700.0", "300.0")
            ]
        );
        assert_eq!(found.all[2].href, "/traces?label=outcome%3Dlimit_reached");
        let about = "Of 10 runs that were judged for it, by the labels of the evaluator outcome. The score of the evaluator is of \
                     the other 9: 1 asked user have no score.";
        assert_eq!(found.about, about);
        let recorded = RunEndings::from_recorded_errors(1, 4, &PageUrl::from_path("/traces")).unwrap();
        let shown: Vec<_> =
            recorded.all.iter().map(|one| (one.count.as_str(), one.class, one.width.as_str())).collect();
        assert_eq!(shown, [("3", "plain", "750.0"), ("1", "wrong", "250.0")]);
        assert!(RunEndings::from_recorded_errors(0, 4, &PageUrl::from_path("/traces")).is_none());
        assert!(RunEndings::new(&LatestOverview::default(), &PageUrl::from_path("/traces")).is_none());
    }
}
