//! Verdicts by what was asked: the same question to the same judge is asked once, in this run and in all later ones.

use crate::run::question_key::QuestionKey;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{AppendLog, RunFileError};
use crate::prompt::TruncatedValue;
use crate::verdict::ParsedVerdict;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CachedVerdict {
    pub label: String,
    pub explanation: String,
    /// What the judge saw only in part, where that was more than the prompt's own window asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<TruncatedValue>,
}

impl CachedVerdict {
    /// What is kept of a judge's answer.
    pub fn new(reading: &ParsedVerdict, shortened: &[TruncatedValue]) -> CachedVerdict {
        CachedVerdict {
            label: reading.label.clone(),
            explanation: reading.explanation.clone(),
            shortened: shortened.to_vec(),
        }
    }
}

/// A line of the file. The key comes first, so that the index is built without reading further.
#[derive(Serialize)]
struct VerdictCacheLine<'l> {
    k: String,
    #[serde(flatten)]
    verdict: &'l CachedVerdict,
}

/// One file for all runs. Several processes may add to it at once.
#[derive(Debug)]
pub struct VerdictCache {
    path: PathBuf,
    log: AppendLog,
    reader: File,
    /// Where each verdict's line is.
    index: HashMap<QuestionKey, (u64, u32)>,
    /// What is not in the file yet: the place within the next write, and the verdict.
    unwritten: HashMap<QuestionKey, (usize, u32, CachedVerdict)>,
}

impl VerdictCache {
    pub fn open(path: &Path) -> Result<VerdictCache, RunFileError> {
        let log = AppendLog::open(path)?;
        let io = |reason| RunFileError::new(path, reason);
        let reader = File::open(path).map_err(io)?;
        let index = index_cache_lines(&reader).map_err(io)?;
        Ok(VerdictCache { path: path.to_owned(), log, reader, index, unwritten: HashMap::new() })
    }

    pub fn get(&mut self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        if let Some((_, _, verdict)) = self.unwritten.get(&key) {
            return Ok(Some(verdict.clone()));
        }
        let Some((at, length)) = self.index.get(&key).copied() else { return Ok(None) };
        let mut line = vec![0; length as usize];
        let read = self.reader.seek(SeekFrom::Start(at)).and_then(|_| self.reader.read_exact(&mut line));
        match read {
            // A line that is not what it was when the file was indexed is as good as none.
            Ok(()) if line_key(&line) == Some(key) => Ok(serde_json::from_slice(&line).ok()),
            Ok(()) => Ok(None),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(reason) => Err(RunFileError::new(&self.path, reason)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty() && self.unwritten.is_empty()
    }

    /// Whether there is a verdict for this question.
    pub(super) fn has(&self, key: QuestionKey) -> bool {
        self.index.contains_key(&key) || self.unwritten.contains_key(&key)
    }

    /// Adds a verdict; it is in the file after the next [`VerdictCache::write`].
    pub fn add(&mut self, key: QuestionKey, verdict: CachedVerdict) -> Result<(), RunFileError> {
        let at = self.log.buffered_bytes();
        self.log.add(&VerdictCacheLine { k: key.to_string(), verdict: &verdict })?;
        let length = u32::try_from(self.log.buffered_bytes() - at).unwrap_or(0);
        self.unwritten.insert(key, (at, length, verdict));
        Ok(())
    }

    pub fn write(&mut self) -> Result<(), RunFileError> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let start = self.log.write()?;
        let places = self.unwritten.drain().map(|(key, (at, length, _))| (key, (start + at as u64, length)));
        self.index.extend(places);
        Ok(())
    }

    pub fn clone_handle(&self) -> Result<File, RunFileError> {
        self.log.clone_handle()
    }
}

/// The places of all whole lines; of two with the same key the later one counts.
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
            && let Some(key) = line_key(&line)
            && let Ok(length) = u32::try_from(length)
        {
            index.insert(key, (at, length));
        }
        at += length as u64;
    }
}

/// The key that a line begins with.
pub(super) fn line_key(line: &[u8]) -> Option<QuestionKey> {
    let digits = line.strip_prefix(b"{\"k\":\"")?.get(..33)?.strip_suffix(b"\"")?;
    u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(QuestionKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(label: &str) -> CachedVerdict {
        CachedVerdict { label: label.to_owned(), explanation: "so \"it\" is\n".to_owned(), shortened: Vec::new() }
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
