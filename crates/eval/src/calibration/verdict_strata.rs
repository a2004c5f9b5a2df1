//! Strata of verdicts: by the label of a judge, or by the votes of a panel. If three of three votes are right more
//! often than two of three, a stratum for each number of votes gives a narrower interval than one for each label.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calibrated_judge::VotingRule;
use crate::report::AnswerHead;
use crate::run::{EvaluatorRecord, PanelRecord};

/// The votes of a panel on one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct VoteSplit {
    /// Votes for the best label of the rubric.
    pub right: u32,
    /// Votes with a label; fewer than were asked for where a judge failed.
    pub answered: u32,
}

impl VoteSplit {
    /// Counts the votes of an outcome; `None` if votes are not used as strata. See [`VerdictStrata::new`].
    pub(super) fn count(evaluator: &EvaluatorRecord, panel: Option<&PanelRecord>, answer: &AnswerHead) -> Option<Self> {
        count_panel_votes(evaluator, panel)?;
        let answered = || answer.votes.iter().filter(|vote| vote.label.is_some());
        let right = answered().filter(|vote| evaluator.is_right(vote.score)).count();
        (answered().count() > 0).then(|| VoteSplit { right: right as u32, answered: answered().count() as u32 })
    }
}

/// How verdicts of an evaluator are grouped.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum VerdictStrata {
    /// By the label; its position in the rubric is its stratum. Scores go from 0 to 1.
    Labels(Vec<(String, f64)>),
    /// By the verdict, and within it by the number of votes for the best label, of this many.
    Votes { right_labels: Vec<String>, votes: u32 },
}

/// Returns the number of votes on each question if votes can be strata. `None` for one judge that is asked once, for
/// scales, whose verdict is a mean, and with an escalation, where most questions have the votes of one judge only.
fn count_panel_votes(evaluator: &EvaluatorRecord, panel: Option<&PanelRecord>) -> Option<u32> {
    let panel = panel.filter(|panel| panel.escalate_to.is_none())?;
    let is_asked = evaluator.judge.starts_with("panel(");
    let votes = panel.judges.len() as u32 * panel.repeats;
    (is_asked && VotingRule::for_labels(evaluator) == VotingRule::MostVotes && votes > 1).then_some(votes)
}

impl VerdictStrata {
    /// By the label of the judge.
    pub(super) fn from_labels(evaluator: &EvaluatorRecord) -> VerdictStrata {
        let scale = evaluator.scale();
        let unit_score = |score: f64| (score - scale.worst) / (scale.best - scale.worst);
        VerdictStrata::Labels(
            evaluator.labels.iter().map(|(label, score)| (label.clone(), unit_score(*score))).collect(),
        )
    }

    /// By votes, if the judge is a panel and `has_votes` says that every labelled case has its votes; else by label.
    pub(super) fn new(evaluator: &EvaluatorRecord, panel: Option<&PanelRecord>, has_votes: bool) -> VerdictStrata {
        match count_panel_votes(evaluator, panel).filter(|_| has_votes) {
            None => VerdictStrata::from_labels(evaluator),
            Some(votes) => {
                let right = evaluator.labels.iter().filter(|(_, score)| evaluator.is_right(Some(*score)));
                VerdictStrata::Votes { right_labels: right.map(|(label, _)| label.clone()).collect(), votes }
            }
        }
    }

    /// Returns the judge's score of each stratum, from 0 to 1. A score of at least 0.5 accepts the case, so right
    /// verdicts stay above it, however few votes they have.
    pub(super) fn scores(&self) -> Vec<f64> {
        match self {
            VerdictStrata::Labels(labels) => labels.iter().map(|(_, score)| *score).collect(),
            VerdictStrata::Votes { votes, .. } => {
                let share = |right: u32| f64::from(right) / f64::from(*votes);
                let wrong = (0..=*votes).map(|right| 0.49 * share(right));
                wrong.chain((0..=*votes).map(|right| 0.5 + 0.5 * share(right))).collect()
            }
        }
    }

    /// The stratum of a verdict; `None` for a label that the rubric does not have.
    pub(super) fn find(&self, label: &str, split: Option<VoteSplit>) -> Option<usize> {
        match self {
            VerdictStrata::Labels(labels) => labels.iter().position(|(known, _)| known == label),
            VerdictStrata::Votes { right_labels, votes } => {
                let VoteSplit { right, answered } = split.filter(|split| split.answered > 0)?;
                // If votes are missing, the share of the present ones decides.
                let share = f64::from(right.min(answered)) / f64::from(answered);
                let right = (share * f64::from(*votes)).round() as usize;
                let is_right = right_labels.iter().any(|known| known == label);
                Some(if is_right { *votes as usize + 1 + right } else { right })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANEL: &str = "panel(openai:a, openai:b, openai:c)";

    fn evaluator(judge: &str, labels: &[(&str, f64)]) -> EvaluatorRecord {
        EvaluatorRecord {
            name: "e".to_owned(),
            title: String::new(),
            of_steps: true,
            labels: labels.iter().map(|(label, score)| ((*label).to_owned(), *score)).collect(),
            rubric_hash: String::new(),
            phoenix_name: String::new(),
            judge: judge.to_owned(),
        }
    }

    fn panel() -> PanelRecord {
        let judges = ["openai:a", "openai:b", "openai:c"].map(str::to_owned).to_vec();
        PanelRecord { judges, repeats: 1, escalate_to: None, min_probability: None, audit_share: None }
    }

    const BINARY: &[(&str, f64)] = &[("correct", 1.0), ("incorrect", 0.0)];

    #[test]
    fn a_panel_has_a_stratum_for_each_number_of_votes() {
        let strata = VerdictStrata::new(&evaluator(PANEL, BINARY), Some(&panel()), true);
        let scores = strata.scores();
        assert_eq!(scores.len(), 8);
        assert!(scores.is_sorted(), "{scores:?}");
        let find = |label: &str, right, answered| strata.find(label, Some(VoteSplit { right, answered }));
        let (three, two, one) = (find("correct", 3, 3), find("correct", 2, 3), find("incorrect", 1, 3));
        assert!(three > two && two > one && one > find("incorrect", 0, 3));
        assert!(scores[two.unwrap()] >= 0.5 && scores[one.unwrap()] < 0.5);
        // Two of two are as good as three of three; a verdict without votes has no stratum.
        assert_eq!(find("correct", 2, 2), three);
        assert_eq!(strata.find("correct", None), None);
        // The most votes of several labels can be fewer than half: the verdict decides what is accepted.
        let first = find("correct", 1, 3).unwrap();
        assert!(scores[first] >= 0.5);
    }

    #[test]
    fn others_are_grouped_by_label() {
        let new = |judge: &str, labels, panel: Option<&PanelRecord>, has_votes| {
            matches!(VerdictStrata::new(&evaluator(judge, labels), panel, has_votes), VerdictStrata::Labels(_))
        };
        assert!(!new(PANEL, BINARY, Some(&panel()), true));
        assert!(new("openai:a", BINARY, None, true));
        assert!(new("rules", BINARY, Some(&panel()), true), "rules of a run with a panel");
        assert!(new(PANEL, &[("5", 5.0), ("3", 3.0), ("1", 1.0)], Some(&panel()), true), "a mean");
        let cascade = PanelRecord { escalate_to: Some("openai:d".to_owned()), ..panel() };
        assert!(new("cascade(openai:a, openai:d)", BINARY, Some(&cascade), true));
        assert!(new(PANEL, BINARY, Some(&panel()), false), "a file of an earlier version has no votes");
    }
}
