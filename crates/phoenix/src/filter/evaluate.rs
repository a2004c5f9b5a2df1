//! Evaluates a filter for a span, in three-valued logic: unknown is not true.

use std::borrow::Cow;

use serde_json::{Number, Value as Json};

use super::loops::{DetailField, LoopReduction};
use super::lower::{CostDetailQuery, LoweredCondition, LoweredFilter, LoweredValue, ValueList};
use super::names::{AnnotationField, AttributePath, SpanColumn};
use super::sql::{self, SqlTruth, SqlValue};
use super::{CostDetail, FilterableAnnotation, SpanFilterContext};
use crate::span_view::{AttributeLookup, PhoenixSpan};

/// Maximum number of combinations of annotations that are tried for one span. Spans usually have one or two
/// annotations of a name; this bounds the work for hostile data. Further combinations are ignored.
const MAX_COMBINATIONS: usize = 100_000;
/// Longer concatenations become null: a filter could otherwise build texts many times as long as the span.
const MAX_JOINED_BYTES: usize = 4 << 20;
/// Number of elements of a list that are compared between two calls of `should_stop`.
const VALUES_PER_CHECK: usize = 1024;

/// Several annotations of a name correspond to several joined rows in Phoenix's query: the filter matches if it is true
/// for one combination of them.
pub(super) fn span_matches_filter(
    filter: &LoweredFilter,
    span: &PhoenixSpan<'_>,
    filter_facts: &dyn SpanFilterContext,
) -> bool {
    let mut chosen_annotations: Vec<Vec<FilterableAnnotation>> = Vec::with_capacity(filter.annotations.len());
    for (scope, name) in &filter.annotations {
        chosen_annotations.push(filter_facts.annotations(*scope, name));
    }
    // Index of the chosen annotation per name. A name without annotations has the single choice "none".
    let mut chosen = vec![0; chosen_annotations.len()];
    for _ in 0..MAX_COMBINATIONS {
        if filter_facts.should_stop() {
            return false;
        }
        let look = FilterEvaluator {
            span,
            filter_facts,
            chosen_annotations: chosen_annotations
                .iter()
                .zip(&chosen)
                .map(|(chosen_annotations, at)| chosen_annotations.get(*at))
                .collect(),
            detail: None,
        };
        if look.evaluate_condition(&filter.condition) == Some(true) {
            return true;
        }
        // Counts through the combinations like an odometer.
        let Some(next) =
            (0..chosen_annotations.len()).find(|place| chosen[*place] + 1 < chosen_annotations[*place].len())
        else {
            return false;
        };
        chosen[next] += 1;
        chosen[..next].fill(0);
    }
    false
}

/// One span with one chosen annotation per name; none where it has no annotation of that name.
struct FilterEvaluator<'l> {
    span: &'l PhoenixSpan<'l>,
    filter_facts: &'l dyn SpanFilterContext,
    chosen_annotations: Vec<Option<&'l FilterableAnnotation>>,
    /// Inside a loop, the current element.
    detail: Option<&'l CostDetail>,
}

/// An attribute, read from the span directly or from the tree of attributes.
enum ResolvedAttribute<'f> {
    Text(&'f str),
    Number(Number),
    Other(&'f Json),
}

impl FilterEvaluator<'_> {
    /// The truth of a condition.
    fn evaluate_condition(&self, condition: &LoweredCondition) -> SqlTruth {
        match condition {
            LoweredCondition::Constant(truth) => Some(*truth),
            LoweredCondition::Not(condition) => self.evaluate_condition(condition).map(|truth| !truth),
            LoweredCondition::All(conditions) => self.combine_conditions(conditions, false),
            LoweredCondition::Any(conditions) => self.combine_conditions(conditions, true),
            LoweredCondition::Compare(left, comparison, right) => {
                sql::compare_values(&self.evaluate_value(left), *comparison, &self.evaluate_value(right))
            }
            LoweredCondition::IsNull(value) => Some(self.evaluate_value(value) == SqlValue::Null),
            LoweredCondition::Contains { text, wanted } => {
                // Texts may be long, and each one is searched.
                if self.filter_facts.should_stop() {
                    return None;
                }
                let text = self.evaluate_value(text).into_text()?;
                match wanted {
                    LoweredValue::Text(folded) => Some(sql::contains_folded_needle(&text, folded)),
                    other => Some(sql::contains_folded_needle(
                        &text,
                        &sql::fold_unicode_case(&self.evaluate_value(other).into_text()?),
                    )),
                }
            }
            LoweredCondition::OneOf(value, values) => self.evaluate_in_list(value, values),
            LoweredCondition::HasParent => Some(self.filter_facts.has_parent()),
            LoweredCondition::Annotated(place) => Some(self.chosen_annotations[*place].is_some()),
            // A boolean field is stored as 1 or 0.
            LoweredCondition::Holds(value) => self.evaluate_value(value).to_number().map(|number| number != 0.0),
            LoweredCondition::Details(reduction, details) => {
                let wanted = *reduction == LoopReduction::Any;
                // A component for which the condition is unknown counts as false, in `any` as in `all`.
                let found = self.map_cost_details(details, |truth| (truth == SqlValue::Number(1.0)) == wanted);
                Some(found.contains(&true) == wanted)
            }
        }
    }

    /// SQL's AND (`deciding` is false) and OR (`deciding` is true): a deciding operand wins over unknown ones.
    fn combine_conditions(&self, conditions: &[LoweredCondition], deciding: bool) -> SqlTruth {
        let mut truth = Some(!deciding);
        for condition in conditions {
            match self.evaluate_condition(condition) {
                Some(found) if found == deciding => return Some(deciding),
                Some(_) => {}
                None => truth = None,
            }
        }
        truth
    }

    /// Maps all components of the cost that satisfy the condition of the loop.
    fn map_cost_details<T>(&self, details: &CostDetailQuery, make: impl Fn(SqlValue<'_>) -> T) -> Vec<T> {
        let mut made = Vec::new();
        for detail in self.filter_facts.cost_details() {
            let look = FilterEvaluator {
                span: self.span,
                filter_facts: self.filter_facts,
                chosen_annotations: Vec::new(),
                detail: Some(&detail),
            };
            if look.evaluate_condition(&details.condition) == Some(true) {
                made.push(make(look.evaluate_value(&details.element)));
            }
        }
        made
    }

    /// SQL's `IN`: unknown if nothing matches and a comparison was unknown. Lists of texts are a hash lookup.
    fn evaluate_in_list(&self, value: &LoweredValue, list: &ValueList) -> SqlTruth {
        if list.values.is_empty() {
            return Some(false);
        }
        let value = self.evaluate_value(value);
        match (&value, &list.texts) {
            // `NULL IN (...)` is unknown unless the list is empty.
            (SqlValue::Null, Some(_)) => return None,
            (SqlValue::Text(text), Some(texts)) => return Some(texts.contains(text.as_ref())),
            _ => {}
        }
        let mut truth = Some(false);
        for (number, other) in list.values.iter().enumerate() {
            if number % VALUES_PER_CHECK == 0 && self.filter_facts.should_stop() {
                return None;
            }
            match sql::compare_values(&value, super::ast::FilterComparison::Equal, &self.evaluate_value(other)) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => truth = None,
            }
        }
        truth
    }

    /// The value of an expression. Casts were decided in `lower`, so nothing depends on the form of the operands here.
    fn evaluate_value<'v>(&'v self, value: &'v LoweredValue) -> SqlValue<'v> {
        match value {
            LoweredValue::Null => SqlValue::Null,
            LoweredValue::Text(text) => SqlValue::from_text(text.as_str()),
            LoweredValue::Number(number) => SqlValue::Number(*number),
            LoweredValue::Time(micros) => SqlValue::Number(*micros as f64),
            LoweredValue::Column(column) => self.read_column(*column),
            // An undecided attribute does not occur in a finished filter; it is treated as text.
            LoweredValue::Attribute(path) | LoweredValue::AttributeText(path) => {
                self.resolve_attribute(path, |found| match found {
                    ResolvedAttribute::Text(text) => SqlValue::from_text(text),
                    ResolvedAttribute::Other(value) => SqlValue::Text(sql::as_text(value)),
                    ResolvedAttribute::Number(number) => SqlValue::from_text(number.to_string()),
                })
            }
            LoweredValue::AttributeNumber(path) => self.resolve_attribute(path, |found| {
                let number = match found {
                    ResolvedAttribute::Text(text) => sql::parse_whole_json_number(text),
                    ResolvedAttribute::Other(value) => sql::as_number(value),
                    ResolvedAttribute::Number(number) => number.as_f64(),
                };
                number.map_or(SqlValue::Null, SqlValue::Number)
            }),
            LoweredValue::AttributeFlag(path) => self.resolve_attribute(path, |found| {
                SqlValue::from_truth(match found {
                    ResolvedAttribute::Text(text) => sql::parse_true_or_false(text),
                    ResolvedAttribute::Other(value) => sql::as_flag(value),
                    ResolvedAttribute::Number(number) => sql::one_or_zero_as_flag(&number),
                })
            }),
            LoweredValue::Annotation(place, field) => {
                self.chosen_annotations[*place].map_or(SqlValue::Null, |note| read_annotation_field(note, *field))
            }
            LoweredValue::Joined(left, right) => {
                match (self.evaluate_value(left).into_text(), self.evaluate_value(right).into_text()) {
                    (Some(left), Some(right)) if left.len() + right.len() <= MAX_JOINED_BYTES => {
                        SqlValue::Text(left + right)
                    }
                    _ => SqlValue::Null,
                }
            }
            LoweredValue::NumberOf(value) => {
                self.evaluate_value(value).to_number().map_or(SqlValue::Null, SqlValue::Number)
            }
            LoweredValue::Arithmetic(operator, left, right) => {
                let (left, right) = (self.evaluate_value(left).to_number(), self.evaluate_value(right).to_number());
                let result = left.zip(right).and_then(|(left, right)| sql::apply_arithmetic(left, *operator, right));
                result.map_or(SqlValue::Null, SqlValue::Number)
            }
            LoweredValue::Negative(value) => {
                self.evaluate_value(value).to_number().map_or(SqlValue::Null, |number| SqlValue::Number(-number))
            }
            LoweredValue::Truth(condition) => SqlValue::from_truth(self.evaluate_condition(condition)),
            LoweredValue::Detail(field) => {
                self.detail.map_or(SqlValue::Null, |detail| read_detail_field(detail, *field))
            }
            LoweredValue::Reduced(reduction, details) => {
                let found = self.map_cost_details(details, |value| value.to_number());
                let numbers = found.iter().copied().flatten();
                let reduced = match reduction {
                    // `len` counts components, also those without a value.
                    LoopReduction::Len => Some(found.len() as f64),
                    LoopReduction::Max => numbers.reduce(f64::max),
                    LoopReduction::Min => numbers.reduce(f64::min),
                    LoopReduction::Any | LoopReduction::All | LoopReduction::Sum => Some(numbers.sum()),
                };
                reduced.map_or(SqlValue::Null, SqlValue::Number)
            }
        }
    }

    /// Reads an attribute without building the tree where that is possible, and passes it to `make`. Null if it does
    /// not exist.
    fn resolve_attribute<'v>(
        &'v self,
        path: &AttributePath,
        make: impl Fn(ResolvedAttribute<'v>) -> SqlValue<'v>,
    ) -> SqlValue<'v> {
        match path.key.as_ref().map_or(AttributeLookup::Unknown, |key| self.span.peek_attribute(key)) {
            AttributeLookup::Missing => SqlValue::Null,
            AttributeLookup::Text(text) => make(ResolvedAttribute::Text(text)),
            AttributeLookup::Number(number) => make(ResolvedAttribute::Number(number)),
            AttributeLookup::Unknown => {
                let value = sql::find_path_value(self.span.attributes(), &path.steps);
                value.map_or(SqlValue::Null, |value| make(ResolvedAttribute::Other(value)))
            }
        }
    }

    /// Columns of Phoenix's table of spans.
    fn read_column(&self, column: SpanColumn) -> SqlValue<'_> {
        let span = self.span.span();
        let tokens = || self.filter_facts.cumulative_tokens();
        // Phoenix sums costs with an outer join and `COALESCE(..., 0)`.
        let cost = |cost: Option<f64>| SqlValue::Number(cost.unwrap_or(0.0));
        match column {
            SpanColumn::SpanId => SqlValue::from_text(span.span_id.to_string()),
            SpanColumn::TraceId => SqlValue::from_text(span.trace_id.to_string()),
            SpanColumn::ParentId => span.parent_id.map_or(SqlValue::Null, |id| SqlValue::from_text(id.to_string())),
            SpanColumn::SpanKind => SqlValue::from_text(self.span.kind().as_str()),
            SpanColumn::Name => SqlValue::from_text(Cow::Borrowed(span.name.as_ref())),
            SpanColumn::StatusCode => SqlValue::from_text(self.span.status_code()),
            SpanColumn::StatusMessage => SqlValue::from_text(Cow::Borrowed(span.status.message.as_ref())),
            SpanColumn::LatencyMs => SqlValue::Number(self.span.latency_ms()),
            SpanColumn::StartTime => SqlValue::Number(self.span.start_us() as f64),
            SpanColumn::EndTime => SqlValue::Number(self.span.end_us() as f64),
            SpanColumn::CumulativePromptTokens => SqlValue::Number(tokens().prompt as f64),
            SpanColumn::CumulativeCompletionTokens => SqlValue::Number(tokens().completion as f64),
            SpanColumn::CumulativeTotalTokens => {
                let tokens = tokens();
                SqlValue::Number(tokens.prompt as f64 + tokens.completion as f64)
            }
            SpanColumn::TotalCost => cost(self.filter_facts.cost().total),
            SpanColumn::PromptCost => cost(self.filter_facts.cost().prompt),
            SpanColumn::CompletionCost => cost(self.filter_facts.cost().completion),
        }
    }
}

/// A field of a cost component.
fn read_detail_field(detail: &CostDetail, field: DetailField) -> SqlValue<'_> {
    let number = |number: Option<f64>| number.map_or(SqlValue::Null, SqlValue::Number);
    match field {
        DetailField::TokenType => SqlValue::from_text(detail.token_type.as_str()),
        DetailField::IsPrompt => SqlValue::from_truth(Some(detail.is_prompt)),
        DetailField::Cost => number(detail.cost),
        DetailField::Tokens => number(detail.tokens),
        DetailField::CostPerToken => number(detail.cost_per_token),
    }
}

/// A field of an annotation. The score is a column with numeric affinity in Phoenix's database, which matters for
/// comparisons with texts.
fn read_annotation_field(note: &FilterableAnnotation, field: AnnotationField) -> SqlValue<'_> {
    let text = |text: &'_ Option<String>| text.clone().map_or(SqlValue::Null, SqlValue::from_text);
    match field {
        AnnotationField::Label => text(&note.label),
        AnnotationField::Score => note.score.map_or(SqlValue::Null, SqlValue::Score),
        AnnotationField::Explanation => text(&note.explanation),
        AnnotationField::Identifier => SqlValue::from_text(note.identifier.as_str()),
    }
}
