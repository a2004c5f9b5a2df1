//! The votes on one question, and their result.
//!
//! Labels are decided by the most votes; the same number of votes for two labels is a tie, which no judge resolves.
//! On a scale (labels with more than two different scores) the score is the mean, and the label is the nearest one.
//! Both need answers to more than half of the requested votes.

use crate::outcome::{JudgeVote, TokenCount};
use crate::prompt::TruncatedValue;
use crate::rubric::RubricLabels;

/// Maximum bytes of an explanation that are stored with a vote. The outcome has one explanation in full.
const MAX_VOTE_EXPLANATION: usize = 300;

/// A vote with the details that the outcome needs in addition to its record.
#[derive(Clone, Debug)]
pub(super) struct CastVote {
    /// Index of the judge in the panel.
    pub(super) judge: usize,
    /// The explanation in it is still complete.
    pub(super) vote: JudgeVote,
    pub(super) tokens: Option<TokenCount>,
    pub(super) shortened: Vec<TruncatedValue>,
}

/// The result of the votes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PanelDecision {
    Decided { label: String, score: f64, vote_count: u32, explanation: String },
    Tied { reason: String },
    Unanswered { reason: String },
}

/// Returns the share of votes with a label that differ from the most frequent one; `None` without any.
pub(super) fn disagreement_share(labels: &RubricLabels, votes: &[CastVote]) -> Option<f64> {
    let counts = count_labels(labels, votes);
    let total: u32 = counts.iter().map(|(_, count)| count).sum();
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    (total > 0).then(|| f64::from(total - most) / f64::from(total))
}

/// Decides a question by all requested votes, answered or not.
pub(super) fn decide_votes(labels: &RubricLabels, votes: &[CastVote]) -> PanelDecision {
    let counts = count_labels(labels, votes);
    let answered: u32 = counts.iter().map(|(_, count)| count).sum();
    if answered as usize * 2 <= votes.len() {
        return PanelDecision::Unanswered { reason: describe_missing(votes) };
    }
    let mean = mean_score(votes);
    let (label, score, vote_count) = if is_scale(labels) {
        let (label, count) = nearest_label(labels, &counts, mean);
        (label, mean, count)
    } else {
        let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let mut winners = counts.iter().filter(|(_, count)| *count == most);
        match (winners.next(), winners.next()) {
            (Some((label, count)), None) => (*label, labels.score(label).unwrap_or_default(), *count),
            _ => return PanelDecision::Tied { reason: describe_tie(&counts) },
        }
    };
    let explanation = nearest_explanation(votes, label, score);
    PanelDecision::Decided { label: label.to_owned(), score, vote_count, explanation }
}

/// Whether judges gave different labels, one was not sure of its own, or one gave none.
pub(super) fn is_unsure(votes: &[CastVote], min_probability: f64) -> bool {
    let mut given = votes.iter().filter_map(|cast| cast.vote.label.as_deref());
    let first = given.next();
    let is_improbable =
        |cast: &CastVote| cast.vote.label_probability.is_some_and(|probability| probability < min_probability);
    first.is_none()
        || votes.iter().any(|cast| cast.vote.label.is_none())
        || given.any(|label| Some(label) != first)
        || votes.iter().any(is_improbable)
}

/// The record of a vote, with the beginning of its explanation.
pub(super) fn shorten_vote(mut vote: JudgeVote) -> JudgeVote {
    if let Some(text) = &mut vote.explanation
        && text.len() > MAX_VOTE_EXPLANATION
    {
        text.truncate(text.floor_char_boundary(MAX_VOTE_EXPLANATION));
        text.push_str(" [...]");
    }
    vote
}

/// Whether there are more than two different scores: then a mean is better than a majority.
fn is_scale(labels: &RubricLabels) -> bool {
    let scale = labels.scale();
    labels.iter().any(|(_, score)| score != scale.worst && score != scale.best)
}

/// Votes for each label, in the order of the rubric.
fn count_labels<'l>(labels: &'l RubricLabels, votes: &[CastVote]) -> Vec<(&'l str, u32)> {
    let count = |label: &str| votes.iter().filter(|cast| cast.vote.label.as_deref() == Some(label)).count();
    labels.names().map(|label| (label, count(label) as u32)).filter(|(_, count)| *count > 0).collect()
}

fn mean_score(votes: &[CastVote]) -> f64 {
    let (sum, count) = votes
        .iter()
        .filter_map(|cast| cast.vote.score)
        .fold((0.0, 0.0), |(sum, count), score| (sum + score, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns the label whose score is nearest to the mean, and its votes. Half way between two labels the worse one is
/// used.
fn nearest_label<'l>(labels: &'l RubricLabels, counts: &[(&str, u32)], mean: f64) -> (&'l str, u32) {
    let mut nearest = (labels.best(), f64::INFINITY);
    // Best first, so that `<=` prefers the worse of two. Means of equal votes differ in the last bits.
    for (label, score) in labels.iter() {
        let distance = (score - mean).abs();
        if distance <= nearest.1 + 1e-9 {
            nearest = (label, distance);
        }
    }
    let votes = counts.iter().find(|(label, _)| *label == nearest.0).map_or(0, |(_, count)| *count);
    (nearest.0, votes)
}

/// Returns the explanation of the first vote with the label; on a scale no vote may have it, and the nearest vote is
/// used.
fn nearest_explanation(votes: &[CastVote], label: &str, score: f64) -> String {
    let with_label = votes.iter().find(|cast| cast.vote.label.as_deref() == Some(label));
    let distance = |cast: &CastVote| cast.vote.score.map_or(f64::INFINITY, |given| (given - score).abs());
    let nearest = || votes.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)));
    with_label.or_else(nearest).and_then(|cast| cast.vote.explanation.clone()).unwrap_or_default()
}

/// `the votes are tied: 1 correct, 1 incorrect`
fn describe_tie(counts: &[(&str, u32)]) -> String {
    let counts: Vec<String> = counts.iter().map(|(label, count)| format!("{count} {label}")).collect();
    format!("the votes are tied: {}", counts.join(", "))
}

/// `2 of 3 votes are missing: openai:b: status 500`
fn describe_missing(votes: &[CastVote]) -> String {
    let missing = votes.iter().filter(|cast| cast.vote.label.is_none());
    let first = missing.clone().find_map(|cast| cast.vote.reason.as_ref().map(|reason| (&cast.vote.judge, reason)));
    let reason = first.map_or_else(String::new, |(judge, reason)| format!(": {judge}: {reason}"));
    format!("{} of {} votes are missing{reason}", missing.count(), votes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(table: &[(&str, f64)]) -> RubricLabels {
        RubricLabels::from_table(table)
    }

    const BINARY: &[(&str, f64)] = &[("correct", 1.0), ("incorrect", 0.0)];
    const GRADES: &[(&str, f64)] = &[("5", 5.0), ("4", 4.0), ("3", 3.0), ("2", 2.0), ("1", 1.0)];

    /// `-` is a vote without a label.
    fn votes(labels: &RubricLabels, given: &[&str]) -> Vec<CastVote> {
        let vote = |(judge, label): (usize, &&str)| {
            let label = Some((*label).to_owned()).filter(|label| label != "-");
            CastVote {
                judge,
                vote: JudgeVote {
                    k: String::new(),
                    judge: format!("openai:{judge}").into(),
                    repeat: 0,
                    score: label.as_deref().and_then(|label| labels.score(label)),
                    explanation: label.as_ref().map(|label| format!("{label} by {judge}")),
                    reason: label.is_none().then(|| "it is down".to_owned()),
                    label,
                    label_probability: None,
                    answered_by: None,
                    cost_usd: None,
                    calls: 1,
                    cached: false,
                },
                tokens: None,
                shortened: Vec::new(),
            }
        };
        given.iter().enumerate().map(vote).collect()
    }

    fn decide(table: &[(&str, f64)], given: &[&str]) -> PanelDecision {
        let labels = labels(table);
        decide_votes(&labels, &votes(&labels, given))
    }

    fn decided(label: &str, score: f64, vote_count: u32, explanation: &str) -> PanelDecision {
        let (label, explanation) = (label.to_owned(), explanation.to_owned());
        PanelDecision::Decided { label, score, vote_count, explanation }
    }

    #[test]
    fn the_most_votes_decide_a_label() {
        let right = decided("correct", 1.0, 2, "correct by 0");
        assert_eq!(decide(BINARY, &["correct", "incorrect", "correct"]), right);
        assert_eq!(decide(BINARY, &["incorrect", "incorrect"]), decided("incorrect", 0.0, 2, "incorrect by 0"));
        let three = &[("yes", 1.0), ("partly", 0.0), ("no", 0.0)];
        assert_eq!(decide(three, &["yes", "no", "partly", "no"]), decided("no", 0.0, 2, "no by 1"));
    }

    #[test]
    fn a_tie_decides_nothing() {
        let tied = |reason: &str| PanelDecision::Tied { reason: format!("the votes are tied: {reason}") };
        assert_eq!(decide(BINARY, &["incorrect", "correct"]), tied("1 correct, 1 incorrect"));
        let three = &[("yes", 1.0), ("partly", 0.0), ("no", 0.0)];
        assert_eq!(decide(three, &["yes", "partly", "no"]), tied("1 yes, 1 partly, 1 no"));
        // One of three is down, and the others disagree.
        assert_eq!(decide(BINARY, &["correct", "-", "incorrect"]), tied("1 correct, 1 incorrect"));
    }

    #[test]
    fn more_than_half_of_the_votes_must_be_there() {
        assert_eq!(decide(BINARY, &["-", "correct", "correct"]), decided("correct", 1.0, 2, "correct by 1"));
        let missing = |count: &str, judge: &str| PanelDecision::Unanswered {
            reason: format!("{count} votes are missing: openai:{judge}: it is down"),
        };
        assert_eq!(decide(BINARY, &["-", "correct", "-"]), missing("2 of 3", "0"));
        assert_eq!(decide(BINARY, &["correct", "-"]), missing("1 of 2", "1"));
        assert_eq!(decide(BINARY, &["correct", "correct", "-", "-"]), missing("2 of 4", "2"));
    }

    #[test]
    fn a_scale_is_decided_by_the_mean() {
        assert_eq!(decide(GRADES, &["5", "4", "4"]), decided("4", 13.0 / 3.0, 2, "4 by 1"));
        assert_eq!(decide(GRADES, &["5", "1"]), decided("3", 3.0, 0, "5 by 0"));
        assert_eq!(decide(GRADES, &["5", "4"]), decided("4", 4.5, 1, "4 by 1"), "half way is the worse one");
        let thirds = &[("good", 1.0), ("fair", 0.5), ("bad", 0.0)];
        assert_eq!(decide(thirds, &["good", "good", "bad"]), decided("fair", 2.0 / 3.0, 0, "good by 0"));
        assert_eq!(decide(GRADES, &["-", "1", "-"]), decide(GRADES, &["-", "2", "-"]), "too few, whatever it says");
    }

    #[test]
    fn disagreement_is_the_share_beside_the_most_frequent_label() {
        let labels = labels(BINARY);
        let share = |given: &[&str]| disagreement_share(&labels, &votes(&labels, given));
        assert_eq!(share(&["correct", "correct", "incorrect"]), Some(1.0 / 3.0));
        assert_eq!(share(&["correct", "incorrect"]), Some(0.5));
        assert_eq!(share(&["correct", "-"]), Some(0.0));
        assert_eq!(share(&["-", "-"]), None);
    }

    #[test]
    fn doubt_is_disagreement_or_a_low_probability() {
        let labels = labels(BINARY);
        assert!(!is_unsure(&votes(&labels, &["correct", "correct"]), 0.9));
        assert!(is_unsure(&votes(&labels, &["correct", "incorrect", "correct"]), 0.9));
        assert!(is_unsure(&votes(&labels, &["correct", "-"]), 0.9));
        assert!(is_unsure(&votes(&labels, &["-"]), 0.9));
        let mut one = votes(&labels, &["correct"]);
        one[0].vote.label_probability = Some(0.89);
        assert!(is_unsure(&one, 0.9) && !is_unsure(&one, 0.89));
    }

    #[test]
    fn long_explanations_are_cut_between_characters() {
        let labels = labels(BINARY);
        let mut vote = votes(&labels, &["correct"]).remove(0).vote;
        vote.explanation = Some("é".repeat(400));
        let text = shorten_vote(vote.clone()).explanation.unwrap_or_default();
        assert!(text.ends_with(" [...]") && text.len() <= MAX_VOTE_EXPLANATION + 6, "{}", text.len());
        vote.explanation = Some("short".to_owned());
        assert_eq!(shorten_vote(vote.clone()), vote);
    }
}
