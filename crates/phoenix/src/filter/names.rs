//! Names in filters: columns of a span, paths into attributes, and annotations.

use super::ast::{ExpressionKind, ExpressionNode};
use super::error::{FilterError, format_excerpt};
use super::lexer::NumberForm;
use crate::filter::value_kind::{FilterValueKind, invalid_expression_error};

/// A column of Phoenix's table of spans, or a value that it joins to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanColumn {
    SpanId,
    TraceId,
    /// The recorded parent id, whether or not that span is present.
    ParentId,
    /// Upper case, after `gen_ai.*` was interpreted.
    SpanKind,
    Name,
    /// `UNSET`, `OK` or `ERROR`.
    StatusCode,
    StatusMessage,
    /// From the rounded times.
    LatencyMs,
    StartTime,
    EndTime,
    /// Tokens of the span and all its descendants, as are the next two.
    CumulativePromptTokens,
    CumulativeCompletionTokens,
    CumulativeTotalTokens,
    /// Dollars; 0 if unknown, as are the next two.
    TotalCost,
    PromptCost,
    CompletionCost,
}

/// A path into the tree of attributes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AttributePath {
    /// At least one; the first is a key.
    pub(super) steps: Vec<AttributePathStep>,
    /// The path as a dotted key, if all steps are names without dots. Such an attribute can be read without the tree.
    pub(super) key: Option<String>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributePathStep {
    /// A member of an object.
    Key(String),
    /// An element of a list, from 0. Negative indexes are not supported.
    Index(usize),
}

/// Whose annotations are meant: `annotations[...]` or `trace_annotations[...]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnnotationScope {
    Span,
    /// Annotations of the trace that contains the span.
    Trace,
}

/// Fields of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnotationField {
    Label,
    Score,
    Explanation,
    Identifier,
}

/// Can only be compared with None.
const PARENT_SPAN: &str = "parent_span";
/// Attributes that Phoenix knows to be numbers. It affects the type check only; casts are decided in `lower`.
const NUMBER_ATTRIBUTES: [&str; 3] = ["llm.token_count.completion", "llm.token_count.prompt", "llm.token_count.total"];

impl SpanColumn {
    /// Current names and those of older versions of Phoenix.
    pub(super) fn from_name(name: &str) -> Option<SpanColumn> {
        Some(match name {
            "span_id" | "context.span_id" => SpanColumn::SpanId,
            "trace_id" | "context.trace_id" => SpanColumn::TraceId,
            "parent_id" => SpanColumn::ParentId,
            "span_kind" => SpanColumn::SpanKind,
            "name" => SpanColumn::Name,
            "status_code" => SpanColumn::StatusCode,
            "status_message" => SpanColumn::StatusMessage,
            "latency_ms" => SpanColumn::LatencyMs,
            "start_time" => SpanColumn::StartTime,
            "end_time" => SpanColumn::EndTime,
            "cumulative_llm_token_count_prompt" | "cumulative_token_count.prompt" => SpanColumn::CumulativePromptTokens,
            "cumulative_llm_token_count_completion" | "cumulative_token_count.completion" => {
                SpanColumn::CumulativeCompletionTokens
            }
            "cumulative_llm_token_count_total" | "cumulative_token_count.total" => SpanColumn::CumulativeTotalTokens,
            "total_cost" => SpanColumn::TotalCost,
            "prompt_cost" => SpanColumn::PromptCost,
            "completion_cost" => SpanColumn::CompletionCost,
            _ => return None,
        })
    }

    /// The kind that the type check uses.
    pub(super) fn kind(self) -> FilterValueKind {
        match self {
            SpanColumn::SpanId
            | SpanColumn::TraceId
            | SpanColumn::ParentId
            | SpanColumn::SpanKind
            | SpanColumn::Name
            | SpanColumn::StatusCode
            | SpanColumn::StatusMessage => FilterValueKind::Text,
            SpanColumn::StartTime | SpanColumn::EndTime => FilterValueKind::Time,
            _ => FilterValueKind::Number,
        }
    }
}

impl AttributePath {
    /// Computes the dotted key, if there is one.
    fn from_steps(steps: Vec<AttributePathStep>) -> AttributePath {
        let names = steps.iter().map(|step| match step {
            AttributePathStep::Key(name) if !name.contains('.') => Some(name.as_str()),
            _ => None,
        });
        let key = names.collect::<Option<Vec<&str>>>().map(|names| names.join("."));
        AttributePath { steps, key }
    }
}

impl AnnotationField {
    fn from_name(name: &str) -> Option<AnnotationField> {
        match name {
            "label" => Some(AnnotationField::Label),
            "score" => Some(AnnotationField::Score),
            "explanation" => Some(AnnotationField::Explanation),
            "identifier" => Some(AnnotationField::Identifier),
            _ => None,
        }
    }
}

/// Checks that a chain of names, dots and subscripts refers to something.
pub(super) fn check_name_chain(node: &ExpressionNode) -> Result<(), FilterError> {
    if node.root_name() == Some(PARENT_SPAN) && !matches!(node.expr, ExpressionKind::Name(_)) {
        let what =
            "only `parent_span is None` and `parent_span is not None` are supported, nothing of the parent itself";
        return Err(FilterError::meaning(node.at, what));
    }
    match &node.expr {
        ExpressionKind::Name(name) if name == "cost_details" => Err(FilterError::meaning(
            node.at,
            "`cost_details` can only be looped over, as in `any(d.cost > 1 for d in cost_details)`",
        )),
        ExpressionKind::Name(_) => Ok(()),
        ExpressionKind::Attribute(value, field) if names_annotation(value) => {
            check_name_chain(value)?;
            if AnnotationField::from_name(field).is_none() {
                let what = format!(
                    "an annotation has no `.{}`, only `.score`, `.label`, `.explanation` and `.identifier`",
                    format_excerpt(field)
                );
                return Err(FilterError::meaning(node.at, what));
            }
            Ok(())
        }
        ExpressionKind::Attribute(..) if node.dotted_names().is_some() => Ok(()),
        ExpressionKind::Subscript(..) if names_annotation(node) => match resolve_annotation(node) {
            Some((_, "")) => Err(FilterError::meaning(node.at, "an annotation's name is missing")),
            Some(_) => Ok(()),
            None => Err(FilterError::meaning(node.at, "an annotation is named by a text in brackets")),
        },
        ExpressionKind::Subscript(..) if resolve_attribute_path(node).is_some() => Ok(()),
        _ => Err(invalid_expression_error(node)),
    }
}

/// The kind of a name; none for attributes of unknown kind.
pub(super) fn kind_of_name(node: &ExpressionNode) -> Option<FilterValueKind> {
    let dotted = node.dotted_names()?.join(".");
    match SpanColumn::from_name(&dotted) {
        Some(column) => Some(column.kind()),
        None => NUMBER_ATTRIBUTES.contains(&dotted.as_str()).then_some(FilterValueKind::Number),
    }
}

/// The column of a dotted name.
pub(super) fn resolve_column(node: &ExpressionNode) -> Option<SpanColumn> {
    SpanColumn::from_name(&node.dotted_names()?.join("."))
}

/// The attribute path of a chain: `llm.model_name`, `attributes['llm']['tools'][0]`, `attributes[['llm',
/// 'model_name']]`, `metadata['topic']`. None for anything else.
pub(super) fn resolve_attribute_path(node: &ExpressionNode) -> Option<AttributePath> {
    if let Some(names) = node.dotted_names() {
        return Some(AttributePath::from_steps(
            names.into_iter().map(|name| AttributePathStep::Key(name.to_owned())).collect(),
        ));
    }
    let mut steps = Vec::new();
    let mut at = node;
    // From the last subscript to the first, so that the steps are collected in reverse.
    while let ExpressionKind::Subscript(value, key) = &at.expr {
        let keys = match &key.expr {
            ExpressionKind::List(items) if !items.is_empty() => {
                items.iter().map(parse_path_step).collect::<Option<Vec<AttributePathStep>>>()?
            }
            _ => vec![parse_path_step(key)?],
        };
        steps.extend(keys.into_iter().rev());
        at = value;
    }
    // The root of attributes is an object, so the first step is a name.
    let Some(AttributePathStep::Key(_)) = steps.last() else { return None };
    match &at.expr {
        ExpressionKind::Name(name) if name == "metadata" => steps.push(AttributePathStep::Key(name.clone())),
        ExpressionKind::Name(name) if name == "attributes" => {}
        _ => return None,
    }
    steps.reverse();
    Some(AttributePath::from_steps(steps))
}

/// Scope and name of `annotations['x']`.
pub(super) fn resolve_annotation(node: &ExpressionNode) -> Option<(AnnotationScope, &str)> {
    let ExpressionKind::Subscript(value, key) = &node.expr else { return None };
    match (annotation_scope(value)?, &key.expr) {
        (scope, ExpressionKind::Text(name)) => Some((scope, name)),
        _ => None,
    }
}

/// Scope, name and field of `annotations['x'].label`.
pub(super) fn annotation_field(node: &ExpressionNode) -> Option<(AnnotationScope, &str, AnnotationField)> {
    let ExpressionKind::Attribute(value, field) = &node.expr else { return None };
    let (scope, name) = resolve_annotation(value)?;
    Some((scope, name, AnnotationField::from_name(field)?))
}

/// Whether the node is `parent_span` itself.
pub(super) fn is_parent_span(node: &ExpressionNode) -> bool {
    matches!(&node.expr, ExpressionKind::Name(name) if name == PARENT_SPAN)
}

/// The number in a text, in the one notation that all databases of Phoenix read alike. None for infinity and
/// hexadecimal.
pub(super) fn parse_portable_number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let plain = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

/// Whether the node is a subscript of an annotation list, well-formed or not.
fn names_annotation(node: &ExpressionNode) -> bool {
    matches!(&node.expr, ExpressionKind::Subscript(value, _) if annotation_scope(value).is_some())
}

/// `evals` is the old name of `annotations`.
fn annotation_scope(node: &ExpressionNode) -> Option<AnnotationScope> {
    match &node.expr {
        ExpressionKind::Name(name) if name == "annotations" || name == "evals" => Some(AnnotationScope::Span),
        ExpressionKind::Name(name) if name == "trace_annotations" => Some(AnnotationScope::Trace),
        _ => None,
    }
}

/// A key or an index of up to 10⁹.
fn parse_path_step(key: &ExpressionNode) -> Option<AttributePathStep> {
    match &key.expr {
        ExpressionKind::Text(text) => Some(AttributePathStep::Key(text.clone())),
        ExpressionKind::Number(number, NumberForm::Whole) if *number <= 1e9 => {
            Some(AttributePathStep::Index(*number as usize))
        }
        _ => None,
    }
}
