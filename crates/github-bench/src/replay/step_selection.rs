//! Types that the search and the provenance graph share.

use std::collections::{BTreeMap, BTreeSet};

use super::traced_facts::TracedFact;

/// Steps by index, from 0. Ordered, so that sets can be keys and replays keep the order of the run.
pub(super) type StepSet = BTreeSet<usize>;

/// The strongest fact for each pair of a using step (none: the final message) and its possible sources. Two facts
/// with the same user and the same sources put the same constraint on a search, so one is enough.
pub(super) type FactUseIndex = BTreeMap<(Option<usize>, StepSet), TracedFact>;
