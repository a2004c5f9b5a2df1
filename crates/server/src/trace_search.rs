//! Finds traces for one page of a list: by time, in another order, or by a condition on spans.

use std::time::{Duration, Instant};

use gradus_phoenix::filter::FilterExpression;
use gradus_store::{TraceFilter, TraceListCursor, TraceOrder, TraceRow};

use crate::http_error::ApiError;
use crate::phoenix;
use crate::state::ServerState;

/// Number of traces in one query when a condition on spans has to be tested.
const TRACES_PER_TRY: usize = 10;
/// Maximum number of traces and maximum time for testing a condition in one request, since spans are not indexed.
/// Then the page is short and the cursor continues from there.
const MAX_TRIED_TRACES: usize = 1_000;
const MAX_TRY_TIME: Duration = Duration::from_millis(50);

/// The parameters of a search.
pub(crate) struct TraceSearch<'s> {
    pub(crate) filter: &'s TraceFilter,
    /// `None` for newest first. A condition on spans does not go together with another order.
    pub(crate) order: Option<TraceOrder>,
    /// In Phoenix's filter language: traces with a span that meets it.
    pub(crate) condition: Option<&'s str>,
    /// `next` of the page before.
    pub(crate) cursor: Option<&'s str>,
    pub(crate) limit: usize,
}

/// One page of a list.
pub(crate) struct FoundTraces {
    pub(crate) traces: Vec<TraceRow>,
    /// A page may be short or empty and still have a next one.
    pub(crate) next: Option<String>,
    /// How many of the latest matches were sorted, if there are more.
    pub(crate) sorted_of_more: Option<u64>,
}

/// Parses the name of an order.
pub(crate) fn parse_order(sort: Option<&str>) -> Result<Option<TraceOrder>, ApiError> {
    match sort {
        None => Ok(None),
        Some("duration") => Ok(Some(TraceOrder::Duration)),
        Some("steps") => Ok(Some(TraceOrder::Steps)),
        Some("cost") => Ok(Some(TraceOrder::Cost)),
        Some("wrong") => Ok(Some(TraceOrder::Wrong)),
        Some(other) => Err(ApiError::bad_request(format!("sort={other}: duration, steps, cost or wrong"))),
    }
}

impl TraceSearch<'_> {
    pub(crate) fn find(&self, server: &ServerState) -> Result<FoundTraces, ApiError> {
        let bad_cursor = || {
            ApiError::bad_request(
                "cursor: not a position in this list; give the next_cursor of the page before, with the same sort",
            )
        };
        if let (None, Some(order)) = (self.condition, self.order) {
            let skip = match self.cursor {
                None => 0,
                Some(text) => text.strip_prefix('s').and_then(|skip| skip.parse().ok()).ok_or_else(bad_cursor)?,
            };
            let page = server.store.sorted_traces(self.filter, order, skip, self.limit)?;
            let next = skip.saturating_add(self.limit);
            return Ok(FoundTraces {
                traces: page.traces,
                next: (next < page.sorted_count).then(|| format!("s{next}")),
                sorted_of_more: page.is_cut.then_some(page.sorted_count as u64),
            });
        }
        let cursor: Option<TraceListCursor> = match self.cursor {
            Some(text) => Some(text.parse().map_err(|()| bad_cursor())?),
            None => None,
        };
        let (traces, next) = match self.condition {
            None => {
                let page = server.store.traces(self.filter, cursor, self.limit)?;
                (page.traces, page.next)
            }
            Some(text) => {
                let condition =
                    FilterExpression::parse(text).map_err(|error| ApiError::bad_request(format!("where: {error}")))?;
                self.find_by_span(server, &condition, cursor)?
            }
        };
        Ok(FoundTraces { traces, next: next.map(|cursor| cursor.to_string()), sorted_of_more: None })
    }

    /// Finds traces with a span that matches the condition. Spans are not indexed by content, so they are read,
    /// bounded by number and time. Returns the cursor to continue from, even if nothing was found.
    fn find_by_span(
        &self,
        server: &ServerState,
        condition: &FilterExpression,
        mut cursor: Option<TraceListCursor>,
    ) -> Result<(Vec<TraceRow>, Option<TraceListCursor>), ApiError> {
        let started = Instant::now();
        let (mut found, mut tried) = (Vec::new(), 0);
        loop {
            // Full-text results cannot be continued in the middle of a batch.
            let batch = match self.filter.text {
                Some(_) => TRACES_PER_TRY.min(self.limit - found.len()),
                None => TRACES_PER_TRY,
            };
            let page = server.store.traces(self.filter, cursor, batch)?;
            let last = page.traces.len();
            for (at, trace) in page.traces.into_iter().enumerate() {
                tried += 1;
                let resume_cursor = TraceListCursor::Time { start_ns: trace.start_ns, trace: trace.no };
                if phoenix::has_matching_span(server, &trace.project, trace.trace_id, condition)? {
                    found.push(trace);
                }
                // Checked after each trace, since one can be large. Full-text results have an order of their own, in
                // which a trace is not a valid cursor, so those pages are finished.
                let is_enough =
                    found.len() >= self.limit || tried >= MAX_TRIED_TRACES || started.elapsed() > MAX_TRY_TIME;
                if is_enough && self.filter.text.is_none() && at + 1 < last {
                    return Ok((found, Some(resume_cursor)));
                }
            }
            let is_enough = found.len() >= self.limit || tried >= MAX_TRIED_TRACES || started.elapsed() > MAX_TRY_TIME;
            if page.next.is_none() || is_enough {
                return Ok((found, page.next));
            }
            cursor = page.next;
        }
    }
}
