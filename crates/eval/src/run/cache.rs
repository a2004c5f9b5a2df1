//! Verdict cache: the same question to the same judge is asked once, in this run and in all later ones. It is a file of
//! lines that is only appended to. In memory there is only an index of offsets.

use crate::run::question_key::QuestionKey;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{AppendLog, RunFileError};
use crate::prompt::TruncatedValue;
use crate::verdict::ParsedVerdict;

/// A cached answer. The score is not stored: it follows from the label and the rubric, whose hash is part of the key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CachedVerdict {
    pub label: String,
    pub explanation: String,
    /// Values that the judge saw only in part because the endpoint rejected a longer prompt. Empty if the first
    /// prompt was accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<TruncatedValue>,
    /// How probable the model found its label. `None` if the endpoint reports no log-probabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_probability: Option<f64>,
    /// The model that answered, as the endpoint names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
}

impl CachedVerdict {
    /// The part of a judge's answer that is cached.
    pub fn new(reading: &ParsedVerdict, shortened: &[TruncatedValue]) -> CachedVerdict {
        CachedVerdict {
            label: reading.label.clone(),
            explanation: reading.explanation.clone(),
            shortened: shortened.to_vec(),
            label_probability: None,
            answered_by: None,
        }
    }

    /// Adds what the model's log-probabilities say about the label.
    #[must_use]
    pub fn with_label_probability(mut self, label_probability: Option<f64>) -> CachedVerdict {
        self.label_probability = label_probability;
        self
    }

    /// Adds the model that answered, so that later runs know whose verdict it is.
    #[must_use]
    pub fn with_answered_by(mut self, answered_by: Option<String>) -> CachedVerdict {
        self.answered_by = answered_by;
        self
    }
}

/// A line of the file. The key comes first, so that the index is built without parsing the rest.
#[derive(Serialize)]
struct VerdictCacheLine<'l> {
    k: String,
    #[serde(flatten)]
    verdict: &'l CachedVerdict,
}

/// One file for all runs of a state folder. Several processes may append at once: each write is a single `O_APPEND`
/// write of whole lines.
#[derive(Debug)]
pub struct VerdictCache {
    path: PathBuf,
    log: AppendLog,
    reader: File,
    /// Offset and length of each verdict's line.
    index: HashMap<QuestionKey, (u64, u32)>,
    /// Verdicts of the next write: offset within it, length, and the verdict.
    unwritten: HashMap<QuestionKey, (usize, u32, CachedVerdict)>,
}

impl VerdictCache {
    /// Opens or creates the file and indexes it. Lines that another process appends later are not seen.
    pub fn open(path: &Path) -> Result<VerdictCache, RunFileError> {
        let log = AppendLog::open(path)?;
        let io = |reason| RunFileError::new(path, reason);
        let reader = File::open(path).map_err(io)?;
        let index = index_cache_lines(&reader).map_err(io)?;
        Ok(VerdictCache { path: path.to_owned(), log, reader, index, unwritten: HashMap::new() })
    }

    /// Looks up a verdict. `None` also for a line that changed since the file was indexed.
    pub fn get(&mut self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        if let Some((_, _, verdict)) = self.unwritten.get(&key) {
            return Ok(Some(verdict.clone()));
        }
        let Some((at, length)) = self.index.get(&key).copied() else { return Ok(None) };
        let mut line = vec![0; length as usize];
        let read = self.reader.seek(SeekFrom::Start(at)).and_then(|_| self.reader.read_exact(&mut line));
        match read {
            // The file may have been replaced since it was indexed, so the key of the line is checked.
            Ok(()) if parse_line_key(&line) == Some(key) => Ok(serde_json::from_slice(&line).ok()),
            Ok(()) => Ok(None),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(reason) => Err(RunFileError::new(&self.path, reason)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty() && self.unwritten.is_empty()
    }

    /// Like `get`, without reading the file.
    pub(super) fn has(&self, key: QuestionKey) -> bool {
        self.index.contains_key(&key) || self.unwritten.contains_key(&key)
    }

    /// Adds a verdict. It is in the file after the next [`VerdictCache::write`].
    pub fn add(&mut self, key: QuestionKey, verdict: CachedVerdict) -> Result<(), RunFileError> {
        let at = self.log.buffered_bytes();
        self.log.add(&VerdictCacheLine { k: key.to_string(), verdict: &verdict })?;
        let length = u32::try_from(self.log.buffered_bytes() - at).unwrap_or(0);
        self.unwritten.insert(key, (at, length, verdict));
        Ok(())
    }

    /// Appends all added verdicts in one write.
    pub fn write(&mut self) -> Result<(), RunFileError> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let start = self.log.write()?;
        let places = self.unwritten.drain().map(|(key, (at, length, _))| (key, (start + at as u64, length)));
        self.index.extend(places);
        Ok(())
    }

    /// A second handle of the file, with which another thread calls `fsync`.
    pub fn clone_handle(&self) -> Result<File, RunFileError> {
        self.log.clone_handle()
    }
}

/// Offsets of all complete lines. If a key occurs twice, the later line counts. An incomplete line, left by a crash, is
/// skipped.
fn index_cache_lines(file: &File) -> std::io::Result<HashMap<QuestionKey, (u64, u32)>> {
    let mut index = HashMap::new();
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut line = Vec::new();
    let mut at = 0;
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(index);
        }
        if line.ends_with(b"}\n")
            && let Some(key) = parse_line_key(&line)
            && let Ok(length) = u32::try_from(length)
        {
            index.insert(key, (at, length));
        }
        at += length as u64;
    }
}

/// The key at the beginning of a line; `None` for lines without one.
pub(super) fn parse_line_key(line: &[u8]) -> Option<QuestionKey> {
    let digits = line.strip_prefix(b"{\"k\":\"")?.get(..33)?.strip_suffix(b"\"")?;
    u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(QuestionKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(label: &str) -> CachedVerdict {
        CachedVerdict {
            label: label.to_owned(),
            explanation: "so \"it\" is\n".to_owned(),
            shortened: Vec::new(),
            label_probability: None,
            answered_by: None,
        }
    }

    #[test]
    fn keeps_verdicts_across_crashes_and_takes_the_latest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("verdicts");
        let (one, two) = (QuestionKey::from_parts(&[b"a", b"b"]), QuestionKey::from_parts(&[b"ab", b""]));
        assert_ne!(one, two);
        let mut cache = VerdictCache::open(&path).expect("opened");
        cache.add(one, verdict("correct")).expect("added");
        cache.add(two, verdict("correct")).expect("added");
        cache.write().expect("written");
        cache.add(one, verdict("incorrect")).expect("added");
        assert_eq!(cache.get(one).expect("read").map(|found| found.label).as_deref(), Some("incorrect"));
        cache.write().expect("written");
        assert_eq!(cache.get(one).expect("read").map(|found| found.label).as_deref(), Some("incorrect"));
        assert_eq!(cache.get(two).expect("read"), Some(verdict("correct")));
        drop(cache);
        let mut text = std::fs::read(&path).expect("read");
        text.extend_from_slice(b"{\"k\":\"00000000000000000000000000000001\",\"lab");
        std::fs::write(&path, text).expect("written");
        let mut cache = VerdictCache::open(&path).expect("opened again");
        assert_eq!(cache.index.len(), 2);
        assert_eq!(cache.get(one).expect("read"), Some(verdict("incorrect")));
        assert_eq!(cache.get(QuestionKey::from_parts(&[b"c"])).expect("read"), None);
    }
}
