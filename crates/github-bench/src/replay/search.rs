//! The search for the shortest run: what nothing rests on is left out together, halved where that changes the end; then
//! each other step alone, with what rests on it, and together with the step that undoes it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::doubts::UncertaintyCheck;
use super::perform::{ReplayAttempt, replay_steps};
use super::trace::ProvenanceGraph;
use super::{CheckResults, ReplayEnvironment, ReplayReport, RunVerifier, StepNecessity, StepVerdict};
use crate::record::TrialRecord;
use crate::replay::kept_steps::StepSet;
use gradus_github_agent::agent::RunStep;
use gradus_github_agent::tools::ToolEffect;
use gradus_github_sim::World;

/// A run of so many steps may be played so often: enough for each step alone, and for groups.
fn most_replays(steps: usize) -> usize {
    40 + 4 * steps
}
/// A longer run is not looked at.
const MAX_STEPS: usize = 500;

pub(super) struct ReplaySearch<'s> {
    seed: &'s World,
    record: &'s TrialRecord,
    stage: ReplayEnvironment<'s>,
    verify: &'s RunVerifier<'s>,
    replays: usize,
    cut_short: bool,
    /// What was tried, and whether it did.
    tried: BTreeMap<StepSet, bool>,
    /// Why a step cannot be left out.
    reasons: BTreeMap<usize, String>,
}

impl<'s> ReplaySearch<'s> {
    pub(super) fn new(
        seed: &'s World,
        record: &'s TrialRecord,
        stage: ReplayEnvironment<'s>,
        verify: &'s RunVerifier<'s>,
    ) -> ReplaySearch<'s> {
        let (tried, reasons) = (BTreeMap::new(), BTreeMap::new());
        ReplaySearch { seed, record, stage, verify, replays: 0, cut_short: false, tried, reasons }
    }

    pub(super) async fn run(mut self) -> ReplayReport {
        let all: StepSet = (0..self.record.steps.len()).collect();
        if all.len() > MAX_STEPS {
            let why = format!("runs of more than {MAX_STEPS} steps are not played again");
            self.cut_short = true;
            return self.build_report(false, &all, |_, _| (StepNecessity::Unknown, why.clone()));
        }
        let ReplayAttempt { checks, record } = self.replay_subset(&all).await;
        let passed = checks.iter().all(|(_, holds)| *holds);
        if let Some(why) = self.cannot_be_told(&record) {
            return self.build_report(passed, &all, |_, _| (StepNecessity::Unknown, why.clone()));
        }
        let mute = TrialRecord { answer: None, ..record.clone() };
        let state = self.world_state();
        let answer_counts = !is_as_good(&(self.verify)(&state, &mute), &checks);
        // Without a task that is done, nothing is missed when a step is left out, and only repetition can be told.
        let trace = ProvenanceGraph::new(self.record);
        let kept = if passed {
            self.find_minimal_steps(&all, &trace, &checks).await
        } else {
            self.without_repetition(&all, &trace)
        };
        let reasons = std::mem::take(&mut self.reasons);
        let doubts = UncertaintyCheck::new(self.record, &trace, &kept, answer_counts);
        let doubt = |step: usize| -> Option<String> {
            let is_new_look = trace.same_as[step].is_none() && self.is_read(&self.record.steps[step]);
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
                let why = match trace.same_as[step] {
                    Some(earlier) => format!("it told the same as step {}", earlier + 1),
                    None if self.is_read(&self.record.steps[step]) => "nothing rests on what it told".to_owned(),
                    None => "the end is the same without it".to_owned(),
                };
                return (StepNecessity::Unnecessary, why);
            }
            if let Some(used) = trace.rests_on(step, kept) {
                let who = used.at.map_or_else(|| "the final message".to_owned(), |at| format!("step {}", at + 1));
                return (StepNecessity::Needed, format!("{who} has {} from it", used.fact.describe()));
            }
            match reasons.get(&step) {
                Some(why) => (StepNecessity::Needed, why.clone()),
                None if trace.figure_from(step, kept).is_some() => {
                    (StepNecessity::Unknown, "a figure in the final message may be from it".to_owned())
                }
                None if trace.is_page(step, kept) => {
                    (StepNecessity::Needed, "a page of a list that was needed".to_owned())
                }
                None if passed => (StepNecessity::Unknown, "not tried".to_owned()),
                None => (StepNecessity::Unknown, "the task was not done, so nothing can be missed".to_owned()),
            }
        };
        self.build_report(passed, &final_kept, verdict)
    }

    fn world_state(&self) -> gradus_github_sim::state::WorldState {
        self.stage.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner).state().clone()
    }

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

    /// A run that goes another way when it is played again cannot be searched.
    fn cannot_be_told(&self, again: &TrialRecord) -> Option<String> {
        let differs =
            self.record.steps.iter().zip(&again.steps).position(|(one, other)| one.is_error != other.is_error);
        let step = differs? + 1;
        Some(format!("played again, step {step} comes out otherwise: this is not the world it was recorded in"))
    }

    async fn replay_subset(&mut self, kept: &StepSet) -> ReplayAttempt {
        self.replays += 1;
        replay_steps(self.seed, self.record, kept, self.stage, self.verify).await
    }

    fn is_read(&self, step: &RunStep) -> bool {
        let is_known = self.stage.tools.tools().iter().any(|tool| *tool.definition.name == *step.tool);
        if is_known {
            return self.stage.tools.effect_of(&step.tool, &step.arguments) == ToolEffect::Read;
        }
        let sent = self.record.exchanges.get(step.exchanges.clone()).unwrap_or_default();
        sent.iter().all(|one| matches!(one.method.as_str(), "GET" | "HEAD"))
    }

    /// Whether this is enough to come to as good an end.
    async fn is_sufficient(&mut self, kept: &StepSet, trace: &ProvenanceGraph, wanted: &CheckResults) -> bool {
        if !trace.is_supported(kept) {
            return false;
        }
        if let Some(known) = self.tried.get(kept) {
            return *known;
        }
        if self.replays >= most_replays(self.record.steps.len()) {
            self.cut_short = true;
            return false;
        }
        let checks = self.replay_subset(kept).await.checks;
        let does = is_as_good(&checks, wanted);
        if !does {
            let all = self.record.steps.len();
            let missed = wanted.iter().zip(&checks).find(|((_, wanted), (_, found))| *wanted && !found);
            let gone: Vec<usize> = (0..all).filter(|step| !kept.contains(step)).collect();
            if let (Some(((name, _), _)), [step]) = (missed, &gone[..]) {
                self.reasons.insert(*step, format!("without it this is not so: {name}"));
            }
        }
        self.tried.insert(kept.clone(), does);
        does
    }

    async fn find_minimal_steps(&mut self, all: &StepSet, trace: &ProvenanceGraph, wanted: &CheckResults) -> StepSet {
        let mut kept = all.clone();
        // Later ones first: of two that tell the same, the first one stays.
        let mut idle: Vec<usize> = Vec::new();
        let mut rest = kept.clone();
        for step in all.iter().rev().copied().filter(|step| self.is_read(&self.record.steps[*step])) {
            let without = trace.whole_lists(rest.iter().copied().filter(|one| *one != step).collect());
            if without.len() < rest.len() && trace.is_supported(&without) {
                idle.extend(rest.difference(&without));
                rest = without;
            }
        }
        self.drop_groups(&mut kept, vec![idle], trace, wanted).await;
        loop {
            let before = kept.len();
            for step in kept.clone().into_iter().rev() {
                self.drop_one(&mut kept, step, trace, wanted).await;
            }
            self.drop_pairs(&mut kept, trace, wanted).await;
            if kept.len() == before || self.cut_short {
                break;
            }
        }
        self.explain_needed_steps(&kept, trace, wanted).await;
        kept
    }

    /// Leaves out groups, halving those that cannot go as a whole.
    async fn drop_groups(
        &mut self,
        kept: &mut StepSet,
        mut groups: Vec<Vec<usize>>,
        trace: &ProvenanceGraph,
        wanted: &CheckResults,
    ) {
        while let Some(group) = groups.pop() {
            if group.is_empty() {
                continue;
            }
            let without = trace.whole_lists(kept.iter().copied().filter(|step| !group.contains(step)).collect());
            if self.is_sufficient(&without, trace, wanted).await {
                *kept = without;
            } else if group.len() > 1 {
                let (first, second) = group.split_at(group.len() / 2);
                groups.push(second.to_vec());
                groups.push(first.to_vec());
            }
        }
    }

    /// A step with all that rests on it, and with the other pages of its list.
    async fn drop_one(&mut self, kept: &mut StepSet, step: usize, trace: &ProvenanceGraph, wanted: &CheckResults) {
        if !kept.contains(&step) {
            return;
        }
        let mut without = kept.clone();
        without.remove(&step);
        loop {
            without = trace.whole_lists(without);
            match trace.find_unsupported_use(&without).map(|used| used.at) {
                None => break,
                // What the final message says must be kept.
                Some(None) => return,
                Some(Some(at)) => drop(without.remove(&at)),
            }
        }
        if self.is_sufficient(&without, trace, wanted).await {
            *kept = without;
        }
    }

    /// Something is done and undone: neither can go alone.
    async fn drop_pairs(&mut self, kept: &mut StepSet, trace: &ProvenanceGraph, wanted: &CheckResults) {
        let writes: Vec<usize> = kept.iter().copied().filter(|step| !self.is_read(&self.record.steps[*step])).collect();
        for (at, one) in writes.iter().enumerate() {
            for other in &writes[at + 1..] {
                let both = kept.contains(one) && kept.contains(other);
                if !both || !is_about_the_same(&self.record.steps[*one], &self.record.steps[*other]) {
                    continue;
                }
                let without: StepSet = kept.iter().copied().filter(|step| step != one && step != other).collect();
                if self.is_sufficient(&without, trace, wanted).await {
                    *kept = without;
                }
            }
        }
    }

    /// Says of what is left why it is needed.
    async fn explain_needed_steps(&mut self, kept: &StepSet, trace: &ProvenanceGraph, wanted: &CheckResults) {
        for step in kept.iter().copied() {
            if trace.rests_on(step, kept).is_some() || self.reasons.contains_key(&step) {
                continue;
            }
            let mut without = kept.clone();
            without.remove(&step);
            if !trace.is_supported(&without) || self.replays >= most_replays(self.record.steps.len()) {
                continue;
            }
            let checks = self.replay_subset(&without).await.checks;
            let missed = wanted.iter().zip(&checks).find(|((_, wanted), (_, found))| *wanted && !found);
            if let Some(((name, _), _)) = missed {
                self.reasons.insert(step, format!("without it this is not so: {name}"));
            }
        }
    }

    fn without_repetition(&self, all: &StepSet, trace: &ProvenanceGraph) -> StepSet {
        let is_repeated = |step: &usize| trace.same_as[*step].is_some() && self.is_read(&self.record.steps[*step]);
        all.iter().copied().filter(|step| !is_repeated(step)).collect()
    }
}

/// Whatever held still holds.
fn is_as_good(checks: &CheckResults, wanted: &CheckResults) -> bool {
    checks.len() == wanted.len() && wanted.iter().zip(checks).all(|((_, wanted), (_, found))| !wanted || *found)
}

/// The same repository, and one more thing in common that names something.
fn is_about_the_same(one: &RunStep, other: &RunStep) -> bool {
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
