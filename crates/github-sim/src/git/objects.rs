//! The object store of a repository and its forks. Objects are immutable, so copies of a world share them.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::object::{EMPTY_TREE, GitCommit, GitObject, GitTree, ObjectId, TreeEntry};

/// Objects by id. Cloning copies the map but not the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitObjectStore {
    by_id: BTreeMap<ObjectId, Arc<GitObject>>,
    /// Total size of all blobs, for the `size` of a repository.
    blob_bytes: u64,
}

impl GitObjectStore {
    /// Stores an object and returns its id. Storing it again has no effect.
    pub fn insert(&mut self, object: GitObject) -> ObjectId {
        let id = object.id();
        if let std::collections::btree_map::Entry::Vacant(place) = self.by_id.entry(id) {
            if let GitObject::Blob(bytes) = &object {
                self.blob_bytes += bytes.len() as u64;
            }
            place.insert(Arc::new(object));
        }
        id
    }

    pub fn get(&self, id: ObjectId) -> Option<&GitObject> {
        self.by_id.get(&id).map(AsRef::as_ref)
    }

    /// `None` also if the id belongs to another type.
    pub fn blob(&self, id: ObjectId) -> Option<&[u8]> {
        match self.get(id)? {
            GitObject::Blob(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Entries of a tree; `None` if there is no such tree. The empty tree always exists.
    pub fn tree_entries(&self, id: ObjectId) -> Option<&[TreeEntry]> {
        match self.get(id) {
            Some(GitObject::Tree(tree)) => Some(tree.entries()),
            None if id == EMPTY_TREE => Some(&[]),
            _ => None,
        }
    }

    /// `None` also if the id belongs to another type.
    pub fn commit(&self, id: ObjectId) -> Option<&GitCommit> {
        match self.get(id)? {
            GitObject::Commit(commit) => Some(commit),
            _ => None,
        }
    }

    /// Finds the commit whose id begins with this prefix of 4 to 39 digits; `None` if there are several.
    pub fn commit_by_prefix(&self, prefix: &str) -> Option<ObjectId> {
        if !(4..40).contains(&prefix.len()) || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let prefix = prefix.to_ascii_lowercase();
        let mut found = self
            .by_id
            .iter()
            .filter(|(id, object)| matches!(***object, GitObject::Commit(_)) && id.to_string().starts_with(&prefix))
            .map(|(id, _)| *id);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    pub fn blob_bytes(&self) -> u64 {
        self.blob_bytes
    }

    /// Objects of all types, reachable or not.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// The form in `GET /_gradus/state`. Ids are not written: they follow from the content.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SerializedGitObject {
    Blob(String),
    Tree(Vec<TreeEntry>),
    Commit(GitCommit),
}

impl Serialize for GitObjectStore {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.by_id.values().map(|object| match &**object {
            GitObject::Blob(bytes) => SerializedGitObject::Blob(STANDARD.encode(bytes)),
            GitObject::Tree(tree) => SerializedGitObject::Tree(tree.entries().to_vec()),
            GitObject::Commit(commit) => SerializedGitObject::Commit(commit.clone()),
        }))
    }
}

impl<'de> Deserialize<'de> for GitObjectStore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GitObjectStore, D::Error> {
        let mut objects = GitObjectStore::default();
        for written in Vec::<SerializedGitObject>::deserialize(deserializer)? {
            objects.insert(match written {
                SerializedGitObject::Blob(text) => {
                    GitObject::Blob(STANDARD.decode(text).map_err(serde::de::Error::custom)?)
                }
                SerializedGitObject::Tree(entries) => GitObject::Tree(GitTree::new(entries)),
                SerializedGitObject::Commit(commit) => GitObject::Commit(commit),
            });
        }
        Ok(objects)
    }
}
