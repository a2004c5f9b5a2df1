//! From the worst to the best score that an evaluator gives.

/// What is below the best was found wrong, on whatever scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreScale {
    pub worst: f64,
    pub best: f64,
}

impl ScoreScale {
    /// Right or wrong, as shares count it; also taken where nothing else is known.
    pub const SHARE: ScoreScale = ScoreScale { worst: 0.0, best: 1.0 };

    /// None without a score.
    pub fn from_scores(scores: impl IntoIterator<Item = f64>) -> Option<ScoreScale> {
        scores.into_iter().fold(None, |known, score| {
            let ScoreScale { worst, best } = known.unwrap_or(ScoreScale { worst: score, best: score });
            Some(ScoreScale { worst: worst.min(score), best: best.max(score) })
        })
    }

    /// Whether means on it can be read as parts of a hundred.
    pub fn is_share(self) -> bool {
        self.worst >= 0.0 && self.best <= 1.0
    }

    pub fn is_wrong(self, score: f64) -> bool {
        score < self.best
    }

    /// Both taken in.
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
