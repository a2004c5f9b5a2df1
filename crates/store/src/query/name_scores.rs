//! Scores and usage of each version, model or agent, from the coarse rollups: however many trajectories there are, one row
//! is read for each name, evaluator and day.

use super::{MetricFilter, ScoreMoments};
use crate::Store;
use crate::buckets::TrajectoryUsage;
use crate::coarse_rollup::{HOUR_NS, NameKind};
use crate::error::StoreError;

/// A version, a model or an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct NameScoreRow {
    pub name: String,
    /// By evaluator.
    pub scores: Vec<(String, ScoreMoments)>,
    pub usage: TrajectoryUsage,
    /// Start of the last day with a trajectory.
    pub last_day_ns: i64,
}

/// The rows of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NameScoreTable {
    /// Those with the latest trajectories first.
    pub rows: Vec<NameScoreRow>,
    /// Whether there are more names than were read.
    pub is_cut: bool,
}

const DAY_NS: i64 = 24 * HOUR_NS;

impl Store {
    /// The names of one kind in a period, those with the latest trajectories first. A name of the same kind in the filter
    /// is ignored, and so are trajectories without such a name.
    pub fn name_scores(
        &self,
        filter: &MetricFilter,
        kind: NameKind,
        limit: usize,
    ) -> Result<NameScoreTable, StoreError> {
        let mut names = self.list_names(filter, kind, limit + 1)?;
        let is_cut = names.len() > limit;
        names.truncate(limit);
        let mut rows = Vec::with_capacity(names.len());
        for name in names {
            let mut one = filter.clone();
            match kind {
                NameKind::Agent => one.agent = Some(name.clone()),
                NameKind::Model => one.model = Some(name.clone()),
                _ => one.version = Some(name.clone()),
            }
            let usage = self.usage_periods(&one, DAY_NS)?;
            let mut sum = TrajectoryUsage::default();
            usage.rows.iter().for_each(|(_, usage)| sum += *usage);
            let last = usage.rows.iter().rfind(|(_, usage)| usage.trajectories > 0);
            let Some((last_day_ns, _)) = last else { continue };
            let mut scores: Vec<(String, ScoreMoments)> = Vec::new();
            for period in self.metric_periods(&one, DAY_NS)?.rows {
                match scores.last_mut().filter(|(evaluator, _)| *evaluator == period.evaluator) {
                    Some((_, moments)) => *moments += period.moments,
                    None => scores.push((period.evaluator, period.moments)),
                }
            }
            rows.push(NameScoreRow { name, scores, usage: sum, last_day_ns: *last_day_ns });
        }
        rows.sort_by(|a, b| b.last_day_ns.cmp(&a.last_day_ns).then_with(|| compare_names(&b.name, &a.name)));
        Ok(NameScoreTable { rows, is_cut })
    }
}

/// Numbers inside names count as numbers, so that 1.10 is above 1.9.
fn compare_names(first: &str, second: &str) -> std::cmp::Ordering {
    let parts = |name: &str| -> Vec<(u64, String)> {
        let pieces = name.split(|letter: char| !letter.is_ascii_alphanumeric());
        pieces
            .map(|piece| {
                let digits: String = piece.chars().take_while(char::is_ascii_digit).collect();
                (digits.parse().unwrap_or(0), piece[digits.len()..].to_owned())
            })
            .collect()
    };
    parts(first).cmp(&parts(second)).then_with(|| first.cmp(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["1.10.0", "1.9.0", "", "2.0.0-rc1", "1.9"];
        names.sort_by(|a, b| compare_names(a, b));
        assert_eq!(names, ["", "1.9", "1.9.0", "1.10.0", "2.0.0-rc1"]);
    }
}
