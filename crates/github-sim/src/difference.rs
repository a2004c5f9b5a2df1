//! Differences between two states, resource by resource.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::inventory::WorldInventory;

/// What happened to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DifferenceKind {
    Added,
    Removed,
    Changed,
}

/// A resource that differs. Verifiers of tasks and the control API use it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorldDifference {
    /// The path in the inventory, `repos/octo/demo/issues/5`.
    pub path: String,
    pub what: DifferenceKind,
    /// Names of the changed fields; empty for added and removed resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// The resource in the first inventory; absent if it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The resource in the second inventory; absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Returns all differences, sorted by path.
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

/// Returns the top-level fields that changed or were added, then those that were removed.
fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else { return Vec::new() };
    let of_after = after.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(|(name, _)| name.clone());
    of_after.chain(before.keys().filter(|name| !after.contains_key(*name)).cloned()).collect()
}
