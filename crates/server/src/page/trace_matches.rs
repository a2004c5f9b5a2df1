//! The traces of one page of the list, and the links that sort it.

use gradus_report::html::number;
use gradus_store::{TraceCount, TraceFilter, TraceRow};

use super::trace_list_query::TraceListQuery;
use crate::http_error::ApiError;
use crate::state::ServerState;
use crate::trace_search::{TraceSearch, parse_order};

/// Number of rows on one page.
pub(super) const MATCHES_PER_PAGE: usize = 50;

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

/// The traces of a page, the cursor of the next one, and a note on the sorted part.
pub(super) type MatchedPage = (Vec<TraceRow>, Option<String>, Option<String>);

pub(super) fn load_matches(
    server: &ServerState,
    choice: &TraceListQuery,
    filter: &TraceFilter,
) -> Result<MatchedPage, ApiError> {
    let search = TraceSearch {
        filter,
        order: parse_order(choice.sort.as_deref())?,
        condition: choice.condition.as_deref(),
        cursor: choice.cursor.as_deref(),
        limit: MATCHES_PER_PAGE,
    };
    let found = search.find(server)?;
    let sorted = match found.sorted_of_more {
        Some(most) => Some(format!(
            "Sorted are the latest {} matches; older ones are not in this list.",
            number::format_count(most)
        )),
        None if choice.sort.is_some() && choice.condition.is_some() => {
            Some("A list with a span filter is sorted by time.".to_owned())
        }
        None => None,
    };
    Ok((found.traces, found.next, sorted))
}

/// Formats `24 matches`, or the minimum number if not all were counted.
pub(super) fn format_match_count(found: TraceCount) -> String {
    let words = number::format_counted_noun(found.count, "match", "matches");
    if found.is_cut { format!("at least {words}; only the latest traces are counted") } else { words }
}
