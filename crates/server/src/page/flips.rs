//! Verdicts that differ between two runs: on the same trajectory, or in the mean over the trials of the same task.

use super::pairing::{ComparedTrajectory, PairedUnit, TrajectoryPairing, mean_of, same_questions};

/// Changes on one page, in each direction.
pub(super) const MAX_FLIPS_PER_PAGE: usize = 50;

/// One change. Evaluators and labels are numbers of the `LabelInterner`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VerdictChange {
    pub(super) evaluator: u32,
    /// None for the whole trajectory and for tasks.
    pub(super) step: Option<u32>,
    /// Indexes of the trajectories to show, in A and in B.
    pub(super) places: (usize, usize),
    pub(super) what: VerdictChangeValues,
}

/// Old and new value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum VerdictChangeValues {
    /// Interned labels.
    Labels(u32, u32),
    /// Mean scores over the trials of a task.
    Means(f64, f64),
}

/// The changes in one direction: all are counted, those of one page are kept.
pub(super) struct PagedVerdictChanges {
    pub(super) count: u64,
    /// Offset of the page.
    pub(super) skipped: u64,
    pub(super) shown: Vec<VerdictChange>,
}

impl PagedVerdictChanges {
    fn starting_after(skipped: u64) -> PagedVerdictChanges {
        PagedVerdictChanges { count: 0, skipped, shown: Vec::new() }
    }

    /// `change` is only called for changes of the page, because finding the best example takes time.
    fn add(&mut self, change: impl FnOnce() -> Option<VerdictChange>) {
        if self.count >= self.skipped && self.shown.len() < MAX_FLIPS_PER_PAGE {
            self.shown.extend(change());
        }
        self.count += 1;
    }
}

/// Changes for the worse and for the better. `skipped` are the offsets of the two pages. Order follows the pairs, so
/// paging is stable.
pub(super) fn find_verdict_flips(
    before: &[ComparedTrajectory],
    after: &[ComparedTrajectory],
    pairing: &TrajectoryPairing,
    skipped: (u64, u64),
) -> (PagedVerdictChanges, PagedVerdictChanges) {
    let (mut worse, mut better) =
        (PagedVerdictChanges::starting_after(skipped.0), PagedVerdictChanges::starting_after(skipped.1));
    for unit in &pairing.units {
        match unit {
            PairedUnit::Same(old, new) => {
                for (was, is) in same_questions(before[*old].verdicts(), after[*new].verdicts()) {
                    if was.score == is.score {
                        continue;
                    }
                    let side = if is.score < was.score { &mut worse } else { &mut better };
                    side.add(|| {
                        Some(VerdictChange {
                            evaluator: was.evaluator,
                            step: was.step,
                            places: (*old, *new),
                            what: VerdictChangeValues::Labels(was.label, is.label),
                        })
                    });
                }
            }
            PairedUnit::Task(old, new) => compare_task_trials(before, after, (old, new), &mut worse, &mut better),
        }
    }
    (worse, better)
}

/// Compares the means of a task's trials. A single trial on both sides shows its labels instead.
fn compare_task_trials(
    before: &[ComparedTrajectory],
    after: &[ComparedTrajectory],
    (old, new): (&[usize], &[usize]),
    worse: &mut PagedVerdictChanges,
    better: &mut PagedVerdictChanges,
) {
    let mut evaluators: Vec<u32> =
        old.iter().flat_map(|at| before[*at].verdicts()).map(|given| given.evaluator).collect();
    evaluators.sort_unstable();
    evaluators.dedup();
    for evaluator in evaluators {
        let means = mean_of(before, old, evaluator).zip(mean_of(after, new, evaluator));
        let Some((was, is)) = means.filter(|(was, is)| was != is) else { continue };
        let is_worse = is < was;
        let side = if is_worse { &mut *worse } else { &mut *better };
        side.add(|| {
            // The examples with the clearest contrast: the best trial of one run and the worst of the other.
            let (old_at, new_at) = if is_worse {
                (find_extreme_trial(before, old, evaluator, 1.0)?, find_extreme_trial(after, new, evaluator, -1.0)?)
            } else {
                (find_extreme_trial(before, old, evaluator, -1.0)?, find_extreme_trial(after, new, evaluator, 1.0)?)
            };
            let what = match (before[old_at].evaluator_verdicts(evaluator), after[new_at].evaluator_verdicts(evaluator))
            {
                ([was], [is]) if old.len() == 1 && new.len() == 1 => VerdictChangeValues::Labels(was.label, is.label),
                _ => VerdictChangeValues::Means(was, is),
            };
            Some(VerdictChange { evaluator, step: None, places: (old_at, new_at), what })
        });
    }
}

/// The trial with the highest mean, or the lowest if `sign` is -1. None if no trial was scored.
fn find_extreme_trial(all: &[ComparedTrajectory], trials: &[usize], evaluator: u32, sign: f64) -> Option<usize> {
    let means = trials.iter().filter_map(|at| Some((*at, sign * all[*at].mean(evaluator)?)));
    means.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::super::pairing::tests::judged;
    use super::*;

    #[test]
    fn verdicts_that_changed_are_counted_and_listed_in_pages() {
        let steps = |score: f64| -> Vec<(u32, u32, f64)> { (1..=100).map(|step| (0, step, score)).collect() };
        let before = [judged("a", "x", &steps(1.0)), judged("b", "y", &[(0, 0, 0.0), (1, 0, 1.0)])];
        let after = [judged("a", "x", &steps(0.0)), judged("b", "y", &[(0, 0, 1.0), (1, 0, 1.0)])];
        let (worse, better) =
            find_verdict_flips(&before, &after, &TrajectoryPairing::from_runs(&before, &after), (0, 0));
        assert_eq!((worse.count, worse.shown.len(), better.count), (100, MAX_FLIPS_PER_PAGE, 1));
        let wanted =
            VerdictChange { evaluator: 0, step: None, places: (1, 1), what: VerdictChangeValues::Labels(0, 0) };
        assert_eq!(better.shown, [wanted]);
        assert_eq!(worse.shown[1].step, Some(2));
        let (worse, better) =
            find_verdict_flips(&before, &after, &TrajectoryPairing::from_runs(&before, &after), (50, 50));
        assert_eq!((worse.count, worse.shown.len(), worse.shown[0].step), (100, MAX_FLIPS_PER_PAGE, Some(51)));
        assert_eq!((better.count, better.shown.len()), (1, 0));
    }

    #[test]
    fn tasks_that_were_run_again_change_sides_by_the_means_of_their_trials() {
        let trial = |id: &str, query: &str, score: f64| judged(id, query, &[(0, 0, score)]);
        let before = [trial("a", "x", 1.0), trial("b", "x", 1.0), trial("c", "y", 0.0), trial("d", "z", 1.0)];
        let after = [trial("e", "x", 1.0), trial("f", "x", 0.0), trial("g", "y", 1.0), trial("h", "z", 1.0)];
        let (worse, better) =
            find_verdict_flips(&before, &after, &TrajectoryPairing::from_runs(&before, &after), (0, 0));
        assert_eq!((worse.count, better.count), (1, 1));
        // The trial that failed is the one to look at.
        let wanted =
            VerdictChange { evaluator: 0, step: None, places: (1, 1), what: VerdictChangeValues::Means(1.0, 0.5) };
        assert_eq!(worse.shown, [wanted]);
        assert_eq!((better.shown[0].places, better.shown[0].what), ((2, 2), VerdictChangeValues::Labels(0, 0)));
    }
}
