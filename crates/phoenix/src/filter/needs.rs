//! What a filter must be told besides the span, and which spans it can be true of at all: so that a store can be asked
//! for less.

use super::ast::Comparison;
use super::lower::{Condition, Lowered, Value};
use super::names::{AnnotationScope, Column};
use crate::span_view::SpanKind;
use gradus_core::span::{SpanId, TraceId};

/// What a filter asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    pub parent: bool,
    pub cumulative_tokens: bool,
    pub cost: bool,
    pub cost_details: bool,
    pub annotations: Vec<(AnnotationScope, String)>,
    /// Whether anything is asked of attributes, the costly part of a span. The kind is one of them.
    pub attributes: bool,
    pub bounds: Bounds,
}

/// Conditions that every span meets that the filter is true of; there may be more. `None` is no condition, and an empty
/// list means that the filter is true of no span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    pub span_ids: Option<Vec<SpanId>>,
    pub trace_ids: Option<Vec<TraceId>>,
    pub kinds: Option<Vec<SpanKind>>,
    /// Nanoseconds since 1970, both ends included. A little wider than what was asked for: Phoenix rounds times.
    pub start_from_ns: Option<u64>,
    pub start_to_ns: Option<u64>,
    /// Spans that name no parent.
    pub is_root: bool,
}

pub(super) fn needs(filter: &Lowered) -> Needs {
    let mut needs = Needs {
        annotations: filter.annotations.clone(),
        bounds: bounds(&filter.condition),
        ..Needs::default()
    };
    needs.note_condition(&filter.condition);
    needs
}

impl Needs {
    fn note_condition(&mut self, condition: &Condition) {
        match condition {
            Condition::All(conditions) | Condition::Any(conditions) => {
                conditions.iter().for_each(|condition| self.note_condition(condition));
            }
            Condition::Not(condition) => self.note_condition(condition),
            Condition::Compare(left, _, right) => {
                self.note_value(left);
                self.note_value(right);
            }
            Condition::IsNull(value) => self.note_value(value),
            Condition::Contains { text, wanted } => {
                self.note_value(text);
                self.note_value(wanted);
            }
            Condition::OneOf(value, values) => {
                self.note_value(value);
                values.values.iter().for_each(|value| self.note_value(value));
            }
            Condition::HasParent => self.parent = true,
            Condition::Details(..) => self.cost_details = true,
            Condition::Constant(_) | Condition::Annotated(_) | Condition::Holds(_) => {}
        }
    }

    fn note_value(&mut self, value: &Value) {
        match value {
            Value::Column(column) => match column {
                Column::SpanKind => self.attributes = true,
                Column::CumulativePromptTokens
                | Column::CumulativeCompletionTokens
                | Column::CumulativeTotalTokens => self.cumulative_tokens = true,
                Column::TotalCost | Column::PromptCost | Column::CompletionCost => self.cost = true,
                _ => {}
            },
            Value::Attribute(_)
            | Value::AttributeText(_)
            | Value::AttributeNumber(_)
            | Value::AttributeFlag(_) => {
                self.attributes = true;
            }
            Value::Joined(left, right) | Value::Arithmetic(_, left, right) => {
                self.note_value(left);
                self.note_value(right);
            }
            Value::NumberOf(value) | Value::Negative(value) => self.note_value(value),
            Value::Truth(condition) => self.note_condition(condition),
            Value::Reduced(..) => self.cost_details = true,
            Value::Detail(_)
            | Value::Null
            | Value::Text(_)
            | Value::Number(_)
            | Value::Time(_)
            | Value::Annotation(..) => {}
        }
    }
}

fn bounds(condition: &Condition) -> Bounds {
    match condition {
        Condition::All(conditions) => conditions.iter().map(bounds).fold(Bounds::default(), Bounds::and),
        Condition::Any(conditions) => conditions.iter().map(bounds).reduce(Bounds::or).unwrap_or_default(),
        Condition::Compare(Value::Column(column), comparison, value) => compared(*column, *comparison, value),
        Condition::Compare(value, comparison, Value::Column(column)) => {
            compared(*column, turned(*comparison), value)
        }
        Condition::OneOf(Value::Column(column), list) => listed(*column, &list.values),
        Condition::IsNull(Value::Column(Column::ParentId)) => Bounds { is_root: true, ..Bounds::default() },
        _ => Bounds::default(),
    }
}

fn compared(column: Column, comparison: Comparison, value: &Value) -> Bounds {
    match (column, comparison, value) {
        (_, Comparison::Equal, Value::Text(_)) => listed(column, std::slice::from_ref(value)),
        (Column::StartTime, _, Value::Time(time)) => started(comparison, *time),
        _ => Bounds::default(),
    }
}

fn listed(column: Column, values: &[Value]) -> Bounds {
    let mut texts = Vec::with_capacity(values.len());
    for value in values {
        let Value::Text(text) = value else { return Bounds::default() };
        texts.push(text.as_str());
    }
    match column {
        // Ids are compared as texts, so one that is written in another way is nobody's.
        Column::SpanId => {
            let ids = texts.into_iter().map(|text| (text, SpanId::parse(text)));
            let ids = ids.filter(|(text, id)| id.to_string() == **text).map(|(_, id)| id).collect();
            Bounds { span_ids: Some(ids), ..Bounds::default() }
        }
        Column::TraceId => {
            let ids = texts.into_iter().map(|text| (text, TraceId::parse(text)));
            let ids = ids.filter(|(text, id)| id.to_string() == **text).map(|(_, id)| id).collect();
            Bounds { trace_ids: Some(ids), ..Bounds::default() }
        }
        Column::SpanKind => {
            let kinds = SpanKind::ALL.into_iter().filter(|kind| texts.contains(&kind.as_str())).collect();
            Bounds { kinds: Some(kinds), ..Bounds::default() }
        }
        _ => Bounds::default(),
    }
}

fn started(comparison: Comparison, time_us: i64) -> Bounds {
    let ns = |us: i64| u64::try_from(us).unwrap_or(0).saturating_mul(1000);
    let (from, to) = (Some(ns(time_us.saturating_sub(1))), Some(ns(time_us.saturating_add(1))));
    match comparison {
        Comparison::Equal => Bounds { start_from_ns: from, start_to_ns: to, ..Bounds::default() },
        Comparison::Greater | Comparison::GreaterOrEqual => {
            Bounds { start_from_ns: from, ..Bounds::default() }
        }
        Comparison::Less | Comparison::LessOrEqual => Bounds { start_to_ns: to, ..Bounds::default() },
        _ => Bounds::default(),
    }
}

fn turned(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        other => other,
    }
}

impl Bounds {
    fn and(self, other: Bounds) -> Bounds {
        Bounds {
            span_ids: common(self.span_ids, other.span_ids),
            trace_ids: common(self.trace_ids, other.trace_ids),
            kinds: common(self.kinds, other.kinds),
            start_from_ns: self.start_from_ns.max(other.start_from_ns),
            start_to_ns: [self.start_to_ns, other.start_to_ns].into_iter().flatten().min(),
            is_root: self.is_root || other.is_root,
        }
    }

    fn or(self, other: Bounds) -> Bounds {
        Bounds {
            span_ids: either(self.span_ids, other.span_ids),
            trace_ids: either(self.trace_ids, other.trace_ids),
            kinds: either(self.kinds, other.kinds),
            start_from_ns: self.start_from_ns.zip(other.start_from_ns).map(|(a, b)| a.min(b)),
            start_to_ns: self.start_to_ns.zip(other.start_to_ns).map(|(a, b)| a.max(b)),
            is_root: self.is_root && other.is_root,
        }
    }
}

fn common<T: PartialEq + Ord + Copy>(a: Option<Vec<T>>, b: Option<Vec<T>>) -> Option<Vec<T>> {
    match (a, b) {
        (Some(mut a), Some(mut b)) => {
            b.sort_unstable();
            a.retain(|item| b.binary_search(item).is_ok());
            Some(a)
        }
        (a, b) => a.or(b),
    }
}

fn either<T>(a: Option<Vec<T>>, b: Option<Vec<T>>) -> Option<Vec<T>> {
    a.zip(b).map(|(mut a, b)| {
        a.extend(b);
        a
    })
}
