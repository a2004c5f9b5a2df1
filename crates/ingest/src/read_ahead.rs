//! Reads and decompresses on a thread of its own, a few blocks ahead of the consumer, so that decompressing and parsing
//! overlap.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

/// Size of a block. Blocks are filled completely, except for the last one, so the first block is enough to detect the
/// format.
const BLOCK_BYTES: usize = 256 << 10;
/// Maximum number of blocks that wait for the consumer. Bounds the memory per open file.
const MAX_BLOCKS_AHEAD: usize = 4;

/// The consumer's end. Dropping it ends the thread at its next block.
pub(crate) struct ReadAhead {
    blocks: Receiver<io::Result<Vec<u8>>>,
    /// Used blocks go back to the thread to be filled again.
    returned: Sender<Vec<u8>>,
    block: Vec<u8>,
    at: usize,
}

impl ReadAhead {
    /// Starts the thread. `source` must fill the buffer it is given as far as its data goes, as
    /// `open::FullBufferReader` does.
    pub(crate) fn start(source: impl Read + Send + 'static) -> io::Result<ReadAhead> {
        let (sender, blocks) = mpsc::sync_channel(MAX_BLOCKS_AHEAD);
        let (returned, free) = mpsc::channel();
        // The thread ends with the source, or when the receiver is dropped.
        std::thread::Builder::new().name("read ahead".to_owned()).spawn(move || read_blocks(source, &sender, &free))?;
        Ok(ReadAhead { blocks, returned, block: Vec::new(), at: 0 })
    }
}

/// Body of the thread. An empty block marks the end; after an error nothing follows.
fn read_blocks(mut source: impl Read, blocks: &SyncSender<io::Result<Vec<u8>>>, free: &Receiver<Vec<u8>>) {
    loop {
        let mut block = free.try_recv().unwrap_or_default();
        block.resize(BLOCK_BYTES, 0);
        let read = source.read(&mut block).map(|read| {
            block.truncate(read);
            block
        });
        let is_over = !matches!(&read, Ok(block) if !block.is_empty());
        if blocks.send(read).is_err() || is_over {
            return;
        }
    }
}

impl BufRead for ReadAhead {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.block.len() {
            // The thread is gone once its source has ended.
            let next = self.blocks.recv().unwrap_or_else(|_| Ok(Vec::new()))?;
            let old = std::mem::replace(&mut self.block, next);
            self.at = 0;
            let _ = self.returned.send(old);
        }
        Ok(&self.block[self.at..])
    }

    fn consume(&mut self, amount: usize) {
        self.at = (self.at + amount).min(self.block.len());
    }
}

impl Read for ReadAhead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_as_they_are_and_end_once() {
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES + 17).map(|at| (at % 251) as u8).collect();
        let mut reader = ReadAhead::start(io::Cursor::new(bytes.clone())).unwrap();
        assert_eq!(reader.fill_buf().unwrap().len(), BLOCK_BYTES);
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        assert!(reader.fill_buf().unwrap().is_empty());
    }

    #[test]
    fn an_error_comes_behind_what_was_read_before_it() {
        struct Broken(bool);
        impl Read for Broken {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::Error::other("broken"));
                }
                out[0] = 7;
                Ok(1)
            }
        }
        let mut reader = ReadAhead::start(Broken(false)).unwrap();
        assert_eq!(reader.fill_buf().unwrap(), [7]);
        reader.consume(1);
        assert_eq!(reader.fill_buf().unwrap_err().to_string(), "broken");
    }
}
