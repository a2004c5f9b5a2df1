//! What is different between two states, thing by thing.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::inventory::WorldInventory;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DifferenceKind {
    Added,
    Removed,
    Changed,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorldDifference {
    pub path: String,
    pub what: DifferenceKind,
    /// Of what changed: which of its fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// In the order of the paths.
pub fn compare_inventories(before: &WorldInventory, after: &WorldInventory) -> Vec<WorldDifference> {
    let gone = before.iter().filter(|(path, _)| !after.contains_key(*path)).map(|(path, value)| WorldDifference {
        path: path.clone(),
        what: DifferenceKind::Removed,
        fields: Vec::new(),
        before: Some(value.clone()),
        after: None,
    });
    let come = after.iter().filter_map(|(path, value)| match before.get(path) {
        Some(old) if old == value => None,
        Some(old) => Some(WorldDifference {
            path: path.clone(),
            what: DifferenceKind::Changed,
            fields: changed_fields(old, value),
            before: Some(old.clone()),
            after: Some(value.clone()),
        }),
        None => Some(WorldDifference {
            path: path.clone(),
            what: DifferenceKind::Added,
            fields: Vec::new(),
            before: None,
            after: Some(value.clone()),
        }),
    });
    let mut found: Vec<_> = gone.chain(come).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else { return Vec::new() };
    let of_after = after.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(|(name, _)| name.clone());
    of_after.chain(before.keys().filter(|name| !after.contains_key(*name)).cloned()).collect()
}
