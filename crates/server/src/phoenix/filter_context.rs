//! The context of a span that filters need and the span does not record: its parent, tokens of its descendants, and
//! annotations.

use std::cell::RefCell;

use gradus_phoenix::filter::{AnnotationScope, FilterableAnnotation, SpanCostTotals, SpanFilterContext, TokenSums};
use gradus_store::{AnnotationFilter, StoreError};

use super::scan::TraceView;
use super::verdicts;
use crate::phoenix::annotation_subject::PhoenixAnnotationTarget;
use crate::state::ServerState;

/// The context of one span. The filter's trait has no errors, so the first error of a lookup is stored in `failed`,
/// and the caller must take it after each evaluation.
pub(super) struct StoreFilterContext<'a> {
    server: &'a ServerState,
    trace: &'a TraceView<'a>,
    index: usize,
    /// The first error of a lookup.
    failed: RefCell<Option<StoreError>>,
}

/// Maximum number of annotations of one name on one target that a filter sees.
const MAX_FILTER_ANNOTATIONS: usize = 100;

impl<'a> StoreFilterContext<'a> {
    pub(super) fn new(server: &'a ServerState, trace: &'a TraceView<'a>, index: usize) -> StoreFilterContext<'a> {
        StoreFilterContext { server, trace, index, failed: RefCell::new(None) }
    }

    /// Takes the error of a lookup. Must be called after each evaluation: a result that was computed after a failed
    /// lookup is invalid.
    pub(super) fn take_error(&self) -> Option<StoreError> {
        self.failed.borrow_mut().take()
    }

    /// Whether the parent was received. It nearly always is in the same trace; otherwise the store is asked.
    pub(super) fn was_parent_received(&self) -> bool {
        let Some(parent) = self.trace.spans[self.index].parent_id else { return false };
        self.trace.find_span_index(parent).is_some()
            || self.keep_error(self.server.store.trace_of_span(parent)).flatten().is_some()
    }

    fn keep_error<T>(&self, found: Result<T, StoreError>) -> Option<T> {
        found.map_err(|error| *self.failed.borrow_mut() = Some(error)).ok()
    }
}

impl SpanFilterContext for StoreFilterContext<'_> {
    // A parent that was not received counts as none.
    fn has_parent(&self) -> bool {
        self.was_parent_received()
    }

    /// Whether the query has to end. Filters call it in long loops, so that a query ends when its budget is used up.
    fn should_stop(&self) -> bool {
        self.keep_error(gradus_store::check_query().map_err(StoreError::from)).is_none()
    }

    fn cumulative_tokens(&self) -> TokenSums {
        let (prompt, completion) = self.trace.cumulative_tokens(self.index);
        TokenSums { prompt, completion }
    }

    /// Costs are not stored by span, so conditions on them never match.
    fn cost(&self) -> SpanCostTotals {
        SpanCostTotals::default()
    }

    /// Returns logged annotations, and Gradus's own verdicts where none was logged under the same identifier.
    fn annotations(&self, scope: AnnotationScope, name: &str) -> Vec<FilterableAnnotation> {
        let target = match scope {
            AnnotationScope::Span => {
                PhoenixAnnotationTarget::Span.format_target(&self.trace.spans[self.index].span_id.to_string())
            }
            AnnotationScope::Trace => PhoenixAnnotationTarget::Trace.format_target(&self.trace.trace_id.to_string()),
        };
        let filter = AnnotationFilter {
            target: Some(target.clone()),
            name: Some(name.to_owned()),
            limit: MAX_FILTER_ANNOTATIONS,
            ..AnnotationFilter::default()
        };
        let rows = self.keep_error(self.server.store.annotations(&filter)).unwrap_or_default();
        let mut notes: Vec<FilterableAnnotation> = rows
            .into_iter()
            .map(|row| FilterableAnnotation {
                label: row.label,
                score: row.score,
                explanation: row.explanation,
                identifier: row.identifier,
            })
            .collect();
        let ours = self.trace.verdicts.get_or_init(|| {
            self.keep_error(verdicts::load_trace_verdicts(self.server, self.trace.trace_id)).unwrap_or_default()
        });
        let ours = ours.iter().filter_map(|verdict| verdict.to_filterable(&target, name));
        // `gradus eval --log-to-phoenix` logs the same verdicts: they must not be counted twice.
        let ours: Vec<FilterableAnnotation> =
            ours.filter(|ours| notes.iter().all(|note| note.identifier != ours.identifier)).collect();
        notes.extend(ours);
        notes
    }
}
