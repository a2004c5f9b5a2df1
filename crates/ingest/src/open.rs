//! Opens inputs: lists the files of a folder, and decompresses gzip and zstd, which are recognised by their first
//! bytes.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::SourceError;
use crate::hidden_folders::describe_empty_folder;
use crate::limits::SourceLimits;
use crate::read_ahead::ReadAhead;
use crate::trace_source::{SourceResolver, TraceSource};

/// One input: a file, standard input, or a source that is no file.
#[derive(Clone, Debug)]
pub enum InputSource {
    File { path: PathBuf, name: String },
    StandardInput,
    Source(Arc<dyn TraceSource>),
}

impl InputSource {
    /// The name for messages and for the coverage report.
    pub fn name(&self) -> &str {
        match self {
            InputSource::File { name, .. } => name,
            InputSource::StandardInput => "standard input",
            InputSource::Source(source) => source.name(),
        }
    }
}

/// Expands a SOURCE argument: `-` for standard input, an address that the resolver knows, a file, or all files below a
/// folder. An empty folder is an error, because it is most likely the wrong one.
pub fn expand_source(source: &str, resolver: &dyn SourceResolver) -> Result<Vec<InputSource>, SourceError> {
    if source == "-" {
        return Ok(vec![InputSource::StandardInput]);
    }
    if let Some(found) = resolver.resolve(source) {
        return Ok(vec![InputSource::Source(found?)]);
    }
    let path = Path::new(source);
    let kind = fs::metadata(path).map_err(|error| match source.split_once("://") {
        Some(_) => SourceError::Unreadable {
            name: source.to_owned(),
            reason: "this is no file and no address that is known here; write gradus://HOST:PORT/PROJECT or \
                     phoenix://HOST:PORT/PROJECT, with +https behind a proxy that has a certificate"
                .to_owned(),
        },
        None => SourceError::from_io(source, &error),
    })?;
    if !kind.is_dir() {
        return Ok(vec![InputSource::File { path: path.to_owned(), name: source.to_owned() }]);
    }
    let mut files = Vec::new();
    collect_files(path, &mut files).map_err(|error| SourceError::from_io(source, &error))?;
    if files.is_empty() {
        return Err(SourceError::Unreadable { name: source.to_owned(), reason: describe_empty_folder(path) });
    }
    Ok(files)
}

/// Lists files in the order of their names, so that results do not depend on the file system, and those of a folder
/// before those of the folders in it: the file of a session comes before the folder of its subagents. Hidden files
/// are left out. Links to folders are not followed, which avoids cycles.
fn collect_files(folder: &Path, files: &mut Vec<InputSource>) -> io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    entries.retain(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            folders.push(path);
        } else if path.is_file() {
            let name = path.display().to_string();
            files.push(InputSource::File { path, name });
        }
    }
    folders.iter().try_for_each(|folder| collect_files(folder, files))
}

/// Bytes of an input from which its format is detected. The first lines of a session can be long.
const DETECTION_HEAD_BYTES: usize = 256 << 10;
/// Bytes that are read at a time: of compressed input, and after the head.
const RAW_BUFFER_BYTES: usize = 64 << 10;
/// Minimum size of a file that is read and decompressed on a thread of its own. A smaller one is read before such a
/// thread has started.
const MIN_BYTES_READ_AHEAD: u64 = 256 << 10;

/// An opened, decompressed input whose first bytes can be inspected before reading.
pub(crate) enum InputReader {
    Direct(HeadReader),
    Ahead(ReadAhead),
}

/// The first bytes of an input.
pub(crate) struct SourceHead<'a> {
    pub bytes: &'a [u8],
    /// Whether these are all bytes of the input.
    pub whole: bool,
}

/// Bytes from which binary formats and transcripts are recognised. Bytes after them may be damaged, and their reader
/// reports where.
const FORMAT_HEAD_BYTES: usize = 64 << 10;

impl<'a> SourceHead<'a> {
    /// The beginning of the head.
    pub(crate) fn first_part(&self) -> SourceHead<'a> {
        let bytes = &self.bytes[..self.bytes.len().min(FORMAT_HEAD_BYTES)];
        SourceHead { bytes, whole: self.whole && bytes.len() < FORMAT_HEAD_BYTES }
    }
}

impl InputReader {
    /// The first bytes, without consuming them. Must be called before anything is read.
    pub(crate) fn fill_head(&mut self) -> io::Result<SourceHead<'_>> {
        let bytes = self.fill_buf()?;
        let bytes = &bytes[..bytes.len().min(DETECTION_HEAD_BYTES)];
        Ok(SourceHead { bytes, whole: bytes.len() < DETECTION_HEAD_BYTES })
    }
}

impl Read for InputReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            InputReader::Direct(reader) => reader.read(out),
            InputReader::Ahead(reader) => reader.read(out),
        }
    }
}

impl BufRead for InputReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            InputReader::Direct(reader) => reader.fill_buf(),
            InputReader::Ahead(reader) => reader.fill_buf(),
        }
    }

    fn consume(&mut self, amount: usize) {
        match self {
            InputReader::Direct(reader) => reader.consume(amount),
            InputReader::Ahead(reader) => reader.consume(amount),
        }
    }
}

/// Opens an input for reading. Must not be called for sources that are not files.
pub(crate) fn open_input(input: &InputSource, limits: &SourceLimits) -> Result<InputReader, SourceError> {
    let failed = |error: io::Error| SourceError::from_io(input.name(), &error);
    let mut is_large = false;
    let raw: Box<dyn Read + Send> = match input {
        InputSource::StandardInput => {
            is_large = true;
            Box::new(io::stdin())
        }
        InputSource::File { path, .. } => {
            let file = File::open(path).map_err(failed)?;
            is_large = file.metadata().is_ok_and(|data| data.len() >= MIN_BYTES_READ_AHEAD);
            Box::new(file)
        }
        InputSource::Source(_) => Box::new(io::empty()),
    };
    open_raw(raw, is_large, limits).map_err(failed)
}

/// Opens bytes that do not come from a file. They are small, or already read on another thread.
pub(crate) fn open_stream(raw: Box<dyn Read + Send>, limits: &SourceLimits) -> io::Result<InputReader> {
    open_raw(raw, false, limits)
}

fn open_raw(raw: Box<dyn Read + Send>, is_large: bool, limits: &SourceLimits) -> io::Result<InputReader> {
    let opened = FullBufferReader(decompress_input(raw, limits)?);
    if is_large && limits.threads > 1 {
        return Ok(InputReader::Ahead(ReadAhead::start(opened)?));
    }
    Ok(InputReader::Direct(HeadReader::new(opened)))
}

/// Adds a decompressor if the input begins with the magic number of gzip or zstd. Files with several gzip members, as
/// rotated logs have them, are read to their end.
fn decompress_input(raw: Box<dyn Read + Send>, limits: &SourceLimits) -> io::Result<Box<dyn Read + Send>> {
    let input_bytes = Arc::new(AtomicU64::new(0));
    let mut raw =
        BufReader::with_capacity(RAW_BUFFER_BYTES, CountingReader { inner: raw, count: Arc::clone(&input_bytes) });
    let head = raw.fill_buf()?;
    let inner: Box<dyn Read + Send> = if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::bufread::MultiGzDecoder::new(raw))
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(zstd::stream::read::Decoder::with_buffer(raw)?)
    } else {
        return Ok(Box::new(raw));
    };
    Ok(Box::new(ExpansionGuard { inner, input_bytes, output_bytes: 0, limits: *limits }))
}

/// Counts the compressed bytes that were read. Atomic, because a thread of its own may do the reading.
struct CountingReader {
    inner: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Refuses decompression bombs: input that grows to more than `expansion` times its compressed size. Small outputs are
/// exempt, because repetitive traces compress well.
struct ExpansionGuard {
    inner: Box<dyn Read + Send>,
    input_bytes: Arc<AtomicU64>,
    output_bytes: u64,
    limits: SourceLimits,
}

impl Read for ExpansionGuard {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out).map_err(|error| {
            io::Error::other(format!("damaged compression after {} bytes: {error}", self.output_bytes))
        })?;
        self.output_bytes += read as u64;
        let SourceLimits { expansion, expansion_floor, .. } = self.limits;
        if self.output_bytes > expansion_floor
            && self.output_bytes > expansion * self.input_bytes.load(Ordering::Relaxed)
        {
            return Err(io::Error::other(format!(
                "grows to more than {expansion} times its compressed size (limit {expansion}, beyond {} MiB): a decompression bomb? Decompress it first if you trust it",
                expansion_floor >> 20
            )));
        }
        Ok(read)
    }
}

/// Reads the head at once, and the rest in pieces. Unlike a buffered reader, it clears no buffer that is larger than
/// a small file.
pub(crate) struct HeadReader {
    head: Vec<u8>,
    consumed: usize,
    rest: BufReader<FullBufferReader>,
}

impl HeadReader {
    fn new(mut opened: FullBufferReader) -> HeadReader {
        let mut head = Vec::new();
        if let Err(error) = opened.by_ref().take(DETECTION_HEAD_BYTES as u64).read_to_end(&mut head) {
            opened = FullBufferReader(Box::new(FailingReader(Some(error))));
        }
        HeadReader { head, consumed: 0, rest: BufReader::with_capacity(RAW_BUFFER_BYTES, opened) }
    }
}

impl Read for HeadReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for HeadReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match &self.head[self.consumed..] {
            [] => self.rest.fill_buf(),
            head => Ok(head),
        }
    }

    fn consume(&mut self, amount: usize) {
        if self.consumed < self.head.len() {
            self.consumed += amount;
        } else {
            self.rest.consume(amount);
        }
    }
}

/// Fills the caller's buffer as far as the input goes. A pipe returns a few bytes at a time, and the format is detected
/// from the first read.
pub(crate) struct FullBufferReader(Box<dyn Read + Send>);

impl Read for FullBufferReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            match self.0.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if filled == 0 => return Err(error),
                // The bytes before the error are delivered first; the error follows with the next read.
                Err(error) => {
                    self.0 = Box::new(FailingReader(Some(error)));
                    break;
                }
            }
        }
        Ok(filled)
    }
}

/// Returns a stored error.
struct FailingReader(Option<io::Error>);

impl Read for FailingReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.take().unwrap_or_else(|| io::Error::other("the source failed")))
    }
}
