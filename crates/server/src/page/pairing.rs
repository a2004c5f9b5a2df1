//! The verdicts of two runs in memory, and the pairing of their trajectories.
//!
//! Two runs of 50,000 trajectories have to fit into memory, so names and labels are interned and verdicts are small.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use gradus_eval::comparison::ScorePair;
use gradus_eval::interval::ScoreCluster;
use gradus_eval::outcome::OutcomeKind;
use gradus_eval::report::{JudgedHead, RunReader};
use gradus_eval::run::RunFileError;
use gradus_report::html::text;
use gradus_report::{TrialMeasurement, TrialResult};

/// Bounds of what is read of one run. The page says when a run is cut.
pub(super) const MAX_TRAJECTORIES: usize = 50_000;
pub(super) const MAX_VERDICTS: usize = 500_000;

/// Maps names and labels to numbers, shared by both runs: there are few of them, and each is in many verdicts.
#[derive(Default)]
pub(super) struct LabelInterner {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl LabelInterner {
    /// The number of a word; the same word always gets the same number.
    pub(super) fn intern(&mut self, word: &str) -> u32 {
        if let Some(known) = self.numbers.get(word) {
            return *known;
        }
        let number = self.all.len() as u32;
        self.all.push(word.to_owned());
        self.numbers.insert(word.to_owned(), number);
        number
    }

    /// The empty string for numbers that were never given out.
    pub(super) fn resolve(&self, number: u32) -> &str {
        self.all.get(number as usize).map_or("", String::as_str)
    }
}

/// A verdict with a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InternedVerdict {
    pub(super) evaluator: u32,
    /// None for the whole trajectory.
    pub(super) step: Option<u32>,
    pub(super) label: u32,
    pub(super) score: f64,
}

/// The verdicts of a run on one trajectory.
pub(super) struct ComparedTrajectory {
    pub(super) id: Box<str>,
    /// Digest of the request. Trajectories with the same request are trials of the same task.
    task: Option<u128>,
    /// The request on one line, truncated for display.
    pub(super) query: Box<str>,
    /// Sorted by evaluator and step; the lookups below use binary search.
    verdicts: Box<[InternedVerdict]>,
}

impl ComparedTrajectory {
    /// Sorted by evaluator and step.
    pub(super) fn verdicts(&self) -> &[InternedVerdict] {
        &self.verdicts
    }

    /// The verdicts of one evaluator.
    pub(super) fn evaluator_verdicts(&self, evaluator: u32) -> &[InternedVerdict] {
        let from = self.verdicts.partition_point(|given| given.evaluator < evaluator);
        let to = self.verdicts.partition_point(|given| given.evaluator <= evaluator);
        &self.verdicts[from..to]
    }

    /// Scores of one trajectory are one cluster of the cluster-robust interval.
    pub(super) fn cluster(&self, evaluator: u32) -> ScoreCluster {
        let given = self.evaluator_verdicts(evaluator);
        ScoreCluster { count: given.len() as f64, sum: given.iter().map(|given| given.score).sum() }
    }

    /// Mean score of an evaluator in this trajectory; none without scores.
    pub(super) fn mean(&self, evaluator: u32) -> Option<f64> {
        let ScoreCluster { count, sum } = self.cluster(evaluator);
        (count > 0.0).then(|| sum / count)
    }
}

/// Trials of a benchmark by trajectory id, or by session where the id was not recorded.
struct TrialIndex<'t> {
    by_id: HashMap<&'t str, &'t TrialMeasurement>,
    by_session: HashMap<&'t str, &'t TrialMeasurement>,
}

impl TrialIndex<'_> {
    fn from_measurements(trials: &[TrialMeasurement]) -> TrialIndex<'_> {
        let mut found = TrialIndex { by_id: HashMap::new(), by_session: HashMap::new() };
        for trial in trials {
            match &trial.trajectory_id {
                Some(id) => found.by_id.insert(id, trial),
                None => found.by_session.insert(&trial.session_id, trial),
            };
        }
        found
    }

    /// The trial of a trajectory, by id or else by session.
    fn find(&self, trajectory: &JudgedHead<'_>) -> Option<&TrialMeasurement> {
        let by_session = || self.by_session.get(trajectory.session_id.as_deref()?);
        self.by_id.get(&*trajectory.trajectory_id).or_else(by_session).copied()
    }
}

/// A run as far as it is compared.
#[derive(Default)]
pub(super) struct ComparedRun {
    pub(super) judged: Vec<ComparedTrajectory>,
    /// Number of questions without a verdict, by evaluator.
    pub(super) failed: BTreeMap<u32, u64>,
    /// The run exceeds the bounds; the rest of it was not read.
    pub(super) is_cut: bool,
}

impl ComparedRun {
    /// Reads a run. `trials` are those of its benchmark, if it has one: their results become verdicts with the labels
    /// yes and no. Stops early if the query is cancelled; the caller has to check for that.
    pub(super) fn read(
        reader: &mut RunReader,
        trials: &[TrialMeasurement],
        words: &mut LabelInterner,
    ) -> Result<ComparedRun, RunFileError> {
        let trials = TrialIndex::from_measurements(trials);
        let mut run = ComparedRun::default();
        let mut verdicts = 0;
        let evaluators: Vec<u32> =
            reader.record.evaluators.iter().map(|evaluator| words.intern(&evaluator.name)).collect();
        reader.visit_verdicts(|trajectory, outcomes| {
            // The query was cancelled or ran out of time. The visitor cannot return an error, so the caller checks
            // again.
            if gradus_store::check_query().is_err() {
                return ControlFlow::Break(());
            }
            if run.judged.len() == MAX_TRAJECTORIES || verdicts + outcomes.len() > MAX_VERDICTS {
                run.is_cut = true;
                return ControlFlow::Break(());
            }
            let mut given = Vec::with_capacity(outcomes.len());
            for verdict in outcomes {
                let evaluator = evaluators[verdict.evaluator];
                if verdict.outcome == OutcomeKind::Failed {
                    *run.failed.entry(evaluator).or_default() += 1;
                }
                if let (Some(score), Some(label)) = (verdict.score, &verdict.label) {
                    let label = words.intern(label);
                    given.push(InternedVerdict { evaluator, step: verdict.step_index, label, score });
                }
            }
            if let Some(trial) = trials.find(trajectory) {
                for TrialResult { name, is_good, .. } in &trial.results {
                    given.push(InternedVerdict {
                        evaluator: words.intern(name),
                        step: None,
                        label: words.intern(if *is_good { "yes" } else { "no" }),
                        score: f64::from(u8::from(*is_good)),
                    });
                }
            }
            // Establishes the order that `evaluator_verdicts` and `same_questions` rely on.
            given.sort_unstable_by_key(|given| (given.evaluator, given.step));
            verdicts += given.len();
            let query = trajectory.query.as_deref().map(str::trim).filter(|query| !query.is_empty());
            run.judged.push(ComparedTrajectory {
                id: (&*trajectory.trajectory_id).into(),
                task: query.map(|query| gradus_core::stable_digest(query.as_bytes())),
                query: query.map(text::format_display_line).unwrap_or_default().into(),
                verdicts: given.into(),
            });
            ControlFlow::Continue(())
        })?;
        Ok(run)
    }

    /// All evaluators that were asked, including those that only failed.
    pub(super) fn evaluators(&self) -> BTreeSet<u32> {
        let judged = self.judged.iter().flat_map(|one| one.verdicts.iter().map(|given| given.evaluator));
        judged.chain(self.failed.keys().copied()).collect()
    }

    /// One cluster for each trajectory with a score of this evaluator.
    pub(super) fn clusters(&self, evaluator: u32) -> Vec<ScoreCluster> {
        let all = self.judged.iter().map(|one| one.cluster(evaluator));
        all.filter(|cluster| cluster.count > 0.0).collect()
    }
}

/// A unit of the paired comparison, by indexes into the two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PairedUnit {
    /// The same trajectory, graded by both runs.
    Same(usize, usize),
    /// Trials of the same task, which are different trajectories. Compared by their means.
    Task(Vec<usize>, Vec<usize>),
}

/// The pairs of two runs.
#[derive(Default)]
pub(super) struct TrajectoryPairing {
    pub(super) units: Vec<PairedUnit>,
    /// Numbers of trajectories of each run that are in a unit.
    pub(super) covered: (usize, usize),
    /// There are pairs, but too few to represent the runs; then `units` is empty.
    pub(super) is_too_few: bool,
}

impl TrajectoryPairing {
    /// Pairs by trajectory id, and the rest by request. If that covers less than half of the smaller run, nothing is
    /// paired: the pairs would be an arbitrary selection.
    pub(super) fn from_runs(before: &[ComparedTrajectory], after: &[ComparedTrajectory]) -> TrajectoryPairing {
        let ids: HashMap<&str, usize> = before.iter().enumerate().map(|(at, one)| (&*one.id, at)).collect();
        let mut units = Vec::new();
        let mut is_paired = vec![false; before.len()];
        let mut tasks: BTreeMap<u128, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (at, one) in after.iter().enumerate() {
            match (ids.get(&*one.id), one.task) {
                (Some(same), _) => {
                    is_paired[*same] = true;
                    units.push(PairedUnit::Same(*same, at));
                }
                (None, Some(task)) => tasks.entry(task).or_default().1.push(at),
                (None, None) => {}
            }
        }
        for (at, one) in before.iter().enumerate().filter(|(at, _)| !is_paired[*at]) {
            if let Some((old, _)) = one.task.and_then(|task| tasks.get_mut(&task)) {
                old.push(at);
            }
        }
        let mut tasks: Vec<(Vec<usize>, Vec<usize>)> = tasks.into_values().collect();
        tasks.retain(|(old, _)| !old.is_empty());
        // The map is ordered by digest; the order of the runs is more useful for paging and stable as well.
        tasks.sort_unstable();
        units.extend(tasks.into_iter().map(|(old, new)| PairedUnit::Task(old, new)));
        let sizes = units.iter().map(|unit| match unit {
            PairedUnit::Same(..) => (1, 1),
            PairedUnit::Task(old, new) => (old.len(), new.len()),
        });
        let covered = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        let (smaller, of_it) =
            if before.len() <= after.len() { (before.len(), covered.0) } else { (after.len(), covered.1) };
        let is_too_few = of_it * 2 < smaller;
        if is_too_few {
            units.clear();
        }
        TrajectoryPairing { units, covered, is_too_few: is_too_few && of_it > 0 }
    }

    /// Pairs of scores of one evaluator. `trajectory` numbers the cluster that a pair belongs to. A task is one pair of
    /// means.
    pub(super) fn pair_scores(
        &self,
        before: &[ComparedTrajectory],
        after: &[ComparedTrajectory],
        evaluator: u32,
    ) -> Vec<ScorePair> {
        let mut pairs = Vec::new();
        for (trajectory, unit) in self.units.iter().enumerate() {
            match unit {
                PairedUnit::Same(old, new) => {
                    let both = same_questions(
                        before[*old].evaluator_verdicts(evaluator),
                        after[*new].evaluator_verdicts(evaluator),
                    );
                    pairs.extend(both.map(|(old, new)| ScorePair { trajectory, before: old.score, after: new.score }));
                }
                PairedUnit::Task(old, new) => {
                    let both = mean_of(before, old, evaluator).zip(mean_of(after, new, evaluator));
                    pairs.extend(both.map(|(before, after)| ScorePair { trajectory, before, after }));
                }
            }
        }
        pairs
    }
}

/// Verdicts of the same evaluator on the same step. Both slices have to be sorted by evaluator and step.
pub(super) fn same_questions<'g>(
    old: &'g [InternedVerdict],
    new: &'g [InternedVerdict],
) -> impl Iterator<Item = (&'g InternedVerdict, &'g InternedVerdict)> {
    let key = |given: &InternedVerdict| (given.evaluator, given.step);
    old.iter().filter_map(move |one| {
        let at = new.binary_search_by_key(&key(one), key).ok()?;
        Some((one, &new[at]))
    })
}

/// Mean over the means of trials, so that a long trial counts no more than a short one. None if no trial was scored.
pub(super) fn mean_of(all: &[ComparedTrajectory], trials: &[usize], evaluator: u32) -> Option<f64> {
    let means: Vec<f64> = trials.iter().filter_map(|at| all[*at].mean(evaluator)).collect();
    (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn judged(id: &str, query: &str, verdicts: &[(u32, u32, f64)]) -> ComparedTrajectory {
        let given = |(evaluator, step, score): &(u32, u32, f64)| InternedVerdict {
            evaluator: *evaluator,
            step: Some(*step).filter(|step| *step > 0),
            label: 0,
            score: *score,
        };
        ComparedTrajectory {
            id: id.into(),
            task: (!query.is_empty()).then(|| gradus_core::stable_digest(query.as_bytes())),
            query: query.into(),
            verdicts: verdicts.iter().map(given).collect(),
        }
    }

    fn all(of: &[(&str, &str)]) -> Vec<ComparedTrajectory> {
        of.iter().map(|(id, query)| judged(id, query, &[])).collect()
    }

    #[test]
    fn trajectories_are_paired_by_id_and_the_rest_by_request() {
        let of = |before: &[(&str, &str)], after: &[(&str, &str)]| {
            let pairing = TrajectoryPairing::from_runs(&all(before), &all(after));
            (pairing.units, pairing.covered)
        };
        let mixed = of(&[("a", "x"), ("b", "y"), ("e", "v")], &[("b", "z"), ("c", "x")]);
        assert_eq!(mixed, (vec![PairedUnit::Same(1, 0), PairedUnit::Task(vec![0], vec![1])], (2, 2)));
        // Several trials of a task are one task, and no request is none.
        let trials = of(&[("a", "x"), ("b", "x"), ("e", "")], &[("c", "x"), ("d", "x"), ("f", "x")]);
        assert_eq!(trials, (vec![PairedUnit::Task(vec![0, 1], vec![0, 1, 2])], (2, 3)));
        assert_eq!(of(&[("e", "")], &[("f", "")]), (vec![], (0, 0)));
        // However alike two requests begin.
        let long = "the same beginning ".repeat(50);
        let [one, other] = ["one", "other"].map(|end| format!("{long}{end}"));
        assert_eq!(of(&[("a", &one)], &[("b", &other)]).0, []);
    }

    #[test]
    fn one_trajectory_in_common_does_not_stand_for_a_thousand() {
        let ids = |from: usize| -> Vec<ComparedTrajectory> {
            (from..from + 1_000).map(|at| judged(&at.to_string(), "", &[])).collect()
        };
        let few = TrajectoryPairing::from_runs(&ids(0), &ids(999));
        assert!(few.units.is_empty() && few.is_too_few && few.covered == (1, 1));
        let half = TrajectoryPairing::from_runs(&ids(0), &ids(500));
        assert!(half.units.len() == 500 && !half.is_too_few);
    }

    #[test]
    fn steps_are_compared_with_themselves_and_tasks_by_the_means_of_their_trials() {
        let before = [judged("a", "x", &[(0, 1, 1.0), (0, 2, 1.0), (1, 1, 0.0)])];
        let after = [judged("a", "x", &[(0, 2, 0.0), (0, 3, 1.0), (1, 1, 1.0)])];
        let pairing = TrajectoryPairing::from_runs(&before, &after);
        let pair = |before, after| ScorePair { trajectory: 0, before, after };
        assert_eq!(pairing.pair_scores(&before, &after, 0), [pair(1.0, 0.0)]);
        assert_eq!(pairing.pair_scores(&before, &after, 1), [pair(0.0, 1.0)]);
        assert_eq!(pairing.pair_scores(&before, &after, 2), []);
        let after =
            [judged("b", "x", &[(0, 1, 0.0), (0, 2, 1.0)]), judged("c", "x", &[(0, 1, 1.0)]), judged("d", "x", &[])];
        let pairing = TrajectoryPairing::from_runs(&before, &after);
        assert_eq!(pairing.pair_scores(&before, &after, 0), [pair(1.0, 0.75)]);
    }
}
