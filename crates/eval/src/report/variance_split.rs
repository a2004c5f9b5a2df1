//! Splits the variance of scores into what the agent does differently from run to run, and what the judge answers
//! differently to one question.
//!
//! The unit is the trajectory, as in every interval. The score of a trajectory is the mean of its questions, each of
//! which is the mean of its votes, so by the law of total variance
//! `Var(score) = agent + judge variance of one vote * mean(sum over questions of 1 / votes) / questions^2`.
//! More trajectories reduce both parts of the error of a mean, more votes only the second.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The variance of the score of a trajectory, in two parts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VarianceSplit {
    /// Between trajectories: what the agent does. Null for fewer than two trajectories.
    pub agent: Option<f64>,
    /// What the votes on one question add, with as many votes as there are.
    pub judge: f64,
    /// The variance of a single vote on one question.
    pub judge_of_one_vote: f64,
    /// `judge` as a share of both parts. Null when there is no variance.
    pub judge_share: Option<f64>,
}

/// Sums over questions and trajectories; memory does not grow with the run.
#[derive(Debug, Default)]
pub(super) struct VarianceTally {
    /// Squared deviations of votes from the mean of their question, and the degrees of freedom.
    within_squares: f64,
    within_freedom: f64,
    /// Of the trajectory that is being counted: questions, sum of their means, sum of 1 / votes.
    questions: f64,
    mean_sum: f64,
    inverse_sum: f64,
    /// Of all trajectories: count, sum and sum of squares of their scores, sum of their noise factors.
    trajectories: f64,
    score_sum: f64,
    score_squares: f64,
    noise_sum: f64,
}

impl VarianceTally {
    /// Adds the votes on one question; a single vote adds to the score of the trajectory only.
    pub(super) fn add_question(&mut self, scores: impl Iterator<Item = f64> + Clone) {
        let (sum, count) = scores.clone().fold((0.0, 0.0), |(sum, count), score| (sum + score, count + 1.0));
        if count == 0.0 {
            return;
        }
        let mean = sum / count;
        self.within_squares += scores.map(|score| (score - mean).powi(2)).sum::<f64>();
        self.within_freedom += count - 1.0;
        self.questions += 1.0;
        self.mean_sum += mean;
        self.inverse_sum += 1.0 / count;
    }

    pub(super) fn end_trajectory(&mut self) {
        if self.questions == 0.0 {
            return;
        }
        let score = self.mean_sum / self.questions;
        self.trajectories += 1.0;
        self.score_sum += score;
        self.score_squares += score * score;
        self.noise_sum += self.inverse_sum / (self.questions * self.questions);
        (self.questions, self.mean_sum, self.inverse_sum) = (0.0, 0.0, 0.0);
    }

    /// `None` if no question has two votes.
    pub(super) fn split(&self) -> Option<VarianceSplit> {
        if self.within_freedom == 0.0 || self.trajectories == 0.0 {
            return None;
        }
        let judge_of_one_vote = self.within_squares / self.within_freedom;
        let judge = judge_of_one_vote * self.noise_sum / self.trajectories;
        let agent = (self.trajectories > 1.0).then(|| {
            let between = self.score_squares - self.score_sum * self.score_sum / self.trajectories;
            // An estimate of a variance can be negative; the variance cannot.
            (between / (self.trajectories - 1.0) - judge).max(0.0)
        });
        let total = agent.map(|agent| agent + judge).filter(|total| *total > 1e-12);
        Some(VarianceSplit { agent, judge, judge_of_one_vote, judge_share: total.map(|total| judge / total) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores by trajectory, question and vote.
    fn split(trajectories: &[&[&[f64]]]) -> Option<VarianceSplit> {
        let mut tally = VarianceTally::default();
        for questions in trajectories {
            questions.iter().for_each(|votes| tally.add_question(votes.iter().copied()));
            tally.end_trajectory();
        }
        tally.split()
    }

    #[test]
    fn judges_that_always_agree_add_nothing() {
        let found = split(&[&[&[1.0, 1.0]], &[&[0.0, 0.0]]]).expect("a split");
        assert_eq!((found.agent, found.judge, found.judge_share), (Some(0.5), 0.0, Some(0.0)));
        let constant = split(&[&[&[1.0, 1.0]], &[&[1.0, 1.0]]]).expect("a split");
        assert_eq!((constant.agent, constant.judge_share), (Some(0.0), None));
    }

    #[test]
    fn an_agent_that_never_varies_leaves_the_judge() {
        let found = split(&[&[&[1.0, 0.0]], &[&[0.0, 1.0]], &[&[1.0, 0.0]]]).expect("a split");
        assert_eq!((found.agent, found.judge_share), (Some(0.0), Some(1.0)));
        assert_eq!((found.judge_of_one_vote, found.judge), (0.5, 0.25));
    }

    #[test]
    fn there_is_nothing_to_split_without_repeats() {
        assert_eq!(split(&[&[&[1.0]], &[&[0.0]]]), None);
        assert_eq!(split(&[]), None);
        assert_eq!(split(&[&[&[1.0, 0.0]]]).expect("a split").agent, None);
    }

    /// Both parts are found again in data that was made from them: trajectories pass with probability 0.5 plus or minus
    /// 0.3, and each vote is drawn anew.
    #[test]
    fn known_parts_are_recovered() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut tally = VarianceTally::default();
        for _ in 0..20_000 {
            let probability = if random.bool() { 0.8 } else { 0.2 };
            for _ in 0..2 {
                let votes: Vec<f64> = (0..3).map(|_| f64::from(u8::from(random.f64() < probability))).collect();
                tally.add_question(votes.into_iter());
            }
            tally.end_trajectory();
        }
        let found = tally.split().expect("a split");
        let agent = found.agent.expect("many trajectories");
        assert!((agent - 0.09).abs() < 0.003, "{agent}");
        assert!((found.judge_of_one_vote - 0.16).abs() < 0.003, "{}", found.judge_of_one_vote);
        assert!((found.judge - 0.16 / 6.0).abs() < 0.001, "{}", found.judge);
    }
}
