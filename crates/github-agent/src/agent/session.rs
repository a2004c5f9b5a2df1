//! Sessions as files. Each state is written to a new file that replaces the old one, so that the file is complete
//! whenever the process stops.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::state::{AgentState, SESSION_FORMAT_VERSION};

/// Stores the state of a session after each step.
pub trait AgentSessionStore: Send {
    /// Stores the state durably before it returns: a write to GitHub may follow immediately.
    fn save_agent_state(&mut self, state: &AgentState) -> Result<(), SessionError>;
}

/// Why a session cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("{}: {reason}; the session cannot be kept there", path.display())]
    Write { path: PathBuf, reason: std::io::Error },
    #[error("{}: another gradus agent works on this session; wait for its end, or name another file", path.display())]
    InUse { path: PathBuf },
    #[error("{}: {reason}", path.display())]
    Read { path: PathBuf, reason: std::io::Error },
    #[error("{}, line {line}: this is no session of gradus agent ({reason}); name another file", path.display())]
    Malformed { path: PathBuf, line: usize, reason: String },
    #[error("{}: written by another version of gradus (form {found}, this one reads {SESSION_FORMAT_VERSION})", path.display())]
    Version { path: PathBuf, found: u64 },
}

/// A session file, held by one process at a time: two processes would both make the next write.
#[derive(Debug)]
pub struct SessionFile {
    path: PathBuf,
    /// The lock is on a separate file, because the session file itself is replaced with every state.
    _lock: File,
}

impl SessionFile {
    /// Acquires the lock. Does not read the session.
    pub fn open(path: &Path) -> Result<SessionFile, SessionError> {
        let failed = |reason| SessionError::Write { path: path.to_owned(), reason };
        let lock = create_private(&append_file_suffix(path, ".lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(SessionFile { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(SessionError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(reason)) => Err(failed(reason)),
        }
    }

    /// Reads the stored session; none if there is no file yet. A file of another format version is refused.
    pub fn read(&self) -> Result<Option<AgentState>, SessionError> {
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
            Some(found) if found != u64::from(SESSION_FORMAT_VERSION) => {
                return Err(SessionError::Version { path: path(), found });
            }
            _ => {}
        }
        serde_json::from_slice(&bytes).map(Some).map_err(|error| malformed(&error))
    }

    /// Writes, syncs, renames, and syncs the folder: a write to GitHub that was made must not be forgotten after a
    /// power cut.
    fn write(&self, state: &AgentState) -> std::io::Result<()> {
        let new = append_file_suffix(&self.path, ".new");
        let mut file = create_private(&new)?;
        serde_json::to_writer(&mut file, state)?;
        file.write_all(b"\n")?;
        // Synced before it is renamed: a write to GitHub that was made must not be forgotten.
        file.sync_data()?;
        fs::rename(&new, &self.path)?;
        // Otherwise the old file may reappear after a power cut.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// Appends to the whole file name: `a.json` becomes `a.json.lock`.
fn append_file_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// Creates a file that only the user can read: sessions contain what the agent has read.
fn create_private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

impl AgentSessionStore for SessionFile {
    fn save_agent_state(&mut self, state: &AgentState) -> Result<(), SessionError> {
        self.write(state).map_err(|reason| SessionError::Write { path: self.path.clone(), reason })
    }
}
