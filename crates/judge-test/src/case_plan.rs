//! Chooses the cases of a test: for each evaluator as many flawed runs as originals, spread over flaws and over runs.
//! The same seed and the same material give the same cases.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use gradus_core::trajectory::Trajectory;
use gradus_eval::rubric::RubricSubject;
use serde::{Deserialize, Serialize};

use crate::flaw::{FlawExpectation, FlawedRun, PlantedFlaw, plant_flaw};
use crate::right_run::{RightRun, RunMaterial};
use crate::seeded_choice::SeededChoice;
use crate::test_case::{ExpectedVerdict, TestCase, TestedEvaluator};

/// Checks whether planted flaws change the right verdict. For runs of the benchmark, the simulator decides.
pub trait TruthCheck {
    /// Returns one entry per run: why its flaw is harmless, or `None` if the flaw counts.
    fn explain_harmless(&mut self, runs: &[&FlawedRun]) -> Vec<Option<String>>;
}

/// Size and seed of a plan.
#[derive(Clone, Copy, Debug)]
pub struct CasePlanSettings {
    /// Cases for each evaluator: half of them flawed, half of them right.
    pub cases: usize,
    pub seed: u64,
}

/// A number of planted flaws that do not count, by flaw and reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HarmlessFlaws {
    pub flaw: PlantedFlaw,
    pub reason: String,
    pub count: usize,
}

/// The cases of a test.
#[derive(Clone, Debug, Default)]
pub struct CasePlan {
    /// By evaluator, then pair by pair.
    pub cases: Vec<TestCase>,
    pub harmless: Vec<HarmlessFlaws>,
    /// Evaluators with fewer cases than asked for, and how many they have.
    pub shortages: Vec<(String, usize)>,
}

/// Maximum attempts to plant one flaw into one run. Each attempt may choose another position and wording.
const MAX_PLANT_ATTEMPTS: u32 = 4;

/// Plans the cases of all evaluators.
pub fn plan_cases(
    runs: &[RightRun],
    evaluators: &[TestedEvaluator],
    settings: CasePlanSettings,
    check: &mut dyn TruthCheck,
) -> CasePlan {
    let mut plan = CasePlan::default();
    let mut harmless: BTreeMap<(PlantedFlaw, String), usize> = BTreeMap::new();
    for evaluator in evaluators {
        let pairs = EvaluatorPlanner::new(runs, evaluator, settings).plan_pairs(check, &mut harmless);
        let cases = build_cases(evaluator, &pairs, settings.cases);
        if cases.len() < settings.cases {
            plan.shortages.push((evaluator.name.clone(), cases.len()));
        }
        plan.cases.extend(cases);
    }
    let counted = harmless.into_iter().map(|((flaw, reason), count)| HarmlessFlaws { flaw, reason, count });
    plan.harmless = counted.collect();
    plan
}

/// A flawed run, and where the evaluator must notice its flaw.
struct PlannedPair {
    run: FlawedRun,
    step: Option<u32>,
    original_step: Option<u32>,
}

/// Plans the pairs of one evaluator.
struct EvaluatorPlanner<'a> {
    runs: &'a [RightRun],
    evaluator: &'a TestedEvaluator,
    settings: CasePlanSettings,
    /// For each flaw the runs that are left to try, best last.
    queues: Vec<(PlantedFlaw, Vec<(usize, u32)>)>,
    /// How often runs of each cluster, and of each material, were used.
    cluster_uses: HashMap<&'a str, usize>,
    material_uses: HashMap<RunMaterial, usize>,
    seen: HashSet<(String, Option<u32>)>,
}

impl<'a> EvaluatorPlanner<'a> {
    fn new(runs: &'a [RightRun], evaluator: &'a TestedEvaluator, settings: CasePlanSettings) -> Self {
        let queue = |flaw: &PlantedFlaw| {
            let mut choice = SeededChoice::new(settings.seed, &["order", &evaluator.name, flaw.name()]);
            let mut queue: Vec<(usize, u32)> = Vec::new();
            for attempt in 0..MAX_PLANT_ATTEMPTS {
                let mut order: Vec<(usize, u32)> = (0..runs.len()).map(|run| (run, attempt)).collect();
                choice.shuffle(&mut order);
                queue.extend(order);
            }
            queue.reverse();
            (*flaw, queue)
        };
        let queues = evaluator.flaws.iter().map(queue).collect();
        EvaluatorPlanner {
            runs,
            evaluator,
            settings,
            queues,
            cluster_uses: HashMap::new(),
            material_uses: HashMap::new(),
            seen: HashSet::new(),
        }
    }

    /// Draws flawed runs until there are enough, in batches, since the check handles many at a time.
    fn plan_pairs(
        mut self,
        check: &mut dyn TruthCheck,
        harmless: &mut BTreeMap<(PlantedFlaw, String), usize>,
    ) -> Vec<PlannedPair> {
        let wanted = self.settings.cases.div_ceil(2);
        let mut pairs: Vec<PlannedPair> = Vec::new();
        while pairs.len() < wanted {
            let batch = self.draw_batch(wanted - pairs.len());
            if batch.is_empty() {
                break;
            }
            let runs: Vec<&FlawedRun> = batch.iter().map(|pair| &pair.run).collect();
            let reasons = check.explain_harmless(&runs);
            for (pair, reason) in batch.into_iter().zip(reasons) {
                match reason {
                    Some(reason) => {
                        *harmless.entry((pair.run.flaw, reason)).or_default() += 1;
                        let of_material = self.material_uses.get_mut(&pair.run.material);
                        for uses in self.cluster_uses.get_mut(pair.run.cluster.as_str()).into_iter().chain(of_material)
                        {
                            *uses = uses.saturating_sub(1);
                        }
                    }
                    None => pairs.push(pair),
                }
            }
        }
        pairs
    }

    /// Draws up to `count` flawed runs, flaw by flaw in turn. Flaws that fit no remaining run are dropped.
    fn draw_batch(&mut self, count: usize) -> Vec<PlannedPair> {
        let mut batch = Vec::new();
        while batch.len() < count {
            let before = batch.len();
            for number in 0..self.queues.len() {
                if batch.len() < count
                    && let Some(pair) = self.draw_pair(number)
                {
                    batch.push(pair);
                }
            }
            if batch.len() == before {
                break;
            }
        }
        batch
    }

    /// Draws the next flawed run of a flaw: from the material that was used less, so that user runs and benchmark
    /// runs get equal parts, then from the cluster that was used less.
    fn draw_pair(&mut self, number: usize) -> Option<PlannedPair> {
        let (flaw, mut queue) = (self.queues[number].0, std::mem::take(&mut self.queues[number].1));
        let mut found = None;
        while found.is_none() && !queue.is_empty() {
            let uses = |entry: &(usize, u32)| {
                let run = &self.runs[entry.0];
                let of_material = self.material_uses.get(&run.material).copied().unwrap_or(0);
                (of_material, self.cluster_uses.get(run.cluster.as_str()).copied().unwrap_or(0))
            };
            // The last one of those with the fewest uses.
            let fewest = queue.iter().map(uses).min().unwrap_or_default();
            let at = queue.iter().rposition(|entry| uses(entry) == fewest)?;
            let (run, attempt) = queue.remove(at);
            found = self.plant_pair(flaw, &self.runs[run], attempt);
        }
        self.queues[number].1 = queue;
        let pair = found?;
        let cluster = self.runs.iter().find(|run| run.cluster == pair.run.cluster).map(|run| run.cluster.as_str());
        *self.cluster_uses.entry(cluster.unwrap_or_default()).or_default() += 1;
        *self.material_uses.entry(pair.run.material).or_default() += 1;
        self.seen.insert((pair.run.trajectory.trajectory_id.clone(), pair.step));
        Some(pair)
    }

    fn plant_pair(&self, flaw: PlantedFlaw, run: &RightRun, attempt: u32) -> Option<PlannedPair> {
        let run = plant_flaw(flaw, run, self.runs, self.settings.seed, attempt)?;
        let FlawExpectation { step, original_step, .. } = self.find_expectation(&run)?;
        let is_new = !self.seen.contains(&(run.trajectory.trajectory_id.clone(), step));
        is_new.then_some(PlannedPair { run, step, original_step })
    }

    /// Returns where this evaluator must notice the flaw; `None` if it need not.
    fn find_expectation(&self, run: &FlawedRun) -> Option<FlawExpectation> {
        if self.evaluator.is_built_in {
            return run.expectations.iter().find(|expected| expected.rubric == self.evaluator.name).copied();
        }
        let (step, original_step) = match self.evaluator.subject {
            RubricSubject::Trajectory => (None, None),
            RubricSubject::Step => (Some(run.step?), Some(run.original_step?)),
        };
        Some(FlawExpectation { rubric: "", step, original_step })
    }
}

/// Builds the cases of the pairs: the flawed run, then its original. An original that several pairs share becomes one
/// case.
fn build_cases(evaluator: &TestedEvaluator, pairs: &[PlannedPair], wanted: usize) -> Vec<TestCase> {
    let mut seen = HashSet::new();
    let mut cases = Vec::new();
    for pair in pairs {
        let pair_id = short_digest(&[&evaluator.name, &pair.run.trajectory.trajectory_id, &format!("{:?}", pair.step)]);
        let mut add = |trajectory: &Trajectory, step: Option<u32>, expected| {
            let case_id = short_digest(&[&evaluator.name, &trajectory.trajectory_id, &format!("{step:?}")]);
            if cases.len() < wanted && seen.insert(case_id.clone()) {
                cases.push(TestCase {
                    case_id,
                    pair_id: pair_id.clone(),
                    evaluator: evaluator.name.clone(),
                    step,
                    expected,
                    flaw: pair.run.flaw,
                    note: pair.run.note.clone(),
                    cluster: pair.run.cluster.clone(),
                    material: pair.run.material,
                    form: pair.run.form,
                    trajectory: Arc::new(trajectory.clone()),
                });
            }
        };
        add(&pair.run.trajectory, pair.step, ExpectedVerdict::Flawed);
        add(&pair.run.original, pair.original_step, ExpectedVerdict::Right);
    }
    cases
}

fn short_digest(parts: &[&str]) -> String {
    format!("{:016x}", gradus_core::stable_digest(parts.join("\0").as_bytes()) as u64)
}

/// Accepts every flaw. For runs without a simulator: their flaws are checked while planting.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptAllFlaws;

impl TruthCheck for AcceptAllFlaws {
    fn explain_harmless(&mut self, runs: &[&FlawedRun]) -> Vec<Option<String>> {
        vec![None; runs.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flaw::tests::example_runs;

    fn tested(name: &str, subject: RubricSubject) -> TestedEvaluator {
        TestedEvaluator { name: name.to_owned(), subject, flaws: PlantedFlaw::list_for_rubric(name), is_built_in: true }
    }

    fn plan(cases: usize, seed: u64, check: &mut dyn TruthCheck) -> CasePlan {
        let evaluators =
            [tested("thought_to_tool", RubricSubject::Step), tested("sequence_optimality", RubricSubject::Trajectory)];
        plan_cases(&example_runs(), &evaluators, CasePlanSettings { cases, seed }, check)
    }

    #[test]
    fn half_of_the_cases_are_flawed_and_pairs_belong_together() {
        let found = plan(6, 1, &mut AcceptAllFlaws);
        assert_eq!((found.cases.len(), found.shortages.len()), (12, 0));
        for evaluator in ["thought_to_tool", "sequence_optimality"] {
            let of_evaluator = || found.cases.iter().filter(|case| case.evaluator == evaluator);
            assert_eq!(of_evaluator().filter(|case| case.expected == ExpectedVerdict::Flawed).count(), 3);
            assert!(of_evaluator().all(|case| case.step.is_some() == (evaluator == "thought_to_tool")));
        }
        for case in found.cases.iter().filter(|case| case.expected == ExpectedVerdict::Right) {
            let is_twin = |other: &&TestCase| other.pair_id == case.pair_id && other.case_id != case.case_id;
            let twin = found.cases.iter().find(is_twin).expect("a flawed twin");
            assert_eq!((twin.expected, &twin.cluster), (ExpectedVerdict::Flawed, &case.cluster));
        }
        let ids = |plan: &CasePlan| plan.cases.iter().map(|case| case.case_id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&found), ids(&plan(6, 1, &mut AcceptAllFlaws)));
        assert_ne!(ids(&found), ids(&plan(6, 2, &mut AcceptAllFlaws)));
    }

    #[test]
    fn what_cannot_be_made_is_a_shortage() {
        let found = plan(5_000, 1, &mut AcceptAllFlaws);
        assert_eq!(found.shortages.len(), 2);
        assert!(found.shortages.iter().all(|(_, count)| (4..5_000).contains(count)));
        let unique: HashSet<&str> = found.cases.iter().map(|case| case.case_id.as_str()).collect();
        assert_eq!(unique.len(), found.cases.len());
    }

    /// Finds every second flaw harmless.
    struct EverySecond(usize);

    impl TruthCheck for EverySecond {
        fn explain_harmless(&mut self, runs: &[&FlawedRun]) -> Vec<Option<String>> {
            let mut check = |_| {
                self.0 += 1;
                self.0.is_multiple_of(2).then(|| "no harm".to_owned())
            };
            runs.iter().map(&mut check).collect()
        }
    }

    #[test]
    fn harmless_flaws_are_replaced_by_others() {
        let found = plan(6, 1, &mut EverySecond(0));
        assert_eq!(found.cases.len(), 12);
        assert!(found.harmless.iter().map(|one| one.count).sum::<usize>() >= 4);
        assert!(found.harmless.iter().all(|one| one.reason == "no harm"));
    }
}
