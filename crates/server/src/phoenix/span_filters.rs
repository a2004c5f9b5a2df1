//! The filter parameters of Phoenix's span list: ids, names, kinds, status, times and attributes.

use gradus_core::span::SpanId;
use gradus_phoenix::span_view::{PhoenixSpan, SpanKind};
use serde_json::Value;

use super::error::PhoenixApiError;
use super::request::PhoenixQueryParams;
use super::scan::SpanScan;
use crate::state::ServerState;

/// Conditions that all must hold. An empty list accepts every value.
pub(super) struct SpanFilters {
    span_ids: Vec<SpanId>,
    /// `Some(None)` accepts only spans without a parent.
    parent: Option<Option<SpanId>>,
    names: Vec<String>,
    kinds: Vec<SpanKind>,
    states: Vec<String>,
    attributes: Vec<(String, Value)>,
}

impl SpanFilters {
    /// Checks the parameters before anything is read. `has_kinds` is false for the OTLP list, which has no such
    /// parameter.
    pub(super) fn read(params: &PhoenixQueryParams, has_kinds: bool) -> Result<SpanFilters, PhoenixApiError> {
        let kinds: Vec<&str> = SpanKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let kinds = if has_kinds { parse_enum_values(params, "span_kind", &kinds)? } else { Vec::new() };
        Ok(SpanFilters {
            span_ids: params.all_values("span_id").iter().map(|id| SpanId::parse(id.trim())).collect(),
            parent: params.last_value("parent_id").map(|id| match id {
                "null" => None,
                id => Some(SpanId::parse(id.trim())),
            }),
            names: params.all_values("name"),
            kinds: kinds.iter().map(|kind| SpanKind::parse(kind)).collect(),
            states: parse_enum_values(params, "status_code", &["OK", "ERROR", "UNSET"])?,
            attributes: params
                .all_values("attribute")
                .iter()
                .map(|text| parse_attribute_filter(text))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Restricts the scan to the traces of the wanted spans.
    pub(super) fn narrow_scan(&self, scan: &mut SpanScan, server: &ServerState) -> Result<(), PhoenixApiError> {
        match self.span_ids.is_empty() {
            true => Ok(()),
            false => Ok(scan.narrow_to_spans(server, &self.span_ids)?),
        }
    }

    pub(super) fn matches(&self, span: &PhoenixSpan<'_>) -> bool {
        let is_in = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        (self.span_ids.is_empty() || self.span_ids.contains(&span.span().span_id))
            && self.parent.is_none_or(|parent| span.span().parent_id == parent)
            && is_in(&self.names, &span.span().name)
            && is_in(&self.states, span.status_code())
            && (self.kinds.is_empty() || self.kinds.contains(&span.kind()))
            && self.attributes.iter().all(|(path, wanted)| {
                gradus_phoenix::span_view::look_up_path(span.attributes(), path)
                    .is_some_and(|found| is_same_value(found, wanted))
            })
    }
}

/// Parses values of an enumeration in any case. An unknown value is an error, with Phoenix's message.
fn parse_enum_values(params: &PhoenixQueryParams, name: &str, known: &[&str]) -> Result<Vec<String>, PhoenixApiError> {
    let values: Vec<String> = params.all_values(name).iter().map(|value| value.to_uppercase()).collect();
    match values.iter().find(|value| !known.contains(&value.as_str())) {
        Some(unknown) => Err(PhoenixApiError::unprocessable(format!(
            "Invalid {name} values: {unknown:?}; there are {}",
            known.join(", ")
        ))),
        None => Ok(values),
    }
}

/// Reads `key:value`. A value that is valid JSON has its JSON type; any other is a string.
fn parse_attribute_filter(text: &str) -> Result<(String, Value), PhoenixApiError> {
    let wrong = |reason: &str| PhoenixApiError::unprocessable(format!("Invalid attribute '{text}': {reason}"));
    let (key, value) = text.split_once(':').ok_or_else(|| wrong("expected format 'key:value'"))?;
    if key.is_empty() || value.is_empty() {
        return Err(wrong("key and value must not be empty"));
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    if value.is_null() || value.is_array() || value.is_object() {
        return Err(wrong(
            "the value must be a string, integer, float, or boolean; JSON-quote a string that looks like something else",
        ));
    }
    Ok((key.to_owned(), value))
}

/// Whether values are equal. An integer matches the same number recorded as an integer or as a float. A float matches
/// only a float.
fn is_same_value(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Number(found), Value::Number(wanted)) if !wanted.is_f64() => {
            found.as_f64() == wanted.as_f64() && (found.is_f64() || found == wanted)
        }
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attributes_are_split_at_the_first_colon() {
        let read = |text: &str| parse_attribute_filter(text).ok();
        assert_eq!(read("session.id:a:b"), Some(("session.id".to_owned(), json!("a:b"))));
        assert_eq!(read("n:12"), Some(("n".to_owned(), json!(12))));
        assert_eq!(read("n:\"12\""), Some(("n".to_owned(), json!("12"))));
        for wrong in ["n", ":1", "n:", "n:null", "n:[1]", "n:{}"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn whole_numbers_fit_however_they_are_written() {
        assert!(is_same_value(&json!(5), &json!(5)) && is_same_value(&json!(5.0), &json!(5)));
        assert!(!is_same_value(&json!(5), &json!(5.0)) && !is_same_value(&json!("5"), &json!(5)));
        assert!(is_same_value(&json!(true), &json!(true)) && !is_same_value(&json!(1.5), &json!(1)));
    }
}
