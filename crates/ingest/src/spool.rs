//! Stores records until their trace is assembled: in memory while they are few, in a temporary file after that.

use std::fs::File;
use std::io::{self, BufWriter, Write};

/// Position of a record in the spool. Positions do not change when the spool moves from memory to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpoolRange {
    offset: u64,
    length: u32,
}

impl SpoolRange {
    /// Length of the record in bytes.
    pub(crate) fn byte_len(self) -> usize {
        self.length as usize
    }
}

/// The spool while it is written. Records are only appended.
pub(crate) struct RecordSpool {
    memory: ChunkedBuffer,
    memory_limit: usize,
    /// Set once the memory limit is reached. Then it holds all records, also the earlier ones.
    file: Option<BufWriter<File>>,
    length: u64,
}

impl RecordSpool {
    pub(crate) fn new(memory_limit: usize) -> Self {
        RecordSpool { memory: ChunkedBuffer::default(), memory_limit, file: None, length: 0 }
    }

    /// Appends a record. Fails if the disk is full, or for a record of 4 GB or more.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<SpoolRange> {
        let place = SpoolRange { offset: self.length, length: u32::try_from(bytes.len()).map_err(io::Error::other)? };
        if self.file.is_none() && self.length as usize + bytes.len() > self.memory_limit {
            // The file has no name, so the system frees its space however this process ends.
            let mut file = BufWriter::with_capacity(1 << 20, tempfile::tempfile()?);
            std::mem::take(&mut self.memory).write_to(&mut file)?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(bytes)?,
            None => self.memory.append(self.length, bytes),
        }
        self.length += bytes.len() as u64;
        Ok(place)
    }

    /// Ends the writing. Records can be fetched from now on, by any number of threads at once.
    pub(crate) fn into_reader(self) -> io::Result<SpoolReader> {
        match self.file {
            None => Ok(SpoolReader::Memory(self.memory)),
            Some(file) => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                Ok(SpoolReader::File(SharedFile::new(file)))
            }
        }
    }
}

/// A spool that is complete, read by several threads.
pub(crate) enum SpoolReader {
    Memory(ChunkedBuffer),
    File(SharedFile),
}

impl SpoolReader {
    /// Fetches records in the given order: borrowed from memory, or read from the file into `buffer`.
    pub(crate) fn fetch<'b>(&'b self, places: &[SpoolRange], buffer: &'b mut Vec<u8>) -> io::Result<Vec<&'b [u8]>> {
        let file = match self {
            SpoolReader::Memory(memory) => {
                return Ok(places.iter().map(|place| memory.get(*place)).collect());
            }
            SpoolReader::File(file) => file,
        };
        buffer.clear();
        buffer.resize(places.iter().map(|place| place.length as usize).sum(), 0);
        let mut rest = buffer.as_mut_slice();
        // Records of one trace often are neighbours in the file. Neighbours are read in one call.
        for run in places.chunk_by(|a, b| a.offset + u64::from(a.length) == b.offset) {
            let length = run.iter().map(|place| place.length as usize).sum();
            let (head, behind) = rest.split_at_mut(length);
            file.read_at(run[0].offset, head)?;
            rest = behind;
        }
        let mut rest = buffer.as_slice();
        let mut slices = Vec::with_capacity(places.len());
        for place in places {
            let (slice, behind) = rest.split_at(place.length as usize);
            slices.push(slice);
            rest = behind;
        }
        Ok(slices)
    }
}

/// A file that several threads read at positions of their own. Other systems than Unix have no positioned reads here,
/// so a lock protects the file position.
pub(crate) struct SharedFile {
    #[cfg(unix)]
    file: File,
    #[cfg(not(unix))]
    file: std::sync::Mutex<File>,
}

#[cfg(unix)]
impl SharedFile {
    fn new(file: File) -> Self {
        SharedFile { file }
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, out, offset)
    }
}

#[cfg(not(unix))]
impl SharedFile {
    fn new(file: File) -> Self {
        SharedFile { file: std::sync::Mutex::new(file) }
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(out)
    }
}

/// Bytes in chunks, so that growing does not copy them. A record is never split, so it can be borrowed as one slice.
#[derive(Default)]
pub(crate) struct ChunkedBuffer {
    /// Each chunk with the offset of its first byte, ascending.
    chunks: Vec<(u64, Vec<u8>)>,
}

/// Capacity of a chunk. A larger record gets a chunk of its own.
const SPOOL_CHUNK_BYTES: usize = 64 << 10;

impl ChunkedBuffer {
    fn append(&mut self, offset: u64, bytes: &[u8]) {
        match self.chunks.last_mut() {
            Some((_, chunk)) if chunk.len() + bytes.len() <= chunk.capacity() => chunk.extend_from_slice(bytes),
            _ => {
                let mut chunk = Vec::with_capacity(bytes.len().max(SPOOL_CHUNK_BYTES));
                chunk.extend_from_slice(bytes);
                self.chunks.push((offset, chunk));
            }
        }
    }

    /// Binary search for the chunk that contains the offset.
    fn get(&self, place: SpoolRange) -> &[u8] {
        let at = self.chunks.partition_point(|(start, _)| *start <= place.offset).saturating_sub(1);
        let Some((start, chunk)) = self.chunks.get(at) else { return &[] };
        let begin = (place.offset - start) as usize;
        &chunk[begin..begin + place.length as usize]
    }

    fn write_to(self, out: &mut dyn Write) -> io::Result<()> {
        self.chunks.iter().try_for_each(|(_, chunk)| out.write_all(chunk))
    }
}
