//! From attempts to results: the checks of the dataset, and trajectories for grading.

use std::collections::HashSet;

use gradus_core::trajectory::{DefectKind, ExtractionDefect, Trajectory};
use gradus_dataset::{DatasetItem, ItemTrial, TrialEnd, TrialEvidence};
use gradus_eval::outcome::OutcomeSpans;

use super::folder::{AttemptMap, FinishedAttempt};
use super::span_attribution::AttributedTraces;

/// What counts as the answer of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerSource {
    /// The answer in the trace, else what the agent printed or sent: a program prints more than its answer.
    Trace,
    /// What the agent sent, since the user specified where the answer is in it.
    Agent,
}

/// The results of an experiment.
#[derive(Debug, Default)]
pub(super) struct ExperimentResults {
    /// In the order of the dataset, trial by trial.
    pub(super) trials: Vec<ItemTrial>,
    pub(super) trajectories: Vec<Trajectory>,
    /// Exports that a collector refused.
    pub(super) refused_exports: u64,
}

impl ExperimentResults {
    /// Makes the checks from the dataset as it is now. Attempts at items that it does not have are left out.
    pub(super) fn from_attempts(
        items: &[DatasetItem],
        trials: u32,
        experiment_id: &str,
        attempts: &AttemptMap,
        mut received: AttributedTraces,
        answer_source: AnswerSource,
    ) -> ExperimentResults {
        let mut results = ExperimentResults::default();
        let mut known_ids: HashSet<String> = HashSet::new();
        for item in items {
            for trial in 0..trials {
                let key = (item.id.clone(), trial);
                let Some(attempt) = attempts.get(&key) else { continue };
                let mut trajectories = attempt.trajectories.clone();
                trajectories.extend(received.trajectories.remove(&key).unwrap_or_default());
                let session = format!("{}/{trial}", item.id);
                for trajectory in &mut trajectories {
                    // Results are looked up by this id.
                    if !known_ids.insert(trajectory.trajectory_id.clone()) {
                        trajectory.trajectory_id = format!("{}-{session}", trajectory.trajectory_id);
                    }
                }
                let (line, trajectories) = assess_attempt(item, attempt, trajectories, experiment_id, answer_source);
                results.refused_exports += attempt.refused_exports;
                for mut trajectory in trajectories {
                    // An id that several trials share would make their trajectories turns of one conversation.
                    trajectory.session_id = Some(session.clone());
                    // A trial begins with the request, so there are no earlier messages unless the trace has some.
                    trajectory.turn_index = trajectory.turn_index.or(Some(1));
                    results.trajectories.push(trajectory);
                }
                results.trials.push(line);
            }
        }
        results
    }
}

/// Returns the result of one attempt, and its trajectories as they are graded.
fn assess_attempt(
    item: &DatasetItem,
    attempt: &FinishedAttempt,
    mut trajectories: Vec<Trajectory>,
    experiment_id: &str,
    answer_source: AnswerSource,
) -> (ItemTrial, Vec<Trajectory>) {
    trajectories.sort_by(|a, b| a.start.cmp(&b.start));
    let has_spans = !trajectories.is_empty();
    let evidence_calls = |nested: bool| -> Vec<String> {
        let own = trajectories.iter().filter(|one| one.parent_trajectory_id.is_some() == nested);
        own.flat_map(|one| &one.steps).map(|step| step.tool.clone()).collect()
    };
    let (calls, nested_calls) = (evidence_calls(false), evidence_calls(true));
    if !has_spans {
        trajectories.push(trajectory_without_spans(item, attempt, experiment_id));
    }
    let main = find_main_trajectory(&trajectories);
    let main = &mut trajectories[main];
    let is_blank = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
    if is_blank(&main.query) {
        main.query = Some(item.request_text().to_owned());
    }
    if answer_source == AnswerSource::Agent || is_blank(&main.final_answer) {
        main.final_answer = attempt.answer.clone();
    }
    main.reference_answer = item.reference.clone();
    let end = match attempt.end {
        TrialEnd::Answered if is_blank(&main.final_answer) => TrialEnd::NoAnswer,
        end => end,
    };
    let evidence = TrialEvidence { calls: has_spans.then_some(calls), nested_calls, answer: main.final_answer.clone() };
    let (answer, trajectory_id) = (main.final_answer.clone(), main.trajectory_id.clone());
    let spans = OutcomeSpans::new(main, None);
    if !matches!(end, TrialEnd::Answered | TrialEnd::NoAnswer) {
        // The output of a program that died is not an answer of the run. It stays in the trial's line.
        main.is_error = true;
        main.final_answer = None;
        if has_spans {
            let failure = attempt.failure.as_deref().unwrap_or("the program failed");
            main.defects.push(ExtractionDefect::new(DefectKind::RunFailed, failure, None));
        }
    }
    let checks = item.check_evidence(&evidence);
    let costs: Vec<f64> = trajectories.iter().filter_map(|one| one.cost_usd).collect();
    let line = ItemTrial {
        item_id: item.id.clone(),
        trial: attempt.trial,
        passed: ItemTrial::decide(end, &checks) == Some(true),
        end,
        failure: attempt.failure.clone().or_else(|| (end == TrialEnd::NoAnswer).then(|| "no answer".to_owned())),
        checks,
        tags: item.tags.clone(),
        answer,
        trajectory_id,
        trace_id: spans.trace_id,
        span_ids: spans.span_ids,
        has_spans,
        step_count: trajectories.iter().map(|one| one.steps.len() as u64).sum(),
        prompt_tokens: trajectories.iter().map(|one| one.tokens.prompt).fold(0, u64::saturating_add),
        completion_tokens: trajectories.iter().map(|one| one.tokens.completion).fold(0, u64::saturating_add),
        cost_usd: (!costs.is_empty()).then(|| costs.iter().sum()),
        seconds: attempt.seconds,
    };
    (line, trajectories)
}

/// Finds the trajectory of the agent itself: of those that no other agent called, the first with most steps.
fn find_main_trajectory(trajectories: &[Trajectory]) -> usize {
    let rank = |one: &Trajectory| (one.parent_trajectory_id.is_none(), one.steps.len());
    let mut main = 0;
    for (at, one) in trajectories.iter().enumerate() {
        if rank(one) > rank(&trajectories[main]) {
            main = at;
        }
    }
    main
}

/// Makes a trajectory for an agent that sent no spans: its request and its answer.
fn trajectory_without_spans(item: &DatasetItem, attempt: &FinishedAttempt, experiment_id: &str) -> Trajectory {
    let name = format!("{experiment_id}/{}/{}", item.id, attempt.trial);
    let mut trajectory = Trajectory {
        trajectory_id: format!("{:032x}", gradus_core::stable_digest(name.as_bytes())),
        query: Some(item.request_text().to_owned()),
        final_answer: attempt.answer.clone(),
        ..Trajectory::default()
    };
    if let Some(failure) = &attempt.failure {
        trajectory.defects.push(ExtractionDefect::new(DefectKind::RunFailed, failure, None));
    } else if attempt.answer.is_none() {
        trajectory.defects.push(ExtractionDefect::new(DefectKind::MissingAnswer, "nothing was printed", None));
    }
    trajectory
}
