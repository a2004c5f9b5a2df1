//! The range of scores that an evaluator can give.

/// Scores of a rubric are free numbers (0 and 1, 1 to 5, -1 to 1). Everything below the best one counts as wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreScale {
    pub worst: f64,
    pub best: f64,
}

impl ScoreScale {
    /// Right or wrong as 1 and 0. It is also the default if a rubric's scale is unknown.
    pub const SHARE: ScoreScale = ScoreScale { worst: 0.0, best: 1.0 };

    /// The range of the given scores; `None` if there are none.
    pub fn from_scores(scores: impl IntoIterator<Item = f64>) -> Option<ScoreScale> {
        scores.into_iter().fold(None, |known, score| {
            let ScoreScale { worst, best } = known.unwrap_or(ScoreScale { worst: score, best: score });
            Some(ScoreScale { worst: worst.min(score), best: best.max(score) })
        })
    }

    /// Whether a mean on this scale can be printed as a percentage.
    pub fn is_share(self) -> bool {
        self.worst >= 0.0 && self.best <= 1.0
    }

    /// Whether a score is below the best one. The middle label of a rubric with three labels counts as wrong.
    pub fn is_wrong(self, score: f64) -> bool {
        score < self.best
    }

    /// Returns the union of two scales, for runs whose rubric changed in between.
    pub fn with(self, other: ScoreScale) -> ScoreScale {
        ScoreScale { worst: self.worst.min(other.worst), best: self.best.max(other.best) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_span_their_scale() {
        assert_eq!(ScoreScale::from_scores([]), None);
        let graded = ScoreScale::from_scores([3.0, -1.0, 5.0]).unwrap();
        assert_eq!(graded, ScoreScale { worst: -1.0, best: 5.0 });
        assert!(!graded.is_share() && graded.is_wrong(3.0) && !graded.is_wrong(5.0));
        assert_eq!(ScoreScale::from_scores([0.0, 1.0]), Some(ScoreScale::SHARE));
        assert_eq!(ScoreScale::SHARE.with(graded), graded);
    }
}
