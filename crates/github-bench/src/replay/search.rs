//! The search for the shortest sufficient run. Reads that nothing depends on are left out together, and halved where
//! that changes the end (as in delta debugging). Then each other step is left out alone, together with the steps that
//! depend on it, and together with the step that undoes it. The result is minimal with respect to these moves, not
//! globally.

use std::collections::BTreeMap;

use serde_json::Value;

use super::perform::{ReplayAttempt, replay_steps};
use super::provenance::ProvenanceGraph;
use super::uncertainty::UncertaintyCheck;
use super::{CheckResults, ReplayEnvironment, ReplayReport, RunVerifier, StepNecessity, StepVerdict};
use crate::record::TrialRecord;
use crate::replay::step_selection::StepSet;
use gradus_github_agent::agent::RunStep;
use gradus_github_agent::tools::ToolEffect;
use gradus_github_sim::World;

/// Returns the maximum number of repetitions for a run of this length: enough for every step alone and for groups.
fn max_replays(steps: usize) -> usize {
    40 + 4 * steps
}
/// Maximum number of steps of a run that is replayed. All steps of a longer run are reported as unknown.
const MAX_REPLAYED_STEPS: usize = 500;

/// State of one search.
pub(super) struct ReplaySearch<'s> {
    seed: &'s World,
    record: &'s TrialRecord,
    environment: ReplayEnvironment<'s>,
    verify: &'s RunVerifier<'s>,
    replays: usize,
    /// Whether the limit on replays was reached.
    cut_short: bool,
    /// Subsets that were tried, and whether they were sufficient.
    tried: BTreeMap<StepSet, bool>,
    /// For a step that cannot be left out alone, which check then fails.
    reasons: BTreeMap<usize, String>,
}

impl<'s> ReplaySearch<'s> {
    pub(super) fn new(
        seed: &'s World,
        record: &'s TrialRecord,
        environment: ReplayEnvironment<'s>,
        verify: &'s RunVerifier<'s>,
    ) -> ReplaySearch<'s> {
        let (tried, reasons) = (BTreeMap::new(), BTreeMap::new());
        ReplaySearch { seed, record, environment, verify, replays: 0, cut_short: false, tried, reasons }
    }

    /// Repeats the whole run first. If it behaves differently from the record, nothing can be concluded. If the task
    /// failed, only repetitions are reported, because no check can tell what is missing.
    pub(super) async fn run(mut self) -> ReplayReport {
        let all: StepSet = (0..self.record.steps.len()).collect();
        if all.len() > MAX_REPLAYED_STEPS {
            let why = format!("runs of more than {MAX_REPLAYED_STEPS} steps are not played again");
            self.cut_short = true;
            return self.build_report(false, &all, |_, _| (StepNecessity::Unknown, why.clone()));
        }
        let ReplayAttempt { checks, record } = self.replay_subset(&all).await;
        let passed = checks.iter().all(|(_, holds)| *holds);
        if let Some(why) = self.explain_divergence(&record) {
            return self.build_report(passed, &all, |_, _| (StepNecessity::Unknown, why.clone()));
        }
        // Whether the final message matters: verify the same end once more without it.
        let mute = TrialRecord { answer: None, ..record.clone() };
        let state = self.world_state();
        let answer_counts = !holds_all_wanted(&(self.verify)(&state, &mute), &checks);
        // If the task failed, checks do not show whether a step was needed: only repetitions can be reported.
        let provenance = ProvenanceGraph::new(self.record);
        let kept = if passed {
            self.find_minimal_steps(&all, &provenance, &checks).await
        } else {
            self.drop_repeated_reads(&all, &provenance)
        };
        let reasons = std::mem::take(&mut self.reasons);
        let doubts = UncertaintyCheck::new(self.record, &provenance, &kept, answer_counts);
        let doubt = |step: usize| -> Option<String> {
            let is_new_look = provenance.equal_earlier_steps[step].is_none() && self.is_read(&self.record.steps[step]);
            is_new_look.then(|| doubts.explain_uncertainty(step)).flatten()
        };
        let unknown: BTreeMap<usize, String> =
            all.difference(&kept).filter_map(|step| Some((*step, doubt(*step)?))).collect();
        let final_kept: StepSet = kept.iter().chain(unknown.keys()).copied().collect();
        let verdict = |step: usize, kept: &StepSet| -> (StepNecessity, String) {
            if let Some(why) = unknown.get(&step) {
                return (StepNecessity::Unknown, why.clone());
            }
            if !kept.contains(&step) {
                let why = match provenance.equal_earlier_steps[step] {
                    Some(earlier) => format!("it told the same as step {}", earlier + 1),
                    None if self.is_read(&self.record.steps[step]) => "nothing rests on what it told".to_owned(),
                    None => "the end is the same without it".to_owned(),
                };
                return (StepNecessity::Unnecessary, why);
            }
            if let Some(used) = provenance.find_sole_source_use(step, kept) {
                let who = used.at.map_or_else(|| "the final message".to_owned(), |at| format!("step {}", at + 1));
                return (StepNecessity::Needed, format!("{who} has {} from it", used.fact.describe()));
            }
            match reasons.get(&step) {
                Some(why) => (StepNecessity::Needed, why.clone()),
                None if provenance.find_ambiguous_figure(step, kept).is_some() => {
                    (StepNecessity::Unknown, "a figure in the final message may be from it".to_owned())
                }
                None if provenance.is_page_of_kept_list(step, kept) => {
                    (StepNecessity::Needed, "a page of a list that was needed".to_owned())
                }
                None if passed => (StepNecessity::Unknown, "not tried".to_owned()),
                None => (StepNecessity::Unknown, "the task was not done, so nothing can be missed".to_owned()),
            }
        };
        self.build_report(passed, &final_kept, verdict)
    }

    fn world_state(&self) -> gradus_github_sim::state::WorldState {
        self.environment.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner).state().clone()
    }

    /// Reports `kept` as the shortest run and asks `verdict` for each step. If no step is needed, the ratio is the
    /// length of the run, since a division by zero steps is undefined.
    fn build_report(
        &self,
        passed: bool,
        kept: &StepSet,
        verdict: impl Fn(usize, &StepSet) -> (StepNecessity, String),
    ) -> ReplayReport {
        let steps: Vec<StepVerdict> = self
            .record
            .steps
            .iter()
            .enumerate()
            .map(|(index, step)| {
                let (need, why) = verdict(index, kept);
                StepVerdict { step: index + 1, tool: step.tool.clone(), need, why }
            })
            .collect();
        let shortest: Vec<usize> = kept.iter().map(|index| index + 1).collect();
        let ratio = if shortest.is_empty() {
            1.0_f64.max(steps.len() as f64)
        } else {
            steps.len() as f64 / shortest.len() as f64
        };
        ReplayReport {
            task: self.record.task.clone(),
            trial: self.record.trial,
            agent: self.record.agent.clone(),
            passed,
            steps,
            shortest,
            ratio,
            replays: self.replays,
            cut_short: self.cut_short,
        }
    }

    /// Compares which steps failed in the record and in the repetition. Returns the difference, which means that the
    /// world is not the one of the record.
    fn explain_divergence(&self, again: &TrialRecord) -> Option<String> {
        let differs =
            self.record.steps.iter().zip(&again.steps).position(|(one, other)| one.is_error != other.is_error);
        let step = differs? + 1;
        Some(format!("played again, step {step} comes out otherwise: this is not the world it was recorded in"))
    }

    /// Replays these steps. Counts towards the limit on replays.
    async fn replay_subset(&mut self, kept: &StepSet) -> ReplayAttempt {
        self.replays += 1;
        replay_steps(self.seed, self.record, kept, self.environment, self.verify).await
    }

    /// Whether a step changed nothing: by the tool's effect, or by the methods of its requests if the tool is not ours.
    fn is_read(&self, step: &RunStep) -> bool {
        let is_known = self.environment.tools.tools().iter().any(|tool| *tool.definition.name == *step.tool);
        if is_known {
            return self.environment.tools.classify_effect(&step.tool, &step.arguments) == ToolEffect::Read;
        }
        let sent = self.record.exchanges.get(step.exchanges.clone()).unwrap_or_default();
        sent.iter().all(|one| matches!(one.method.as_str(), "GET" | "HEAD"))
    }

    /// Whether these steps lead to an end where every check holds that held before. Tests the provenance first, which
    /// costs no repetition.
    async fn is_sufficient(&mut self, kept: &StepSet, provenance: &ProvenanceGraph, wanted: &CheckResults) -> bool {
        if !provenance.is_supported(kept) {
            return false;
        }
        if let Some(known) = self.tried.get(kept) {
            return *known;
        }
        if self.replays >= max_replays(self.record.steps.len()) {
            self.cut_short = true;
            return false;
        }
        let checks = self.replay_subset(kept).await.checks;
        let does = holds_all_wanted(&checks, wanted);
        if !does {
            let all = self.record.steps.len();
            let missed = wanted.iter().zip(&checks).find(|((_, wanted), (_, found))| *wanted && !found);
            let gone: Vec<usize> = (0..all).filter(|step| !kept.contains(step)).collect();
            // The reason is certain only if exactly one step was left out.
            if let (Some(((name, _), _)), [step]) = (missed, &gone[..]) {
                self.reasons.insert(*step, format!("without it this is not so: {name}"));
            }
        }
        self.tried.insert(kept.clone(), does);
        does
    }

    /// Starts with all steps and leaves out as many as possible. Ends when a pass changes nothing or the limit is
    /// reached.
    async fn find_minimal_steps(
        &mut self,
        all: &StepSet,
        provenance: &ProvenanceGraph,
        wanted: &CheckResults,
    ) -> StepSet {
        let mut kept = all.clone();
        // From the end, so that of two equal reads the first one stays.
        let mut idle: Vec<usize> = Vec::new();
        let mut rest = kept.clone();
        for step in all.iter().rev().copied().filter(|step| self.is_read(&self.record.steps[*step])) {
            // Pages of a list are left out together.
            let without = provenance.drop_incomplete_lists(rest.iter().copied().filter(|one| *one != step).collect());
            if without.len() < rest.len() && provenance.is_supported(&without) {
                idle.extend(rest.difference(&without));
                rest = without;
            }
        }
        self.drop_groups(&mut kept, vec![idle], provenance, wanted).await;
        loop {
            let before = kept.len();
            for step in kept.clone().into_iter().rev() {
                self.drop_with_dependents(&mut kept, step, provenance, wanted).await;
            }
            self.drop_undone_pairs(&mut kept, provenance, wanted).await;
            if kept.len() == before || self.cut_short {
                break;
            }
        }
        self.explain_needed_steps(&kept, provenance, wanted).await;
        kept
    }

    /// Leaves out groups as a whole, or halves them and tries the halves.
    async fn drop_groups(
        &mut self,
        kept: &mut StepSet,
        mut groups: Vec<Vec<usize>>,
        provenance: &ProvenanceGraph,
        wanted: &CheckResults,
    ) {
        while let Some(group) = groups.pop() {
            if group.is_empty() {
                continue;
            }
            let without =
                provenance.drop_incomplete_lists(kept.iter().copied().filter(|step| !group.contains(step)).collect());
            if self.is_sufficient(&without, provenance, wanted).await {
                *kept = without;
            } else if group.len() > 1 {
                let (first, second) = group.split_at(group.len() / 2);
                groups.push(second.to_vec());
                groups.push(first.to_vec());
            }
        }
    }

    /// Leaves out a step, everything that depends on it, and the other pages of its list. Keeps all if the final
    /// message depends on it.
    async fn drop_with_dependents(
        &mut self,
        kept: &mut StepSet,
        step: usize,
        provenance: &ProvenanceGraph,
        wanted: &CheckResults,
    ) {
        if !kept.contains(&step) {
            return;
        }
        let mut without = kept.clone();
        without.remove(&step);
        loop {
            without = provenance.drop_incomplete_lists(without);
            // Steps whose arguments came from the removed one have to go too, and so on.
            match provenance.find_unsupported_use(&without).map(|used| used.at) {
                None => break,
                // What the final message says must be kept.
                Some(None) => return,
                Some(Some(at)) => drop(without.remove(&at)),
            }
        }
        if self.is_sufficient(&without, provenance, wanted).await {
            *kept = without;
        }
    }

    /// Leaves out two writes on the same object: something that was done and undone, where neither can go alone.
    async fn drop_undone_pairs(&mut self, kept: &mut StepSet, provenance: &ProvenanceGraph, wanted: &CheckResults) {
        let writes: Vec<usize> = kept.iter().copied().filter(|step| !self.is_read(&self.record.steps[*step])).collect();
        for (at, one) in writes.iter().enumerate() {
            for other in &writes[at + 1..] {
                let both = kept.contains(one) && kept.contains(other);
                if !both || !have_same_target(&self.record.steps[*one], &self.record.steps[*other]) {
                    continue;
                }
                let without: StepSet = kept.iter().copied().filter(|step| step != one && step != other).collect();
                if self.is_sufficient(&without, provenance, wanted).await {
                    *kept = without;
                }
            }
        }
    }

    /// Repeats the run without each kept step that has no reason yet, to find the check that fails.
    async fn explain_needed_steps(&mut self, kept: &StepSet, provenance: &ProvenanceGraph, wanted: &CheckResults) {
        for step in kept.iter().copied() {
            if provenance.find_sole_source_use(step, kept).is_some() || self.reasons.contains_key(&step) {
                continue;
            }
            let mut without = kept.clone();
            without.remove(&step);
            if !provenance.is_supported(&without) || self.replays >= max_replays(self.record.steps.len()) {
                continue;
            }
            let checks = self.replay_subset(&without).await.checks;
            let missed = wanted.iter().zip(&checks).find(|((_, wanted), (_, found))| *wanted && !found);
            if let Some(((name, _), _)) = missed {
                self.reasons.insert(step, format!("without it this is not so: {name}"));
            }
        }
    }

    /// For a failed run: returns all steps but reads that repeat an earlier one with the same result.
    fn drop_repeated_reads(&self, all: &StepSet, provenance: &ProvenanceGraph) -> StepSet {
        let is_repeated =
            |step: &usize| provenance.equal_earlier_steps[*step].is_some() && self.is_read(&self.record.steps[*step]);
        all.iter().copied().filter(|step| !is_repeated(step)).collect()
    }
}

/// Whether every check that held in `wanted` still holds.
fn holds_all_wanted(checks: &CheckResults, wanted: &CheckResults) -> bool {
    checks.len() == wanted.len() && wanted.iter().zip(checks).all(|((_, wanted), (_, found))| !wanted || *found)
}

/// Whether two steps share the repository and one more identifying argument.
fn have_same_target(one: &RunStep, other: &RunStep) -> bool {
    const NAMES: [&str; 10] = [
        "branch",
        "path",
        "label",
        "name",
        "issue_number",
        "pull_number",
        "milestone_number",
        "tag",
        "tag_name",
        "labels",
    ];
    let get =
        |step: &RunStep, name: &str| step.arguments.get(name).filter(|value| !value.is_null()).map(Value::to_string);
    let same = |name: &str| get(one, name).is_some() && get(one, name) == get(other, name);
    let place = get(one, "owner") == get(other, "owner") && get(one, "repo") == get(other, "repo");
    place
        && (NAMES.iter().any(|name| same(name))
            || (same("repo") && one.arguments.as_object().is_some_and(|all| all.len() == 2)))
}
