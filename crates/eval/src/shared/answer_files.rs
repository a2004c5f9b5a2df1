//! Answers of judges as files that all processes see: `answers/ab/KEY.json`. A file appears complete or not at all.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::run::{CachedVerdict, QuestionKey, RunFileError};

#[derive(Clone, Debug)]
pub(super) struct AnswerFiles {
    folder: PathBuf,
}

impl AnswerFiles {
    pub(super) fn new(folder: PathBuf) -> AnswerFiles {
        AnswerFiles { folder }
    }

    /// Finds an answer. `None` also for a damaged file: the question is asked again, and the file is replaced.
    pub(super) fn find(&self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        let path = self.path(key);
        match fs::read(&path) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RunFileError::new(&path, error)),
        }
    }

    /// Writes an answer durably, because a lost answer would be paid for again.
    pub(super) fn store(&self, key: QuestionKey, answer: &CachedVerdict) -> Result<(), RunFileError> {
        let path = self.path(key);
        let write = || -> std::io::Result<()> {
            let text = serde_json::to_vec(answer)?;
            let folder = path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            // Only the process that has the lock of the question writes it, so the name needs no number. A file that a
            // crash left behind is overwritten.
            let draft = folder.join(format!(".{key}.draft"));
            let mut file = fs::File::create(&draft)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&draft, &path)
        };
        write().map_err(|reason| RunFileError::new(&path, reason))
    }

    fn path(&self, key: QuestionKey) -> PathBuf {
        let digits = key.to_string();
        self.folder.join(&digits[..2]).join(format!("{digits}.json"))
    }
}
