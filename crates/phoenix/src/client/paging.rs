//! Page sizes: starts with few entries and adapts, so that a page has a few megabytes whatever the entries contain.

use super::error::PhoenixClientError;
use super::page;
use super::rest_client::PhoenixClient;
use gradus_http::{HttpResponse, percent_encode};

/// Entries to request per page. Learnt from one page for the next, also across lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSize {
    entries: usize,
}

/// Number of entries on the first page, before anything is known about their size.
const FIRST_PAGE_ENTRIES: usize = 100;
/// The limit of Phoenix.
const MAX_PAGE_SIZE: usize = 1000;
/// Maximum growth factor from page to page. Spans differ: a few short ones do not predict the next.
const MAX_PAGE_GROWTH: usize = 4;
/// Target size of a page. Two pages are in memory at a time, one of them while it arrives.
const TARGET_PAGE_BYTES: usize = 4 << 20;
/// Maximum bytes of a page. For a longer one, half the entries are requested.
const MAX_SPAN_PAGE_BYTES: usize = 32 << 20;
/// The same for a single entry, which cannot be halved.
const MAX_ENTRY_BYTES: usize = 128 << 20;

impl Default for PageSize {
    fn default() -> PageSize {
        PageSize { entries: FIRST_PAGE_ENTRIES }
    }
}

impl PageSize {
    /// Returns the size limit of a page. A page of one entry has a larger limit, because it cannot be made smaller.
    fn max_bytes(self) -> usize {
        if self.entries == 1 { MAX_ENTRY_BYTES } else { MAX_SPAN_PAGE_BYTES }
    }

    /// The next size after a page of `bytes`. `is_full` if another page follows: a last page is shorter than requested,
    /// so that it may overestimate how many entries fit.
    fn next_size(self, bytes: usize, is_full: bool) -> PageSize {
        let each = (bytes / self.entries).max(1);
        // A last page may be shorter than requested, so it only gives a lower bound of the length of entries.
        let most = if is_full { self.entries * MAX_PAGE_GROWTH } else { self.entries };
        PageSize { entries: (TARGET_PAGE_BYTES / each).clamp(1, most.min(MAX_PAGE_SIZE)) }
    }

    /// Returns half of the entries; none for a page of one entry.
    fn halved(self) -> Option<PageSize> {
        (self.entries > 1).then_some(PageSize { entries: self.entries / 2 })
    }
}

/// Requests a page and halves it while it is too long. Returns the response and the cursor of the next page. `list` is
/// a path that ends with `?` or `&`.
pub(super) async fn request_list_page(
    client: &PhoenixClient,
    list: &str,
    cursor: Option<&str>,
    size: &mut PageSize,
    what: &'static str,
) -> Result<(HttpResponse, Option<String>), PhoenixClientError> {
    let cursor = cursor.map(|cursor| format!("&cursor={}", percent_encode(cursor))).unwrap_or_default();
    loop {
        let path = format!("{list}limit={}{cursor}", size.entries);
        let answer = match (client.get_with_limit(&path, what, size.max_bytes()).await, size.halved()) {
            // The size stays reduced for the following pages, which probably have entries like these.
            (Err(PhoenixClientError::TooLong { .. }), Some(half)) => {
                *size = half;
                continue;
            }
            (answer, _) => answer?,
        };
        let next = page::next_cursor(&answer.body);
        let next = next.map_err(|_| client.unexpected_response_error(&answer, list, what))?;
        *size = size.next_size(answer.body.len(), next.is_some());
        return Ok((answer, next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_grow_to_a_few_megabytes_and_long_spans_come_fewer_at_a_time() {
        let size = |entries| PageSize { entries };
        assert_eq!(PageSize::default().next_size(80_000, true), size(400));
        assert_eq!(size(400).next_size(320_000, true), size(1000));
        assert_eq!(size(1000).next_size(8_000_000, true), size(524));
        assert_eq!(size(1000).next_size(30 << 20, true), size(133));
        assert_eq!(size(100).next_size(20, false), size(100));
        assert_eq!(size(1).next_size(100 << 20, true), size(1));
        assert_eq!((size(3).halved(), size(1).halved()), (Some(size(1)), None));
    }

    proptest! {
        /// Whatever comes, the next page is asked for within bounds, and no longer than wished if spans stay alike.
        #[test]
        fn the_next_page_is_within_bounds(entries in 1..=MAX_PAGE_SIZE, bytes in 0..MAX_ENTRY_BYTES, is_full in any::<bool>()) {
            let next = PageSize { entries }.next_size(bytes, is_full);
            prop_assert!((1..=MAX_PAGE_SIZE).contains(&next.entries) && next.entries <= entries * MAX_PAGE_GROWTH);
            prop_assert!(next.entries == 1 || next.entries * (bytes / entries) <= TARGET_PAGE_BYTES);
        }
    }
}
