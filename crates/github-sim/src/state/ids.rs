//! Typed ids, so that an account cannot be taken for a repository.

use serde::{Deserialize, Serialize};

/// From 1, in order of creation. 0 is no account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AccountId(pub u64);

/// Also identifies the network of a repository that is not a fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RepositoryId(pub u64);

/// Issues refer to labels by id, so that renaming a label needs no change of issues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LabelId(pub u64);
