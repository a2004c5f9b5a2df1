//! Pages that took long to make, for a moment: whoever looks again, or beside somebody else, does not wait for the same
//! sums.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is made faster is made anew each time.
const SLOW: Duration = Duration::from_millis(40);
const KEPT_FOR: Duration = Duration::from_secs(10);
const MOST: usize = 64;

/// By what was asked for.
#[derive(Debug, Default)]
pub(in crate::serve) struct Kept(Mutex<HashMap<String, (Instant, String)>>);

impl Kept {
    pub(super) fn get(&self, asked: &str) -> Option<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(asked).filter(|(at, _)| at.elapsed() < KEPT_FOR).map(|(_, page)| page.clone())
    }

    /// Keeps a page that was begun to be made then, if it was slow.
    pub(super) fn put(&self, asked: String, page: &str, begun: Instant) {
        if begun.elapsed() < SLOW {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (at, _)| at.elapsed() < KEPT_FOR);
        if kept.len() < MOST {
            kept.insert(asked, (begun, page.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_slow_is_kept_and_not_for_long() {
        let kept = Kept::default();
        kept.put("fast".to_owned(), "x", Instant::now());
        let slow = Instant::now().checked_sub(2 * SLOW).unwrap();
        kept.put("slow".to_owned(), "y", slow);
        let old = Instant::now().checked_sub(KEPT_FOR).unwrap();
        kept.put("old".to_owned(), "z", old);
        assert_eq!((kept.get("fast"), kept.get("slow").as_deref(), kept.get("old")), (None, Some("y"), None));
    }

    #[test]
    fn many_addresses_do_not_fill_the_memory() {
        let kept = Kept::default();
        let slow = Instant::now().checked_sub(SLOW).unwrap();
        for number in 0..10 * MOST {
            kept.put(number.to_string(), "page", slow);
        }
        assert_eq!(kept.0.lock().unwrap().len(), MOST);
    }
}
