//! The names that a filter can use: what a span has of itself, its attributes by their paths, and annotations.

use super::ast::{Expr, Node};
use super::error::{FilterError, excerpt};
use super::lexer::NumberForm;
use crate::filter::value_kind::{Kind, invalid};

/// What a span has that is no attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    SpanId,
    TraceId,
    ParentId,
    SpanKind,
    Name,
    StatusCode,
    StatusMessage,
    LatencyMs,
    StartTime,
    EndTime,
    CumulativePromptTokens,
    CumulativeCompletionTokens,
    CumulativeTotalTokens,
    TotalCost,
    PromptCost,
    CompletionCost,
}

/// A path into attributes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) steps: Vec<Step>,
    /// The path as a key, where it can be one.
    pub(super) key: Option<String>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// Whose annotations are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnnotationScope {
    Span,
    /// Those of the trace that the span is in.
    Trace,
}

/// The parts of an annotation that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Label,
    Score,
    Explanation,
    Identifier,
}

const PARENT_SPAN: &str = "parent_span";
/// Attributes that are numbers by convention. They are only known as such when kinds are compared; see `lower`.
const NUMBER_ATTRIBUTES: [&str; 3] =
    ["llm.token_count.completion", "llm.token_count.prompt", "llm.token_count.total"];

impl Column {
    /// A name, also one of older versions.
    pub(super) fn of(name: &str) -> Option<Column> {
        Some(match name {
            "span_id" | "context.span_id" => Column::SpanId,
            "trace_id" | "context.trace_id" => Column::TraceId,
            "parent_id" => Column::ParentId,
            "span_kind" => Column::SpanKind,
            "name" => Column::Name,
            "status_code" => Column::StatusCode,
            "status_message" => Column::StatusMessage,
            "latency_ms" => Column::LatencyMs,
            "start_time" => Column::StartTime,
            "end_time" => Column::EndTime,
            "cumulative_llm_token_count_prompt" | "cumulative_token_count.prompt" => {
                Column::CumulativePromptTokens
            }
            "cumulative_llm_token_count_completion" | "cumulative_token_count.completion" => {
                Column::CumulativeCompletionTokens
            }
            "cumulative_llm_token_count_total" | "cumulative_token_count.total" => {
                Column::CumulativeTotalTokens
            }
            "total_cost" => Column::TotalCost,
            "prompt_cost" => Column::PromptCost,
            "completion_cost" => Column::CompletionCost,
            _ => return None,
        })
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Column::SpanId
            | Column::TraceId
            | Column::ParentId
            | Column::SpanKind
            | Column::Name
            | Column::StatusCode
            | Column::StatusMessage => Kind::Text,
            Column::StartTime | Column::EndTime => Kind::Time,
            _ => Kind::Number,
        }
    }
}

impl Path {
    fn of(steps: Vec<Step>) -> Path {
        let names = steps.iter().map(|step| match step {
            Step::Key(name) if !name.contains('.') => Some(name.as_str()),
            _ => None,
        });
        let key = names.collect::<Option<Vec<&str>>>().map(|names| names.join("."));
        Path { steps, key }
    }
}

impl Field {
    fn of(name: &str) -> Option<Field> {
        match name {
            "label" => Some(Field::Label),
            "score" => Some(Field::Score),
            "explanation" => Some(Field::Explanation),
            "identifier" => Some(Field::Identifier),
            _ => None,
        }
    }
}

/// Checks a chain of names, dots and brackets: it must lead to something.
pub(super) fn check(node: &Node) -> Result<(), FilterError> {
    if node.root() == Some(PARENT_SPAN) && !matches!(node.expr, Expr::Name(_)) {
        let what = "only `parent_span is None` and `parent_span is not None` are supported, nothing of the parent itself";
        return Err(FilterError::meaning(node.at, what));
    }
    match &node.expr {
        Expr::Name(name) if name == "cost_details" => Err(FilterError::meaning(
            node.at,
            "`cost_details` can only be looped over, as in `any(d.cost > 1 for d in cost_details)`",
        )),
        Expr::Name(_) => Ok(()),
        Expr::Attribute(value, field) if names_annotation(value) => {
            check(value)?;
            if Field::of(field).is_none() {
                let what = format!(
                    "an annotation has no `.{}`, only `.score`, `.label`, `.explanation` and `.identifier`",
                    excerpt(field)
                );
                return Err(FilterError::meaning(node.at, what));
            }
            Ok(())
        }
        Expr::Attribute(..) if node.dotted().is_some() => Ok(()),
        Expr::Subscript(..) if names_annotation(node) => match annotation(node) {
            Some((_, "")) => Err(FilterError::meaning(node.at, "an annotation's name is missing")),
            Some(_) => Ok(()),
            None => Err(FilterError::meaning(node.at, "an annotation is named by a text in brackets")),
        },
        Expr::Subscript(..) if path(node).is_some() => Ok(()),
        _ => Err(invalid(node)),
    }
}

pub(super) fn kind_of_name(node: &Node) -> Option<Kind> {
    let dotted = node.dotted()?.join(".");
    match Column::of(&dotted) {
        Some(column) => Some(column.kind()),
        None => NUMBER_ATTRIBUTES.contains(&dotted.as_str()).then_some(Kind::Number),
    }
}

/// The column that a chain of names stands for.
pub(super) fn column(node: &Node) -> Option<Column> {
    Column::of(&node.dotted()?.join("."))
}

/// The path into attributes that a chain stands for: `llm.model_name`, `attributes['llm']['tools'][0]`,
/// `attributes[['llm', 'model_name']]`, `metadata['topic']`.
pub(super) fn path(node: &Node) -> Option<Path> {
    if let Some(names) = node.dotted() {
        return Some(Path::of(names.into_iter().map(|name| Step::Key(name.to_owned())).collect()));
    }
    let mut steps = Vec::new();
    let mut at = node;
    while let Expr::Subscript(value, key) = &at.expr {
        let keys = match &key.expr {
            Expr::List(items) if !items.is_empty() => {
                items.iter().map(step).collect::<Option<Vec<Step>>>()?
            }
            _ => vec![step(key)?],
        };
        steps.extend(keys.into_iter().rev());
        at = value;
    }
    // What attributes are below is an object, so the first step is a name.
    let Some(Step::Key(_)) = steps.last() else { return None };
    match &at.expr {
        Expr::Name(name) if name == "metadata" => steps.push(Step::Key(name.clone())),
        Expr::Name(name) if name == "attributes" => {}
        _ => return None,
    }
    steps.reverse();
    Some(Path::of(steps))
}

/// `annotations['x']`: whose, and by which name.
pub(super) fn annotation(node: &Node) -> Option<(AnnotationScope, &str)> {
    let Expr::Subscript(value, key) = &node.expr else { return None };
    match (annotation_scope(value)?, &key.expr) {
        (scope, Expr::Text(name)) => Some((scope, name)),
        _ => None,
    }
}

/// `annotations['x'].label`.
pub(super) fn annotation_field(node: &Node) -> Option<(AnnotationScope, &str, Field)> {
    let Expr::Attribute(value, field) = &node.expr else { return None };
    let (scope, name) = annotation(value)?;
    Some((scope, name, Field::of(field)?))
}

pub(super) fn is_parent_span(node: &Node) -> bool {
    matches!(&node.expr, Expr::Name(name) if name == PARENT_SPAN)
}

/// The number that a text holds, in the one form that all databases read alike.
pub(super) fn number_in(text: &str) -> Option<f64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let plain = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

fn names_annotation(node: &Node) -> bool {
    matches!(&node.expr, Expr::Subscript(value, _) if annotation_scope(value).is_some())
}

fn annotation_scope(node: &Node) -> Option<AnnotationScope> {
    match &node.expr {
        Expr::Name(name) if name == "annotations" || name == "evals" => Some(AnnotationScope::Span),
        Expr::Name(name) if name == "trace_annotations" => Some(AnnotationScope::Trace),
        _ => None,
    }
}

fn step(key: &Node) -> Option<Step> {
    match &key.expr {
        Expr::Text(text) => Some(Step::Key(text.clone())),
        Expr::Number(number, NumberForm::Whole) if *number <= 1e9 => Some(Step::Index(*number as usize)),
        _ => None,
    }
}
