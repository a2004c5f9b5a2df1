//! Why a source cannot be read. Each message is one line: what failed, where, and what to do.

use std::io;

use crate::detect::{describe_log, detect_program_log};

/// A source that cannot be read at all. Single bad records are defects instead, and reading continues.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The complete message of a source that is not a file.
    #[error("{0}")]
    External(String),
    #[error("{name}: {reason}")]
    Unreadable { name: String, reason: String },
    #[error(
        "{name}: not a known trace format ({looks_like}); expected OTLP, a session of a coding agent, an export of another backend or harness, message lists or a ReAct transcript"
    )]
    Unrecognised { name: String, looks_like: String },
    /// A file of a known tool that holds no runs.
    #[error("{name}: {reason}")]
    NotRuns { name: String, reason: String },
}

impl SourceError {
    /// An operating system error with the name of the source.
    pub(crate) fn from_io(name: &str, error: &io::Error) -> Self {
        SourceError::Unreadable { name: name.to_owned(), reason: plain_reason(error) }
    }

    /// The source has no project of this name. Lists the first few that it has, so that the user sees a misspelling.
    pub fn no_project(name: &str, project: &str, known: &[String]) -> Self {
        const SHOWN: usize = 10;
        let names: Vec<&str> = known.iter().take(SHOWN).map(String::as_str).collect();
        let reason = match known.len() {
            0 => "it holds no project yet".to_owned(),
            count if count > SHOWN => {
                format!("there is no project {project:?}; there are {}, ...", names.join(", "))
            }
            _ => format!("there is no project {project:?}; there are {}", names.join(", ")),
        };
        SourceError::Unreadable { name: name.to_owned(), reason }
    }

    /// Describes which file it is and what it is instead of a trace, for a list of skipped files.
    pub(crate) fn describe_skipped(&self) -> String {
        match self {
            SourceError::Unrecognised { name, looks_like } => format!("{name}: {looks_like}"),
            other => other.to_string(),
        }
    }

    /// Whether the source is not a trace, as opposed to a broken one. Such files of a folder are skipped.
    pub fn is_unrecognised(&self) -> bool {
        matches!(self, SourceError::Unrecognised { .. } | SourceError::NotRuns { .. })
    }

    /// Describes what the first bytes look like, because the user cannot see them.
    pub(crate) fn unrecognized(name: &str, head: &[u8]) -> Self {
        if let Some(program) = detect_program_log(head) {
            return SourceError::Unrecognised { name: name.to_owned(), looks_like: describe_log(program) };
        }
        let looks_like = match std::str::from_utf8(&head[..head.len().min(64)]) {
            _ if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") => {
                "UTF-16 text; convert it to UTF-8".to_owned()
            }
            _ if head.starts_with(b"PAR1") => {
                "a Parquet file, which this build does not read; export CSV or JSON".to_owned()
            }
            _ if head.starts_with(b"PK\x03\x04") => "a zip archive; unpack it".to_owned(),
            _ if head.starts_with(b"\x1f\x8b") => "compressed twice; decompress it once".to_owned(),
            Ok("") => "the file is empty".to_owned(),
            Ok(text) => format!("it begins with {:?}", text.lines().next().unwrap_or_default()),
            Err(_) => format!("it begins with the bytes {:02x?}", &head[..head.len().min(8)]),
        };
        SourceError::Unrecognised { name: name.to_owned(), looks_like }
    }
}

/// An error of the reader of a format. The caller adds the name of the source.
#[derive(Debug)]
pub enum ReadError {
    Broken(String),
    /// Well-formed, but not a known kind of document.
    Unrecognised(String),
    /// A document of a known tool that holds no runs.
    NotRuns(String),
}

impl ReadError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        ReadError::Broken(reason.into())
    }

    /// Adds the name of the source.
    pub fn in_source(self, name: &str) -> SourceError {
        let name = name.to_owned();
        match self {
            ReadError::Broken(reason) => SourceError::Unreadable { name, reason },
            ReadError::Unrecognised(looks_like) => SourceError::Unrecognised { name, looks_like },
            ReadError::NotRuns(reason) => SourceError::NotRuns { name, reason },
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        ReadError::Broken(plain_reason(&error))
    }
}

/// The reason of the operating system without its error number.
fn plain_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let projects: Vec<String> = (1..=11).map(|number| format!("shop-{number}")).collect();
        let unrecognized = [
            &b"\xff\xfea\0"[..],
            b"PK\x03\x04rest",
            b"\x1f\x8brest",
            b"",
            b"HyperAgent_demo__repo-1 - INFO - Initialized tools",
            b"date,price\n2026-03-02,1",
            b"\x89PNG\r\n\x1a\n\0\0",
        ];
        let mut errors = vec![
            SourceError::External("phoenix://localhost: nothing answers there".to_owned()),
            SourceError::from_io("a.jsonl", &io::ErrorKind::NotFound.into()),
            SourceError::from_io("a.jsonl", &io::ErrorKind::PermissionDenied.into()),
            SourceError::from_io("a.jsonl", &io::Error::other("the disk is broken")),
            SourceError::no_project("store", "shop", &[]),
            SourceError::no_project("store", "shop", &projects[..2]),
            SourceError::no_project("store", "shop", &projects),
            ReadError::new("record 3 is cut off").in_source("a.binpb"),
            ReadError::Unrecognised("a JSON number".to_owned()).in_source("a.json"),
            ReadError::NotRuns("LangSmith dataset: export the runs".to_owned()).in_source("a.json"),
        ];
        errors.extend(unrecognized.map(|head| SourceError::unrecognized("a", head)));
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(messages.iter().all(|message| !message.contains('\n')), "{messages:?}");
        insta::assert_snapshot!(messages.join("\n"));
    }
}
