//! Three-way merges of texts and trees. Apart from renames, conflicts are the same as in git's own merge.
//!
//! | base → ours | base → theirs | result |
//! |---|---|---|
//! | unchanged | any | theirs |
//! | any | unchanged | ours |
//! | same change | same change | that change |
//! | changed | changed | merged line by line, or a conflict |
//! | changed | removed | a conflict |
//! | file | directory of the same name | a conflict |
//!
//! Renames are not followed: a file that one side renames and the other side changes is a conflict.

use std::collections::{BTreeMap, BTreeSet};

use super::diff::{DiffHunk, decode_if_text, diff_lines, split_lines};
use super::object::{GitFileMode, GitObject, ObjectId};
use super::objects::GitObjectStore;
use super::tree::{TreeLeaf, edit_tree, list_tree_files};

/// Combines the changes of both sides. `None` if they change the same or adjacent lines differently.
pub fn merge_texts(base: &str, ours: &str, theirs: &str) -> Option<String> {
    let (base, ours, theirs) = (split_lines(base), split_lines(ours), split_lines(theirs));
    let (left, right) = (diff_lines(&base, &ours), diff_lines(&base, &theirs));
    let mut made = String::new();
    let (mut at, mut l, mut r) = (0, 0, 0);
    while l < left.len() || r < right.len() {
        let start = match (left.get(l), right.get(r)) {
            (Some(one), Some(other)) => one.old.start.min(other.old.start),
            (Some(one), None) | (None, Some(one)) => one.old.start,
            (None, None) => break,
        };
        // Groups all changes of both sides that overlap or touch.
        let (first_l, first_r, mut end) = (l, r, start);
        loop {
            if left.get(l).is_some_and(|hunk| hunk.old.start <= end) {
                end = end.max(left[l].old.end);
                l += 1;
            } else if right.get(r).is_some_and(|hunk| hunk.old.start <= end) {
                end = end.max(right[r].old.end);
                r += 1;
            } else {
                break;
            }
        }
        made.extend(base[at..start].iter().copied());
        let (left, right) = (&left[first_l..l], &right[first_r..r]);
        let ours = apply_hunks(left, &base, &ours, start, end);
        let theirs = apply_hunks(right, &base, &theirs, start, end);
        if left.is_empty() || (!right.is_empty() && ours == theirs) {
            made.push_str(&theirs);
        } else if right.is_empty() {
            made.push_str(&ours);
        } else {
            return None;
        }
        at = end;
    }
    made.extend(base[at..].iter().copied());
    Some(made)
}

/// Returns one side's version of these lines of the base.
fn apply_hunks(hunks: &[DiffHunk], base: &[&str], new: &[&str], start: usize, end: usize) -> String {
    let mut made = String::new();
    let mut at = start;
    for hunk in hunks {
        made.extend(base[at..hunk.old.start].iter().copied());
        made.extend(new[hunk.new.clone()].iter().copied());
        at = hunk.old.end;
    }
    made.extend(base[at..end].iter().copied());
    made
}

/// A conflict-free merge of trees. Planning needs no write access, so that `mergeable` can be computed in a read.
#[derive(Debug)]
pub struct MergePlan {
    ours: ObjectId,
    /// Paths that are taken from the other side; `None` removes them.
    changes: BTreeMap<String, Option<TreeLeaf>>,
    /// Files that both sides changed, with the merged content.
    texts: Vec<(String, GitFileMode, String)>,
}

impl MergePlan {
    /// Writes the merged tree and returns its id.
    pub fn write(mut self, objects: &mut GitObjectStore) -> ObjectId {
        for (path, mode, text) in self.texts {
            let id = objects.insert(GitObject::Blob(text.into_bytes()));
            self.changes.insert(path, Some(TreeLeaf { mode, id }));
        }
        edit_tree(objects, self.ours, &self.changes)
    }
}

/// Merges two trees with a common base. `Err` lists the paths in conflict, sorted.
pub fn merge_trees(
    objects: &GitObjectStore,
    base: ObjectId,
    ours: ObjectId,
    theirs: ObjectId,
) -> Result<MergePlan, Vec<String>> {
    let (base, left, right) =
        (list_tree_files(objects, base), list_tree_files(objects, ours), list_tree_files(objects, theirs));
    let mut changes: BTreeMap<String, Option<TreeLeaf>> = BTreeMap::new();
    let mut conflicts = Vec::new();
    let mut texts = Vec::new();
    let paths: BTreeSet<&String> = base.keys().chain(left.keys()).chain(right.keys()).collect();
    for path in paths {
        let (was, one, other) = (base.get(path), left.get(path), right.get(path));
        // Equal on both sides, or unchanged on the other side: ours stays.
        if one == other || other == was {
            continue;
        }
        if one == was {
            changes.insert(path.clone(), other.copied());
            continue;
        }
        match (one, other) {
            (Some(one), Some(other)) => match merge_files(objects, was, one, other) {
                Some((mode, text)) => texts.push((path.clone(), mode, text)),
                None => conflicts.push(path.clone()),
            },
            _ => conflicts.push(path.clone()),
        }
    }
    conflicts.extend(find_file_directory_conflicts(&left, &changes));
    if conflicts.is_empty() {
        return Ok(MergePlan { ours, changes, texts });
    }
    conflicts.sort();
    conflicts.dedup();
    Err(conflicts)
}

/// Finds paths that would be a file on one side and a directory on the other.
fn find_file_directory_conflicts(
    ours: &BTreeMap<String, TreeLeaf>,
    changes: &BTreeMap<String, Option<TreeLeaf>>,
) -> Vec<String> {
    let kept = ours.keys().filter(|path| !matches!(changes.get(*path), Some(None)));
    let new = changes.iter().filter(|(_, leaf)| leaf.is_some()).map(|(path, _)| path);
    let merged: BTreeSet<&str> = kept.chain(new).map(String::as_str).collect();
    let above = |path: &&str| {
        let mut parts = path.match_indices('/').map(|(at, _)| &path[..at]);
        parts.find(|part| merged.contains(part)).map(str::to_owned)
    };
    merged.iter().filter_map(above).collect()
}

/// Returns the merged mode and content of a file that both sides changed. `None` is a conflict; binary files and
/// links always conflict.
fn merge_files(
    objects: &GitObjectStore,
    was: Option<&TreeLeaf>,
    one: &TreeLeaf,
    other: &TreeLeaf,
) -> Option<(GitFileMode, String)> {
    let is_file = |leaf: &TreeLeaf| matches!(leaf.mode, GitFileMode::File | GitFileMode::Executable);
    if !is_file(one) || !is_file(other) {
        return None;
    }
    let mode = if Some(one.mode) == was.map(|was| was.mode) { other.mode } else { one.mode };
    // Two files that were added independently have no base to merge upon, unless they are equal.
    let text = |leaf: &TreeLeaf| objects.blob(leaf.id).and_then(decode_if_text);
    if one.id == other.id {
        return Some((mode, text(one)?.to_owned()));
    }
    let was = was?;
    Some((mode, merge_texts(text(was)?, text(one)?, text(other)?)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::object::EMPTY_TREE;
    use super::*;

    #[test]
    fn changes_apart_from_each_other_are_both_kept() {
        let base = "1\n2\n3\n4\n5\n";
        assert_eq!(
            merge_texts(base, "one\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive\n").as_deref(),
            Some("one\n2\n3\n4\nfive\n")
        );
        assert_eq!(merge_texts(base, "1\n2\nX\n4\n5\n", "1\n2\nX\n4\n5\n").as_deref(), Some("1\n2\nX\n4\n5\n"));
        assert_eq!(merge_texts(base, "1\n2\nX\n4\n5\n", "1\n2\nY\n4\n5\n"), None);
        // Neighbouring lines are a conflict in git, too.
        assert_eq!(merge_texts(base, "1\nX\n3\n4\n5\n", "1\n2\nY\n4\n5\n"), None);
    }

    #[test]
    fn trees_merge_file_by_file() {
        let mut objects = GitObjectStore::default();
        let mut tree = |files: &[(&str, &str)]| {
            let changes = files
                .iter()
                .map(|(path, text)| {
                    let id = objects.insert(GitObject::Blob((*text).into()));
                    ((*path).to_owned(), Some(TreeLeaf { mode: GitFileMode::File, id }))
                })
                .collect();
            edit_tree(&mut objects, EMPTY_TREE, &changes)
        };
        let base = tree(&[("a", "a\n"), ("b", "b\n")]);
        let ours = tree(&[("a", "A\n"), ("b", "b\n")]);
        let theirs = tree(&[("a", "a\n"), ("b", "b\n"), ("c/d", "d\n")]);
        let both = tree(&[("a", "A\n"), ("b", "b\n"), ("c/d", "d\n")]);
        let other = tree(&[("a", "other\n"), ("b", "b\n")]);
        let file = tree(&[("a", "a\n"), ("b", "b\n"), ("c", "file\n")]);
        let gone = tree(&[("b", "b\n")]);
        assert_eq!(merge_trees(&objects, base, ours, theirs).map(|plan| plan.write(&mut objects)), Ok(both));
        assert_eq!(merge_trees(&objects, base, ours, other).unwrap_err(), vec!["a".to_owned()]);
        assert_eq!(merge_trees(&objects, base, ours, gone).unwrap_err(), vec!["a".to_owned()]);
        assert_eq!(merge_trees(&objects, base, file, theirs).unwrap_err(), vec!["c".to_owned()]);
        assert_eq!(merge_trees(&objects, base, theirs, file).unwrap_err(), vec!["c".to_owned()]);
    }

    proptest! {
        #[test]
        fn a_side_without_changes_gives_the_other(base in "[ab\n]{0,30}", new in "[ab\n]{0,30}") {
            prop_assert_eq!(merge_texts(&base, &new, &base), Some(new.clone()));
            prop_assert_eq!(merge_texts(&base, &base, &new), Some(new.clone()));
            prop_assert_eq!(merge_texts(&base, &new, &new), Some(new));
        }

        #[test]
        fn sides_can_be_swapped(base in "[ab\n]{0,30}", one in "[ab\n]{0,30}", other in "[ab\n]{0,30}") {
            prop_assert_eq!(merge_texts(&base, &one, &other), merge_texts(&base, &other, &one));
        }
    }
}
