//! The objects of a repository and its forks. Objects never change, so copies of a world share them.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::object::{Commit, EMPTY_TREE, Object, ObjectId, Tree, TreeEntry};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    by_id: BTreeMap<ObjectId, Arc<Object>>,
    blob_bytes: u64,
}

impl Objects {
    /// Keeps an object; the same object twice is one.
    pub fn insert(&mut self, object: Object) -> ObjectId {
        let id = object.id();
        if let std::collections::btree_map::Entry::Vacant(place) = self.by_id.entry(id) {
            if let Object::Blob(bytes) = &object {
                self.blob_bytes += bytes.len() as u64;
            }
            place.insert(Arc::new(object));
        }
        id
    }

    pub fn get(&self, id: ObjectId) -> Option<&Object> {
        self.by_id.get(&id).map(AsRef::as_ref)
    }

    pub fn blob(&self, id: ObjectId) -> Option<&[u8]> {
        match self.get(id)? {
            Object::Blob(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The entries of a tree; none for one that is not there.
    pub fn tree(&self, id: ObjectId) -> Option<&[TreeEntry]> {
        match self.get(id) {
            Some(Object::Tree(tree)) => Some(tree.entries()),
            None if id == EMPTY_TREE => Some(&[]),
            _ => None,
        }
    }

    pub fn commit(&self, id: ObjectId) -> Option<&Commit> {
        match self.get(id)? {
            Object::Commit(commit) => Some(commit),
            _ => None,
        }
    }

    /// The one commit whose name begins so.
    pub fn commit_by_prefix(&self, prefix: &str) -> Option<ObjectId> {
        if !(4..40).contains(&prefix.len()) || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let prefix = prefix.to_ascii_lowercase();
        let mut found = self
            .by_id
            .iter()
            .filter(|(id, object)| {
                matches!(***object, Object::Commit(_)) && id.to_string().starts_with(&prefix)
            })
            .map(|(id, _)| *id);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    pub fn blob_bytes(&self) -> u64 {
        self.blob_bytes
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// An object as it is written down.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Written {
    Blob(String),
    Tree(Vec<TreeEntry>),
    Commit(Commit),
}

impl Serialize for Objects {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.by_id.values().map(|object| match &**object {
            Object::Blob(bytes) => Written::Blob(STANDARD.encode(bytes)),
            Object::Tree(tree) => Written::Tree(tree.entries().to_vec()),
            Object::Commit(commit) => Written::Commit(commit.clone()),
        }))
    }
}

impl<'de> Deserialize<'de> for Objects {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Objects, D::Error> {
        let mut objects = Objects::default();
        for written in Vec::<Written>::deserialize(deserializer)? {
            objects.insert(match written {
                Written::Blob(text) => Object::Blob(STANDARD.decode(text).map_err(serde::de::Error::custom)?),
                Written::Tree(entries) => Object::Tree(Tree::new(entries)),
                Written::Commit(commit) => Object::Commit(commit),
            });
        }
        Ok(objects)
    }
}
