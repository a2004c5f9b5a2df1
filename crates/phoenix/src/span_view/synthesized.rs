//! Attributes that Phoenix derives from others.

use serde_json::{Map, Value as Json};

/// By flat key; a later insertion overrides an earlier one.
pub(super) type SynthesizedAttributes = Map<String, Json>;

pub(super) fn insert_attribute(out: &mut Map<String, Json>, key: &str, value: impl Into<Json>) {
    out.insert(key.to_owned(), value.into());
}
