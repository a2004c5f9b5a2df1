//! As much of git as GitHub's API shows: objects with their real names, histories, differences and merges.

mod changes;
mod diff;
mod history;
mod merge;
mod object;
mod objects;
mod path;
mod tree;

pub use changes::{Change, ChangeKind, changes};
pub use history::{ahead_behind, ancestors, is_ancestor, log, merge_base};
pub use merge::{MergePlan, merge_texts, merge_trees};
pub use object::{Commit, EMPTY_TREE, Mode, Object, ObjectId, Signature, Tree, TreeEntry};
pub use objects::Objects;
pub use path::is_valid_path;
pub use tree::{Leaf, MAX_ENTRIES, edit, entries, files, lookup};
