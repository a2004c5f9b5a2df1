//! What a filter needs in addition to the span, and bounds on the spans it can match, so that a store has to read
//! less.

use super::ast::FilterComparison;
use super::lower::{LoweredCondition, LoweredFilter, LoweredValue};
use super::names::{AnnotationScope, SpanColumn};
use crate::span_view::SpanKind;
use gradus_core::span::{SpanId, TraceId};

/// Facts that the filter uses. What is false here is never asked of [`super::SpanFilterContext`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterRequirements {
    /// [`super::SpanFilterContext::has_parent`].
    pub parent: bool,
    /// Needs all descendants of a span.
    pub cumulative_tokens: bool,
    /// [`super::SpanFilterContext::cost`].
    pub cost: bool,
    /// [`super::SpanFilterContext::cost_details`].
    pub cost_details: bool,
    /// Each scope and name once.
    pub annotations: Vec<(AnnotationScope, String)>,
    /// Whether attributes are used, which are the expensive part of a span. The kind is one of them.
    pub attributes: bool,
    /// What a store can use to skip spans.
    pub bounds: FilterBounds,
}

/// Necessary conditions: every span that matches satisfies them, and others may too. `None` is no condition; an empty
/// list means that no span matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterBounds {
    pub span_ids: Option<Vec<SpanId>>,
    pub trace_ids: Option<Vec<TraceId>>,
    /// Kinds as Phoenix sees them, after `gen_ai.*` was interpreted.
    pub kinds: Option<Vec<SpanKind>>,
    /// Nanoseconds since 1970, inclusive. One microsecond wider than written on both sides, because Phoenix rounds
    /// times.
    pub start_from_ns: Option<u64>,
    /// The other end, inclusive.
    pub start_to_ns: Option<u64>,
    /// Only spans without a parent id.
    pub is_root: bool,
}

/// Walks the lowered filter once.
pub(super) fn collect_requirements(filter: &LoweredFilter) -> FilterRequirements {
    let mut needs = FilterRequirements {
        annotations: filter.annotations.clone(),
        bounds: derive_bounds(&filter.condition),
        ..FilterRequirements::default()
    };
    needs.require_for_condition(&filter.condition);
    needs
}

impl FilterRequirements {
    /// Adds what a condition uses.
    fn require_for_condition(&mut self, condition: &LoweredCondition) {
        match condition {
            LoweredCondition::All(conditions) | LoweredCondition::Any(conditions) => {
                conditions.iter().for_each(|condition| self.require_for_condition(condition));
            }
            LoweredCondition::Not(condition) => self.require_for_condition(condition),
            LoweredCondition::Compare(left, _, right) => {
                self.require_for_value(left);
                self.require_for_value(right);
            }
            LoweredCondition::IsNull(value) => self.require_for_value(value),
            LoweredCondition::Contains { text, wanted } => {
                self.require_for_value(text);
                self.require_for_value(wanted);
            }
            LoweredCondition::OneOf(value, values) => {
                self.require_for_value(value);
                values.values.iter().for_each(|value| self.require_for_value(value));
            }
            LoweredCondition::HasParent => self.parent = true,
            LoweredCondition::Details(..) => self.cost_details = true,
            LoweredCondition::Constant(_) | LoweredCondition::Annotated(_) | LoweredCondition::Holds(_) => {}
        }
    }

    /// Adds what a value uses. Cumulative tokens and costs are separate, because a store computes them separately.
    fn require_for_value(&mut self, value: &LoweredValue) {
        match value {
            LoweredValue::Column(column) => match column {
                SpanColumn::SpanKind => self.attributes = true,
                SpanColumn::CumulativePromptTokens
                | SpanColumn::CumulativeCompletionTokens
                | SpanColumn::CumulativeTotalTokens => self.cumulative_tokens = true,
                SpanColumn::TotalCost | SpanColumn::PromptCost | SpanColumn::CompletionCost => self.cost = true,
                _ => {}
            },
            LoweredValue::Attribute(_)
            | LoweredValue::AttributeText(_)
            | LoweredValue::AttributeNumber(_)
            | LoweredValue::AttributeFlag(_) => {
                self.attributes = true;
            }
            LoweredValue::Joined(left, right) | LoweredValue::Arithmetic(_, left, right) => {
                self.require_for_value(left);
                self.require_for_value(right);
            }
            LoweredValue::NumberOf(value) | LoweredValue::Negative(value) => self.require_for_value(value),
            LoweredValue::Truth(condition) => self.require_for_condition(condition),
            LoweredValue::Reduced(..) => self.cost_details = true,
            LoweredValue::Detail(_)
            | LoweredValue::Null
            | LoweredValue::Text(_)
            | LoweredValue::Number(_)
            | LoweredValue::Time(_)
            | LoweredValue::Annotation(..) => {}
        }
    }
}

/// Bounds of a condition: `and` intersects, `or` unites, `not` gives none.
fn derive_bounds(condition: &LoweredCondition) -> FilterBounds {
    match condition {
        LoweredCondition::All(conditions) => {
            conditions.iter().map(derive_bounds).fold(FilterBounds::default(), FilterBounds::intersect)
        }
        LoweredCondition::Any(conditions) => {
            conditions.iter().map(derive_bounds).reduce(FilterBounds::union_with).unwrap_or_default()
        }
        LoweredCondition::Compare(LoweredValue::Column(column), comparison, value) => {
            derive_comparison_bounds(*column, *comparison, value)
        }
        LoweredCondition::Compare(value, comparison, LoweredValue::Column(column)) => {
            derive_comparison_bounds(*column, flip_comparison(*comparison), value)
        }
        LoweredCondition::OneOf(LoweredValue::Column(column), list) => derive_list_bounds(*column, &list.values),
        LoweredCondition::IsNull(LoweredValue::Column(SpanColumn::ParentId)) => {
            FilterBounds { is_root: true, ..FilterBounds::default() }
        }
        _ => FilterBounds::default(),
    }
}

/// Only equality with a text and comparisons of the start time bound anything.
fn derive_comparison_bounds(column: SpanColumn, comparison: FilterComparison, value: &LoweredValue) -> FilterBounds {
    match (column, comparison, value) {
        (_, FilterComparison::Equal, LoweredValue::Text(_)) => derive_list_bounds(column, std::slice::from_ref(value)),
        (SpanColumn::StartTime, _, LoweredValue::Time(time)) => derive_start_bounds(comparison, *time),
        _ => FilterBounds::default(),
    }
}

/// Ids are compared as texts, so an id in another notation matches nothing.
fn derive_list_bounds(column: SpanColumn, values: &[LoweredValue]) -> FilterBounds {
    let mut texts = Vec::with_capacity(values.len());
    for value in values {
        let LoweredValue::Text(text) = value else { return FilterBounds::default() };
        texts.push(text.as_str());
    }
    match column {
        // Ids are compared as texts, so an id in another notation matches no span.
        SpanColumn::SpanId => {
            let ids = texts.into_iter().map(|text| (text, SpanId::parse(text)));
            let ids = ids.filter(|(text, id)| id.to_string() == **text).map(|(_, id)| id).collect();
            FilterBounds { span_ids: Some(ids), ..FilterBounds::default() }
        }
        SpanColumn::TraceId => {
            let ids = texts.into_iter().map(|text| (text, TraceId::parse(text)));
            let ids = ids.filter(|(text, id)| id.to_string() == **text).map(|(_, id)| id).collect();
            FilterBounds { trace_ids: Some(ids), ..FilterBounds::default() }
        }
        SpanColumn::SpanKind => {
            let kinds = SpanKind::ALL.into_iter().filter(|kind| texts.contains(&kind.as_str())).collect();
            FilterBounds { kinds: Some(kinds), ..FilterBounds::default() }
        }
        _ => FilterBounds::default(),
    }
}

/// Widened by one microsecond on both sides.
fn derive_start_bounds(comparison: FilterComparison, time_us: i64) -> FilterBounds {
    let ns = |us: i64| u64::try_from(us).unwrap_or(0).saturating_mul(1000);
    let (from, to) = (Some(ns(time_us.saturating_sub(1))), Some(ns(time_us.saturating_add(1))));
    match comparison {
        FilterComparison::Equal => FilterBounds { start_from_ns: from, start_to_ns: to, ..FilterBounds::default() },
        FilterComparison::Greater | FilterComparison::GreaterOrEqual => {
            FilterBounds { start_from_ns: from, ..FilterBounds::default() }
        }
        FilterComparison::Less | FilterComparison::LessOrEqual => {
            FilterBounds { start_to_ns: to, ..FilterBounds::default() }
        }
        _ => FilterBounds::default(),
    }
}

/// The operator with its sides exchanged.
fn flip_comparison(comparison: FilterComparison) -> FilterComparison {
    match comparison {
        FilterComparison::Less => FilterComparison::Greater,
        FilterComparison::LessOrEqual => FilterComparison::GreaterOrEqual,
        FilterComparison::Greater => FilterComparison::Less,
        FilterComparison::GreaterOrEqual => FilterComparison::LessOrEqual,
        other => other,
    }
}

impl FilterBounds {
    /// Bounds for spans that satisfy both conditions.
    fn intersect(self, other: FilterBounds) -> FilterBounds {
        FilterBounds {
            span_ids: intersect_lists(self.span_ids, other.span_ids),
            trace_ids: intersect_lists(self.trace_ids, other.trace_ids),
            kinds: intersect_lists(self.kinds, other.kinds),
            start_from_ns: self.start_from_ns.max(other.start_from_ns),
            start_to_ns: [self.start_to_ns, other.start_to_ns].into_iter().flatten().min(),
            is_root: self.is_root || other.is_root,
        }
    }

    /// Bounds for spans that satisfy one of the conditions: a bound survives only if both have it.
    fn union_with(self, other: FilterBounds) -> FilterBounds {
        FilterBounds {
            span_ids: union_lists(self.span_ids, other.span_ids),
            trace_ids: union_lists(self.trace_ids, other.trace_ids),
            kinds: union_lists(self.kinds, other.kinds),
            start_from_ns: self.start_from_ns.zip(other.start_from_ns).map(|(a, b)| a.min(b)),
            start_to_ns: self.start_to_ns.zip(other.start_to_ns).map(|(a, b)| a.max(b)),
            is_root: self.is_root && other.is_root,
        }
    }
}

/// Sorts one side, so that long id lists do not take quadratic time.
fn intersect_lists<T: PartialEq + Ord + Copy>(a: Option<Vec<T>>, b: Option<Vec<T>>) -> Option<Vec<T>> {
    match (a, b) {
        (Some(mut a), Some(mut b)) => {
            b.sort_unstable();
            a.retain(|item| b.binary_search(item).is_ok());
            Some(a)
        }
        (a, b) => a.or(b),
    }
}

/// No bound if one side has none.
fn union_lists<T>(a: Option<Vec<T>>, b: Option<Vec<T>>) -> Option<Vec<T>> {
    a.zip(b).map(|(mut a, b)| {
        a.extend(b);
        a
    })
}
