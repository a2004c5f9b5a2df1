//! Trajectories with the verdicts on them.

use std::collections::HashMap;

use gradus_core::trajectory::{DefectKind, ExtractionDefect, RecordedAnnotation, Trajectory, TrajectoryStep};
use serde::{Deserialize, Serialize};

/// A verdict of a judge on a step or on a whole trajectory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunVerdict {
    pub evaluator: String,
    /// The step that it is about; null for the whole trajectory.
    pub step_index: Option<u32>,
    pub label: String,
    /// Null for a label that is neither good nor bad.
    pub score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    pub judge: String,
    pub rubric_hash: String,
    /// Whether a good label shows that the step is right. Rules prove faults; that none fired proves nothing.
    #[serde(skip)]
    pub can_confirm: bool,
}

/// The combined result of the verdicts on a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepQuality {
    /// At least one verdict that can confirm it, and no bad one.
    Right,
    /// At least one bad verdict.
    Wrong,
    /// No verdict, or only verdicts that can confirm nothing.
    Unjudged,
}

/// Whether a run reached its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunQuality {
    Success,
    Failure,
    Unknown,
}

/// A trajectory with the verdicts on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GradedRun {
    pub trajectory: Trajectory,
    pub verdicts: Vec<RunVerdict>,
}

/// Minimum score of a good verdict.
const MIN_GOOD_SCORE: f64 = 0.5;
/// Maximum number of earlier turns of a conversation that are followed.
const MAX_EARLIER_TURNS: usize = 1_000;

impl GradedRun {
    /// Verdicts on one step.
    pub fn step_verdicts(&self, index: u32) -> impl Iterator<Item = &RunVerdict> {
        self.verdicts.iter().filter(move |verdict| verdict.step_index == Some(index))
    }

    /// Verdicts on the whole trajectory.
    pub fn run_verdicts(&self) -> impl Iterator<Item = &RunVerdict> {
        self.verdicts.iter().filter(|verdict| verdict.step_index.is_none())
    }

    pub fn step_quality(&self, index: u32) -> StepQuality {
        let mut quality = StepQuality::Unjudged;
        for verdict in self.step_verdicts(index) {
            match verdict.score {
                Some(score) if score < MIN_GOOD_SCORE => return StepQuality::Wrong,
                Some(_) if verdict.can_confirm => quality = StepQuality::Right,
                _ => {}
            }
        }
        quality
    }

    /// Returns the mean of the scores on a step; `None` without any.
    pub fn step_score(&self, index: u32) -> Option<f64> {
        mean(self.step_verdicts(index).filter_map(|verdict| verdict.score))
    }

    /// Returns the mean of the scores on the whole trajectory, else of the mean scores of its steps.
    pub fn run_score(&self) -> Option<f64> {
        let steps = self.trajectory.steps.iter().filter_map(|step| self.step_score(step.index));
        mean(self.run_verdicts().filter_map(|verdict| verdict.score)).or_else(|| mean(steps))
    }

    /// Whether the run reached its goal: what the record itself says counts before the verdict on the outcome.
    pub fn run_quality(&self) -> RunQuality {
        if let Some(is_success) = self.trajectory.annotations.iter().find_map(recorded_success) {
            return if is_success { RunQuality::Success } else { RunQuality::Failure };
        }
        let outcome = self.run_verdicts().filter(|verdict| verdict.evaluator == "task_completion");
        match outcome.filter_map(|verdict| verdict.score).next() {
            _ if self.trajectory.is_error => RunQuality::Failure,
            Some(score) if score < MIN_GOOD_SCORE => RunQuality::Failure,
            Some(_) => RunQuality::Success,
            None => RunQuality::Unknown,
        }
    }

    /// Whether a verdict is bad.
    pub fn has_bad_verdict(&self) -> bool {
        self.verdicts.iter().filter_map(|verdict| verdict.score).any(|score| score < MIN_GOOD_SCORE)
    }

    /// Whether a verdict confirms something about the run.
    pub fn is_confirmed(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.can_confirm && verdict.score.is_some())
    }

    /// Returns why the run does not contain all that the agent saw; `None` if it does.
    pub fn explain_incomplete(&self) -> Option<&'static str> {
        if self.trajectory.steps.iter().any(|step| step.observation.is_none()) {
            return Some("the result of a call is missing");
        }
        let is_cut = |defect: &ExtractionDefect| defect.kind == DefectKind::TooLarge;
        self.trajectory.defects.iter().any(is_cut).then_some("a text was too long to be kept")
    }
}

/// Returns the success that a record states: as `success`, or as a reward, of which 1 is full.
fn recorded_success(annotation: &RecordedAnnotation) -> Option<bool> {
    if annotation.step_index.is_some() {
        return None;
    }
    match (annotation.name.as_str(), annotation.score, annotation.label.as_deref()) {
        ("success" | "reward" | "resolved", Some(score), _) => Some(score >= 1.0),
        ("success" | "resolved", None, Some(label)) => Some(matches!(label, "true" | "success" | "pass" | "yes")),
        _ => None,
    }
}

fn mean(scores: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = scores.fold((0.0, 0u32), |(sum, count), score| (sum + score, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// All trajectories of an export, and which are turns of one conversation.
#[derive(Clone, Debug, Default)]
pub struct GradedRuns {
    runs: Vec<GradedRun>,
    by_id: HashMap<String, usize>,
}

impl GradedRuns {
    pub fn new(runs: Vec<GradedRun>) -> Self {
        let by_id = (0..).zip(&runs).map(|(at, run)| (run.trajectory.trajectory_id.clone(), at)).collect();
        GradedRuns { runs, by_id }
    }

    pub fn iter(&self) -> impl Iterator<Item = &GradedRun> {
        self.runs.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the turns before a run, oldest first. Ends at a turn that is not part of the export.
    pub fn earlier_turns<'r>(&'r self, run: &'r GradedRun) -> Vec<&'r GradedRun> {
        let mut turns: Vec<&GradedRun> = Vec::new();
        let mut previous = run.trajectory.previous_trajectory_id.as_ref();
        while let Some(at) = previous.and_then(|id| self.by_id.get(id))
            && turns.len() < MAX_EARLIER_TURNS
        {
            let turn = &self.runs[*at];
            // Ids are recorded text, so a chain can have a cycle.
            if std::ptr::eq(turn, run) || turns.iter().any(|known| std::ptr::eq(*known, turn)) {
                break;
            }
            turns.push(turn);
            previous = turn.trajectory.previous_trajectory_id.as_ref();
        }
        turns.reverse();
        turns
    }

    /// Returns why a run has no complete context: a turn before it is missing or incomplete. `None` if it has.
    pub fn explain_missing_context(&self, run: &GradedRun) -> Option<&'static str> {
        let turns = self.earlier_turns(run);
        let first = turns.first().copied().unwrap_or(run);
        let is_later = first.trajectory.turn_index.is_some_and(|turn| turn > 1);
        let is_continued =
            |turn: &GradedRun| turn.trajectory.defects.iter().any(|defect| defect.kind == DefectKind::MissingTurn);
        if first.trajectory.previous_trajectory_id.is_some() || is_later || is_continued(run) || is_continued(first) {
            return Some("an earlier turn is missing");
        }
        turns.into_iter().find_map(GradedRun::explain_incomplete)
    }

    /// Returns the runs as conversations: each a list of turns, oldest first. A run without turns is a conversation
    /// of one.
    pub fn conversations(&self) -> Vec<Vec<&GradedRun>> {
        let mut next: HashMap<&str, &GradedRun> = HashMap::new();
        let mut firsts = Vec::new();
        for run in &self.runs {
            let previous = run.trajectory.previous_trajectory_id.as_deref().filter(|id| self.by_id.contains_key(*id));
            // If two turns follow the same one, the second begins a conversation of its own.
            match previous {
                Some(previous) if !next.contains_key(previous) => drop(next.insert(previous, run)),
                _ => firsts.push(run),
            }
        }
        let follow = |first| {
            let mut turns: Vec<&GradedRun> = vec![first];
            while let Some(turn) = turns.last().and_then(|last| next.get(last.trajectory.trajectory_id.as_str())) {
                turns.push(turn);
            }
            turns
        };
        firsts.into_iter().map(follow).collect()
    }
}

/// Splits the steps of a trajectory by reply: calls that the model requested together.
pub(crate) fn split_replies(steps: &[TrajectoryStep]) -> impl Iterator<Item = &[TrajectoryStep]> {
    steps.chunk_by(|_, next| next.parallel_with_previous)
}
