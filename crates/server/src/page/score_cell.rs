//! A cell of the list of traces: the score of one evaluator for a trace.

use gradus_eval::evaluator::OUTCOME;
use gradus_eval::scale::ScoreScale;
use gradus_report::html::{number, text};
use gradus_store::{ScoreRow, TraceRow};

use super::run_outcome::format_outcome_label;
use crate::evaluators;
use crate::settings::ReloadableSettings;

/// The mean score of one evaluator over all trajectories of a trace.
pub(super) struct TraceScoreCell {
    pub(super) class: &'static str,
    pub(super) text: String,
    /// Tooltip.
    pub(super) about: String,
    /// Number of questions without a verdict, in addition to those with a score.
    pub(super) unjudged: Option<String>,
}

/// Sums of the outcomes of one evaluator on one trace.
#[derive(Default)]
struct TraceScoreSums {
    is_asked: bool,
    scored: i64,
    sum: f64,
    failed: i64,
    abstained: i64,
    wrong: i64,
    /// The label of the run as a whole: of the first wrong verdict, otherwise of the first one.
    label: Option<String>,
}

impl TraceScoreCell {
    /// Builds the cell, and distinguishes the cases without a score: not judged, not applicable, failed, and
    /// undecided.
    pub(super) fn for_evaluator(settings: &ReloadableSettings, trace: &TraceRow, evaluator: &str) -> TraceScoreCell {
        let scores = || trace.trajectories.iter().flat_map(|one| &one.scores).filter(|one| one.evaluator == evaluator);
        let mut sums = TraceScoreSums::default();
        for score in scores() {
            sums.is_asked = true;
            sums.scored += score.scored;
            sums.sum += score.sum;
            sums.failed += score.failed;
            sums.abstained += score.abstained;
            // A label without a score is that of no verdict that is counted here.
            if score.scored > 0 && (sums.label.is_none() || (sums.wrong == 0 && score.wrong > 0)) {
                sums.label.clone_from(&score.label);
            }
            sums.wrong += score.wrong;
        }
        if evaluator == OUTCOME {
            let recorded = || TraceScoreCell::from_recorded_errors(trace).filter(|_| !sums.is_asked);
            if let Some(cell) = TraceScoreCell::from_endings(scores()).or_else(recorded) {
                return cell;
            }
        }
        match sums.scored {
            0 => {
                let is_rules = evaluators::find_rules_evaluator(settings, evaluator).is_some();
                TraceScoreCell::without_score(&sums, is_rules)
            }
            _ => sums.to_cell(settings, evaluator),
        }
    }

    /// Builds the cell of how the runs of a trace ended: the label of one without an answer, or of the first. `None`
    /// without any label.
    fn from_endings<'s>(scores: impl Iterator<Item = &'s ScoreRow>) -> Option<TraceScoreCell> {
        let labelled: Vec<_> = scores.filter_map(|score| Some((score, score.label.as_deref()?))).collect();
        let dead = labelled.iter().find(|(score, _)| score.wrong > 0);
        let (shown, label) = *dead.or_else(|| labelled.first())?;
        let count = labelled.len();
        Some(TraceScoreCell {
            class: match (shown.wrong > 0, shown.scored > 0) {
                (true, _) => "wrong",
                (false, true) => "right",
                // A label that is neither good nor bad.
                (false, false) => "none",
            },
            text: format_outcome_label(label),
            about: match count {
                1 => "how the run ended".to_owned(),
                _ => format!("how one of {count} runs ended"),
            },
            unjudged: None,
        })
    }

    /// Builds the cell from recorded errors; `None` without an error.
    fn from_recorded_errors(trace: &TraceRow) -> Option<TraceScoreCell> {
        trace.trajectories.iter().any(|one| one.is_error).then(|| TraceScoreCell {
            class: "wrong",
            text: "error".to_owned(),
            about: "the run recorded that it ended in an error".to_owned(),
            unjudged: None,
        })
    }

    /// `is_rules` tells whether rules answer the evaluator: an undecided question is one that no rule fired on.
    fn without_score(sums: &TraceScoreSums, is_rules: bool) -> TraceScoreCell {
        let (class, text, about) = match (sums.failed > 0, sums.is_asked) {
            (true, _) => ("unjudged", "?", format!("{} could not be judged", sums.failed)),
            (false, true) if sums.abstained > 0 && is_rules => {
                ("none", "no\u{a0}rule fired", format!("{} not decided", sums.abstained))
            }
            (false, true) if sums.abstained > 0 => ("none", "–", format!("{} not decided", sums.abstained)),
            (false, true) => ("none", "–", "not applicable".to_owned()),
            (false, false) => ("none", "", "not judged".to_owned()),
        };
        let is_undecided = sums.failed == 0 && sums.abstained > 0 && !is_rules;
        let unjudged = is_undecided.then(|| "cannot\u{a0}judge".to_owned());
        TraceScoreCell { class, text: text.to_owned(), about, unjudged }
    }
}

impl TraceScoreSums {
    /// Returns the label that describes the cell alone: of the only verdict, or of the only wrong one.
    fn single_label(&self) -> Option<String> {
        let label = self.label.as_deref().filter(|_| self.wrong == 1 || (self.wrong == 0 && self.scored == 1))?;
        Some(format_outcome_label(label))
    }

    /// The cell of a trace with at least one score.
    fn to_cell(&self, settings: &ReloadableSettings, evaluator: &str) -> TraceScoreCell {
        let mean = self.sum / self.scored as f64;
        let labels = evaluators::find_evaluator_labels(settings, evaluator);
        let is_share = evaluators::find_evaluator_scale(settings, evaluator).is_some_and(ScoreScale::is_share);
        // Rules that only notice mistakes confirm nothing, so a cell without a flag is not 100 %.
        let is_unflagged = self.wrong == 0 && evaluators::gives_only_flags(settings, evaluator);
        TraceScoreCell {
            class: match (self.wrong > 0, is_unflagged) {
                (true, _) => "wrong",
                (false, true) => "none",
                (false, false) => "right",
            },
            // A label is more telling than a mean of a few verdicts. With more than two labels only that of a single
            // verdict fits.
            text: match (is_unflagged, labels.as_slice(), self.single_label()) {
                // Rules confirmed a part of it only.
                (true, ..) if self.abstained > 0 => "not\u{a0}flagged".to_owned(),
                (_, [(best, _), (worst, _)], _) => match self.wrong {
                    0 => text::format_display_line(best),
                    1 if self.scored == 1 => text::format_display_line(worst),
                    wrong => format!("{wrong}\u{a0}{}", text::format_display_line(worst)),
                },
                (_, _, Some(label)) => label,
                (true, ..) => "not\u{a0}flagged".to_owned(),
                (false, ..) if is_share => format!("{:.0}\u{a0}%", 100.0 * mean),
                (false, ..) => number::format_score(mean),
            },
            about: match is_share {
                true if is_unflagged => {
                    format!("{} confirmed right by rules, {} not decided", self.scored, self.abstained)
                }
                true => format!("{:.0} % of {} judged", 100.0 * mean, self.scored),
                false => format!("mean {} of {} judged", number::format_score(mean), self.scored),
            },
            unjudged: (self.failed > 0).then(|| format!("{}\u{a0}unjudged", self.failed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(label: &str, score: Option<f64>) -> ScoreRow {
        ScoreRow {
            evaluator: OUTCOME.to_owned(),
            scored: i64::from(score.is_some()),
            sum: score.unwrap_or_default(),
            failed: 0,
            not_applicable: 0,
            abstained: i64::from(score.is_none()),
            label: Some(label.to_owned()),
            wrong: i64::from(score == Some(0.0)),
            first_wrong: None,
        }
    }

    #[test]
    fn a_dead_run_is_shown_before_one_that_answered() {
        let shown =
            |rows: &[ScoreRow]| TraceScoreCell::from_endings(rows.iter()).map(|cell| (cell.class, cell.text)).unwrap();
        let (answered, crashed) = (ending("answered", Some(1.0)), ending("limit_reached", Some(0.0)));
        assert_eq!(shown(&[answered.clone(), crashed]), ("wrong", "limit reached".to_owned()));
        assert_eq!(shown(std::slice::from_ref(&answered)), ("right", "answered".to_owned()));
        assert_eq!(shown(&[ending("gave_up", None)]), ("none", "gave up".to_owned()));
    }

    #[test]
    fn an_undecided_question_is_neither_an_error_nor_a_score() {
        let sums = TraceScoreSums { is_asked: true, abstained: 3, ..TraceScoreSums::default() };
        let by_rules = TraceScoreCell::without_score(&sums, true);
        assert_eq!((by_rules.text.as_str(), by_rules.unjudged), ("no\u{a0}rule fired", None));
        let cell = TraceScoreCell::without_score(&sums, false);
        assert_eq!((cell.class, cell.unjudged.as_deref()), ("none", Some("cannot\u{a0}judge")));
        let failed = TraceScoreSums { failed: 1, ..sums };
        assert_eq!(TraceScoreCell::without_score(&failed, false).class, "unjudged");
    }
}
