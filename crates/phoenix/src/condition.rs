//! `--where`: selects traces that contain a span for which a filter of Phoenix is true, whatever kind of source they
//! come from.

use std::collections::HashSet;

use crate::filter::{
    AnnotationScope, FilterError, FilterExpression, FilterableAnnotation, SpanCostTotals, SpanFilterContext, TokenSums,
};
use crate::span_view::{PhoenixSpan, cumulative_tokens};
use gradus_core::span::{Span, SpanId, TraceId};
use gradus_ingest::SpanCondition;

/// A parsed filter with its source text. The text is part of the key under which interrupted reads are resumed.
#[derive(Clone, Debug)]
pub struct FilterCondition {
    text: String,
    filter: FilterExpression,
}

/// Why a text cannot be the condition of `--where`.
#[derive(Debug, thiserror::Error)]
pub enum FilterConditionError {
    #[error("--where: {0}")]
    Filter(#[from] FilterError),
    /// The filter asks for data that only a server stores, so that it would be false of every span of a file.
    #[error("--where: annotations and costs are not in traces; ask a server for them with Phoenix's client")]
    NotInTraces,
}

impl FilterCondition {
    /// Parses a filter and refuses one that no trace can answer.
    pub fn read(text: &str) -> Result<FilterCondition, FilterConditionError> {
        let filter = FilterExpression::parse(text)?;
        let needs = filter.requirements();
        if !needs.annotations.is_empty() || needs.cost || needs.cost_details {
            return Err(FilterConditionError::NotInTraces);
        }
        Ok(FilterCondition { text: text.to_owned(), filter })
    }
}

impl SpanCondition for FilterCondition {
    /// Identifies the condition in the key of a resumable download.
    fn text(&self) -> &str {
        &self.text
    }

    /// A trace matches if one of its spans does, so spans of a trace that already matched are skipped. Parents and
    /// cumulative tokens are computed only if the filter asks for them.
    fn matching_traces(&self, spans: &[Span<'_>]) -> HashSet<TraceId> {
        let needs = self.filter.requirements();
        let ids: HashSet<(TraceId, SpanId)> =
            spans.iter().filter(|_| needs.parent).map(|span| (span.trace_id, span.span_id)).collect();
        let sums = if needs.cumulative_tokens { cumulative_tokens(spans) } else { Vec::new() };
        let mut found = HashSet::new();
        for (at, span) in spans.iter().enumerate() {
            // One matching span is enough.
            if found.contains(&span.trace_id) {
                continue;
            }
            let around = GroupFilterContext {
                has_parent: span.parent_id.is_some_and(|parent| ids.contains(&(span.trace_id, parent))),
                sums: sums.get(at).copied().unwrap_or_default(),
            };
            if self.filter.matches(&PhoenixSpan::new(span), &around) {
                found.insert(span.trace_id);
            }
        }
        found
    }
}

/// The facts about a span that come from its trace group. Traces have no annotations and costs.
struct GroupFilterContext {
    has_parent: bool,
    /// Cumulative tokens of prompts and completions.
    sums: (i64, i64),
}

impl SpanFilterContext for GroupFilterContext {
    fn has_parent(&self) -> bool {
        self.has_parent
    }

    fn cumulative_tokens(&self) -> TokenSums {
        TokenSums { prompt: self.sums.0, completion: self.sums.1 }
    }

    fn cost(&self) -> SpanCostTotals {
        SpanCostTotals::default()
    }

    fn annotations(&self, _: AnnotationScope, _: &str) -> Vec<FilterableAnnotation> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let messages = ["span_kind = 'LLM'", "name.startswith('x')", "annotations['x'].label == 'y'", "total_cost > 1"]
            .map(|text| FilterCondition::read(text).expect_err(text).to_string());
        assert!(messages.iter().all(|message| !message.contains('\n')), "{messages:?}");
        insta::assert_snapshot!(messages.join("\n"));
        assert!(FilterCondition::read("span_kind == 'LLM'").is_ok());
    }
}
