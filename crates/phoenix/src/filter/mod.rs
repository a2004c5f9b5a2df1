//! Phoenix's filter language for spans: `span_kind == 'LLM' and 'gpt' in llm.model_name`.
//!
//! It has the syntax of Python and the semantics of SQL: Phoenix parses a filter as Python and runs it as a query. Here
//! it is parsed (`lexer`, `parser`), type-checked (`types`, `names`), lowered (`lower`), and evaluated for each span
//! (`evaluate`). Nothing is passed to an interpreter. What a span alone does not know comes through
//! [`SpanFilterContext`].

mod ast;
mod error;
mod evaluate;
mod lexer;
mod loops;
mod lower;
mod names;
mod needs;
mod parser;
mod sql;
#[cfg(test)]
mod tests;
mod types;
mod value_kind;

use crate::span_view::PhoenixSpan;

pub use error::FilterError;
pub use names::AnnotationScope;
pub use needs::{FilterBounds, FilterRequirements};

/// A filter, ready to be evaluated. Immutable, so that threads can share it.
#[derive(Clone, Debug)]
pub struct FilterExpression {
    lowered: lower::LoweredFilter,
    needs: FilterRequirements,
}

/// Facts about a span that are not in the span. Only those of [`FilterExpression::requirements`] are asked for.
pub trait SpanFilterContext {
    /// Whether the parent span is present, which a parent id alone does not say.
    fn has_parent(&self) -> bool;
    /// Tokens of the span and all its descendants.
    fn cumulative_tokens(&self) -> TokenSums;
    /// Costs in dollars.
    fn cost(&self) -> SpanCostTotals;
    /// Components of the cost, if they are known.
    fn cost_details(&self) -> Vec<CostDetail> {
        Vec::new()
    }
    /// Whether the caller no longer wants a result. The evaluation then ends early and its result has no meaning.
    fn should_stop(&self) -> bool {
        false
    }
    /// Annotations with this name; there can be several with different identifiers.
    fn annotations(&self, scope: AnnotationScope, name: &str) -> Vec<FilterableAnnotation>;
}

/// Token counts of prompts and completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenSums {
    pub prompt: i64,
    pub completion: i64,
}

/// Costs of a span in dollars. Unknown costs compare as 0, as in Phoenix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpanCostTotals {
    pub total: Option<f64>,
    pub prompt: Option<f64>,
    pub completion: Option<f64>,
}

/// One component of a cost: the tokens of one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostDetail {
    pub token_type: String,
    pub is_prompt: bool,
    pub cost: Option<f64>,
    pub tokens: Option<f64>,
    pub cost_per_token: Option<f64>,
}

/// The fields of an annotation that filters can use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterableAnnotation {
    pub label: Option<String>,
    pub score: Option<f64>,
    pub explanation: Option<String>,
    pub identifier: String,
}

/// The context of a span about which nothing else is known: a root without annotations and costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyFilterContext;

impl FilterExpression {
    /// Parses and checks a filter. An empty one matches every span. Length, depth and number of parts are bounded.
    pub fn parse(text: &str) -> Result<FilterExpression, FilterError> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            let condition = lower::LoweredCondition::Constant(true);
            return Ok(FilterExpression {
                lowered: lower::LoweredFilter { condition, annotations: Vec::new() },
                needs: FilterRequirements::default(),
            });
        }
        let filter = parser::parse_filter(trimmed)?;
        types::check_filter_types(&filter)?;
        let lowered = lower::lower_filter(&filter)?;
        let needs = needs::collect_requirements(&lowered);
        Ok(FilterExpression { lowered, needs })
    }

    /// What the filter needs in addition to the span, and bounds on the spans that it can match.
    pub fn requirements(&self) -> &FilterRequirements {
        &self.needs
    }

    /// Whether the filter is true; unknown counts as false, as in a SQL `WHERE`.
    pub fn matches(&self, span: &PhoenixSpan<'_>, filter_facts: &dyn SpanFilterContext) -> bool {
        evaluate::span_matches_filter(&self.lowered, span, filter_facts)
    }
}

impl SpanFilterContext for EmptyFilterContext {
    fn has_parent(&self) -> bool {
        false
    }

    fn cumulative_tokens(&self) -> TokenSums {
        TokenSums::default()
    }

    fn cost(&self) -> SpanCostTotals {
        SpanCostTotals::default()
    }

    fn annotations(&self, _: AnnotationScope, _: &str) -> Vec<FilterableAnnotation> {
        Vec::new()
    }
}
