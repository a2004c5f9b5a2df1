//! Projections of a query: a column of the span, or an attribute by its path.

use gradus_phoenix::span_view::PhoenixSpan;
use serde_json::Value;

use super::dataframe_rows::DataFrameCell;
use super::scan::TraceView;

/// A parsed projection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpanProjection {
    /// The text in the query, which is also the name of the column.
    pub(super) key: String,
    what: ProjectedField,
}

/// The fields that Phoenix computes, and any other path as an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProjectedField {
    SpanId,
    TraceId,
    ParentId,
    Kind,
    Name,
    StatusCode,
    StatusMessage,
    LatencyMs,
    PromptTokens,
    CompletionTokens,
    TotalTokens,
    StartTime,
    EndTime,
    Attribute(Vec<AttributePathSegment>),
}

/// One step into nested attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AttributePathSegment {
    Name(String),
    Index(usize),
}

/// Maximum length of a path: longer than any meaningful one.
const MAX_PROJECTION_BYTES: usize = 1000;
/// Maximum number of characters of a refused path that the error repeats.
const MAX_SHOWN_PATH_CHARS: usize = 80;

/// A path that is not of the forms that [`SpanProjection::parse`] accepts. Only the beginning of the path is kept,
/// since a client may send any text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{shown:?} cannot be selected; write a name, a.dotted.path or attributes['a']['b'][0]")]
pub(super) struct SpanProjectionError {
    shown: String,
}

impl SpanProjection {
    /// Reads `name`, `a.dotted.path`, `attributes['a']['b'][0]` or `metadata['key']`.
    pub(super) fn parse(text: &str) -> Result<SpanProjection, SpanProjectionError> {
        let key = match text {
            "span_id" => "context.span_id",
            "trace_id" => "context.trace_id",
            other => other,
        };
        let wrong = || SpanProjectionError { shown: text.chars().take(MAX_SHOWN_PATH_CHARS).collect() };
        if text.len() > MAX_PROJECTION_BYTES {
            return Err(wrong());
        }
        let what = match key.trim() {
            "context.span_id" => ProjectedField::SpanId,
            "context.trace_id" => ProjectedField::TraceId,
            "parent_id" => ProjectedField::ParentId,
            "span_kind" => ProjectedField::Kind,
            "name" => ProjectedField::Name,
            "status_code" => ProjectedField::StatusCode,
            "status_message" => ProjectedField::StatusMessage,
            "latency_ms" => ProjectedField::LatencyMs,
            "cumulative_llm_token_count_prompt" | "cumulative_token_count.prompt" => ProjectedField::PromptTokens,
            "cumulative_llm_token_count_completion" | "cumulative_token_count.completion" => {
                ProjectedField::CompletionTokens
            }
            "cumulative_llm_token_count_total" | "cumulative_token_count.total" => ProjectedField::TotalTokens,
            "start_time" => ProjectedField::StartTime,
            "end_time" => ProjectedField::EndTime,
            path => ProjectedField::Attribute(parse_attribute_path(path).ok_or_else(wrong)?),
        };
        Ok(SpanProjection { key: key.to_owned(), what })
    }

    /// Returns the value in a span; null if the span lacks it. `index` is the position of the span in its trace.
    pub(super) fn extract_cell(&self, trace: &TraceView<'_>, index: usize, span: &PhoenixSpan<'_>) -> DataFrameCell {
        let recorded = span.span();
        let text = |text: &str| DataFrameCell::Json(Value::from(text));
        match &self.what {
            ProjectedField::SpanId => text(&recorded.span_id.to_string()),
            ProjectedField::TraceId => text(&recorded.trace_id.to_string()),
            ProjectedField::ParentId => DataFrameCell::Json(recorded.parent_id.map(|id| id.to_string()).into()),
            ProjectedField::Kind => text(span.kind().as_str()),
            ProjectedField::Name => text(&recorded.name),
            ProjectedField::StatusCode => text(span.status_code()),
            ProjectedField::StatusMessage => text(&recorded.status.message),
            ProjectedField::LatencyMs => DataFrameCell::Json(span.latency_ms().into()),
            ProjectedField::PromptTokens => DataFrameCell::Json(trace.cumulative_tokens(index).0.into()),
            ProjectedField::CompletionTokens => DataFrameCell::Json(trace.cumulative_tokens(index).1.into()),
            ProjectedField::TotalTokens => {
                let (prompt, completion) = trace.cumulative_tokens(index);
                DataFrameCell::Json(prompt.saturating_add(completion).into())
            }
            ProjectedField::StartTime => DataFrameCell::Time(span.start_us()),
            ProjectedField::EndTime => DataFrameCell::Time(span.end_us()),
            ProjectedField::Attribute(path) => {
                DataFrameCell::Json(resolve_attribute_path(span, path).cloned().unwrap_or_default())
            }
        }
    }

    /// Returns the list at the path; `None` if the path leads to no list.
    pub(super) fn resolve_list<'s>(&self, span: &'s PhoenixSpan<'_>) -> Option<&'s Vec<Value>> {
        match &self.what {
            ProjectedField::Attribute(path) => resolve_attribute_path(span, path)?.as_array(),
            _ => None,
        }
    }
}

/// Follows a path; `None` if a step finds no entry or a value of another type.
fn resolve_attribute_path<'s>(span: &'s PhoenixSpan<'_>, path: &[AttributePathSegment]) -> Option<&'s Value> {
    let mut path = path.iter();
    let mut at = match path.next()? {
        AttributePathSegment::Name(name) => span.attributes().get(name)?,
        AttributePathSegment::Index(_) => return None,
    };
    for key in path {
        at = match key {
            AttributePathSegment::Name(name) => at.as_object()?.get(name)?,
            AttributePathSegment::Index(index) => at.as_array()?.get(*index)?,
        };
    }
    Some(at)
}

/// Parses a path without an expression parser: only names, quoted keys and indexes are allowed, so nothing can be
/// evaluated. `None` for any other text.
fn parse_attribute_path(text: &str) -> Option<Vec<AttributePathSegment>> {
    let Some(open) = text.find('[') else {
        let names = text.split('.').map(str::trim);
        return names
            .map(|name| is_python_identifier(name).then(|| AttributePathSegment::Name(name.to_owned())))
            .collect();
    };
    let root = text[..open].trim();
    let mut path = match root {
        "metadata" => vec![AttributePathSegment::Name(root.to_owned())],
        "attributes" => Vec::new(),
        _ => return None,
    };
    let mut rest = &text[open..];
    while !rest.is_empty() {
        // `['a']`, `[0]` and `[['a', 'b']]`.
        let inside = rest.strip_prefix('[')?.trim_start();
        let (inside, is_list) = match inside.strip_prefix('[') {
            Some(inside) => (inside, true),
            None => (inside, false),
        };
        let mut left = inside;
        loop {
            let (key, behind) = parse_subscript(left.trim_start())?;
            path.push(key);
            left = behind.trim_start();
            match left.strip_prefix(',') {
                Some(next) if is_list => left = next,
                _ => break,
            }
        }
        if is_list {
            left = left.strip_prefix(']')?.trim_start();
        }
        rest = left.strip_prefix(']')?.trim_start();
    }
    matches!(path.first(), Some(AttributePathSegment::Name(_))).then_some(path)
}

/// Parses a quoted key or an index; also returns the rest of the text. Escapes in keys are refused, because Python
/// would interpret them.
fn parse_subscript(text: &str) -> Option<(AttributePathSegment, &str)> {
    let quote = text.chars().next()?;
    if matches!(quote, '\'' | '"') {
        let inside = &text[1..];
        let end = inside.find(quote)?;
        let name = &inside[..end];
        return (!name.contains('\\')).then(|| (AttributePathSegment::Name(name.to_owned()), &inside[end + 1..]));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((AttributePathSegment::Index(text[..end].parse().ok()?), &text[end..]))
}

/// Whether a text is a Python identifier.
fn is_python_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_') && chars.all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> Option<Vec<String>> {
        let ProjectedField::Attribute(path) = SpanProjection::parse(text).ok()?.what else { return None };
        let shown = |key: AttributePathSegment| match key {
            AttributePathSegment::Name(name) => name,
            AttributePathSegment::Index(index) => format!("#{index}"),
        };
        Some(path.into_iter().map(shown).collect())
    }

    #[test]
    fn paths_as_phoenix_reads_them() {
        assert_eq!(path("input.value").unwrap(), ["input", "value"]);
        assert_eq!(path("attributes['a']['b.c'][0]").unwrap(), ["a", "b.c", "#0"]);
        assert_eq!(path("attributes[['a', \"b\"]][1]").unwrap(), ["a", "b", "#1"]);
        assert_eq!(path("metadata['k']").unwrap(), ["metadata", "k"]);
        assert_eq!(SpanProjection::parse("span_id").unwrap().key, "context.span_id");
        for wrong in
            ["", "a..b", "a b", "f(x)", "attributes[0]", "attributes['a'", "a[0]", "1a", "a + b", "attributes[]"]
        {
            let refused = SpanProjection::parse(wrong).unwrap_err().to_string();
            assert!(!refused.contains('\n') && refused.contains("cannot be selected"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "\\PC{0,60}", brackets in "[a-z'\"\\[\\], 0-9.\\\\]{0,40}") {
            let _ = SpanProjection::parse(&text);
            let _ = SpanProjection::parse(&format!("attributes{brackets}"));
        }
    }
}
