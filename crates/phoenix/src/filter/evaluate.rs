//! Whether a filter is true of a span. Unknown is not true.

use std::borrow::Cow;

use serde_json::{Number, Value as Json};

use super::loops::{DetailField, Reduction};
use super::lower::{Condition, Details, Lowered, Value, ValueList};
use super::names::{Column, Field, Path};
use super::sql::{self, Sql, Truth};
use super::{CostDetail, Note, Surroundings};
use crate::span_view::{Glance, PhoenixSpan};

/// Combinations of annotations that are looked at for one span. A span has one or two of a name, so this is for
/// someone who writes thousands; what lies beyond is not looked at.
const MAX_COMBINATIONS: usize = 100_000;
/// Texts that are joined to longer ones come to nothing: a filter could ask for many times what a span holds.
const MAX_JOINED_BYTES: usize = 4 << 20;
/// Values of a list that are compared between two questions whether to stop.
const VALUES_PER_CHECK: usize = 1024;

pub(super) fn matches(filter: &Lowered, span: &PhoenixSpan<'_>, around: &dyn Surroundings) -> bool {
    let mut notes: Vec<Vec<Note>> = Vec::with_capacity(filter.annotations.len());
    for (scope, name) in &filter.annotations {
        notes.push(around.annotations(*scope, name));
    }
    // Several annotations of a name, told apart by their identifiers, are tried one after the other, and with each of
    // another name: the filter is true of the span if it is true of one combination.
    let mut chosen = vec![0; notes.len()];
    for _ in 0..MAX_COMBINATIONS {
        if around.should_stop() {
            return false;
        }
        let look = Look {
            span,
            around,
            notes: notes.iter().zip(&chosen).map(|(notes, at)| notes.get(*at)).collect(),
            detail: None,
        };
        if look.truth(&filter.condition) == Some(true) {
            return true;
        }
        let Some(next) = (0..notes.len()).find(|place| chosen[*place] + 1 < notes[*place].len()) else {
            return false;
        };
        chosen[next] += 1;
        chosen[..next].fill(0);
    }
    false
}

/// A span, and one annotation for each place, where there is one.
struct Look<'l> {
    span: &'l PhoenixSpan<'l>,
    around: &'l dyn Surroundings,
    notes: Vec<Option<&'l Note>>,
    /// Inside a loop, what it looks at.
    detail: Option<&'l CostDetail>,
}

/// An attribute: as it was recorded, or as it stands in the tree.
enum Found<'f> {
    Text(&'f str),
    Number(Number),
    Other(&'f Json),
}

impl Look<'_> {
    fn truth(&self, condition: &Condition) -> Truth {
        match condition {
            Condition::Constant(truth) => Some(*truth),
            Condition::Not(condition) => self.truth(condition).map(|truth| !truth),
            Condition::All(conditions) => self.combined(conditions, false),
            Condition::Any(conditions) => self.combined(conditions, true),
            Condition::Compare(left, comparison, right) => {
                sql::compare(&self.value(left), *comparison, &self.value(right))
            }
            Condition::IsNull(value) => Some(self.value(value) == Sql::Null),
            Condition::Contains { text, wanted } => {
                // Texts may be long, and this is asked for each of them.
                if self.around.should_stop() {
                    return None;
                }
                let text = self.value(text).into_text()?;
                match wanted {
                    Value::Text(folded) => Some(sql::contains_folded(&text, folded)),
                    other => Some(sql::contains_folded(&text, &sql::fold(&self.value(other).into_text()?))),
                }
            }
            Condition::OneOf(value, values) => self.one_of(value, values),
            Condition::HasParent => Some(self.around.has_parent()),
            Condition::Annotated(place) => Some(self.notes[*place].is_some()),
            Condition::Holds(value) => self.value(value).number().map(|number| number != 0.0),
            Condition::Details(reduction, details) => {
                let wanted = *reduction == Reduction::Any;
                // A detail of which nothing is known speaks against all.
                let found = self.over_details(details, |truth| (truth == Sql::Number(1.0)) == wanted);
                Some(found.contains(&true) == wanted)
            }
        }
    }

    /// The deciding truth as soon as there is one; unknown if anything was.
    fn combined(&self, conditions: &[Condition], deciding: bool) -> Truth {
        let mut truth = Some(!deciding);
        for condition in conditions {
            match self.truth(condition) {
                Some(found) if found == deciding => return Some(deciding),
                Some(_) => {}
                None => truth = None,
            }
        }
        truth
    }

    /// What becomes of each detail of the cost for which the loop's condition holds.
    fn over_details<T>(&self, details: &Details, make: impl Fn(Sql<'_>) -> T) -> Vec<T> {
        let mut made = Vec::new();
        for detail in self.around.cost_details() {
            let look =
                Look { span: self.span, around: self.around, notes: Vec::new(), detail: Some(&detail) };
            if look.truth(&details.condition) == Some(true) {
                made.push(make(look.value(&details.element)));
            }
        }
        made
    }

    fn one_of(&self, value: &Value, list: &ValueList) -> Truth {
        if list.values.is_empty() {
            return Some(false);
        }
        let value = self.value(value);
        match (&value, &list.texts) {
            (Sql::Null, Some(_)) => return None,
            (Sql::Text(text), Some(texts)) => return Some(texts.contains(text.as_ref())),
            _ => {}
        }
        let mut truth = Some(false);
        for (number, other) in list.values.iter().enumerate() {
            if number % VALUES_PER_CHECK == 0 && self.around.should_stop() {
                return None;
            }
            match sql::compare(&value, super::ast::Comparison::Equal, &self.value(other)) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => truth = None,
            }
        }
        truth
    }

    fn value<'v>(&'v self, value: &'v Value) -> Sql<'v> {
        match value {
            Value::Null => Sql::Null,
            Value::Text(text) => Sql::text(text.as_str()),
            Value::Number(number) => Sql::Number(*number),
            Value::Time(micros) => Sql::Number(*micros as f64),
            Value::Column(column) => self.column(*column),
            Value::Attribute(path) | Value::AttributeText(path) => {
                self.attribute(path, |found| match found {
                    Found::Text(text) => Sql::text(text),
                    Found::Other(value) => Sql::Text(sql::as_text(value)),
                    Found::Number(number) => Sql::text(number.to_string()),
                })
            }
            Value::AttributeNumber(path) => self.attribute(path, |found| {
                let number = match found {
                    Found::Text(text) => sql::number_in_text(text),
                    Found::Other(value) => sql::as_number(value),
                    Found::Number(number) => number.as_f64(),
                };
                number.map_or(Sql::Null, Sql::Number)
            }),
            Value::AttributeFlag(path) => self.attribute(path, |found| {
                Sql::of_truth(match found {
                    Found::Text(text) => sql::flag_in_text(text),
                    Found::Other(value) => sql::as_flag(value),
                    Found::Number(number) => sql::flag_in_number(&number),
                })
            }),
            Value::Annotation(place, field) => {
                self.notes[*place].map_or(Sql::Null, |note| field_of(note, *field))
            }
            Value::Joined(left, right) => match (self.value(left).into_text(), self.value(right).into_text())
            {
                (Some(left), Some(right)) if left.len() + right.len() <= MAX_JOINED_BYTES => {
                    Sql::Text(left + right)
                }
                _ => Sql::Null,
            },
            Value::NumberOf(value) => self.value(value).number().map_or(Sql::Null, Sql::Number),
            Value::Arithmetic(operator, left, right) => {
                let (left, right) = (self.value(left).number(), self.value(right).number());
                let result =
                    left.zip(right).and_then(|(left, right)| sql::arithmetic(left, *operator, right));
                result.map_or(Sql::Null, Sql::Number)
            }
            Value::Negative(value) => {
                self.value(value).number().map_or(Sql::Null, |number| Sql::Number(-number))
            }
            Value::Truth(condition) => Sql::of_truth(self.truth(condition)),
            Value::Detail(field) => self.detail.map_or(Sql::Null, |detail| detail_field(detail, *field)),
            Value::Reduced(reduction, details) => {
                let found = self.over_details(details, |value| value.number());
                let numbers = found.iter().copied().flatten();
                let reduced = match reduction {
                    Reduction::Len => Some(found.len() as f64),
                    Reduction::Max => numbers.reduce(f64::max),
                    Reduction::Min => numbers.reduce(f64::min),
                    Reduction::Any | Reduction::All | Reduction::Sum => Some(numbers.sum()),
                };
                reduced.map_or(Sql::Null, Sql::Number)
            }
        }
    }

    /// What an attribute is made into, if it is there.
    fn attribute<'v>(&'v self, path: &Path, make: impl Fn(Found<'v>) -> Sql<'v>) -> Sql<'v> {
        match path.key.as_ref().map_or(Glance::Unknown, |key| self.span.glance(key)) {
            Glance::Missing => Sql::Null,
            Glance::Text(text) => make(Found::Text(text)),
            Glance::Number(number) => make(Found::Number(number)),
            Glance::Unknown => {
                let value = sql::at_path(self.span.attributes(), &path.steps);
                value.map_or(Sql::Null, |value| make(Found::Other(value)))
            }
        }
    }

    fn column(&self, column: Column) -> Sql<'_> {
        let span = self.span.span();
        let tokens = || self.around.cumulative_tokens();
        let cost = |cost: Option<f64>| Sql::Number(cost.unwrap_or(0.0));
        match column {
            Column::SpanId => Sql::text(span.span_id.to_string()),
            Column::TraceId => Sql::text(span.trace_id.to_string()),
            Column::ParentId => span.parent_id.map_or(Sql::Null, |id| Sql::text(id.to_string())),
            Column::SpanKind => Sql::text(self.span.kind().as_str()),
            Column::Name => Sql::text(Cow::Borrowed(span.name.as_ref())),
            Column::StatusCode => Sql::text(self.span.status_code()),
            Column::StatusMessage => Sql::text(Cow::Borrowed(span.status.message.as_ref())),
            Column::LatencyMs => Sql::Number(self.span.latency_ms()),
            Column::StartTime => Sql::Number(self.span.start_us() as f64),
            Column::EndTime => Sql::Number(self.span.end_us() as f64),
            Column::CumulativePromptTokens => Sql::Number(tokens().prompt as f64),
            Column::CumulativeCompletionTokens => Sql::Number(tokens().completion as f64),
            Column::CumulativeTotalTokens => {
                let tokens = tokens();
                Sql::Number(tokens.prompt as f64 + tokens.completion as f64)
            }
            Column::TotalCost => cost(self.around.cost().total),
            Column::PromptCost => cost(self.around.cost().prompt),
            Column::CompletionCost => cost(self.around.cost().completion),
        }
    }
}

fn detail_field(detail: &CostDetail, field: DetailField) -> Sql<'_> {
    let number = |number: Option<f64>| number.map_or(Sql::Null, Sql::Number);
    match field {
        DetailField::TokenType => Sql::text(detail.token_type.as_str()),
        DetailField::IsPrompt => Sql::of_truth(Some(detail.is_prompt)),
        DetailField::Cost => number(detail.cost),
        DetailField::Tokens => number(detail.tokens),
        DetailField::CostPerToken => number(detail.cost_per_token),
    }
}

fn field_of(note: &Note, field: Field) -> Sql<'_> {
    let text = |text: &'_ Option<String>| text.clone().map_or(Sql::Null, Sql::text);
    match field {
        Field::Label => text(&note.label),
        Field::Score => note.score.map_or(Sql::Null, Sql::Score),
        Field::Explanation => text(&note.explanation),
        Field::Identifier => Sql::text(note.identifier.as_str()),
    }
}
