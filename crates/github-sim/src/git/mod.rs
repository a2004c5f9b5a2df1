//! As much of git as GitHub's API shows: objects with their real names, histories, differences and merges.

mod changes;
mod diff;
mod history;
mod merge;
mod object;
mod objects;
mod path;
mod tree;

pub use changes::{ChangeKind, FileChange, changes};
pub use history::{ahead_behind, ancestors, is_ancestor, log, merge_base};
pub use merge::{MergePlan, merge_texts, merge_trees};
pub use object::{
    CommitSignature, EMPTY_TREE, GitCommit, GitFileMode, GitObject, GitTree, ObjectId, TreeEntry,
};
pub use objects::GitObjectStore;
pub use path::is_valid_path;
pub use tree::{MAX_ENTRIES, TreeLeaf, edit, entries, files, lookup};
