//! How runs ended, by the labels of the evaluator `outcome`: the first thing that the overview says.

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
    /// `Of the latest 2,000 runs`, if there are more; else `Of 120 runs`.
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
    /// `None` if no run was judged for it. `traces` is the URL of the list with the filter of the page.
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
        // What went wrong stands together, at the end.
        let mut rows: Vec<&RunEndingRow> = latest.endings.iter().collect();
        rows.sort_by_key(|row| row.is_wrong);
        let runs = format_count(judged);
        Some(RunEndings {
            all: rows.into_iter().map(view).collect(),
            about: if latest.is_cut { format!("Of the latest {runs} runs") } else { format!("Of {runs} runs") },
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
        assert_eq!(found.about, "Of 10 runs");
        assert!(RunEndings::new(&LatestOverview::default(), &PageUrl::from_path("/traces")).is_none());
    }
}
