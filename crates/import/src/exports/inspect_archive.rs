//! Inspect's archives (`.eval`): a zip with `header.json` and one JSON file for each sample, compressed with deflate
//! or, since 2026, with Zstandard. Only what Inspect writes is read: no encryption, no multi-volume archives.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};

use serde_json::Value as Json;

use super::inspect::{EvalHeader, InspectSample};
use crate::import_sink::{ImportError, ImportSink};

/// Limits on the expanded size of an archive. It is content of unknown origin, and a few kilobytes can hold
/// gigabytes.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveLimits {
    /// Maximum size of one file in the archive, in bytes.
    pub max_entry_bytes: u64,
    /// Maximum size of all files that are read, in bytes.
    pub max_total_bytes: u64,
    /// Maximum number of files in the archive.
    pub max_entries: u64,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        ArchiveLimits { max_entry_bytes: 128 << 20, max_total_bytes: 8 << 30, max_entries: 200_000 }
    }
}

/// Reads an archive of Inspect. A sample that cannot be read is reported, and reading continues.
pub fn read_inspect_archive(
    mut reader: impl Read + Seek,
    limits: ArchiveLimits,
    sink: &mut dyn ImportSink,
) -> Result<(), ImportError> {
    let entries = read_directory(&mut reader, limits)?;
    let mut archive = ArchiveReader { reader, limits, total_bytes: 0 };
    // An archive that is still being written has only the journal.
    let header =
        ["header.json", "_journal/start.json"].iter().find_map(|name| entries.iter().find(|e| e.name == *name));
    let Some(header) = header else {
        return Err(ImportError::new("zip archive without `header.json`: not an Inspect log"));
    };
    let header: Json = archive.read_json(header).map_err(|error| entry_error(&header.name, &error))?;
    if header.get("eval").is_none() {
        return Err(ImportError::new("Inspect archive: `header.json` has no `eval`"));
    }
    let header = EvalHeader::from_log(&header);
    for entry in entries.iter().filter(|entry| entry.is_sample()) {
        match archive.read_json::<InspectSample>(entry) {
            Ok(sample) => header.read_sample(sample, sink),
            Err(error) => sink.report_bad_record(&entry_error(&entry.name, &error).reason),
        }
    }
    Ok(())
}

fn entry_error(name: &str, error: &io::Error) -> ImportError {
    let name: String = name.chars().take(200).collect();
    ImportError::new(format!("Inspect archive: {name}: {error}"))
}

/// One file of the archive, as its directory describes it.
struct ArchiveEntry {
    name: String,
    method: u16,
    is_encrypted: bool,
    compressed_bytes: u64,
    /// Where its local header begins.
    offset: u64,
}

impl ArchiveEntry {
    fn is_sample(&self) -> bool {
        self.name.starts_with("samples/") && self.name.ends_with(".json")
    }
}

struct ArchiveReader<R> {
    reader: R,
    limits: ArchiveLimits,
    total_bytes: u64,
}

impl<R: Read + Seek> ArchiveReader<R> {
    fn read_json<T: serde::de::DeserializeOwned>(&mut self, entry: &ArchiveEntry) -> io::Result<T> {
        let bytes = self.read_entry(entry)?;
        serde_json::from_slice(&bytes).map_err(io::Error::other)
    }

    /// Reads the bytes of a file. The stated size is not trusted.
    fn read_entry(&mut self, entry: &ArchiveEntry) -> io::Result<Vec<u8>> {
        if entry.is_encrypted {
            return Err(io::Error::other("the file is encrypted"));
        }
        self.reader.seek(SeekFrom::Start(entry.offset))?;
        let header: [u8; 30] = read_array(&mut self.reader)?;
        if !header.starts_with(b"PK\x03\x04") {
            return Err(io::Error::other("local file header not found"));
        }
        let names = u64::from(read_u16(&header, 26)) + u64::from(read_u16(&header, 28));
        let start = entry.offset.checked_add(30 + names).ok_or_else(|| io::Error::other("offset out of range"))?;
        self.reader.seek(SeekFrom::Start(start))?;
        let compressed = (&mut self.reader).take(entry.compressed_bytes);
        let left = self.limits.max_total_bytes.saturating_sub(self.total_bytes);
        let allowed = self.limits.max_entry_bytes.min(left);
        let mut bytes = Vec::new();
        match entry.method {
            0 => compressed.take(allowed.saturating_add(1)).read_to_end(&mut bytes)?,
            8 => {
                flate2::read::DeflateDecoder::new(compressed).take(allowed.saturating_add(1)).read_to_end(&mut bytes)?
            }
            93 => zstd::Decoder::new(compressed)?.take(allowed.saturating_add(1)).read_to_end(&mut bytes)?,
            method => return Err(io::Error::other(format!("unknown compression method {method}"))),
        };
        if bytes.len() as u64 > allowed {
            return Err(io::Error::other(format!("file exceeds the limit of {allowed} bytes")));
        }
        self.total_bytes += bytes.len() as u64;
        Ok(bytes)
    }
}

/// Reads the directory at the end of the archive (APPNOTE 4.3.12 to 4.3.16), with the 64-bit extension. Of entries
/// with the same name the last counts, because Inspect appends to its archives.
fn read_directory(reader: &mut (impl Read + Seek), limits: ArchiveLimits) -> Result<Vec<ArchiveEntry>, ImportError> {
    let fail = |error: io::Error| ImportError::new(format!("zip archive: {error}"));
    let (start, size, count) = find_directory(reader).map_err(fail)?;
    if count > limits.max_entries {
        return Err(ImportError::new(format!("zip archive with {count} files: too many")));
    }
    // The directory is read into memory, so its size is limited like that of an entry.
    if size > limits.max_entry_bytes {
        let limit = limits.max_entry_bytes;
        return Err(ImportError::new(format!("zip archive: central directory exceeds the limit of {limit} bytes")));
    }
    reader.seek(SeekFrom::Start(start)).map_err(fail)?;
    let mut directory = Vec::new();
    reader.by_ref().take(size).read_to_end(&mut directory).map_err(fail)?;
    let mut entries: Vec<ArchiveEntry> = Vec::new();
    let mut positions: HashMap<String, usize> = HashMap::new();
    let mut rest = directory.as_slice();
    let mut readable: u64 = 0;
    while let Some((entry, behind)) = parse_first_entry(rest) {
        match positions.get(&entry.name) {
            Some(position) => entries[*position] = entry,
            None => {
                positions.insert(entry.name.clone(), entries.len());
                entries.push(entry);
            }
        }
        rest = behind;
        readable += 1;
    }
    if readable < count {
        let damage = format!("central directory is damaged: {readable} of {count} entries are readable");
        return Err(ImportError::new(format!("zip archive: {damage}")));
    }
    Ok(entries)
}

/// Parses the first entry of a directory. Returns it and the rest.
fn parse_first_entry(directory: &[u8]) -> Option<(ArchiveEntry, &[u8])> {
    let fixed = directory.get(..46).filter(|fixed| fixed.starts_with(b"PK\x01\x02"))?;
    let lengths = [28, 30, 32].map(|offset| usize::from(read_u16(fixed, offset)));
    let name = directory.get(46..46 + lengths[0])?;
    let extra = directory.get(46 + lengths[0]..46 + lengths[0] + lengths[1])?;
    let behind = directory.get(46 + lengths.iter().sum::<usize>()..)?;
    let (mut compressed_bytes, plain_bytes, mut offset) =
        (u64::from(read_u32(fixed, 20)), read_u32(fixed, 24), u64::from(read_u32(fixed, 42)));
    // Values that do not fit are in the extra field 1, in this order: plain size, compressed size, offset.
    let mut wide = read_zip64_values(extra);
    if plain_bytes == u32::MAX {
        wide.next();
    }
    if compressed_bytes == u64::from(u32::MAX) {
        compressed_bytes = wide.next()?;
    }
    if offset == u64::from(u32::MAX) {
        offset = wide.next()?;
    }
    let entry = ArchiveEntry {
        name: String::from_utf8_lossy(name).into_owned(),
        method: read_u16(fixed, 10),
        is_encrypted: read_u16(fixed, 8) & 1 == 1,
        compressed_bytes,
        offset,
    };
    Some((entry, behind))
}

/// Returns the values of the extra field for 64-bit sizes.
fn read_zip64_values(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut field: &[u8] = &[];
    while extra.len() >= 4 {
        let end = 4 + usize::from(read_u16(extra, 2));
        if read_u16(extra, 0) == 1 {
            field = extra.get(4..end).unwrap_or_default();
            break;
        }
        extra = extra.get(end..).unwrap_or_default();
    }
    field.chunks_exact(8).map(|chunk| read_u64(chunk, 0))
}

/// Returns the offset of the directory, its size and the number of its entries.
fn find_directory(reader: &mut (impl Read + Seek)) -> io::Result<(u64, u64, u64)> {
    // The end record has 22 bytes and a comment of at most 64 KiB after it.
    const MAX_TAIL: u64 = 22 + 0xFFFF;
    let end = reader.seek(SeekFrom::End(0))?;
    let tail_start = end.saturating_sub(MAX_TAIL);
    reader.seek(SeekFrom::Start(tail_start))?;
    let mut tail = Vec::new();
    reader.by_ref().take(MAX_TAIL).read_to_end(&mut tail)?;
    let position = tail.windows(22).rposition(|record| record.starts_with(b"PK\x05\x06"));
    let position =
        position.ok_or_else(|| io::Error::other("no directory: the file is truncated or not a zip archive"))?;
    let record = &tail[position..];
    let (count, size, start) = (read_u16(record, 10), read_u32(record, 12), read_u32(record, 16));
    if count != u16::MAX && size != u32::MAX && start != u32::MAX {
        return Ok((u64::from(start), u64::from(size), u64::from(count)));
    }
    let locator = position.checked_sub(20).map(|start| &tail[start..position]);
    let Some(locator) = locator.filter(|locator| locator.starts_with(b"PK\x06\x07")) else {
        return Ok((u64::from(start), u64::from(size), u64::from(count)));
    };
    reader.seek(SeekFrom::Start(read_u64(locator, 8)))?;
    let record: [u8; 56] = read_array(reader)?;
    if !record.starts_with(b"PK\x06\x06") {
        return Err(io::Error::other("its 64-bit directory is damaged"));
    }
    Ok((read_u64(&record, 48), read_u64(&record, 40), read_u64(&record, 32)))
}

fn read_array<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads a little-endian number. The callers have checked the length.
fn read_u16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from(read_u16(bytes, offset)) | u32::from(read_u16(bytes, offset + 2)) << 16
}

fn read_u64(bytes: &[u8], offset: usize) -> u64 {
    u64::from(read_u32(bytes, offset)) | u64::from(read_u32(bytes, offset + 4)) << 32
}
