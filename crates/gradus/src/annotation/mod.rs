//! Outcomes as annotations: what is said, by whom, of which span. How they travel is the business of `phoenix` and
//! `carrier`.

use std::collections::{BTreeMap, HashMap};

use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::{OFFLINE, RULES};
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::run::{EvaluatorRecord, RunRecord};
use serde_json::{Map, Value as Json};

use crate::config::{PhoenixSection, TrajectoryTarget};

/// One thing that is said of a span or a trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Annotation {
    pub(crate) name: String,
    pub(crate) annotator: AnnotatorKind,
    pub(crate) target: Target,
    /// With the name and the target it says which annotation this is: one that is sent again takes the place of the
    /// earlier one.
    pub(crate) identifier: String,
    /// Null unless a judge gave it, as the score is.
    pub(crate) label: Option<String>,
    pub(crate) score: Option<f64>,
    /// Why; also why there is no verdict.
    pub(crate) explanation: Option<String>,
    pub(crate) metadata: Map<String, Json>,
    pub(crate) subject: Subject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnnotatorKind {
    /// A model was asked.
    Llm,
    /// Rules have decided.
    Code,
}

impl AnnotatorKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            AnnotatorKind::Llm => "LLM",
            AnnotatorKind::Code => "CODE",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Span { trace_id: String, span_id: String },
    Trace { trace_id: String },
}

/// Which outcome it is, for messages.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Subject {
    pub(crate) trajectory_id: String,
    pub(crate) step_index: Option<u32>,
    pub(crate) evaluator: String,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.step_index {
            Some(step) => write!(f, "{} of {}, step {step}", self.evaluator, self.trajectory_id),
            None => write!(f, "{} of {}", self.evaluator, self.trajectory_id),
        }
    }
}

/// An outcome that is about no span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoTarget(pub(crate) Subject);

/// Refuses names that cannot be, or that would make two evaluations one.
pub(crate) fn check_names(
    evaluators: &[EvaluatorRecord],
    names: &BTreeMap<String, String>,
) -> Result<(), String> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for evaluator in evaluators {
        let name = name_of(evaluator, names);
        if name.trim().is_empty() || name == RESERVED {
            return Err(format!("[phoenix.names] {}: {name:?} cannot be a name there", evaluator.name));
        }
        if let Some(other) = owners.insert(name, &evaluator.name) {
            return Err(format!(
                "{other} and {} are both called {name:?}: give one of them another name under [phoenix.names]",
                evaluator.name
            ));
        }
    }
    Ok(())
}

fn name_of<'a>(evaluator: &'a EvaluatorRecord, names: &'a BTreeMap<String, String>) -> &'a str {
    names.get(&evaluator.name).map_or(&evaluator.phoenix_name, String::as_str)
}

/// Phoenix keeps this one for people's notes.
const RESERVED: &str = "note";

/// Makes annotations of a run's outcomes, trajectory by trajectory, in the run's order.
#[derive(Debug)]
pub(crate) struct Annotations {
    run_id: String,
    evaluators: Vec<EvaluatorRecord>,
    names: BTreeMap<String, String>,
    trajectory_target: TrajectoryTarget,
    /// How many calls and trajectories each span or trace has been the target of so far.
    taken: HashMap<(bool, Target), u32>,
}

/// What all identifiers begin with.
const IDENTIFIER: &str = "gradus";

impl Annotations {
    pub(crate) fn new(record: &RunRecord, settings: &PhoenixSection) -> Annotations {
        Annotations {
            run_id: record.run_id.clone(),
            evaluators: record.evaluators.clone(),
            names: settings.names.clone(),
            trajectory_target: settings.trajectory_target,
            taken: HashMap::new(),
        }
    }

    /// All that is said of one trajectory.
    pub(crate) fn of(
        &mut self,
        trajectory: &Trajectory,
        outcomes: &[OutcomeLine],
    ) -> Vec<Result<Annotation, NoTarget>> {
        // Numbers go by the steps that are there, not by those that were judged: they stay when less or more is judged.
        let steps: Vec<Option<(Target, u32)>> = (0..trajectory.steps.len())
            .map(|at| step_target(trajectory, at).map(|target| self.numbered(true, target)))
            .collect();
        let whole = self.whole_target(trajectory).map(|target| self.numbered(false, target));
        let found = outcomes.iter().filter_map(|outcome| {
            let evaluator = self.evaluators.iter().find(|known| *known.name == *outcome.evaluator)?;
            let target = match outcome.step_index {
                Some(index) => {
                    let at = trajectory.steps.iter().position(|step| step.index == index);
                    at.and_then(|at| steps[at].clone())
                }
                None => whole.clone(),
            };
            Some(self.annotation(evaluator, trajectory, outcome, target))
        });
        found.collect()
    }

    fn annotation(
        &self,
        evaluator: &EvaluatorRecord,
        trajectory: &Trajectory,
        outcome: &OutcomeLine,
        target: Option<(Target, u32)>,
    ) -> Result<Annotation, NoTarget> {
        let subject = Subject {
            trajectory_id: trajectory.trajectory_id.clone(),
            step_index: outcome.step_index,
            evaluator: evaluator.name.clone(),
        };
        let Some((target, number)) = target else { return Err(NoTarget(subject)) };
        let is_code = matches!(&*outcome.judge, OFFLINE | RULES);
        let kind = serde_json::to_value(outcome.outcome).unwrap_or_default();
        let mut metadata = Map::new();
        metadata.insert("evaluator".to_owned(), evaluator.name.clone().into());
        metadata.insert("judge".to_owned(), outcome.judge.to_string().into());
        metadata.insert("rubric_hash".to_owned(), outcome.rubric_hash.to_string().into());
        metadata.insert("run_id".to_owned(), self.run_id.clone().into());
        metadata.insert("trajectory_id".to_owned(), trajectory.trajectory_id.clone().into());
        metadata.insert("step".to_owned(), outcome.step_index.into());
        metadata.insert("outcome".to_owned(), kind);
        if !outcome.evidence.is_empty() {
            metadata.insert("evidence".to_owned(), outcome.evidence.clone().into());
        }
        let scored = outcome.is_scored();
        Ok(Annotation {
            name: name_of(evaluator, &self.names).to_owned(),
            annotator: if is_code { AnnotatorKind::Code } else { AnnotatorKind::Llm },
            target,
            identifier: if number == 1 { IDENTIFIER.to_owned() } else { format!("{IDENTIFIER}:{number}") },
            label: outcome.label.clone().filter(|_| scored),
            score: outcome.score.filter(|score| scored && score.is_finite()),
            explanation: if scored { outcome.explanation.clone() } else { outcome.reason.clone() },
            metadata,
            subject,
        })
    }

    fn numbered(&mut self, is_step: bool, target: Target) -> (Target, u32) {
        let taken = self.taken.entry((is_step, target.clone())).or_default();
        *taken += 1;
        (target, *taken)
    }

    fn whole_target(&self, trajectory: &Trajectory) -> Option<Target> {
        let trace_id = trajectory.trace_ids.first()?.clone();
        match self.trajectory_target {
            TrajectoryTarget::Trace => Some(Target::Trace { trace_id }),
            TrajectoryTarget::Span => {
                Some(Target::Span { trace_id, span_id: trajectory.root_span_id.clone()? })
            }
        }
    }
}

/// The model call that held the thought; where there is none, the tool's span, and where there is no span of the step
/// at all, that of the whole request.
fn step_target(trajectory: &Trajectory, at: usize) -> Option<Target> {
    let step = &trajectory.steps[at];
    let span_id = step.span_ids.first().or(trajectory.root_span_id.as_ref())?.clone();
    let trace_id = step.trace_id.as_ref().or(trajectory.trace_ids.first())?.clone();
    Some(Target::Span { trace_id, span_id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradus_core::trajectory::Step;
    use gradus_eval::outcome::OutcomeKind;
    use gradus_eval::run::RunState;

    fn evaluator(name: &str, of_steps: bool) -> EvaluatorRecord {
        EvaluatorRecord {
            name: name.to_owned(),
            title: name.to_owned(),
            of_steps,
            labels: vec![("correct".to_owned(), 1.0), ("incorrect".to_owned(), 0.0)],
            rubric_hash: "h".to_owned(),
            phoenix_name: format!("{name} Eval"),
            judge: "openai:m".to_owned(),
        }
    }

    fn record() -> RunRecord {
        RunRecord {
            run_id: "r1".to_owned(),
            fingerprint: String::new(),
            state: RunState::Finished,
            stopped_because: None,
            started: String::new(),
            ended: None,
            sources: Vec::new(),
            judge: String::new(),
            endpoint: None,
            evaluators: vec![evaluator("tool", true), evaluator("path", false)],
            priced: true,
            gradus_version: String::new(),
        }
    }

    fn outcome(evaluator: &str, step_index: Option<u32>, kind: OutcomeKind) -> OutcomeLine {
        let scored = kind == OutcomeKind::Scored;
        OutcomeLine {
            run_id: "r1".into(),
            trajectory_id: "t".into(),
            step_index,
            evaluator: evaluator.into(),
            outcome: kind,
            label: scored.then(|| "correct".to_owned()),
            score: scored.then_some(1.0),
            explanation: scored.then(|| "so".to_owned()),
            evidence: Vec::new(),
            reason: (!scored).then(|| "no thought".to_owned()),
            judge: "openai:m".into(),
            rubric_hash: "h".into(),
            tokens: None,
            cost_usd: None,
            cached: false,
            calls: 1,
            shortened: Vec::new(),
        }
    }

    fn trajectory(id: &str, spans: &[&[&str]]) -> Trajectory {
        let step = |(at, spans): (usize, &&[&str])| Step {
            index: at as u32 + 1,
            span_ids: spans.iter().map(|id| (*id).to_owned()).collect(),
            ..Step::default()
        };
        Trajectory {
            trajectory_id: id.to_owned(),
            trace_ids: vec!["t1".to_owned()],
            root_span_id: Some("root".to_owned()),
            steps: spans.iter().enumerate().map(step).collect(),
            ..Trajectory::default()
        }
    }

    fn places(found: &[Result<Annotation, NoTarget>]) -> Vec<(String, String)> {
        let place = |one: &Result<Annotation, NoTarget>| match one.as_ref().expect("a target") {
            Annotation { target: Target::Span { span_id, .. }, identifier, .. } => {
                (span_id.clone(), identifier.clone())
            }
            Annotation { target: Target::Trace { trace_id }, identifier, .. } => {
                (trace_id.clone(), identifier.clone())
            }
        };
        found.iter().map(place).collect()
    }

    fn pair(span: &str, identifier: &str) -> (String, String) {
        (span.to_owned(), identifier.to_owned())
    }

    #[test]
    fn calls_of_one_reply_are_told_apart_by_their_identifiers() {
        let calls = trajectory("t", &[&["llm1", "tool1"], &["llm1", "tool2"], &["llm2"], &[]]);
        let scored = |step| outcome("tool", Some(step), OutcomeKind::Scored);
        let all = [scored(1), scored(2), scored(3), scored(4), outcome("path", None, OutcomeKind::Scored)];
        let mut annotations = Annotations::new(&record(), &PhoenixSection::default());
        let wanted = [
            pair("llm1", "gradus"),
            pair("llm1", "gradus:2"),
            pair("llm2", "gradus"),
            pair("root", "gradus"),
            pair("root", "gradus"),
        ];
        assert_eq!(places(&annotations.of(&calls, &all)), wanted);
        // The same when only a part was judged.
        let mut annotations = Annotations::new(&record(), &PhoenixSection::default());
        assert_eq!(places(&annotations.of(&calls, &all[1..2])), wanted[1..2]);
        // A second trajectory on the same root takes no place that is taken.
        let more = annotations.of(&trajectory("t-2", &[]), &all[4..]);
        assert_eq!(places(&more), [pair("root", "gradus:2")]);
    }

    #[test]
    fn what_is_not_scored_has_a_reason_and_no_score() {
        let mut annotations = Annotations::new(&record(), &PhoenixSection::default());
        let unscored = [OutcomeKind::NotApplicable, OutcomeKind::Failed];
        for (kind, shown) in unscored.into_iter().zip(["not_applicable", "failed"]) {
            let mut line = outcome("tool", Some(1), kind);
            // Even if a file from elsewhere says otherwise.
            (line.label, line.score) = (Some("correct".to_owned()), Some(0.0));
            let found = annotations.of(&trajectory("t", &[&["llm"]]), &[line]).remove(0).expect("a target");
            assert_eq!(
                (found.label, found.score, found.explanation.as_deref()),
                (None, None, Some("no thought"))
            );
            assert_eq!(found.metadata["outcome"], shown);
            assert_eq!(found.annotator, AnnotatorKind::Llm);
        }
    }

    #[test]
    fn names_targets_and_documents() {
        let settings = PhoenixSection {
            names: BTreeMap::from([("path".to_owned(), "Way".to_owned())]),
            trajectory_target: TrajectoryTarget::Trace,
            ..PhoenixSection::default()
        };
        let mut annotations = Annotations::new(&record(), &settings);
        let mut whole = outcome("path", None, OutcomeKind::Scored);
        whole.judge = "offline".into();
        let found = annotations.of(&trajectory("t", &[]), &[whole]).remove(0).expect("a target");
        assert_eq!((found.name.as_str(), found.annotator), ("Way", AnnotatorKind::Code));
        assert_eq!(found.target, Target::Trace { trace_id: "t1".to_owned() });
        let document = Trajectory { trajectory_id: "d".to_owned(), ..Trajectory::default() };
        let found = annotations.of(&document, &[outcome("path", None, OutcomeKind::Scored)]).remove(0);
        assert_eq!(found.expect_err("no span").0.to_string(), "path of d");
        assert!(check_names(&record().evaluators, &settings.names).is_ok());
        for (name, wrong) in [("path", "tool Eval"), ("path", "note"), ("tool", " ")] {
            let names = BTreeMap::from([(name.to_owned(), wrong.to_owned())]);
            assert!(check_names(&record().evaluators, &names).is_err(), "{wrong}");
        }
    }
}
