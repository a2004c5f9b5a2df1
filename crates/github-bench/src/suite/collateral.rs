//! Changes that nobody asked for.

use serde::{Deserialize, Serialize};

use super::scene::CheckContext;
use gradus_github_sim::{DifferenceKind, WorldDifference, matches_glob};

/// A change that a task may bring about.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AllowedChange {
    /// As differences name things, with `*` for anything.
    pub(super) path: String,
    pub(super) what: Option<DifferenceKind>,
    /// Of what changed: no other fields than these.
    pub(super) fields: Option<Vec<String>>,
    /// So many of them.
    pub(super) at_most: Option<usize>,
}

/// A change that it may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollateralChange {
    pub path: String,
    pub what: DifferenceKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

impl AllowedChange {
    fn allows(&self, path: &str, one: &WorldDifference) -> bool {
        matches_glob(path, &one.path)
            && self.what.is_none_or(|what| what == one.what)
            && self.fields.as_ref().is_none_or(|fields| one.fields.iter().all(|field| fields.contains(field)))
    }
}

pub(super) fn find_collateral_changes(allowed: &[AllowedChange], scene: &CheckContext<'_>) -> Vec<CollateralChange> {
    // What is named after something that is not there allows nothing.
    let mut left: Vec<(String, &AllowedChange, usize)> = allowed
        .iter()
        .filter_map(|one| Some((scene.fill_text(&one.path).ok()?, one, one.at_most.unwrap_or(usize::MAX))))
        .collect();
    let mut found = Vec::new();
    for one in &scene.changes {
        let entry = left.iter_mut().find(|(path, allowed, left)| *left > 0 && allowed.allows(path, one));
        match entry {
            Some((_, _, left)) => *left -= 1,
            None => found.push(CollateralChange { path: one.path.clone(), what: one.what, fields: one.fields.clone() }),
        }
    }
    found
}
