//! Trees as paths: reading, listing and editing. Walks are bounded, because a few small trees that refer to each other
//! can represent more paths than fit into memory.

use std::collections::BTreeMap;

use super::object::{EMPTY_TREE, GitFileMode, GitObject, GitTree, ObjectId, TreeEntry};
use super::objects::GitObjectStore;

/// Maximum number of listed entries, as on GitHub; the response then says `truncated`.
pub const MAX_LISTED_ENTRIES: usize = 100_000;
/// Maximum depth. No real tree is deeper, but hand-made trees can be.
const MAX_TREE_DEPTH: usize = 256;

/// Mode and object of a path that is not a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLeaf {
    pub mode: GitFileMode,
    pub id: ObjectId,
}

/// Finds the entry at a path. The empty path is the root itself.
pub fn find_tree_entry(objects: &GitObjectStore, root: ObjectId, path: &str) -> Option<TreeEntry> {
    let mut found = TreeEntry { name: String::new(), mode: GitFileMode::Directory, id: root };
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        if found.mode != GitFileMode::Directory {
            return None;
        }
        found = objects.tree_entries(found.id)?.iter().find(|entry| entry.name == segment)?.clone();
    }
    Some(found)
}

/// Lists all paths below a tree, sorted, directories included. The flag says whether the list was truncated.
pub fn list_tree_entries(objects: &GitObjectStore, root: ObjectId) -> (Vec<(String, TreeEntry)>, bool) {
    let mut found = Vec::new();
    let mut waiting = vec![(String::new(), root, 0)];
    let mut truncated = false;
    while let Some((above, tree, depth)) = waiting.pop() {
        for entry in objects.tree_entries(tree).unwrap_or_default() {
            if found.len() >= MAX_LISTED_ENTRIES {
                return (sort_tree_entries(found), true);
            }
            let path = if above.is_empty() { entry.name.clone() } else { format!("{above}/{}", entry.name) };
            if entry.mode == GitFileMode::Directory {
                if depth < MAX_TREE_DEPTH {
                    waiting.push((path.clone(), entry.id, depth + 1));
                } else {
                    truncated = true;
                }
            }
            found.push((path, entry.clone()));
        }
    }
    (sort_tree_entries(found), truncated)
}

fn sort_tree_entries(mut found: Vec<(String, TreeEntry)>) -> Vec<(String, TreeEntry)> {
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// Lists all files below a tree, without directories.
pub fn list_tree_files(objects: &GitObjectStore, root: ObjectId) -> BTreeMap<String, TreeLeaf> {
    let (found, _) = list_tree_entries(objects, root);
    let leaves = found.into_iter().filter(|(_, entry)| entry.mode != GitFileMode::Directory);
    leaves.map(|(path, entry)| (path, TreeLeaf { mode: entry.mode, id: entry.id })).collect()
}

/// Returns the tree with some paths set (`Some`) or removed (`None`). Directories that become empty disappear, as in
/// git.
pub fn edit_tree(
    objects: &mut GitObjectStore,
    root: ObjectId,
    changes: &BTreeMap<String, Option<TreeLeaf>>,
) -> ObjectId {
    let changes: Vec<_> = changes.iter().map(|(path, leaf)| (path.as_str(), *leaf)).collect();
    edit_directory(objects, root, &changes).unwrap_or_else(|| objects.insert(GitObject::Tree(GitTree::default())))
}

/// Edits one directory; `None` if nothing is left. The recursion is as deep as the longest path, which `is_valid_path`
/// bounds.
fn edit_directory(
    objects: &mut GitObjectStore,
    tree: ObjectId,
    changes: &[(&str, Option<TreeLeaf>)],
) -> Option<ObjectId> {
    let mut entries: BTreeMap<String, (GitFileMode, ObjectId)> = BTreeMap::new();
    for entry in objects.tree_entries(tree).unwrap_or_default() {
        entries.insert(entry.name.clone(), (entry.mode, entry.id));
    }
    // Changes are grouped by the first segment, so each directory is rewritten once.
    let mut below: BTreeMap<&str, Vec<(&str, Option<TreeLeaf>)>> = BTreeMap::new();
    for (path, leaf) in changes {
        match path.split_once('/') {
            Some((name, rest)) => below.entry(name).or_default().push((rest, *leaf)),
            None => match leaf {
                Some(leaf) => {
                    entries.insert((*path).to_owned(), (leaf.mode, leaf.id));
                }
                None => {
                    entries.remove(*path);
                }
            },
        }
    }
    for (name, changes) in below {
        let is_directory = entries.get(name).filter(|(mode, _)| *mode == GitFileMode::Directory);
        let child = is_directory.map_or(EMPTY_TREE, |(_, id)| *id);
        // Removing something below a file has no effect.
        if is_directory.is_none() && changes.iter().all(|(_, leaf)| leaf.is_none()) {
            continue;
        }
        match edit_directory(objects, child, &changes) {
            Some(id) => entries.insert(name.to_owned(), (GitFileMode::Directory, id)),
            None => entries.remove(name),
        };
    }
    if entries.is_empty() {
        return None;
    }
    let entries = entries.into_iter().map(|(name, (mode, id))| TreeEntry { name, mode, id }).collect();
    Some(objects.insert(GitObject::Tree(GitTree::new(entries))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(objects: &mut GitObjectStore, root: ObjectId, path: &str, text: Option<&str>) -> ObjectId {
        let leaf =
            text.map(|text| TreeLeaf { mode: GitFileMode::File, id: objects.insert(GitObject::Blob(text.into())) });
        edit_tree(objects, root, &BTreeMap::from([(path.to_owned(), leaf)]))
    }

    #[test]
    fn what_is_put_in_is_there_and_empty_directories_are_not() {
        let mut objects = GitObjectStore::default();
        let one = set(&mut objects, EMPTY_TREE, "src/lib/a.py", Some("a"));
        let two = set(&mut objects, one, "README.md", Some("r"));
        assert_eq!(list_tree_files(&objects, two).keys().collect::<Vec<_>>(), ["README.md", "src/lib/a.py"]);
        assert_eq!(find_tree_entry(&objects, two, "src/lib").map(|entry| entry.mode), Some(GitFileMode::Directory));
        assert_eq!(find_tree_entry(&objects, two, "README.md/x"), None);
        let three = set(&mut objects, two, "src/lib/a.py", None);
        assert_eq!(list_tree_entries(&objects, three).0.len(), 1);
        assert_eq!(set(&mut objects, three, "README.md", None), EMPTY_TREE);
    }

    #[test]
    fn a_tree_of_trees_has_a_bound() {
        let mut objects = GitObjectStore::default();
        let mut id = set(&mut objects, EMPTY_TREE, "a", Some("x"));
        for _ in 0..40 {
            let entry = |name: &str| TreeEntry { name: name.to_owned(), mode: GitFileMode::Directory, id };
            id = objects.insert(GitObject::Tree(GitTree::new(vec![entry("l"), entry("r")])));
        }
        let (found, truncated) = list_tree_entries(&objects, id);
        assert!(truncated && found.len() <= MAX_LISTED_ENTRIES);
    }
}
