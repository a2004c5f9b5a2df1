//! Collateral changes: differences between the worlds before and after a run that the task does not allow.

use serde::{Deserialize, Serialize};

use super::check_context::CheckContext;
use gradus_github_sim::{DifferenceKind, WorldDifference, matches_glob};

/// One `[[allowed]]` table. A change is allowed if one of them matches and its quota is not used up.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AllowedChange {
    /// A glob on the path of the difference; may hold `{{name}}` of a lookup.
    pub(super) path: String,
    pub(super) what: Option<DifferenceKind>,
    /// Only these fields may change. Any field may if absent.
    pub(super) fields: Option<Vec<String>>,
    /// Maximum number of changes; unlimited if absent.
    pub(super) at_most: Option<usize>,
}

/// A change that the task does not allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollateralChange {
    pub path: String,
    pub what: DifferenceKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

impl AllowedChange {
    /// Whether this entry allows a change. `path` is the pattern with lookups filled in.
    fn allows(&self, path: &str, one: &WorldDifference) -> bool {
        matches_glob(path, &one.path)
            && self.what.is_none_or(|what| what == one.what)
            && self.fields.as_ref().is_none_or(|fields| one.fields.iter().all(|field| fields.contains(field)))
    }
}

/// Assigns each change to the first allowed entry with quota left, in the order of the file. Specific entries therefore
/// come before general ones.
pub(super) fn find_collateral_changes(allowed: &[AllowedChange], context: &CheckContext<'_>) -> Vec<CollateralChange> {
    // An entry named after a lookup that found nothing allows nothing.
    let mut left: Vec<(String, &AllowedChange, usize)> = allowed
        .iter()
        .filter_map(|one| Some((context.fill_text(&one.path).ok()?, one, one.at_most.unwrap_or(usize::MAX))))
        .collect();
    let mut found = Vec::new();
    for one in &context.changes {
        let entry = left.iter_mut().find(|(path, allowed, left)| *left > 0 && allowed.allows(path, one));
        match entry {
            Some((_, _, left)) => *left -= 1,
            None => found.push(CollateralChange { path: one.path.clone(), what: one.what, fields: one.fields.clone() }),
        }
    }
    found
}
