//! Phoenix's filter language for spans: `span_kind == 'LLM' and 'gpt' in llm.model_name`.
//!
//! It looks like Python and means SQL: Phoenix parses it as the one and runs it as the other. Here it is parsed
//! (`lexer`, `parser`), checked (`types`, `names`), made ready (`lower`) and then walked for each span (`evaluate`);
//! nothing is ever handed to an interpreter. What a span alone does not know comes in through [`SpanFilterContext`].

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

/// A filter, ready to be tried on spans.
#[derive(Clone, Debug)]
pub struct FilterExpression {
    lowered: lower::LoweredFilter,
    needs: FilterRequirements,
}

/// What a filter can ask about a span that is not in the span.
pub trait SpanFilterContext {
    /// Whether the span that it names as its parent is there.
    fn has_parent(&self) -> bool;
    /// Tokens of the span and of all spans below it.
    fn cumulative_tokens(&self) -> TokenSums;
    fn cost(&self) -> SpanCostTotals;
    /// What the cost is made of, if that is known.
    fn cost_details(&self) -> Vec<CostDetail> {
        Vec::new()
    }
    /// Whether the answer is not wanted any more. What a filter says then means nothing.
    fn should_stop(&self) -> bool {
        false
    }
    /// The annotations of this name; there can be several with different identifiers.
    fn annotations(&self, scope: AnnotationScope, name: &str) -> Vec<FilterableAnnotation>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenSums {
    pub prompt: i64,
    pub completion: i64,
}

/// What a span cost, in dollars. What is not known counts as nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpanCostTotals {
    pub total: Option<f64>,
    pub prompt: Option<f64>,
    pub completion: Option<f64>,
}

/// One part of a cost: tokens of one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostDetail {
    pub token_type: String,
    pub is_prompt: bool,
    pub cost: Option<f64>,
    pub tokens: Option<f64>,
    pub cost_per_token: Option<f64>,
}

/// An annotation, as far as filters ask about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterableAnnotation {
    pub label: Option<String>,
    pub score: Option<f64>,
    pub explanation: Option<String>,
    pub identifier: String,
}

/// A span of which nothing else is known: a root without annotations.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyFilterContext;

impl FilterExpression {
    /// Reads a filter. An empty one is true of every span.
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

    pub fn requirements(&self) -> &FilterRequirements {
        &self.needs
    }

    pub fn matches(&self, span: &PhoenixSpan<'_>, around: &dyn SpanFilterContext) -> bool {
        evaluate::span_matches_filter(&self.lowered, span, around)
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
