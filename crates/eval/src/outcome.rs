//! The outcome of one question about a step or a trajectory. [`OutcomeLine`] is the line of a run's journal, and
//! [`ExportedOutcome`] the line format of `gradus eval --jsonl`. Their field names are a stable interface, and their doc
//! comments become descriptions in `docs/schemas/outcome.schema.json`.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::trajectory::Trajectory;
use gradus_llm::CompletionUsage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::prompt::TruncatedValue;
pub use crate::rule_remark::RuleRemark;

/// The result of one question. A judge that could not decide is never scored as 0 or 1.
#[derive(Clone, Debug, PartialEq)]
pub enum EvaluationOutcome {
    Scored(ScoredVerdict),
    /// The question does not apply: there is no thought, no query or no step.
    NotApplicable {
        reason: String,
    },
    /// The question applies, and no rule can decide it.
    Abstained {
        reason: String,
    },
    /// The question applies and was not answered.
    Failed {
        reason: String,
    },
}

/// A verdict with the score that the rubric gives to its label.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredVerdict {
    pub label: String,
    /// `None` for a label that is neither good nor bad.
    pub score: Option<f64>,
    pub explanation: String,
    /// The texts that the verdict rests on, quoted where possible. Only rules give evidence.
    pub evidence: Vec<String>,
    /// The id of the rule that decided; `None` for a model.
    pub rule: Option<&'static str>,
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// The judge gave a label.
    Scored,
    /// The question does not arise.
    NotApplicable,
    /// The question arises, and the judge cannot decide it.
    Abstained,
    /// The question arises and was not answered.
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenCount {
    pub prompt: u64,
    pub completion: u64,
    /// Of the prompt's tokens, those that the provider had cached.
    pub cached_prompt: u64,
}

impl TokenCount {
    pub(crate) fn from_usage(usage: CompletionUsage) -> TokenCount {
        let CompletionUsage { prompt, completion, cached_prompt } = usage;
        TokenCount { prompt, completion, cached_prompt }
    }
}

impl std::ops::AddAssign for TokenCount {
    fn add_assign(&mut self, more: TokenCount) {
        self.prompt += more.prompt;
        self.completion += more.completion;
        self.cached_prompt += more.cached_prompt;
    }
}

/// One outcome, as it is stored and printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeLine {
    pub run_id: Arc<str>,
    pub trajectory_id: Arc<str>,
    /// Counts from 1; null for a whole trajectory; one after the last step for the thought before the answer.
    pub step_index: Option<u32>,
    /// The rubric's name.
    pub evaluator: Arc<str>,
    pub outcome: OutcomeKind,
    /// Null unless scored.
    pub label: Option<String>,
    /// Null unless scored, and for a label that is neither good nor bad.
    pub score: Option<f64>,
    /// How probable the model found its label among the labels of the rubric. Absent where the endpoint gives no
    /// log-probabilities, or was not asked for them, and where several votes decided: each of them has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_probability: Option<f64>,
    pub explanation: Option<String>,
    /// What the verdict rests on.
    pub evidence: Vec<String>,
    /// The rule that decided; absent when a model did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Cow<'static, str>>,
    /// What rules noticed without deciding anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<RuleRemark>,
    /// Why there is no verdict; null when there is one.
    pub reason: Option<String>,
    /// `offline`, `rules`, the provider and the model, `panel(...)`, or `cascade(...)`.
    pub judge: Arc<str>,
    /// The model that answered, as the endpoint names it. Absent where the endpoint does not say, and where several votes
    /// decided: each of them has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    pub rubric_hash: Arc<str>,
    /// Spent on this outcome in this run; null when no model was asked.
    pub tokens: Option<TokenCount>,
    /// Spent on this outcome in this run; null when the model's price is not known.
    pub cost_usd: Option<f64>,
    /// Whether the verdict was there already: from an earlier run, or from an identical question of this one. With
    /// several votes: whether all of them were.
    pub cached: bool,
    /// Requests that were sent for it, retries included.
    pub calls: u32,
    /// What the judge saw only in part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<TruncatedValue>,
    /// What each judge of a panel answered, each time it was asked. Absent where one judge is asked once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<JudgeVote>,
    /// How many of `votes` gave `label`. Absent without votes, without a verdict, and where another judge decided
    /// (`escalated`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vote_count: Option<u32>,
    /// The share of votes with a label that differ from the most frequent one: 0 when all agree. Absent without votes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<f64>,
    /// Why the judge of `--escalate-to` decided. Absent when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated: Option<EscalationReason>,
    /// With `escalated`: the label of the judges that were asked first. Absent if they had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_label: Option<String>,
}

/// One answer of one judge to a question that is asked several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeVote {
    /// The key of the answer in the verdict cache.
    pub k: String,
    /// Provider and model.
    pub judge: Arc<str>,
    /// The model that answered, as the endpoint names it. Absent where the endpoint does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// Counts from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeat: u32,
    /// Null when the judge gave none; `reason` says why.
    pub label: Option<String>,
    pub score: Option<f64>,
    /// The beginning of the judge's explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How probable the model found its label. Absent where the endpoint reports no log-probabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_probability: Option<f64>,
    /// Spent in this run; null when the price of the model is not known.
    pub cost_usd: Option<f64>,
    /// Requests that were sent for it, retries included.
    pub calls: u32,
    /// Whether the answer was there already.
    pub cached: bool,
}

/// serde passes fields by reference.
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Why a question went to the judge of `--escalate-to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EscalationReason {
    /// The first judges disagreed, were not sure of their label, or gave none.
    Unsure,
    /// They were sure; the question was drawn at random to check them.
    Audit,
}

impl OutcomeLine {
    pub fn is_scored(&self) -> bool {
        self.outcome == OutcomeKind::Scored
    }
}

/// The spans that an outcome is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OutcomeSpans {
    /// The trace of the first of `span_ids`; null for sources without spans.
    pub trace_id: Option<String>,
    /// The spans of the step: the model call first, then the tool's. For the thought before the answer the calls that
    /// answered; for a whole trajectory its root span.
    pub span_ids: Vec<String>,
}

impl OutcomeSpans {
    /// The spans of a step, of the thought before the answer, or of the whole trajectory (`None`).
    pub fn new(trajectory: &Trajectory, step_index: Option<u32>) -> OutcomeSpans {
        let first_trace = || trajectory.trace_ids.first().cloned();
        let Some(index) = step_index else {
            let span_ids = trajectory.root_span_id.iter().cloned().collect();
            return OutcomeSpans { trace_id: first_trace(), span_ids };
        };
        match trajectory.steps.binary_search_by_key(&index, |step| step.index) {
            Ok(at) => {
                let step = &trajectory.steps[at];
                let trace_id = step.trace_id.clone().or_else(first_trace);
                OutcomeSpans { trace_id, span_ids: step.span_ids.clone() }
            }
            // An answer belongs to the trace of the last step, where a trajectory is made of several traces.
            Err(_) => {
                let last_trace = trajectory.steps.last().and_then(|step| step.trace_id.clone());
                OutcomeSpans { trace_id: last_trace.or_else(first_trace), span_ids: trajectory.answer_span_ids.clone() }
            }
        }
    }
}

/// One outcome with the spans that it is about, so that it can be joined with the trace.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OutcomeLine")]
pub struct ExportedOutcome<'l> {
    #[serde(flatten)]
    pub line: &'l OutcomeLine,
    #[serde(flatten)]
    pub spans: OutcomeSpans,
}

impl<'l> ExportedOutcome<'l> {
    pub fn new(trajectory: &Trajectory, line: &'l OutcomeLine) -> ExportedOutcome<'l> {
        ExportedOutcome { line, spans: OutcomeSpans::new(trajectory, line.step_index) }
    }
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::TrajectoryStep;

    use super::*;

    #[test]
    fn outcomes_lead_to_their_spans() {
        let step = |index, span: &str, trace: Option<&str>| TrajectoryStep {
            index,
            span_ids: vec![span.to_owned(), format!("{span}-tool")],
            trace_id: trace.map(str::to_owned),
            ..TrajectoryStep::default()
        };
        let trajectory = Trajectory {
            trace_ids: vec!["t1".to_owned(), "t2".to_owned()],
            root_span_id: Some("root".to_owned()),
            answer_span_ids: vec!["answer".to_owned()],
            steps: vec![step(1, "a", None), step(3, "b", Some("t2"))],
            ..Trajectory::default()
        };
        let spans = |index| {
            let found = OutcomeSpans::new(&trajectory, index);
            (found.trace_id.unwrap_or_default(), found.span_ids.join(" "))
        };
        let text = |trace: &str, spans: &str| (trace.to_owned(), spans.to_owned());
        assert_eq!(spans(None), text("t1", "root"));
        assert_eq!(spans(Some(1)), text("t1", "a a-tool"));
        assert_eq!(spans(Some(3)), text("t2", "b b-tool"));
        assert_eq!(spans(Some(4)), text("t2", "answer"), "the thought before the answer");
        assert_eq!(OutcomeSpans::new(&Trajectory::default(), None), OutcomeSpans::default());
    }
}
