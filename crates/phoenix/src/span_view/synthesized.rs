//! Attributes that Phoenix makes of others.

use serde_json::{Map, Value as Json};

/// Attributes by their flat keys; of equal keys the last one counts.
pub(super) type SynthesizedAttributes = Map<String, Json>;

pub(super) fn insert_attribute(out: &mut Map<String, Json>, key: &str, value: impl Into<Json>) {
    out.insert(key.to_owned(), value.into());
}
