//! A short-lived cache of pages that are slow to render. Concurrent requests for the same page wait for one rendering
//! instead of repeating it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum rendering time of a cached page. Faster pages are not cached, so they are always current.
const MIN_SLOW_RENDERING: Duration = Duration::from_millis(40);
/// Maximum age of a cached page. Pages of a live server change all the time, so this is short.
const MAX_PAGE_AGE: Duration = Duration::from_secs(10);
/// Maximum number of cached pages. They are not counted in the memory budget, so their number is small.
const MAX_CACHED_PAGES: usize = 64;

/// A rendering under way. Waiters lock it and find the page when the first one is done.
type PendingPage = Arc<tokio::sync::Mutex<Option<String>>>;

/// Keyed by the address with its parameters, and whatever else the page depends on.
#[derive(Debug, Default)]
pub(crate) struct PageCache {
    pages: Mutex<HashMap<String, (Instant, String)>>,
    renderings: Mutex<HashMap<String, PendingPage>>,
}

impl PageCache {
    /// Returns the cached page, waits for the one that is being rendered, or renders it. Errors are not cached: each
    /// waiter tries again.
    pub(super) async fn get_or_render<E>(
        &self,
        asked: String,
        make: impl Future<Output = Result<String, E>>,
    ) -> Result<String, E> {
        if let Some(page) = self.get(&asked) {
            return Ok(page);
        }
        let turn = {
            let mut renderings = self.renderings.lock().unwrap_or_else(PoisonError::into_inner);
            // An entry without waiters is left behind when a client disconnects while its page is rendered.
            renderings.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(renderings.entry(asked.clone()).or_default())
        };
        let mut made = turn.lock().await;
        if let Some(page) = &*made {
            return Ok(page.clone());
        }
        let begun = Instant::now();
        let page = make.await?;
        *made = Some(page.clone());
        self.renderings.lock().unwrap_or_else(PoisonError::into_inner).remove(&asked);
        self.insert_if_slow(asked, &page, begun.elapsed());
        Ok(page)
    }

    fn get(&self, asked: &str) -> Option<String> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.get(asked).filter(|(at, _)| at.elapsed() < MAX_PAGE_AGE).map(|(_, page)| page.clone())
    }

    /// Caches a page that took at least [`MIN_SLOW_RENDERING`]. A full cache drops the page: expiry makes room within seconds.
    fn insert_if_slow(&self, asked: String, page: &str, took: Duration) {
        if took < MIN_SLOW_RENDERING {
            return;
        }
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|_, (at, _)| at.elapsed() < MAX_PAGE_AGE);
        if pages.len() < MAX_CACHED_PAGES {
            pages.insert(asked, (Instant::now(), page.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_what_was_slow_is_kept_and_however_slow_it_was() {
        let kept = PageCache::default();
        kept.insert_if_slow("fast".to_owned(), "x", Duration::ZERO);
        kept.insert_if_slow("slow".to_owned(), "y", 2 * MIN_SLOW_RENDERING);
        kept.insert_if_slow("very slow".to_owned(), "z", 10 * MAX_PAGE_AGE);
        let found = ["fast", "slow", "very slow"].map(|asked| kept.get(asked));
        assert_eq!(found, [None, Some("y".to_owned()), Some("z".to_owned())]);
    }

    #[test]
    fn many_addresses_do_not_fill_the_memory() {
        let kept = PageCache::default();
        for number in 0..10 * MAX_CACHED_PAGES {
            kept.insert_if_slow(number.to_string(), "page", MIN_SLOW_RENDERING);
        }
        assert_eq!(kept.pages.lock().unwrap().len(), MAX_CACHED_PAGES);
    }

    #[tokio::test]
    async fn who_asks_for_the_same_at_once_gets_the_same_and_it_is_made_once() {
        let kept = PageCache::default();
        let times = AtomicUsize::new(0);
        let go = tokio::sync::Semaphore::new(0);
        let make = || async {
            go.acquire().await.unwrap().forget();
            times.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>("page".to_owned())
        };
        let all = async {
            tokio::join!(
                kept.get_or_render("a".to_owned(), make()),
                kept.get_or_render("a".to_owned(), make()),
                kept.get_or_render("a".to_owned(), make()),
            )
        };
        let (found, ()) = tokio::join!(all, async { go.add_permits(1) });
        assert_eq!([found.0, found.1, found.2].map(Result::unwrap), ["page", "page", "page"]);
        assert_eq!(times.load(Ordering::Relaxed), 1);
        // It was fast, so the next one is new; and nothing is left behind.
        go.add_permits(1);
        kept.get_or_render("a".to_owned(), make()).await.unwrap();
        assert_eq!(times.load(Ordering::Relaxed), 2);
        assert!(kept.renderings.lock().unwrap().is_empty());
    }
}
