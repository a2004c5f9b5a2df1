//! Steps that a replay keeps.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Fact;

/// Steps by index, from 0.
pub(super) type Kept = BTreeSet<usize>;

/// The most telling fact of each use. Of two facts from the same sources at the same place, one is enough.
pub(super) type Uses = BTreeMap<(Option<usize>, Kept), Fact>;
