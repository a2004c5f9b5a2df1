//! Caches comparisons of finished runs, which do not change.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use gradus_report::compare::VersionComparison;

/// Maximum number of cached comparisons. Each has at most a few hundred rows.
const MAX_CACHED_COMPARISONS: usize = 16;

/// Cached comparisons of finished runs. Computing one reads all outcomes of both runs.
#[derive(Debug, Default)]
pub(crate) struct RunComparisonCache {
    /// The latest last.
    known: Mutex<VecDeque<(ComparedRunKey, Arc<VersionComparison>)>>,
}

/// Ids of both runs, with when they ended: a run can be resumed.
pub(crate) type ComparedRunKey = [(String, Option<String>); 2];

impl RunComparisonCache {
    pub(crate) fn get(&self, key: &ComparedRunKey) -> Option<Arc<VersionComparison>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(other, _)| other == key).map(|(_, comparison)| Arc::clone(comparison))
    }

    pub(crate) fn insert(&self, key: ComparedRunKey, comparison: &Arc<VersionComparison>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(other, _)| *other != key);
        if known.len() == MAX_CACHED_COMPARISONS {
            known.pop_front();
        }
        known.push_back((key, Arc::clone(comparison)));
    }
}

#[cfg(test)]
mod tests {
    use gradus_report::compare::RunPairing;
    use gradus_stats::comparison::ComparisonReport;

    use super::*;

    #[test]
    fn a_run_that_was_resumed_is_compared_anew_and_the_oldest_make_room() {
        let comparison = Arc::new(VersionComparison {
            versions: Vec::new(),
            pairing: RunPairing::None,
            task_mix: Vec::new(),
            uncompared: Vec::new(),
            mismatches: Vec::new(),
            without_steps: Vec::new(),
            dimensions: Vec::new(),
            report: ComparisonReport { alpha: 0.05, test_count: 0, adjusted_alpha: 0.05, pairs: Vec::new() },
            calibrations: Vec::new(),
            flips: Vec::new(),
            failure_groups: Vec::new(),
        });
        let key = |id: usize, ended: &str| [(format!("run{id}"), Some(ended.to_owned())), ("b".to_owned(), None)];
        let cache = RunComparisonCache::default();
        cache.insert(key(0, "monday"), &comparison);
        assert!(cache.get(&key(0, "monday")).is_some() && cache.get(&key(0, "tuesday")).is_none());
        for id in 1..=MAX_CACHED_COMPARISONS {
            cache.insert(key(id, "monday"), &comparison);
        }
        assert!(cache.get(&key(0, "monday")).is_none() && cache.get(&key(1, "monday")).is_some());
        assert_eq!(cache.known.lock().unwrap().len(), MAX_CACHED_COMPARISONS);
    }
}
