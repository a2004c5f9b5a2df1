//! What a query selects of a span: a column of its own, or an attribute by its path.

use gradus_phoenix::span_view::PhoenixSpan;
use serde_json::Value;

use super::frame::Cell;
use super::scan::TraceView;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Projection {
    /// As the query has it, which is also the name of a column.
    pub(super) key: String,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
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
    Attribute(Vec<Key>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    Name(String),
    Index(usize),
}

/// Longer than any path that means something.
const MAX_BYTES: usize = 1000;

impl Projection {
    /// Reads `name`, `a.dotted.path`, `attributes['a']['b'][0]` or `metadata['key']`.
    pub(super) fn parse(text: &str) -> Result<Projection, String> {
        let key = match text {
            "span_id" => "context.span_id",
            "trace_id" => "context.trace_id",
            other => other,
        };
        let wrong = || {
            let shown: String = text.chars().take(80).collect();
            format!("{shown:?} cannot be selected; write a name, a.dotted.path or attributes['a']['b'][0]")
        };
        if text.len() > MAX_BYTES {
            return Err(wrong());
        }
        let what = match key.trim() {
            "context.span_id" => What::SpanId,
            "context.trace_id" => What::TraceId,
            "parent_id" => What::ParentId,
            "span_kind" => What::Kind,
            "name" => What::Name,
            "status_code" => What::StatusCode,
            "status_message" => What::StatusMessage,
            "latency_ms" => What::LatencyMs,
            "cumulative_llm_token_count_prompt" | "cumulative_token_count.prompt" => What::PromptTokens,
            "cumulative_llm_token_count_completion" | "cumulative_token_count.completion" => {
                What::CompletionTokens
            }
            "cumulative_llm_token_count_total" | "cumulative_token_count.total" => What::TotalTokens,
            "start_time" => What::StartTime,
            "end_time" => What::EndTime,
            path => What::Attribute(attribute_path(path).ok_or_else(wrong)?),
        };
        Ok(Projection { key: key.to_owned(), what })
    }

    pub(super) fn of(&self, trace: &TraceView<'_>, index: usize, span: &PhoenixSpan<'_>) -> Cell {
        let recorded = span.span();
        let text = |text: &str| Cell::Json(Value::from(text));
        match &self.what {
            What::SpanId => text(&recorded.span_id.to_string()),
            What::TraceId => text(&recorded.trace_id.to_string()),
            What::ParentId => Cell::Json(recorded.parent_id.map(|id| id.to_string()).into()),
            What::Kind => text(span.kind().as_str()),
            What::Name => text(&recorded.name),
            What::StatusCode => text(span.status_code()),
            What::StatusMessage => text(&recorded.status.message),
            What::LatencyMs => Cell::Json(span.latency_ms().into()),
            What::PromptTokens => Cell::Json(trace.cumulative_tokens(index).0.into()),
            What::CompletionTokens => Cell::Json(trace.cumulative_tokens(index).1.into()),
            What::TotalTokens => {
                let (prompt, completion) = trace.cumulative_tokens(index);
                Cell::Json(prompt.saturating_add(completion).into())
            }
            What::StartTime => Cell::Time(span.start_us()),
            What::EndTime => Cell::Time(span.end_us()),
            What::Attribute(path) => Cell::Json(follow(span, path).cloned().unwrap_or_default()),
        }
    }

    /// The list that stands there, if it is one.
    pub(super) fn list<'s>(&self, span: &'s PhoenixSpan<'_>) -> Option<&'s Vec<Value>> {
        match &self.what {
            What::Attribute(path) => follow(span, path)?.as_array(),
            _ => None,
        }
    }
}

fn follow<'s>(span: &'s PhoenixSpan<'_>, path: &[Key]) -> Option<&'s Value> {
    let mut path = path.iter();
    let mut at = match path.next()? {
        Key::Name(name) => span.attributes().get(name)?,
        Key::Index(_) => return None,
    };
    for key in path {
        at = match key {
            Key::Name(name) => at.as_object()?.get(name)?,
            Key::Index(index) => at.as_array()?.get(*index)?,
        };
    }
    Some(at)
}

fn attribute_path(text: &str) -> Option<Vec<Key>> {
    let Some(open) = text.find('[') else {
        let names = text.split('.').map(str::trim);
        return names.map(|name| is_name(name).then(|| Key::Name(name.to_owned()))).collect();
    };
    let root = text[..open].trim();
    let mut path = match root {
        "metadata" => vec![Key::Name(root.to_owned())],
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
            let (key, behind) = subscript(left.trim_start())?;
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
    matches!(path.first(), Some(Key::Name(_))).then_some(path)
}

fn subscript(text: &str) -> Option<(Key, &str)> {
    let quote = text.chars().next()?;
    if matches!(quote, '\'' | '"') {
        let inside = &text[1..];
        let end = inside.find(quote)?;
        let name = &inside[..end];
        return (!name.contains('\\')).then(|| (Key::Name(name.to_owned()), &inside[end + 1..]));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((Key::Index(text[..end].parse().ok()?), &text[end..]))
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> Option<Vec<String>> {
        let What::Attribute(path) = Projection::parse(text).ok()?.what else { return None };
        let shown = |key: Key| match key {
            Key::Name(name) => name,
            Key::Index(index) => format!("#{index}"),
        };
        Some(path.into_iter().map(shown).collect())
    }

    #[test]
    fn paths_as_phoenix_reads_them() {
        assert_eq!(path("input.value").unwrap(), ["input", "value"]);
        assert_eq!(path("attributes['a']['b.c'][0]").unwrap(), ["a", "b.c", "#0"]);
        assert_eq!(path("attributes[['a', \"b\"]][1]").unwrap(), ["a", "b", "#1"]);
        assert_eq!(path("metadata['k']").unwrap(), ["metadata", "k"]);
        assert_eq!(Projection::parse("span_id").unwrap().key, "context.span_id");
        for wrong in [
            "",
            "a..b",
            "a b",
            "f(x)",
            "attributes[0]",
            "attributes['a'",
            "a[0]",
            "1a",
            "a + b",
            "attributes[]",
        ] {
            let refused = Projection::parse(wrong).unwrap_err();
            assert!(!refused.contains('\n') && refused.contains("cannot be selected"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "\\PC{0,60}", brackets in "[a-z'\"\\[\\], 0-9.\\\\]{0,40}") {
            let _ = Projection::parse(&text);
            let _ = Projection::parse(&format!("attributes{brackets}"));
        }
    }
}
