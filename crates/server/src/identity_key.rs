//! Tells apart people and sessions whose names are redacted. Redaction maps all names to the same text, so that labels
//! of two people would merge. A keyed BLAKE3 digest is appended to it, which cannot be guessed from a list of names
//! without the key.

use std::io::{Error, Write as _};
use std::path::Path;

/// Beside the database and not in it, so that a copy of the database does not reveal the key.
const KEY_FILE_NAME: &str = "redaction.key";
/// Number of digest digits that are shown. Ten are 40 bits: collisions are improbable among thousands of people.
const SHOWN_DIGITS: usize = 10;

/// The secret of one store. It never leaves the data folder.
#[derive(Clone)]
pub(super) struct IdentityKey([u8; 32]);

impl IdentityKey {
    /// Reads the key file of a store, or creates one that only the owner can read. Losing the file means that later
    /// labels of a person do not match earlier ones.
    pub(super) fn load(data: &Path) -> std::io::Result<IdentityKey> {
        let path = data.join(KEY_FILE_NAME);
        let text = match std::fs::read(&path) {
            Ok(text) if !text.is_empty() => text,
            _ => {
                let key = gradus_store::new_key().map_err(Error::other)?;
                gradus_store::create_private_file(&path)?.write_all(key.as_bytes())?;
                key.into_bytes()
            }
        };
        Ok(IdentityKey(*blake3::hash(&text).as_bytes()))
    }

    /// Returns the redacted text followed by the digest of the original name.
    pub(super) fn tag_redacted_name(&self, name: &str, redacted: &str) -> String {
        let digest = blake3::keyed_hash(&self.0, name.as_bytes()).to_hex();
        format!("{redacted}#{}", &digest[..SHOWN_DIGITS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_apart_and_the_same_over_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = IdentityKey::load(folder.path()).expect("a key");
        let again = IdentityKey::load(folder.path()).expect("the same key");
        let [ann, bob] =
            ["ann@x.example", "bob@x.example"].map(|name| key.tag_redacted_name(name, "[redacted:emails]"));
        assert_ne!(ann, bob);
        assert_eq!(again.tag_redacted_name("ann@x.example", "[redacted:emails]"), ann);
        assert!(ann.starts_with("[redacted:emails]#") && !ann.contains("ann@"));
        let other = tempfile::tempdir().expect("a folder");
        let stranger = IdentityKey::load(other.path()).expect("another key");
        assert_ne!(stranger.tag_redacted_name("ann@x.example", "[redacted:emails]"), ann);
    }
}
