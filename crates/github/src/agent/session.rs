//! A session as a file. It is written anew beside the old one and put in its place, so it is whole whenever the program
//! is stopped.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::state::{State, VERSION};

/// Who keeps a session's state, step by step.
pub trait Keeper: Send {
    fn keep(&mut self, state: &State) -> Result<(), SessionError>;
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("{}: {reason}; the session cannot be kept there", path.display())]
    Write { path: PathBuf, reason: std::io::Error },
    #[error("{}: {reason}", path.display())]
    Read { path: PathBuf, reason: std::io::Error },
    #[error("{}, line {line}: this is no session of gradus agent ({reason}); name another file", path.display())]
    Malformed { path: PathBuf, line: usize, reason: String },
    #[error("{}: written by another version of gradus (form {found}, this one reads {VERSION})", path.display())]
    Version { path: PathBuf, found: u64 },
}

#[derive(Debug)]
pub struct SessionFile {
    path: PathBuf,
}

impl SessionFile {
    pub fn new(path: &Path) -> SessionFile {
        SessionFile { path: path.to_owned() }
    }

    /// The session in the file; none if there is no file yet.
    pub fn read(&self) -> Result<Option<State>, SessionError> {
        let path = || self.path.clone();
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(reason) => return Err(SessionError::Read { path: path(), reason }),
        };
        let malformed = |error: &serde_json::Error| SessionError::Malformed {
            path: path(),
            line: error.line(),
            reason: error.to_string(),
        };
        let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| malformed(&error))?;
        match json.get("version").and_then(serde_json::Value::as_u64) {
            Some(found) if found != u64::from(VERSION) => {
                return Err(SessionError::Version { path: path(), found });
            }
            _ => {}
        }
        serde_json::from_slice(&bytes).map(Some).map_err(|error| malformed(&error))
    }

    fn write(&self, state: &State) -> std::io::Result<()> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let beside = self.path.with_file_name(name);
        let mut file = create_private(&beside)?;
        serde_json::to_writer(&mut file, state)?;
        file.write_all(b"\n")?;
        // On disk before it is in place: a write that was carried out must not be forgotten.
        file.sync_data()?;
        fs::rename(&beside, &self.path)
    }
}

/// What an agent has read is its user's business only.
fn create_private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

impl Keeper for SessionFile {
    fn keep(&mut self, state: &State) -> Result<(), SessionError> {
        self.write(state).map_err(|reason| SessionError::Write { path: self.path.clone(), reason })
    }
}
