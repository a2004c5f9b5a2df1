//! Steps that a replay keeps.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::TracedFact;

/// Steps by index, from 0.
pub(super) type StepSet = BTreeSet<usize>;

/// The most telling fact of each use. Of two facts from the same sources at the same place, one is enough.
pub(super) type FactUseIndex = BTreeMap<(Option<usize>, StepSet), TracedFact>;
