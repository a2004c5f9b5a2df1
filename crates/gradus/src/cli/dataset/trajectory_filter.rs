//! `--where` of `gradus dataset create`: simple conditions on a whole trajectory and on verdicts about it. Anything
//! else is a condition on spans in Phoenix's filter language, which `sources` reads.

use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use gradus_eval::run::EvaluatorRecord;

use super::item_labels::ItemLabel;

/// A condition that a trajectory meets or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrajectoryFilter {
    subject: FilterSubject,
    operator: FilterOperator,
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FilterSubject {
    Tool,
    Agent,
    Session,
    Model,
    /// The request or the answer.
    Text,
    /// `answered`, `unanswered` or `error`.
    Status,
    /// `true` or `false`: the run or one of its calls failed.
    HasError,
    /// A label, or the kind of outcome, of an evaluator in a run.
    Verdict(String),
    /// A label of people or other tools, under this name or any.
    Label(Option<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterOperator {
    Equals,
    Differs,
    Contains,
}

/// Why a condition is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TrajectoryFilterError {
    #[error("condition refused: --where {text:?}: {value:?} is no {subject}; hint: {known}")]
    Value { text: String, subject: &'static str, value: String, known: &'static str },
    #[error("condition refused: --where {text:?}: the run has no such evaluation; hint: it has {known}")]
    UnknownEvaluator { text: String, known: String },
    #[error("condition refused: --where {text:?}: {evaluator} gives no label {value:?}; hint: it gives {known}")]
    UnknownLabel { text: String, evaluator: String, value: String, known: String },
    #[error("condition refused: --where {text:?}: hint: --where 'label.NAME = LABEL', with =, != or ~")]
    Label { text: String },
    #[error("condition refused: --where {text:?}: the value is missing; hint: --where 'tool = search'")]
    MissingValue { text: String },
}

impl TrajectoryFilter {
    /// Parses a condition; `None` if the text is not a simple one. `evaluators` are those of `--run`; without a run,
    /// `outcome` means the same as `status`.
    pub(super) fn parse(
        text: &str,
        evaluators: Option<&[EvaluatorRecord]>,
    ) -> Result<Option<TrajectoryFilter>, TrajectoryFilterError> {
        let Some((name, operator, value)) = split_condition(text) else {
            return match text.trim().starts_with("label.") {
                true => Err(TrajectoryFilterError::Label { text: text.to_owned() }),
                false => Ok(None),
            };
        };
        let subject = match name {
            _ if let Some(evaluator) = find_evaluator(evaluators, name) => {
                check_label(text, evaluator, operator, unquote(value))?;
                FilterSubject::Verdict(name.to_owned())
            }
            "label" => FilterSubject::Label(None),
            _ if let Some(annotation) = name.strip_prefix("label.") => match unquote(annotation.trim()) {
                "" => return Err(TrajectoryFilterError::Label { text: text.to_owned() }),
                annotation => FilterSubject::Label(Some(annotation.to_lowercase())),
            },
            "tool" => FilterSubject::Tool,
            "agent" => FilterSubject::Agent,
            "session" => FilterSubject::Session,
            "model" => FilterSubject::Model,
            "text" => FilterSubject::Text,
            "status" | "outcome" => FilterSubject::Status,
            "has_error" => FilterSubject::HasError,
            _ => match evaluators {
                Some(known) => {
                    let known: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
                    return Err(TrajectoryFilterError::UnknownEvaluator {
                        text: text.to_owned(),
                        known: known.join(", "),
                    });
                }
                None => return Ok(None),
            },
        };
        let value = unquote(value).to_owned();
        let refuse = |subject, known| {
            Err(TrajectoryFilterError::Value { text: text.to_owned(), subject, value: value.clone(), known })
        };
        match subject {
            FilterSubject::Status if !["answered", "unanswered", "error"].contains(&value.as_str()) => {
                return refuse("status", "answered, unanswered or error");
            }
            FilterSubject::HasError if !["true", "false"].contains(&value.as_str()) => {
                return refuse("truth value", "true or false");
            }
            _ if value.is_empty() => return Err(TrajectoryFilterError::MissingValue { text: text.to_owned() }),
            _ => {}
        }
        Ok(Some(TrajectoryFilter { subject, operator, value }))
    }

    pub(super) fn is_about_labels(&self) -> bool {
        matches!(self.subject, FilterSubject::Label(_))
    }

    /// Whether the trajectory meets the condition. `outcomes` are the verdicts of a run on it, `labels` those of
    /// people and other tools.
    pub(super) fn is_met(&self, trajectory: &Trajectory, outcomes: &[OutcomeLine], labels: &[ItemLabel]) -> bool {
        let found: Vec<&str> = match &self.subject {
            FilterSubject::Tool => trajectory.steps.iter().map(|step| step.tool.as_str()).collect(),
            FilterSubject::Agent => trajectory.agent.as_deref().into_iter().collect(),
            FilterSubject::Session => trajectory.session_id.as_deref().into_iter().collect(),
            FilterSubject::Model => trajectory.model.as_deref().into_iter().collect(),
            FilterSubject::Text => {
                trajectory.query.as_deref().into_iter().chain(trajectory.final_answer.as_deref()).collect()
            }
            FilterSubject::Status => vec![status_name(trajectory)],
            FilterSubject::HasError => {
                let has_error = trajectory.is_error || trajectory.steps.iter().any(|step| step.is_error);
                vec![if has_error { "true" } else { "false" }]
            }
            FilterSubject::Verdict(evaluator) => outcomes
                .iter()
                .filter(|line| *line.evaluator == **evaluator)
                .flat_map(|line| line.label.as_deref().into_iter().chain([kind_name(line.outcome)]))
                .collect(),
            FilterSubject::Label(name) => labels
                .iter()
                .filter(|label| name.is_none() || label.name.as_ref().map(|name| name.to_lowercase()) == *name)
                .flat_map(|label| label.values.iter().map(String::as_str))
                .collect(),
        };
        let value = self.value.to_lowercase();
        let is_found = |test: &dyn Fn(&str) -> bool| found.iter().any(|one| test(&one.to_lowercase()));
        match self.operator {
            FilterOperator::Equals => is_found(&|one| one == value),
            FilterOperator::Differs => !is_found(&|one| one == value),
            FilterOperator::Contains => is_found(&|one| one.contains(&value)),
        }
    }
}

fn find_evaluator<'e>(evaluators: Option<&'e [EvaluatorRecord]>, name: &str) -> Option<&'e EvaluatorRecord> {
    evaluators?.iter().find(|known| known.name == name)
}

/// Refuses a label that the evaluator never gives. A part of one (`~`) may be anything.
fn check_label(
    text: &str,
    evaluator: &EvaluatorRecord,
    operator: FilterOperator,
    value: &str,
) -> Result<(), TrajectoryFilterError> {
    let kinds = [OutcomeKind::Scored, OutcomeKind::Abstained, OutcomeKind::NotApplicable, OutcomeKind::Failed];
    let labels = evaluator.labels.iter().map(|(label, _)| label.as_str());
    let known: Vec<&str> = labels.chain(kinds.map(kind_name)).collect();
    let is_known = known.iter().any(|label| label.eq_ignore_ascii_case(value));
    if operator == FilterOperator::Contains || value.is_empty() || evaluator.labels.is_empty() || is_known {
        return Ok(());
    }
    let (evaluator, value) = (evaluator.name.clone(), value.to_owned());
    Err(TrajectoryFilterError::UnknownLabel { text: text.to_owned(), evaluator, value, known: known.join(", ") })
}

/// Splits a condition into name, operator and value. `None` for texts with `==` and other forms of Phoenix's
/// language.
fn split_condition(text: &str) -> Option<(&str, FilterOperator, &str)> {
    let text = text.trim();
    if text == "has_error" {
        return Some((text, FilterOperator::Equals, "true"));
    }
    let is_label = text.starts_with("label.");
    let end = text.find(|letter: char| match is_label {
        true => "=!~".contains(letter),
        false => !(letter.is_ascii_alphanumeric() || letter == '_'),
    })?;
    let (name, rest) = text.split_at(end);
    let (name, rest) = (name.trim_end(), rest.trim_start());
    if rest.starts_with("==") {
        return None;
    }
    let operators = [("!=", FilterOperator::Differs), ("=", FilterOperator::Equals), ("~", FilterOperator::Contains)];
    operators.into_iter().find_map(|(sign, operator)| Some((name, operator, rest.strip_prefix(sign)?.trim())))
}

fn unquote(value: &str) -> &str {
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value)
}

fn status_name(trajectory: &Trajectory) -> &'static str {
    if trajectory.is_error {
        return "error";
    }
    match trajectory.final_answer.as_deref().is_some_and(|answer| !answer.trim().is_empty()) {
        true => "answered",
        false => "unanswered",
    }
}

fn kind_name(kind: OutcomeKind) -> &'static str {
    match kind {
        OutcomeKind::Scored => "scored",
        OutcomeKind::Abstained => "abstained",
        OutcomeKind::NotApplicable => "not_applicable",
        OutcomeKind::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradus_core::trajectory::TrajectoryStep;

    fn recorded() -> Trajectory {
        let step =
            |tool: &str, is_error| TrajectoryStep { tool: tool.to_owned(), is_error, ..TrajectoryStep::default() };
        Trajectory {
            query: Some("Refund order 7".to_owned()),
            final_answer: Some("Done.".to_owned()),
            agent: Some("Shop".to_owned()),
            steps: vec![step("find_order", false), step("refund", true)],
            ..Trajectory::default()
        }
    }

    #[test]
    fn simple_conditions_are_met_or_not() {
        let label = |name: Option<&str>, values: &[&str]| ItemLabel {
            name: name.map(str::to_owned),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        let labels =
            [label(Some("Tool choice"), &["incorrect"]), label(Some("success"), &["0"]), label(None, &["fine"])];
        for (text, is_met) in [
            ("tool = refund", true),
            ("tool = ref", false),
            ("tool ~ REF", true),
            ("tool != delete", true),
            ("tool != refund", false),
            ("text ~ 'order 7'", true),
            ("text~shipping", false),
            ("has_error", true),
            ("has_error = false", false),
            ("status = answered", true),
            ("outcome=error", false),
            ("agent = shop", true),
            ("session = x", false),
            ("label = incorrect", true),
            ("label = correct", false),
            ("label != incorrect", false),
            ("label.Tool choice = incorrect", true),
            ("label.'Tool choice'=incorrect", true),
            ("label.success = incorrect", false),
            ("label.success = 0", true),
            ("label ~ FIN", true),
        ] {
            let filter = TrajectoryFilter::parse(text, None).expect(text).expect(text);
            assert_eq!(filter.is_met(&recorded(), &[], &labels), is_met, "{text}");
        }
    }

    #[test]
    fn conditions_on_spans_are_left_to_others() {
        for text in
            ["span_kind == 'TOOL'", "status_code == 'ERROR'", "tool == 'x'", "latency > 3", "'x' in input.value"]
        {
            assert_eq!(TrajectoryFilter::parse(text, None), Ok(None), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["status = good", "has_error = maybe", "tool =", "label. = x", "label.success > 0"] {
            assert!(TrajectoryFilter::parse(text, None).is_err(), "{text}");
        }
        let known = [EvaluatorRecord {
            name: "thought_to_tool".to_owned(),
            title: String::new(),
            of_steps: true,
            labels: vec![("correct".to_owned(), 1.0), ("incorrect".to_owned(), 0.0)],
            rubric_hash: String::new(),
            phoenix_name: String::new(),
            judge: String::new(),
        }];
        let parse = |text: &str| TrajectoryFilter::parse(text, Some(&known));
        let error = parse("thought_tool = incorrect").expect_err("unknown");
        assert!(error.to_string().ends_with("hint: it has thought_to_tool"), "{error}");
        let error = parse("thought_to_tool != wrong").expect_err("no label");
        assert!(
            error.to_string().contains("gives no label \"wrong\"; hint: it gives correct, incorrect, scored"),
            "{error}"
        );
        for text in ["thought_to_tool = Incorrect", "thought_to_tool = abstained", "thought_to_tool ~ wro"] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }
}
