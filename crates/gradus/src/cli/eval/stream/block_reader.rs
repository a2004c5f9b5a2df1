//! The framing of `gradus eval --stream`: blocks of records, each complete in itself.
//!
//! ```text
//! begin NAME\n          a block; the name is for messages
//! 1024\n<1024 bytes>    any number of chunks, which are concatenated
//! end\n                 everything before belongs to the block
//! ```
//!
//! A length before each chunk makes any format fit, and an input that is cut off is not taken for a complete one: an
//! engine may kill the process that writes at any time.

use std::io::{self, BufRead, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum length of a line between chunks.
const MAX_LINE_BYTES: u64 = 4096;

/// The blocks of an input, one after the other.
#[derive(Clone)]
pub(super) struct BlockStream(Arc<Mutex<BlockStreamState>>);

struct BlockStreamState {
    input: Box<dyn BufRead + Send>,
    chunk_left: u64,
    is_in_block: bool,
    /// A violation of the framing, after which nothing can be read.
    failure: Option<String>,
}

/// The bytes of the present block.
pub(super) struct BlockBytes(BlockStream);

impl BlockStream {
    pub(super) fn new(input: Box<dyn BufRead + Send>) -> BlockStream {
        BlockStream(Arc::new(Mutex::new(BlockStreamState { input, chunk_left: 0, is_in_block: false, failure: None })))
    }

    /// Begins the next block, and skips the unread rest of the one before. `None` at the end of the input.
    pub(super) fn begin_block(&self) -> io::Result<Option<(String, BlockBytes)>> {
        self.skip_block()?;
        let mut state = self.state();
        let Some(line) = state.read_line()? else { return Ok(None) };
        let Some(name) = line.strip_prefix("begin ") else {
            return Err(state.fail(format!("expected `begin NAME`, found {line:?}")));
        };
        state.is_in_block = true;
        Ok(Some((name.to_owned(), BlockBytes(self.clone()))))
    }

    /// Reads the present block to its end. Fails if the input ends before it.
    pub(super) fn skip_block(&self) -> io::Result<()> {
        io::copy(&mut BlockBytes(self.clone()), &mut io::sink())?;
        match &self.state().failure {
            Some(failure) => Err(invalid_data_error(failure)),
            None => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, BlockStreamState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for BlockBytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.state();
        if let Some(failure) = &state.failure {
            return Err(invalid_data_error(failure));
        }
        while state.is_in_block && state.chunk_left == 0 {
            match state.read_line()?.as_deref() {
                Some("end") => state.is_in_block = false,
                Some(line) => match line.parse() {
                    Ok(length) => state.chunk_left = length,
                    Err(_) => return Err(state.fail(format!("expected a length or `end`, found {line:?}"))),
                },
                None => return Err(state.fail("the input ends within a block".to_owned())),
            }
        }
        if !state.is_in_block {
            return Ok(0);
        }
        let wanted = usize::try_from(state.chunk_left).unwrap_or(usize::MAX).min(out.len());
        let read = state.input.read(&mut out[..wanted])?;
        if read == 0 && wanted > 0 {
            return Err(state.fail("the input ends within a block".to_owned()));
        }
        state.chunk_left -= read as u64;
        Ok(read)
    }
}

impl BlockStreamState {
    /// Reads the next line without its end; `None` at the end of the input.
    fn read_line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let read = self.input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if line.pop() != Some(b'\n') {
            return Err(self.fail("a line that is too long or does not end".to_owned()));
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }

    fn fail(&mut self, failure: String) -> io::Error {
        self.is_in_block = false;
        invalid_data_error(self.failure.insert(failure))
    }
}

fn invalid_data_error(failure: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not the framing of --stream: {failure}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_blocks(input: &'static str) -> (Vec<(String, String)>, Option<String>) {
        let stream = BlockStream::new(Box::new(input.as_bytes()));
        let mut blocks = Vec::new();
        loop {
            match stream.begin_block() {
                Ok(None) => return (blocks, None),
                Ok(Some((name, mut bytes))) => {
                    let mut text = String::new();
                    match bytes.read_to_string(&mut text) {
                        Ok(_) => blocks.push((name, text)),
                        Err(error) => return (blocks, Some(error.to_string())),
                    }
                }
                Err(error) => return (blocks, Some(error.to_string())),
            }
        }
    }

    #[test]
    fn chunks_are_joined_and_blocks_are_apart() {
        let (blocks, error) = read_blocks("begin a b\n3\nabc2\n\n\nend\nbegin \nend\nbegin c\n0\n4\nend\nend\n");
        let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(blocks, [text("a b", "abc\n\n"), text("", ""), text("c", "end\n")]);
        assert_eq!(error, None);
    }

    #[test]
    fn an_input_that_is_cut_off_is_an_error() {
        for (input, complete) in [
            ("begin a\n1\nxend\nbegin b\n5\nab", 1),
            ("begin a\n1\nx", 0),
            ("begin a\n1\nxen", 0),
            ("begin a\n-1\n", 0),
            ("{}\n", 0),
        ] {
            let (blocks, error) = read_blocks(input);
            assert_eq!(blocks.len(), complete, "{input:?}");
            assert!(error.is_some_and(|error| error.contains("--stream")), "{input:?}");
        }
    }

    #[test]
    fn what_was_not_read_of_a_block_is_skipped() {
        let stream = BlockStream::new(Box::new("begin a\n4\nabcdend\nbegin b\n1\nxend\n".as_bytes()));
        let (_, mut bytes) = stream.begin_block().expect("read").expect("a block");
        bytes.read_exact(&mut [0; 2]).expect("read");
        assert_eq!(stream.begin_block().expect("read").expect("a block").0, "b");
    }
}
