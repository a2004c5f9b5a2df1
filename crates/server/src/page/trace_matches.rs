//! Finds the traces of one page of the list: by time, in another order, or by a condition on spans.

use std::time::{Duration, Instant};

use gradus_phoenix::filter::FilterExpression;
use gradus_report::html::number;
use gradus_store::{TraceCount, TraceFilter, TraceListCursor, TraceRow};

use super::trace_list_query::TraceListQuery;
use crate::http_error::ApiError;
use crate::phoenix;
use crate::state::ServerState;

/// Rows on one page.
pub(super) const ROWS: usize = 50;
/// Traces of one query when a condition on spans has to be tested.
const TRIED_AT_ONCE: usize = 10;
/// Limits of testing a condition in one request, since spans are not indexed. Afterwards the page is short and the
/// cursor continues from there.
const MAX_TRIED: usize = 1_000;
const TRIES_FOR: Duration = Duration::from_millis(50);

/// A link that sorts the list.
pub(super) struct SortLink {
    pub(super) title: &'static str,
    pub(super) href: String,
    pub(super) is_chosen: bool,
}

pub(super) fn build_sort_links(choice: &TraceListQuery) -> Vec<SortLink> {
    let address = choice.to_page_url("/traces");
    let orders = [
        ("newest", None),
        ("most flagged", Some("wrong")),
        ("longest", Some("duration")),
        ("most steps", Some("steps")),
        ("most expensive", Some("cost")),
    ];
    let link = |(title, sort): (&'static str, Option<&str>)| SortLink {
        title,
        href: address.with_replaced("sort", sort).to_string(),
        is_chosen: choice.sort.as_deref() == sort,
    };
    orders.map(link).into()
}

/// The traces of a page, the cursor of the next one, and what a sorted list covers.
pub(super) type MatchedPage = (Vec<TraceRow>, Option<String>, Option<String>);

pub(super) fn load_matches(
    server: &ServerState,
    choice: &TraceListQuery,
    filter: &TraceFilter,
) -> Result<MatchedPage, ApiError> {
    let bad_cursor = || ApiError::bad_request("cursor: not a position in the list");
    if let (None, Some(order)) = (&choice.condition, choice.order()?) {
        let skip = match choice.cursor.as_deref() {
            None => 0,
            Some(text) => text.strip_prefix('s').and_then(|skip| skip.parse().ok()).ok_or_else(bad_cursor)?,
        };
        let page = server.store.sorted_traces(filter, order, skip, ROWS)?;
        let next = skip.saturating_add(ROWS);
        let sorted = page.is_cut.then(|| {
            let most = number::format_count(page.sorted_count as u64);
            format!("Sorted are the latest {most} matches; older ones are not in this list.")
        });
        return Ok((page.traces, (next < page.sorted_count).then(|| format!("s{next}")), sorted));
    }
    let cursor: Option<TraceListCursor> = match &choice.cursor {
        Some(text) => Some(text.parse().map_err(|()| bad_cursor())?),
        None => None,
    };
    let (found, next) = match &choice.condition {
        None => {
            let page = server.store.traces(filter, cursor, ROWS)?;
            (page.traces, page.next)
        }
        Some(text) => {
            let condition =
                FilterExpression::parse(text).map_err(|error| ApiError::bad_request(format!("where: {error}")))?;
            list_where(server, filter, &condition, cursor)?
        }
    };
    let sorted = choice.sort.is_some().then(|| "A list with a span filter is sorted by time.".to_owned());
    Ok((found, next.map(|cursor| cursor.to_string()), sorted))
}

/// `24 matches`, or how many there are at least.
pub(super) fn format_match_count(found: TraceCount) -> String {
    let words = number::format_counted_noun(found.count, "match", "matches");
    if found.is_cut { format!("at least {words}; only the latest traces are counted") } else { words }
}

/// Traces with a span that matches the condition. Spans are not indexed by content, so they are read, bounded by number
/// and time. Returns the cursor to continue from, even if nothing was found.
fn list_where(
    server: &ServerState,
    filter: &TraceFilter,
    condition: &FilterExpression,
    mut cursor: Option<TraceListCursor>,
) -> Result<(Vec<TraceRow>, Option<TraceListCursor>), ApiError> {
    let started = Instant::now();
    let (mut found, mut tried) = (Vec::new(), 0);
    loop {
        let page = server.store.traces(filter, cursor, TRIED_AT_ONCE)?;
        let last = page.traces.len();
        for (at, trace) in page.traces.into_iter().enumerate() {
            tried += 1;
            let place = TraceListCursor::Time { start_ns: trace.start_ns, trace: trace.no };
            if phoenix::has_matching_span(server, &trace.project, trace.trace_id, condition)? {
                found.push(trace);
            }
            // Checked after each trace, since one can be large. Full-text results have an order of their own, in which
            // a trace is not a valid cursor, so those pages are finished.
            let is_enough = found.len() >= ROWS || tried >= MAX_TRIED || started.elapsed() > TRIES_FOR;
            if is_enough && filter.text.is_none() && at + 1 < last {
                return Ok((found, Some(place)));
            }
        }
        let is_enough = found.len() >= ROWS || tried >= MAX_TRIED || started.elapsed() > TRIES_FOR;
        if page.next.is_none() || is_enough {
            return Ok((found, page.next));
        }
        cursor = page.next;
    }
}
