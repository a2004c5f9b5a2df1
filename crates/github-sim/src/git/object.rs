//! Git objects and their ids. The hashed bytes are exactly those of git, so every id can be verified with git itself:
//!
//! ```text
//! blob    "blob LENGTH\0" content
//! tree    "tree LENGTH\0" and per entry: "MODE NAME\0" and the 20 bytes of the id
//! commit  "commit LENGTH\0" and
//!         tree ID
//!         parent ID                               (none, one or several lines)
//!         author NAME <EMAIL> SECONDS +0000
//!         committer NAME <EMAIL> SECONDS +0000
//!
//!         MESSAGE
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha1::{Digest, Sha1};

/// The id of an object: SHA-1 of `kind length NUL` and the content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; 20]);

/// The tree without entries, which git knows without storing it.
pub const EMPTY_TREE: ObjectId = ObjectId([
    0x4b, 0x82, 0x5d, 0xc6, 0x42, 0xcb, 0x6e, 0xb9, 0xa0, 0x60, 0xe5, 0x4b, 0xf8, 0xd6, 0x92, 0x88, 0xfb, 0xee, 0x49,
    0x04,
]);

impl ObjectId {
    /// Hashes a header and the content, as `git hash-object` does.
    fn hash_object(kind: &str, body: &[u8]) -> ObjectId {
        let mut hash = Sha1::new();
        hash.update(format!("{kind} {}\0", body.len()));
        hash.update(body);
        ObjectId(hash.finalize().into())
    }

    /// Returns the first seven digits, git's default abbreviation.
    pub fn short_hex(&self) -> String {
        self.to_string()[..7].to_owned()
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 40];
        for (index, byte) in self.0.iter().enumerate() {
            text[2 * index] = b"0123456789abcdef"[usize::from(byte >> 4)];
            text[2 * index + 1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The text is not forty hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sha has 40 hexadecimal digits")]
pub struct NotAnObjectId;

impl FromStr for ObjectId {
    type Err = NotAnObjectId;

    fn from_str(text: &str) -> Result<ObjectId, NotAnObjectId> {
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return Err(NotAnObjectId);
        }
        let mut id = [0; 20];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = digit(0).ok_or(NotAnObjectId)? << 4 | digit(1).ok_or(NotAnObjectId)?;
        }
        Ok(ObjectId(id))
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ObjectId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The stored object types. Annotated tags are not simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitObject {
    Blob(Vec<u8>),
    Tree(GitTree),
    Commit(GitCommit),
}

impl GitObject {
    /// Returns the type as the API spells it.
    pub fn kind(&self) -> &'static str {
        match self {
            GitObject::Blob(_) => "blob",
            GitObject::Tree(_) => "tree",
            GitObject::Commit(_) => "commit",
        }
    }

    /// Computes the id on each call.
    pub fn id(&self) -> ObjectId {
        match self {
            GitObject::Blob(bytes) => ObjectId::hash_object("blob", bytes),
            GitObject::Tree(tree) => ObjectId::hash_object("tree", &tree.encode()),
            GitObject::Commit(commit) => ObjectId::hash_object("commit", &commit.encode()),
        }
    }
}

/// The mode of a tree entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GitFileMode {
    #[serde(rename = "100644")]
    File,
    #[serde(rename = "100755")]
    Executable,
    #[serde(rename = "120000")]
    Link,
    #[serde(rename = "040000")]
    Directory,
    #[serde(rename = "160000")]
    Submodule,
}

impl GitFileMode {
    /// Returns six digits, as in the API. Git itself omits the leading zero of directories.
    pub fn digits(self) -> &'static str {
        match self {
            GitFileMode::File => "100644",
            GitFileMode::Executable => "100755",
            GitFileMode::Link => "120000",
            GitFileMode::Directory => "040000",
            GitFileMode::Submodule => "160000",
        }
    }

    /// Parses a mode; `None` for modes that git does not have.
    pub fn from_digits(text: &str) -> Option<GitFileMode> {
        let all = [
            GitFileMode::File,
            GitFileMode::Executable,
            GitFileMode::Link,
            GitFileMode::Directory,
            GitFileMode::Submodule,
        ];
        all.into_iter().find(|mode| mode.digits() == text)
    }

    /// Returns the type of the object that the entry names.
    pub fn object_kind(self) -> &'static str {
        match self {
            GitFileMode::Directory => "tree",
            GitFileMode::Submodule => "commit",
            GitFileMode::File | GitFileMode::Executable | GitFileMode::Link => "blob",
        }
    }
}

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEntry {
    /// One segment of a path, without slashes.
    pub name: String,
    pub mode: GitFileMode,
    pub id: ObjectId,
}

/// A tree with entries in git's order, which the id depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitTree {
    entries: Vec<TreeEntry>,
}

impl GitTree {
    /// Sorts the entries.
    pub fn new(mut entries: Vec<TreeEntry>) -> GitTree {
        // Git sorts a directory as if its name ended in a slash.
        let key = |entry: &TreeEntry| {
            let mut name = entry.name.clone().into_bytes();
            if entry.mode == GitFileMode::Directory {
                name.push(b'/');
            }
            name
        };
        entries.sort_by_cached_key(key);
        GitTree { entries }
    }

    pub fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    /// Finds an entry by linear search: trees are sorted in git's order, which is not that of names.
    pub fn get(&self, name: &str) -> Option<&TreeEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns the bytes that git hashes: mode, space, name, NUL, and the raw id of each entry.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in &self.entries {
            bytes.extend_from_slice(entry.mode.digits().trim_start_matches('0').as_bytes());
            bytes.push(b' ');
            bytes.extend_from_slice(entry.name.as_bytes());
            bytes.push(0);
            bytes.extend_from_slice(&entry.id.0);
        }
        bytes
    }
}

/// Author or committer of a commit, and when (seconds since 1970, UTC).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitSignature {
    pub name: String,
    /// GitHub finds the account of a commit by this address.
    pub email: String,
    /// Never negative.
    pub at: i64,
}

impl CommitSignature {
    /// Removes angle brackets and control characters, which would break the header lines of a commit. Git does the
    /// same.
    pub fn new(name: &str, email: &str, at: i64) -> CommitSignature {
        let clean = |text: &str| {
            let kept: String = text.chars().filter(|c| !matches!(c, '<' | '>') && !c.is_control()).collect();
            kept.trim().to_owned()
        };
        CommitSignature { name: clean(name), email: clean(email), at: at.max(0) }
    }

    /// Returns the text in a commit. The time zone is always UTC.
    fn encode(&self) -> String {
        format!("{} <{}> {} +0000", self.name, self.email, self.at)
    }
}

/// A commit. Signatures (GPG) are not simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitCommit {
    pub tree: ObjectId,
    /// Empty for a root commit, two for a merge. The first one is the branch that was merged into.
    pub parents: Vec<ObjectId>,
    pub author: CommitSignature,
    pub committer: CommitSignature,
    /// With a subject line and, after an empty line, a body.
    pub message: String,
}

impl GitCommit {
    /// Returns the first line of the message.
    pub fn subject(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    fn encode(&self) -> Vec<u8> {
        let mut text = format!("tree {}\n", self.tree);
        for parent in &self.parents {
            text.push_str(&format!("parent {parent}\n"));
        }
        text.push_str(&format!("author {}\ncommitter {}\n\n", self.author.encode(), self.committer.encode()));
        // Git ends a message at a zero byte.
        text.extend(self.message.chars().filter(|c| *c != '\0'));
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_git() {
        // Known to everyone who ever ran `git hash-object`; tests/against_git.rs asks git itself.
        assert_eq!(GitObject::Blob(Vec::new()).id().to_string(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(GitObject::Tree(GitTree::default()).id(), EMPTY_TREE);
    }

    #[test]
    fn a_sha_has_forty_digits() {
        assert!("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391".parse::<ObjectId>().is_ok());
        assert!("e69de29".parse::<ObjectId>().is_err());
        assert!("+69de29bb2d1d6434b8b29ae775ad8c2e48c5391".parse::<ObjectId>().is_err());
    }

    #[test]
    fn directories_sort_with_a_slash() {
        let entry = |name: &str, mode| TreeEntry { name: name.to_owned(), mode, id: EMPTY_TREE };
        let tree = GitTree::new(vec![
            entry("a", GitFileMode::Directory),
            entry("a.txt", GitFileMode::File),
            entry("a-b", GitFileMode::File),
        ]);
        let names: Vec<_> = tree.entries().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a-b", "a.txt", "a"]);
    }
}
