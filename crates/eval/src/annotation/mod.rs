//! Outcomes as annotations: name, label, score and explanation on a span or a trace. The `phoenix` crate and the OTLP
//! exporter send them, and `gradus serve` shows them in the same form.

mod annotation_keys;

pub use annotation_keys::{AnnotationKey, AnnotationKeyAllocator, IDENTIFIER_PREFIX};

use std::collections::BTreeMap;

use crate::evaluator::{OFFLINE_JUDGE, QUERY_TO_THOUGHT, RULES_JUDGE, SEQUENCE_OPTIMALITY, THOUGHT_TO_TOOL};
use crate::outcome::{OutcomeKind, OutcomeLine};
use crate::run::{EvaluatorRecord, RunManifest};
use gradus_core::trajectory::Trajectory;
use serde_json::{Map, Value as Json};

/// How annotations are named and placed at their destination.
#[derive(Clone, Debug, Default)]
pub struct AnnotationSettings {
    pub trajectory_target: TrajectoryTarget,
    /// Whether outcomes that the judge cannot decide become annotations in Phoenix. Offline most outcomes are
    /// abstentions, and a page full of empty annotations hides the verdicts.
    pub include_abstentions: bool,
    /// Annotation names by evaluator name, from `[phoenix]` `names_preset` and `[phoenix.names]`. Evaluators that are not in it keep their own name.
    pub names: BTreeMap<String, String>,
}

/// Which names annotations have where `[phoenix.names]` gives none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnnotationNamePreset {
    /// The names of the rubrics.
    #[default]
    Plain,
    /// The names of the specification for GitHub agents that Gradus began with. Dashboards may be built on them.
    Spec,
}

impl AnnotationNamePreset {
    /// The names that differ from those of the rubrics, by evaluator name.
    pub fn to_names(self) -> BTreeMap<String, String> {
        let names: &[(&str, &str)] = match self {
            AnnotationNamePreset::Plain => &[],
            AnnotationNamePreset::Spec => &[
                (THOUGHT_TO_TOOL, "GitHub Tool Calling Eval (Thought-to-Tool)"),
                (QUERY_TO_THOUGHT, "GitHub Query Interpretation Eval (Query-to-Thought)"),
                (SEQUENCE_OPTIMALITY, "GitHub Sequence Optimality Eval"),
            ],
        };
        names.iter().map(|(evaluator, name)| ((*evaluator).to_owned(), (*name).to_owned())).collect()
    }
}

impl AnnotationSettings {
    /// Whether an outcome becomes an annotation.
    pub fn includes(&self, outcome: OutcomeKind) -> bool {
        self.include_abstentions || outcome != OutcomeKind::Abstained
    }
}

/// Where verdicts on whole trajectories are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrajectoryTarget {
    /// The root span of the request.
    #[default]
    Span,
    /// The trace that contains the request.
    Trace,
}

/// One annotation of a span or a trace, in the fields of Phoenix's annotation API.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomeAnnotation {
    pub name: String,
    pub annotator: OutcomeAnnotatorKind,
    pub target: OutcomeTarget,
    /// Identifies the annotation together with name and target: sending it again replaces the earlier one.
    pub identifier: String,
    /// `None` unless the outcome is scored, and so is `score`.
    pub label: Option<String>,
    pub score: Option<f64>,
    /// The judge's explanation; for an unscored outcome the reason why there is no verdict.
    pub explanation: Option<String>,
    /// Evaluator, judge, rubric hash, run and trajectory, so that an annotation can be traced back to its run.
    pub metadata: Map<String, Json>,
    /// The outcome that this annotation was made from, for messages about failed uploads.
    pub subject: OutcomeReference,
}

/// Phoenix's `annotator_kind`. Its third value, `HUMAN`, is never used for outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeAnnotatorKind {
    /// A model was asked.
    Llm,
    /// Rules decided.
    Code,
}

impl OutcomeAnnotatorKind {
    /// The value as Phoenix's API spells it.
    pub fn name(self) -> &'static str {
        match self {
            OutcomeAnnotatorKind::Llm => "LLM",
            OutcomeAnnotatorKind::Code => "CODE",
        }
    }
}

/// What an annotation is attached to. Ids are lower-case hexadecimal, as in OTLP/JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OutcomeTarget {
    Span { trace_id: String, span_id: String },
    Trace { trace_id: String },
}

/// Identifies an outcome in messages.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct OutcomeReference {
    pub trajectory_id: String,
    /// Counts from 1; `None` for the whole trajectory.
    pub step_index: Option<u32>,
    pub evaluator: String,
}

impl std::fmt::Display for OutcomeReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.step_index {
            Some(step) => write!(f, "{} of {}, step {step}", self.evaluator, self.trajectory_id),
            None => write!(f, "{} of {}", self.evaluator, self.trajectory_id),
        }
    }
}

/// An outcome that cannot become an annotation, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnplacedOutcome {
    pub subject: OutcomeReference,
    pub reason: &'static str,
}

const NO_SPAN: &str = "it is about no span: its source has none";
const UNKNOWN_EVALUATOR: &str = "the run does not say what this evaluation is";

/// Why the names under `[phoenix.names]` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationNameError {
    /// The name is blank, or it is the one that Phoenix reserves for notes of people.
    #[error("[phoenix.names] {evaluator}: {name:?} cannot be a name there")]
    Unusable { evaluator: String, name: String },
    #[error("{first} and {second} are both called {name:?}: give one of them another name under [phoenix.names]")]
    Ambiguous { first: String, second: String, name: String },
}

/// Refuses names that Phoenix does not accept, and names that two evaluators share. Phoenix identifies an annotation by
/// name, target and identifier, so with a shared name one verdict would overwrite the other.
pub fn check_annotation_names(
    evaluators: &[EvaluatorRecord],
    names: &BTreeMap<String, String>,
) -> Result<(), AnnotationNameError> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for evaluator in evaluators {
        let name = find_annotation_name(evaluator, names);
        if name.trim().is_empty() || name == RESERVED_ANNOTATION_NAME {
            return Err(AnnotationNameError::Unusable { evaluator: evaluator.name.clone(), name: name.to_owned() });
        }
        if let Some(other) = owners.insert(name, &evaluator.name) {
            return Err(AnnotationNameError::Ambiguous {
                first: other.to_owned(),
                second: evaluator.name.clone(),
                name: name.to_owned(),
            });
        }
    }
    Ok(())
}

/// Returns the configured name, else the one from the rubric.
fn find_annotation_name<'a>(evaluator: &'a EvaluatorRecord, names: &'a BTreeMap<String, String>) -> &'a str {
    names.get(&evaluator.name).map_or(&evaluator.phoenix_name, String::as_str)
}

/// The annotation name that Phoenix reserves for notes of people.
const RESERVED_ANNOTATION_NAME: &str = "note";

/// Makes the annotation of one outcome. Phoenix, OTLP and the server all use it, so they show the same.
pub fn annotate_outcome(name: &str, outcome: &OutcomeLine, place: &AnnotationKey) -> OutcomeAnnotation {
    let is_code = matches!(&*outcome.judge, OFFLINE_JUDGE | RULES_JUDGE);
    let kind = serde_json::to_value(outcome.outcome).unwrap_or_default();
    let mut metadata = Map::new();
    metadata.insert("evaluator".to_owned(), outcome.evaluator.to_string().into());
    metadata.insert("judge".to_owned(), outcome.judge.to_string().into());
    metadata.insert("rubric_hash".to_owned(), outcome.rubric_hash.to_string().into());
    metadata.insert("run_id".to_owned(), outcome.run_id.to_string().into());
    metadata.insert("trajectory_id".to_owned(), outcome.trajectory_id.to_string().into());
    metadata.insert("step".to_owned(), outcome.step_index.into());
    metadata.insert("outcome".to_owned(), kind);
    if !outcome.evidence.is_empty() {
        metadata.insert("evidence".to_owned(), outcome.evidence.clone().into());
    }
    // Lets people label first what a panel disagrees on.
    if let Some(disagreement) = outcome.disagreement {
        metadata.insert("disagreement".to_owned(), disagreement.into());
        metadata.insert("vote_count".to_owned(), outcome.vote_count.into());
    }
    let scored = outcome.is_scored();
    OutcomeAnnotation {
        name: name.to_owned(),
        annotator: if is_code { OutcomeAnnotatorKind::Code } else { OutcomeAnnotatorKind::Llm },
        target: place.target.clone(),
        identifier: place.identifier.clone(),
        // A foreign file may have a label or a score on an unscored outcome; both are dropped. JSON has no NaN.
        label: outcome.label.clone().filter(|_| scored),
        score: outcome.score.filter(|score| scored && score.is_finite()),
        explanation: if scored { outcome.explanation.clone() } else { outcome.reason.clone() },
        metadata,
        subject: OutcomeReference::from_outcome(outcome),
    }
}

impl OutcomeReference {
    fn from_outcome(outcome: &OutcomeLine) -> OutcomeReference {
        OutcomeReference {
            trajectory_id: outcome.trajectory_id.to_string(),
            step_index: outcome.step_index,
            evaluator: outcome.evaluator.to_string(),
        }
    }
}

/// Makes annotations of a run's outcomes. It is stateful: trajectories must be passed in the order of the run, since
/// identifiers count the annotations of a span.
#[derive(Debug)]
pub struct AnnotationBuilder {
    evaluators: Vec<EvaluatorRecord>,
    settings: AnnotationSettings,
    key_allocator: AnnotationKeyAllocator,
}

impl AnnotationBuilder {
    pub fn new(record: &RunManifest, settings: &AnnotationSettings) -> AnnotationBuilder {
        AnnotationBuilder {
            evaluators: record.evaluators.clone(),
            settings: settings.clone(),
            key_allocator: AnnotationKeyAllocator::new(settings.trajectory_target),
        }
    }

    /// Returns the annotations of one trajectory, in the order of `outcomes`, without those that the settings
    /// exclude. It must be called for every trajectory of the run, even one without outcomes.
    pub fn annotate_trajectory(
        &mut self,
        trajectory: &Trajectory,
        outcomes: &[OutcomeLine],
    ) -> Vec<Result<OutcomeAnnotation, UnplacedOutcome>> {
        let placed = self.key_allocator.assign_keys(trajectory);
        let included = outcomes.iter().filter(|outcome| self.settings.includes(outcome.outcome));
        let made = included.map(|outcome| {
            let unplaced = |reason| UnplacedOutcome { subject: OutcomeReference::from_outcome(outcome), reason };
            let evaluator = self.evaluators.iter().find(|known| *known.name == *outcome.evaluator);
            let evaluator = evaluator.ok_or_else(|| unplaced(UNKNOWN_EVALUATOR))?;
            let place = placed.find_key(outcome.step_index).ok_or_else(|| unplaced(NO_SPAN))?;
            Ok(annotate_outcome(find_annotation_name(evaluator, &self.settings.names), outcome, place))
        });
        made.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunState;
    use gradus_core::trajectory::TrajectoryStep;

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

    fn record() -> RunManifest {
        RunManifest {
            run_id: "r1".to_owned(),
            fingerprint: String::new(),
            state: RunState::Finished,
            name: None,
            tags: Default::default(),
            commit: None,
            branch: None,
            stopped_because: None,
            started: String::new(),
            ended: None,
            sources: Vec::new(),
            judge: String::new(),
            endpoint: None,
            panel: None,
            models: Vec::new(),
            evaluators: vec![evaluator("tool", true), evaluator("path", false)],
            priced: true,
            gates: Vec::new(),
            early_gates: Vec::new(),
            prices: Default::default(),
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
            label_probability: None,
            explanation: scored.then(|| "so".to_owned()),
            evidence: Vec::new(),
            rule: None,
            remarks: Vec::new(),
            reason: (!scored).then(|| "no thought".to_owned()),
            judge: "openai:m".into(),
            rubric_hash: "h".into(),
            tokens: None,
            cost_usd: None,
            cached: false,
            calls: 1,
            shortened: Vec::new(),
            votes: Vec::new(),
            vote_count: None,
            disagreement: None,
            escalated: None,
            first_label: None,
            answered_by: None,
        }
    }

    fn trajectory(id: &str, spans: &[&[&str]]) -> Trajectory {
        let step = |(at, spans): (usize, &&[&str])| TrajectoryStep {
            index: at as u32 + 1,
            span_ids: spans.iter().map(|id| (*id).to_owned()).collect(),
            ..TrajectoryStep::default()
        };
        Trajectory {
            trajectory_id: id.to_owned(),
            trace_ids: vec!["t1".to_owned()],
            root_span_id: Some("root".to_owned()),
            steps: spans.iter().enumerate().map(step).collect(),
            ..Trajectory::default()
        }
    }

    fn places(found: &[Result<OutcomeAnnotation, UnplacedOutcome>]) -> Vec<(String, String)> {
        let place = |one: &Result<OutcomeAnnotation, UnplacedOutcome>| match one.as_ref().expect("a target") {
            OutcomeAnnotation { target: OutcomeTarget::Span { span_id, .. }, identifier, .. } => {
                (span_id.clone(), identifier.clone())
            }
            OutcomeAnnotation { target: OutcomeTarget::Trace { trace_id }, identifier, .. } => {
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
        let mut annotations = AnnotationBuilder::new(&record(), &AnnotationSettings::default());
        let wanted = [
            pair("llm1", "gradus"),
            pair("llm1", "gradus:2"),
            pair("llm2", "gradus"),
            pair("root", "gradus"),
            pair("root", "gradus"),
        ];
        assert_eq!(places(&annotations.annotate_trajectory(&calls, &all)), wanted);
        // The same when only a part was judged.
        let mut annotations = AnnotationBuilder::new(&record(), &AnnotationSettings::default());
        assert_eq!(places(&annotations.annotate_trajectory(&calls, &all[1..2])), wanted[1..2]);
        // A second trajectory on the same root takes no place that is taken.
        let more = annotations.annotate_trajectory(&trajectory("t-2", &[]), &all[4..]);
        assert_eq!(places(&more), [pair("root", "gradus:2")]);
    }

    #[test]
    fn what_is_not_scored_has_a_reason_and_no_score() {
        let mut annotations = AnnotationBuilder::new(&record(), &AnnotationSettings::default());
        let unscored = [OutcomeKind::NotApplicable, OutcomeKind::Failed];
        for (kind, shown) in unscored.into_iter().zip(["not_applicable", "failed"]) {
            let mut line = outcome("tool", Some(1), kind);
            // Even if a file from elsewhere says otherwise.
            (line.label, line.score) = (Some("correct".to_owned()), Some(0.0));
            let found =
                annotations.annotate_trajectory(&trajectory("t", &[&["llm"]]), &[line]).remove(0).expect("a target");
            assert_eq!((found.label, found.score, found.explanation.as_deref()), (None, None, Some("no thought")));
            assert_eq!(found.metadata["outcome"], shown);
            assert_eq!(found.annotator, OutcomeAnnotatorKind::Llm);
        }
    }

    #[test]
    fn names_targets_and_documents() {
        let settings = AnnotationSettings {
            names: BTreeMap::from([("path".to_owned(), "Way".to_owned())]),
            trajectory_target: TrajectoryTarget::Trace,
            include_abstentions: false,
        };
        let mut annotations = AnnotationBuilder::new(&record(), &settings);
        let mut whole = outcome("path", None, OutcomeKind::Scored);
        whole.judge = "offline".into();
        let found = annotations.annotate_trajectory(&trajectory("t", &[]), &[whole]).remove(0).expect("a target");
        assert_eq!((found.name.as_str(), found.annotator), ("Way", OutcomeAnnotatorKind::Code));
        assert_eq!(found.target, OutcomeTarget::Trace { trace_id: "t1".to_owned() });
        let document = Trajectory { trajectory_id: "d".to_owned(), ..Trajectory::default() };
        let of_document = OutcomeLine { trajectory_id: "d".into(), ..outcome("path", None, OutcomeKind::Scored) };
        let found = annotations.annotate_trajectory(&document, &[of_document]).remove(0);
        let unplaced = found.expect_err("no span");
        assert_eq!((unplaced.subject.to_string().as_str(), unplaced.reason), ("path of d", NO_SPAN));
        let found = annotations
            .annotate_trajectory(&trajectory("t", &[]), &[outcome("gone", None, OutcomeKind::Scored)])
            .remove(0);
        assert_eq!(found.expect_err("nobody knows it").reason, UNKNOWN_EVALUATOR);
        assert!(check_annotation_names(&record().evaluators, &settings.names).is_ok());
        for (name, wrong) in [("path", "tool Eval"), ("path", "note"), ("tool", " ")] {
            let names = BTreeMap::from([(name.to_owned(), wrong.to_owned())]);
            assert!(check_annotation_names(&record().evaluators, &names).is_err(), "{wrong}");
        }
    }
}
