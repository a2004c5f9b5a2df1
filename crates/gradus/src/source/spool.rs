//! Keeps records until their trace is assembled: in memory while they are few, in a temporary file after that.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

/// Where a record is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    offset: u64,
    length: u32,
}

pub(super) struct Spool {
    memory: Vec<u8>,
    memory_limit: usize,
    /// Everything, once memory is full.
    file: Option<BufWriter<File>>,
    length: u64,
}

impl Spool {
    pub(super) fn new(memory_limit: usize) -> Self {
        Spool { memory: Vec::new(), memory_limit, file: None, length: 0 }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<Place> {
        let place =
            Place { offset: self.length, length: u32::try_from(bytes.len()).map_err(io::Error::other)? };
        if self.file.is_none() && self.memory.len() + bytes.len() > self.memory_limit {
            // Unlinked at once: the space is given back however this process ends.
            let mut file = BufWriter::with_capacity(1 << 20, tempfile::tempfile()?);
            file.write_all(&self.memory)?;
            self.memory = Vec::new();
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(bytes)?,
            None => self.memory.extend_from_slice(bytes),
        }
        self.length += bytes.len() as u64;
        Ok(place)
    }

    /// Fetches records into one buffer and returns where each one is in it; borrowed from memory when that has them.
    pub(super) fn get<'b>(
        &'b mut self,
        places: &[Place],
        buffer: &'b mut Vec<u8>,
    ) -> io::Result<Vec<&'b [u8]>> {
        let Some(file) = &mut self.file else {
            let slice = |place: &Place| {
                let start = place.offset as usize;
                &self.memory[start..start + place.length as usize]
            };
            return Ok(places.iter().map(slice).collect());
        };
        file.flush()?;
        buffer.clear();
        for place in places {
            let start = buffer.len();
            buffer.resize(start + place.length as usize, 0);
            let file = file.get_mut();
            file.seek(SeekFrom::Start(place.offset))?;
            file.read_exact(&mut buffer[start..])?;
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
