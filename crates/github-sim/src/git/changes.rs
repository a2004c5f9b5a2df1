//! Files that differ between two trees, with renames detected as git does.

use std::collections::{BTreeMap, BTreeSet};

use super::diff::{FilePatch, build_patch, decode_if_text, split_lines};
use super::object::{EMPTY_TREE, GitFileMode, ObjectId};
use super::objects::GitObjectStore;
use super::tree::TreeLeaf;

/// Maximum number of files of a commit, as on GitHub.
const MAX_CHANGED_FILES: usize = 3000;
/// Maximum number of pairs of removed and added files whose similarity is compared. With more, only exact renames are
/// found.
const MAX_RENAME_PAIRS: usize = 100;

/// The `status` of a file in GitHub's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Removed,
    Modified,
    Renamed,
}

impl ChangeKind {
    pub fn name(self) -> &'static str {
        match self {
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Modified => "modified",
            ChangeKind::Renamed => "renamed",
        }
    }
}

/// One changed file.
#[derive(Clone, Debug)]
pub struct FileChange {
    pub kind: ChangeKind,
    pub path: String,
    /// Only for renames.
    pub previous_path: Option<String>,
    /// The blob after the change; before it for removed files.
    pub id: ObjectId,
    /// Added lines; 0 for binary files.
    pub additions: usize,
    pub deletions: usize,
    /// The hunks of the unified diff; `None` for binary files and for pure renames.
    pub patch: Option<String>,
}

/// Returns the changed files, sorted by path.
pub fn diff_trees(objects: &GitObjectStore, old: ObjectId, new: ObjectId) -> Vec<FileChange> {
    let (mut gone, mut come, mut found) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for (path, before, after) in find_differing_leaves(objects, old, new) {
        match (before, after) {
            (Some(before), Some(after)) => {
                found.push(build_file_change(objects, ChangeKind::Modified, path, None, Some(before), Some(after)));
            }
            (Some(before), None) => drop(gone.insert(path, before)),
            (None, Some(after)) => drop(come.insert(path, after)),
            (None, None) => {}
        }
    }
    // A rename takes one removed and one added file out of the lists.
    for (from, to) in detect_renames(objects, &gone, &come) {
        if let (Some(before), Some(after)) = (gone.remove(&from), come.remove(&to)) {
            found.push(build_file_change(objects, ChangeKind::Renamed, to, Some(from), Some(before), Some(after)));
        }
    }
    for (path, before) in gone {
        found.push(build_file_change(objects, ChangeKind::Removed, path, None, Some(before), None));
    }
    for (path, after) in come {
        found.push(build_file_change(objects, ChangeKind::Added, path, None, None, Some(after)));
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// Computes the patch of one file. A missing side counts as an empty file.
fn build_file_change(
    objects: &GitObjectStore,
    kind: ChangeKind,
    path: String,
    previous_path: Option<String>,
    before: Option<TreeLeaf>,
    after: Option<TreeLeaf>,
) -> FileChange {
    let content = |leaf: Option<TreeLeaf>| leaf.and_then(|leaf| objects.blob(leaf.id)).unwrap_or_default();
    let FilePatch { additions, deletions, text } = build_patch(content(before), content(after));
    let id = after.or(before).map_or(EMPTY_TREE, |leaf| leaf.id);
    FileChange { kind, path, previous_path, id, additions, deletions, patch: text }
}

/// Finds files that are not equal on both sides. Equal subtrees have equal ids and are skipped.
fn find_differing_leaves(
    objects: &GitObjectStore,
    old: ObjectId,
    new: ObjectId,
) -> Vec<(String, Option<TreeLeaf>, Option<TreeLeaf>)> {
    let mut found = Vec::new();
    let mut waiting = vec![(String::new(), Some(old), Some(new))];
    // Trees made by hand may refer to the same subtree many times, which could take exponential time.
    let mut budget = 100_000_usize;
    while let Some((above, old, new)) = waiting.pop() {
        let side = |tree: Option<ObjectId>| {
            let entries = tree.and_then(|tree| objects.tree_entries(tree)).unwrap_or_default();
            entries.iter().map(|entry| (entry.name.as_str(), entry)).collect::<BTreeMap<_, _>>()
        };
        let (old, new) = (side(old), side(new));
        let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
        for name in names {
            budget = budget.saturating_sub(1);
            if budget == 0 || found.len() >= MAX_CHANGED_FILES {
                return found;
            }
            let (before, after) = (old.get(name), new.get(name));
            if before.map(|entry| (entry.mode, entry.id)) == after.map(|entry| (entry.mode, entry.id)) {
                continue;
            }
            let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            let directory = |entry: Option<&&_>| {
                entry
                    .filter(|entry: &&&super::object::TreeEntry| entry.mode == GitFileMode::Directory)
                    .map(|entry| entry.id)
            };
            let leaf = |entry: Option<&&_>| {
                entry
                    .filter(|entry: &&&super::object::TreeEntry| entry.mode != GitFileMode::Directory)
                    .map(|entry| TreeLeaf { mode: entry.mode, id: entry.id })
            };
            if leaf(before).is_some() || leaf(after).is_some() {
                found.push((path.clone(), leaf(before), leaf(after)));
            }
            if directory(before).is_some() || directory(after).is_some() {
                waiting.push((path, directory(before), directory(after)));
            }
        }
    }
    found
}

/// Finds pairs of removed and added files with the same content, or with at least half of it in common, as in
/// `git diff -M`. Exact renames come first.
fn detect_renames(
    objects: &GitObjectStore,
    gone: &BTreeMap<String, TreeLeaf>,
    come: &BTreeMap<String, TreeLeaf>,
) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let (mut from_taken, mut to_taken) = (BTreeSet::new(), BTreeSet::new());
    for (to, after) in come {
        let same = |(from, before): &(&String, &TreeLeaf)| before.id == after.id && !from_taken.contains(*from);
        if let Some((from, _)) = gone.iter().find(same) {
            from_taken.insert(from.clone());
            to_taken.insert(to.clone());
            found.push((from.clone(), to.clone()));
        }
    }
    let left: Vec<_> = gone.iter().filter(|(path, _)| !from_taken.contains(*path)).collect();
    let right: Vec<_> = come.iter().filter(|(path, _)| !to_taken.contains(*path)).collect();
    // Exact renames were found by id, which is cheap; only similarity is limited.
    if left.len() * right.len() > MAX_RENAME_PAIRS {
        return found;
    }
    let mut alike = Vec::new();
    for (from, before) in &left {
        for (to, after) in &right {
            let share = measure_similarity(objects, before, after);
            if share >= 50 {
                alike.push((100 - share, *from, *to));
            }
        }
    }
    // The most similar pairs first; the paths make the order deterministic.
    alike.sort();
    for (_, from, to) in alike {
        if from_taken.insert(from.clone()) {
            if to_taken.insert(to.clone()) {
                found.push((from.clone(), to.clone()));
            } else {
                from_taken.remove(from);
            }
        }
    }
    found
}

/// Returns the percentage of the larger file's bytes in lines that both files share. 0 for binary files.
fn measure_similarity(objects: &GitObjectStore, one: &TreeLeaf, other: &TreeLeaf) -> usize {
    let text = |leaf: &TreeLeaf| objects.blob(leaf.id).and_then(decode_if_text);
    let (Some(one), Some(other)) = (text(one), text(other)) else { return 0 };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in split_lines(one) {
        *counts.entry(line).or_default() += 1;
    }
    let mut same = 0;
    for line in split_lines(other) {
        if let Some(count) = counts.get_mut(line).filter(|count| **count > 0) {
            *count -= 1;
            same += line.len();
        }
    }
    same * 100 / one.len().max(other.len()).max(1)
}
