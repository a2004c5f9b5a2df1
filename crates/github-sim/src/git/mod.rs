//! The part of git that GitHub's API exposes: objects with their real ids, histories, diffs and merges. Tests compare
//! it with git itself.

mod changes;
mod diff;
mod history;
mod merge;
mod object;
mod objects;
mod path;
mod tree;

pub use changes::{ChangeKind, FileChange, diff_trees};
pub use history::{collect_ancestors, count_ahead_behind, is_ancestor, merge_base, walk_history};
pub use merge::{MergePlan, merge_texts, merge_trees};
pub use object::{CommitSignature, EMPTY_TREE, GitCommit, GitFileMode, GitObject, GitTree, ObjectId, TreeEntry};
pub use objects::GitObjectStore;
pub use path::is_valid_path;
pub use tree::{MAX_LISTED_ENTRIES, TreeLeaf, edit_tree, find_tree_entry, list_tree_entries, list_tree_files};
