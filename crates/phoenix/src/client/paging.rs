//! Lists come by the page: few entries at first, then as many as make a page of a few megabytes, whatever they hold.

use super::error::PhoenixClientError;
use super::page;
use super::rest_client::PhoenixClient;
use gradus_http::{HttpResponse, percent_encode};

/// How many entries to ask for at a time. It is learnt from one page for the next, also from list to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSize {
    entries: usize,
}

/// Before anything is known of their length.
const FIRST: usize = 100;
/// Phoenix takes no more.
const MAX_PAGE_SIZE: usize = 1000;
/// Spans need not be alike: a few short ones do not vouch for those behind them.
const GROWS_BY: usize = 4;
/// Two pages are held at a time, one of them while it comes in.
const WANTED_BYTES: usize = 4 << 20;
/// What is read of a page. When it is longer, half of it is asked for.
const MAX_PAGE: usize = 32 << 20;
/// The same of a single entry, which no request makes shorter.
const MAX_ENTRY: usize = 128 << 20;

impl Default for PageSize {
    fn default() -> PageSize {
        PageSize { entries: FIRST }
    }
}

impl PageSize {
    fn max_bytes(self) -> usize {
        if self.entries == 1 { MAX_ENTRY } else { MAX_PAGE }
    }

    /// After a page of so many bytes; `is_full` when there are more behind it.
    fn next_size(self, bytes: usize, is_full: bool) -> PageSize {
        let each = (bytes / self.entries).max(1);
        // A last page holds fewer than were asked for, so it says only how long they are at the least.
        let most = if is_full { self.entries * GROWS_BY } else { self.entries };
        PageSize { entries: (WANTED_BYTES / each).clamp(1, most.min(MAX_PAGE_SIZE)) }
    }

    fn halved(self) -> Option<PageSize> {
        (self.entries > 1).then_some(PageSize { entries: self.entries / 2 })
    }
}

/// Asks for a page of a list, for a shorter one when it turns out to be too long; also where the next one begins. The
/// list's address ends with `?` or `&`.
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
            (Err(PhoenixClientError::TooLong { .. }), Some(half)) => {
                *size = half;
                continue;
            }
            (answer, _) => answer?,
        };
        let next = page::next_cursor(&answer.body);
        let next = next.map_err(|_| client.not_as_expected(&answer, list, what))?;
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
        fn the_next_page_is_within_bounds(entries in 1..=MAX_PAGE_SIZE, bytes in 0..MAX_ENTRY, is_full in any::<bool>()) {
            let next = PageSize { entries }.next_size(bytes, is_full);
            prop_assert!((1..=MAX_PAGE_SIZE).contains(&next.entries) && next.entries <= entries * GROWS_BY);
            prop_assert!(next.entries == 1 || next.entries * (bytes / entries) <= WANTED_BYTES);
        }
    }
}
