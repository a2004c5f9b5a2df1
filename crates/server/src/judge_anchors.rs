//! Anchors of a judge: questions that it has answered, and is asked again every day. If more labels change than the
//! judge's usual flips explain, the model behind the name has changed, and old and new scores cannot be compared.

use gradus_stats::exact_test::fisher_exact_greater;
use gradus_store::{AnchorSetRow, Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::grading_rule::GradingRule;

/// Answers have moved if a split this uneven, between the changed labels of a round and of the first, would be this
/// rare by chance, in two rounds in a row: a single round among hundreds would be that uneven by chance. With 20
/// anchors and no flip in the first round, 7 changed labels are needed.
pub(crate) const MAX_P_VALUE: f64 = 0.01;

/// A question and the label that the judge gave first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JudgeAnchor {
    pub(crate) trajectory_id: String,
    /// `None` for the whole trajectory.
    pub(crate) step: Option<u32>,
    pub(crate) label: String,
}

/// All anchors asked once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnchorRound {
    pub(crate) at_ns: i64,
    /// Number of anchors that were asked. Anchors of deleted traces are not.
    pub(crate) asked: u64,
    /// Number of anchors whose label differs from the first one.
    pub(crate) changed: u64,
}

/// The anchors of one evaluator, judge and rubric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AnchorSet {
    pub(crate) anchors: Vec<JudgeAnchor>,
    /// The first round, soon after the verdicts, which measures how often the judge flips anyway.
    pub(crate) first: Option<AnchorRound>,
    /// The round before the last.
    #[serde(default)]
    pub(crate) previous: Option<AnchorRound>,
    pub(crate) last: Option<AnchorRound>,
    /// Number of rounds after the first.
    pub(crate) rounds: u64,
    /// When the set was drawn, or a round was begun.
    #[serde(default)]
    pub(crate) tried_at_ns: i64,
}

impl AnchorSet {
    /// Adds a round.
    pub(crate) fn add_round(&mut self, round: AnchorRound) {
        match self.first {
            None => self.first = Some(round),
            Some(_) => {
                self.previous = self.last.replace(round);
                self.rounds += 1;
            }
        }
    }

    /// Returns the share of labels that changed in the last round; `None` before it.
    pub(crate) fn changed_share(&self) -> Option<f64> {
        self.last.map(|last| last.changed as f64 / last.asked.max(1) as f64)
    }

    /// Whether the last two rounds have more changed labels than the flips of the first explain.
    pub(crate) fn has_drifted(&self) -> bool {
        let (Some(first), Some(previous), Some(last)) = (self.first, self.previous, self.last) else { return false };
        let is_uneven = |round: AnchorRound| {
            fisher_exact_greater(round.changed, round.asked, first.changed, first.asked) < MAX_P_VALUE
        };
        is_uneven(previous) && is_uneven(last)
    }

    /// `9 of 20 answers changed (1 of 20 when they were first repeated)`.
    pub(crate) fn describe(&self) -> String {
        match (self.first, self.last) {
            (None, _) => "not asked again yet".to_owned(),
            (Some(first), None) => {
                format!("{} of {} answers flipped when they were first repeated", first.changed, first.asked)
            }
            (Some(first), Some(last)) => format!(
                "{} of {} answers changed ({} of {} when they were first repeated)",
                last.changed, last.asked, first.changed, first.asked
            ),
        }
    }
}

/// A set with its key.
#[derive(Clone, Debug)]
pub(crate) struct KeyedAnchorSet {
    pub(crate) rule: String,
    pub(crate) evaluator: String,
    pub(crate) judge: String,
    pub(crate) rubric_hash: String,
    pub(crate) set: AnchorSet,
}

impl KeyedAnchorSet {
    pub(crate) fn to_row(&self) -> AnchorSetRow {
        AnchorSetRow {
            rule: self.rule.clone(),
            evaluator: self.evaluator.clone(),
            judge: self.judge.clone(),
            rubric_hash: self.rubric_hash.clone(),
            state: serde_json::to_string(&self.set).unwrap_or_default(),
        }
    }
}

/// Loads the sets of the configured judges. Other sets are not asked any more.
pub(crate) fn current_anchor_sets(store: &Store, rules: &[GradingRule]) -> Result<Vec<KeyedAnchorSet>, StoreError> {
    let is_current = |known: &KeyedAnchorSet| {
        let own = rules.iter().filter(|rule| rule.name == known.rule);
        own.flat_map(|rule| &rule.evaluators).any(|evaluator| {
            *evaluator.name == *known.evaluator
                && *evaluator.judge == *known.judge
                && *evaluator.hash == *known.rubric_hash
        })
    };
    Ok(load_anchor_sets(store)?.into_iter().filter(is_current).collect())
}

/// Loads all sets that have anchors.
pub(crate) fn load_anchor_sets(store: &Store) -> Result<Vec<KeyedAnchorSet>, StoreError> {
    let read = |row: AnchorSetRow| {
        let set: AnchorSet = serde_json::from_str(&row.state).ok()?;
        let AnchorSetRow { rule, evaluator, judge, rubric_hash, .. } = row;
        (!set.anchors.is_empty()).then_some(KeyedAnchorSet { rule, evaluator, judge, rubric_hash, set })
    };
    Ok(store.anchor_sets()?.into_iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_moved_only_beyond_the_flips_of_the_first_round() {
        let set = |first: u64, last: u64| {
            let mut set = AnchorSet::default();
            for changed in [first, last, last] {
                set.add_round(AnchorRound { at_ns: 1, asked: 20, changed });
            }
            set
        };
        assert_eq!([0, 3, 6, 7, 20].map(|last| set(0, last).has_drifted()), [false, false, false, true, true]);
        assert_eq!([7, 12, 13].map(|last| set(4, last).has_drifted()), [false, false, true]);
        assert!(!set(20, 0).has_drifted());
        let mut young = AnchorSet::default();
        young.add_round(AnchorRound { at_ns: 5, asked: 20, changed: 1 });
        assert_eq!((young.has_drifted(), young.changed_share()), (false, None));
        // One uneven round among even ones is chance.
        for changed in [1, 20, 2, 20] {
            young.add_round(AnchorRound { at_ns: 6, asked: 20, changed });
            assert!(!young.has_drifted(), "{changed}");
        }
        young.add_round(AnchorRound { at_ns: 7, asked: 20, changed: 20 });
        assert!(young.has_drifted());
        assert_eq!(set(1, 9).describe(), "9 of 20 answers changed (1 of 20 when they were first repeated)");
    }
}
